// SPDX-License-Identifier: Apache-2.0
// Many requests of different lengths in one memory: what each way of keeping their KV takes, what
// it wastes, and how many run at once.
//
// Three ways are compared. *Reserved*: each request has the blocks of the longest it may become.
// *Paged*: each has the blocks of what it is. *Shared*: paged, and the whole blocks of a common
// prefix exist once. Figures are means over the distribution: what holds of many requests at once.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "planner/kv_cost.h"
#include "planner/lengths.h"

namespace pagewise::planner {

/// Requests of one kind.
struct Member {
  uint64_t used = 0;     // tokens it has in the end
  uint64_t maximum = 0;  // tokens it may have; at least `used`
  uint64_t count = 0;
};

/// One block size: what the requests take in blocks, and what of that holds no token. Bytes of all
/// members together.
struct WasteRow {
  uint32_t block_tokens = 0;
  uint64_t paged_bytes = 0;
  uint64_t slack_bytes = 0;
  std::optional<uint64_t> sequences;  // at once in the memory given, on average
};

struct PopulationPlan {
  uint64_t requests = 0;
  uint64_t tokens_mean = 0;  // rounded to the nearest
  uint64_t tokens_max = 0;
  uint64_t naive_bytes = 0;   // every maximum reserved; bytes are of all members together
  uint64_t used_bytes = 0;    // what the tokens there take
  uint64_t wasted_bytes = 0;  // naive - used
  uint64_t paged_bytes = 0;   // in whole blocks
  // At once in the memory given, on average.
  std::optional<uint64_t> sequences_naive;
  std::optional<uint64_t> sequences_paged;
  std::optional<uint64_t> sequences_sharing;  // with a common prefix
};

/// Errors: kInvalidArgument when all together exceed 2^63 bytes. Requires: members, each with
/// 1 <= used <= maximum <= kTokensMax (used may be 0) and a count.
Result<PopulationPlan> plan_population(const KvCost& cost, const std::vector<Member>& members,
                                       std::optional<uint64_t> memory,
                                       std::optional<uint64_t> prefix_tokens);

/// How many run at once when each takes its blocks; they differ in length as `members` do.
uint64_t sequences_paged(const KvCost& cost, const std::vector<Member>& members, uint64_t memory);

}  // namespace pagewise::planner
