// SPDX-License-Identifier: Apache-2.0
// Capacity answers before any model is loaded: what sequences cost, how many fit, what reserving
// for the longest case wastes, what a prompt cache saves, and what to do when it does not fit.
//
// Every figure comes from KvCost, and the fixes are computed for the question that was asked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "planner/kv_cost.h"
#include "planner/kv_format.h"
#include "planner/layout.h"

namespace pagewise::planner {

/// One request of a mix: how long it became, and how long it was allowed to become. In tokens.
struct RequestShape {
  uint64_t used = 0;
  uint64_t maximum = 0;
};

/// What one read or write of a cached token costs, in units of an uncached input token.
struct CachePrices {
  double read = 0.1;
  double write = 1.0;
};

struct PlanInput {
  std::optional<Layout> layout;
  const KvFormat* key_format = nullptr;    // required with a layout
  const KvFormat* value_format = nullptr;  // required with a layout
  std::optional<uint64_t> token_bytes;     // replaces what the layout says
  uint32_t block_tokens = 32;
  std::vector<uint64_t> tokens;           // rows: each length ...
  std::vector<uint64_t> batches = {1};    // ... with each number of sequences
  std::optional<uint64_t> memory;         // bytes free for KV
  std::vector<RequestShape> requests;     // a mix that runs at the same time
  std::optional<uint64_t> prefix_tokens;  // equal in all requests
  std::optional<uint64_t> calls;          // how often the prefix is sent
  CachePrices prices;
};

struct PlanRow {
  uint64_t tokens = 0;
  uint64_t batch = 0;
  uint64_t kv_bytes = 0;                  // exact
  uint64_t paged_bytes = 0;               // in whole blocks
  std::optional<uint64_t> sequences_max;  // of this length, in the memory given
};

struct MixPlan {
  uint64_t naive_bytes = 0;   // every maximum reserved
  uint64_t used_bytes = 0;    // what the tokens there take
  uint64_t wasted_bytes = 0;  // naive - used
  uint64_t paged_bytes = 0;   // in whole blocks
  // Requests of this mix in the memory given, on average.
  std::optional<uint64_t> sequences_naive;
  std::optional<uint64_t> sequences_paged;
};

struct PrefixBill {
  uint64_t uncached_tokens = 0;
  uint64_t billed_tokens = 0;  // one write, the other calls read; in tokens at the uncached price
  // The first call by which caching is cheaper in total; absent when no number of calls is.
  std::optional<uint64_t> break_even_calls;
};

struct Fix {
  std::string fix;
  std::string effect;
  std::string cost;  // "configuration", "engineering" or "money"
};

struct Plan {
  std::optional<KvCost> cost;
  std::vector<PlanRow> rows;
  std::optional<MixPlan> mix;
  std::optional<PrefixBill> bill;
  std::optional<bool> fits;  // present when a memory size and something to fit in it were given
  std::vector<Fix> fixes;    // cheapest first; for the largest row that does not fit
  std::optional<uint64_t> weight_bytes;
  std::optional<uint64_t> crossover_tokens;  // from here on KV is larger than the weights
};

/// Errors: kInvalidArgument naming the flag, when a number is out of range, two do not go together,
/// or a size would exceed 2^63 bytes.
Result<Plan> make_plan(const PlanInput& input);

}  // namespace pagewise::planner
