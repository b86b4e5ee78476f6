// SPDX-License-Identifier: Apache-2.0
// How long requests become: a list of lengths with weights, given by hand or counted in a trace.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pagewise::planner {

/// So many requests of that length, prompt and answer together, in tokens.
struct LengthShare {
  uint64_t tokens = 0;
  uint64_t count = 0;

  bool operator==(const LengthShare&) const = default;
};

/// Shortest first, each length once. Sums of counts stay below 2^32.
using Lengths = std::vector<LengthShare>;

/// "300,1200*3": one request of 300 tokens to three of 1,200. Errors: kInvalidArgument naming the
/// part and what is wrong with it.
Result<Lengths> parse_lengths(std::string_view text);

/// The requests of a trace (workload/trace_reader.h), which needs nothing but their lengths.
/// Errors: those of workload::read_lengths.
Result<Lengths> lengths_of_trace(const std::string& path);

}  // namespace pagewise::planner
