// SPDX-License-Identifier: Apache-2.0
// What must be true of a course of events once it is over: every answer is that of the same request
// alone without a cache, and every number that was told is what happened. Complaints are gtest's.
#pragma once

#include <cstdint>

#include "engine/engine.h"
#include "sim/client.h"
#include "sim/scenario.h"

namespace pagewise::engine::sim {

/// Every answer, whole or cut off, against the request on its own on the same machine.
void check_answers(const Scenario& scenario, const Clients& clients);

/// What was said to be cached could be read and was not computed; nothing was computed that could
/// have been read; what is marked is read. `tokens_computed`: by the executor, in all. Returns
/// whether nothing was given up in between, so that hits could be held to their full length.
bool check_numbers(const Scenario& scenario, const Clients& clients, const Stats& stats,
                   uint64_t tokens_computed);

}  // namespace pagewise::engine::sim
