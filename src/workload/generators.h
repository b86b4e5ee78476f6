// SPDX-License-Identifier: Apache-2.0
// Made-up traces: the kinds of work that a cache meets, each a function of its seed.
//
//   chat    conversations behind one of eight system prompts, popular ones more often; each turn
//           sends all before it again
//   agent   loops of tool calls behind long instructions: many turns, a second or more apart
//   rag     questions behind one manual of 12,000 tokens
//   batch   sweeps: one instruction and hundreds of items, all at once
//   scan    chat, and as many prompts of 10,000 tokens that nobody sends again
//   mix     all of these
//
// Arrivals do not wait for answers (the trace is made before anybody answers): a turn comes when an
// answer would have taken 30 ms a token and a person or a tool some time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "workload/trace.h"

namespace pagewise::workload {

struct GeneratorOptions {
  uint64_t requests = 1000;
  uint64_t seed = 1;
  double rate = 1;  // requests a second, on average
};

inline constexpr uint64_t kGeneratedRequestsMax = 10'000'000;

/// "chat, agent, rag, batch, scan, mix".
std::string generator_names();

/// Errors: kInvalidArgument for an unknown kind, naming the known ones; for options out of bounds
/// (1 to kGeneratedRequestsMax requests, a rate in 1e-6 to 1e6).
Result<Trace> generate(std::string_view kind, const GeneratorOptions& options);

}  // namespace pagewise::workload
