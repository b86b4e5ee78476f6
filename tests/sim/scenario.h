// SPDX-License-Identifier: Apache-2.0
// What a seed of the simulation stands for: a machine, a crowd of requests, and how rough the
// course of events is. Everything is drawn from the seed, in a fixed order.
//
// Pools have 8 to 512 blocks (those of further layer groups 4 to 515), blocks 1 to 256 positions,
// crowds 2 to 64 requests. Kinds of requests and events are left out of a scenario as often as
// they are put into it, so that rare combinations meet without the rest around them.
#pragma once

#include <cstdint>
#include <vector>

#include "base/prng.h"
#include "engine/engine.h"
#include "engine/fake_executor.h"
#include "engine/request.h"

namespace pagewise::engine::sim {

struct Scenario {
  FakeExecutorOptions executor;
  Options options;
  std::vector<Request> requests;  // in order of arrival; some cannot be served at all
  double cancel_share = 0;        // of steps before which a client cancels
  double vanish_share = 0;        // of steps before which a client is gone, which shows later
  double failure_share = 0;       // of steps
  double resize_share = 0;        // of steps before which the pool is resized, to twice at most
  uint32_t arrivals_max = 4;      // before a step
  TimeNs token_ns = 1;            // what a computed token takes
};

Scenario make_scenario(Prng& prng);

/// What the pools hold of one sequence.
uint64_t pool_tokens_of(const FakeExecutorOptions& executor);

}  // namespace pagewise::engine::sim
