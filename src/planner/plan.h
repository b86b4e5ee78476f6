// SPDX-License-Identifier: Apache-2.0
// Capacity answers before any model is loaded: what sequences cost, how many fit, what reserving
// for the longest case wastes, what reaches a number of users, how long prompts and answers take,
// what a prompt cache saves, and what to do when it does not fit.
//
// Every figure comes from KvCost, and the fixes are computed for the question that was asked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "planner/device.h"
#include "planner/kv_cost.h"
#include "planner/kv_format.h"
#include "planner/layout.h"
#include "planner/lengths.h"
#include "planner/population.h"
#include "planner/prefix_bill.h"
#include "planner/step_times.h"
#include "workload/calibration.h"

namespace pagewise::planner {

/// One request of a mix: how long it became, and how long it was allowed to become. In tokens.
struct RequestShape {
  uint64_t used = 0;
  uint64_t maximum = 0;
};

struct PlanInput {
  std::optional<Layout> layout;
  const KvFormat* key_format = nullptr;    // required with a layout
  const KvFormat* value_format = nullptr;  // required with a layout
  uint32_t state_value_bytes = kStateValueBytes;
  std::optional<uint64_t> token_bytes;   // replaces what the layout says
  std::optional<uint64_t> weight_bytes;  // replaces what the layout says
  uint32_t block_tokens = 32;
  std::vector<uint64_t> tokens;            // rows: each length ...
  std::vector<uint64_t> batches = {1};     // ... with each number of sequences
  std::optional<uint64_t> memory;          // bytes free for KV
  std::optional<DevicePlan> device;        // where `memory` comes from, when from devices
  std::vector<RequestShape> requests;      // a mix that runs at the same time
  Lengths lengths;                         // how long requests become; any number of them
  std::optional<uint64_t> reserve_tokens;  // of `lengths`: what each may become; else the longest
  bool waste = false;                      // of `requests` or `lengths`: at each block size
  std::optional<uint64_t> users;           // sequences that are to run at once
  std::optional<uint64_t> prefix_tokens;   // equal in all requests
  std::optional<uint64_t> calls;           // how often the prefix is sent
  CachePrices prices;
  std::optional<CallTiming> timing;                  // of the calls
  std::optional<workload::Calibration> calibration;  // how long the machine's steps take
  uint32_t step_tokens = kStepTokens;                // of a step, at most
};

struct PlanRow {
  uint64_t tokens = 0;
  uint64_t batch = 0;
  uint64_t kv_bytes = 0;                          // exact
  uint64_t paged_bytes = 0;                       // in whole blocks
  std::optional<uint64_t> sequences_max;          // of this length, in the memory given
  std::optional<uint64_t> sequences_sharing_max;  // the same with a common prefix
};

/// How many sequences fit with one thing changed, and the memory that `wanted` of them would take.
struct ReachOption {
  std::string by;     // "KV type", "block size", "context cap", "memory"
  std::string value;  // "q8_0", "16", "4,096 tokens", "48.0 GiB"
  uint64_t sequences = 0;
  uint64_t memory_bytes = 0;
  bool reached = false;
  bool served = true;  // by Pagewise, today
};

struct Reach {
  uint64_t wanted = 0;
  uint64_t sequences = 0;  // as things are
  std::vector<ReachOption> options;
};

/// How many sequences of a batch become larger than the weights, and from which length on.
struct Crossover {
  uint64_t batch = 0;
  uint64_t tokens = 0;  // of each sequence
};

struct Fix {
  std::string fix;
  std::string effect;
  std::string cost;  // "configuration", "engineering" or "money"
};

struct Plan {
  std::optional<KvCost> cost;
  std::vector<PlanRow> rows;
  std::optional<PopulationPlan> mix;      // of `requests`
  std::optional<PopulationPlan> lengths;  // of `lengths`
  uint64_t reserve_tokens = 0;            // as used for `lengths`
  std::vector<WasteRow> waste;            // of `lengths`, else of `requests`
  std::optional<Reach> reach;
  std::optional<PrefixBill> bill;
  std::vector<TimesRow> times;              // of `rows`, with a calibration
  std::optional<PrefillBill> prefill_bill;  // of `bill`, with a calibration
  std::optional<uint64_t> prefix_bytes;  // of KV that the prefix of the bill takes while it is kept
  std::optional<bool> fits;  // present when a memory size and something to fit in it were given
  std::vector<Fix> fixes;    // cheapest first; for the largest row that does not fit
  std::optional<uint64_t> weight_bytes;
  std::optional<uint64_t> crossover_tokens;  // from here on KV is larger than the weights
  std::vector<Crossover> crossovers;         // by batch, where it happens at a length that exists
};

/// Derives memory and block size from `device`. `told_block`: --block-tokens was given, which the
/// engine's usual block then does not replace. Errors: those of plan_device; kInvalidArgument when
/// there is no layout or its weights are not known.
Status apply_device(PlanInput& input, const DeviceInput& device, bool told_block);

/// Errors: kInvalidArgument naming the flag, when a number is out of range, two do not go together,
/// or a size would exceed 2^63 bytes.
Result<Plan> make_plan(const PlanInput& input);

/// What a sequence costs under `input`. Errors: those of KvCost.
Result<std::optional<KvCost>> cost_of(const PlanInput& input);

/// The weights, from the input or its layout.
std::optional<uint64_t> weights_of(const PlanInput& input);

}  // namespace pagewise::planner
