// SPDX-License-Identifier: Apache-2.0
#include "planner/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "planner/fixes.h"
#include "planner/numbers.h"
#include "planner/reach.h"

namespace pagewise::planner {
namespace {

constexpr uint64_t kSizeMax = (uint64_t{1} << 63) - 1;
// What --block-tokens takes; the table of waste has all of them.
constexpr uint32_t kBlockSizes[] = {16, 32, 64, 128};

Error invalid(std::string message) {
  return Error{ErrorCode::kInvalidArgument, std::move(message)};
}

Status check_tokens(std::string_view flag, uint64_t tokens) {
  if (tokens >= 1 && tokens <= kTokensMax) return Status::ok();
  return invalid(fmt::format("{}: {} is not in 1 to {}", flag, tokens, kTokensMax));
}

/// a * b, or an error that says what became too large.
Result<uint64_t> product(uint64_t a, uint64_t b, std::string_view what) {
  uint64_t out = 0;
  if (__builtin_mul_overflow(a, b, &out) || out > kSizeMax) {
    return invalid(fmt::format("{} x {} {} exceed 2^63", a, b, what));
  }
  return out;
}

/// The same sequences in blocks of another size.
Result<KvCost> cost_in_blocks(const PlanInput& input, uint32_t block_tokens) {
  PlanInput other = input;
  other.block_tokens = block_tokens;
  PW_ASSIGN_OR_RETURN(std::optional<KvCost> cost, cost_of(other));
  PW_CHECK(cost.has_value());
  return std::move(*cost);
}

Result<PlanRow> make_row(const PlanInput& input, const KvCost& cost, uint64_t tokens,
                         uint64_t batch) {
  PW_RETURN_IF_ERROR(check_tokens("--tokens", tokens));
  if (batch == 0) return invalid("--batch: 0 sequences need no plan");
  PlanRow row{.tokens = tokens, .batch = batch};
  PW_ASSIGN_OR_RETURN(row.kv_bytes, product(cost.exact(tokens), batch, "bytes"));
  PW_ASSIGN_OR_RETURN(row.paged_bytes, product(cost.paged(tokens), batch, "bytes"));
  if (!input.memory) return row;
  row.sequences_max = cost.sequences_max(*input.memory, tokens);
  if (input.prefix_tokens) {
    // All of one length: the prefix once, and of each what is its own.
    const uint64_t shared = cost.shared_bytes(tokens, *input.prefix_tokens);
    row.sequences_sharing_max =
        *input.memory < shared ? 0 : (*input.memory - shared) / (cost.paged(tokens) - shared);
  }
  return row;
}

Result<PopulationPlan> make_mix(const KvCost& cost, const PlanInput& input) {
  for (const RequestShape& request : input.requests) {
    PW_RETURN_IF_ERROR(check_tokens("--requests", request.maximum));
    if (request.used > request.maximum) {
      return invalid(fmt::format("--requests: {}/{} uses more than its maximum", request.used,
                                 request.maximum));
    }
  }
  auto mix = plan_population(cost, members_of(input.requests), input.memory, input.prefix_tokens);
  if (mix.has_value()) return mix;
  return invalid("--requests: " + mix.error().message);
}

/// What each of `lengths` may become.
Result<uint64_t> reserve_of(const PlanInput& input) {
  const uint64_t longest = input.lengths.back().tokens;
  if (!input.reserve_tokens) return longest;
  PW_RETURN_IF_ERROR(check_tokens("--max-tokens", *input.reserve_tokens));
  if (*input.reserve_tokens >= longest) return *input.reserve_tokens;
  return invalid(fmt::format("--max-tokens: {} is less than the longest request, {}",
                             *input.reserve_tokens, longest));
}

std::vector<Member> members_of_lengths(const Lengths& lengths, uint64_t reserve_tokens) {
  std::vector<Member> members;
  members.reserve(lengths.size());
  for (const LengthShare& share : lengths) {
    members.push_back({share.tokens, reserve_tokens, share.count});
  }
  return members;
}

Result<std::vector<WasteRow>> make_waste(const PlanInput& input,
                                         const std::vector<Member>& members) {
  std::vector<WasteRow> rows;
  for (const uint32_t block_tokens : kBlockSizes) {
    PW_ASSIGN_OR_RETURN(const KvCost cost, cost_in_blocks(input, block_tokens));
    PW_ASSIGN_OR_RETURN(const PopulationPlan plan,
                        plan_population(cost, members, input.memory, std::nullopt));
    rows.push_back(
        {block_tokens, plan.paged_bytes, plan.paged_bytes - plan.used_bytes, plan.sequences_paged});
  }
  return rows;
}

Status check_population_flags(const PlanInput& input) {
  const bool population = !input.requests.empty() || !input.lengths.empty();
  if (input.reserve_tokens && input.lengths.empty()) {
    return invalid("--max-tokens needs --lengths or --trace: what may each request become?");
  }
  if (input.waste && !population) {
    return invalid("--waste needs --requests, --lengths or --trace: of which requests?");
  }
  if (!input.users) return Status::ok();
  if (*input.users == 0 || *input.users > kTokensMax) {
    return invalid(fmt::format("--users: {} is not in 1 to {}", *input.users, kTokensMax));
  }
  if (!input.memory) return invalid("--users needs --memory or --device-memory: where?");
  if (!population && input.tokens.size() != 1) {
    return invalid("--users needs one length in --tokens, or --lengths, --trace or --requests");
  }
  return Status::ok();
}

Status check_input(const PlanInput& input) {
  if (input.memory && *input.memory == 0 && !input.device) {
    return invalid("--memory: 0 bytes hold nothing");
  }
  if (input.memory && *input.memory > kSizeMax) return invalid("--memory: more than 2^63 bytes");
  if (input.prefix_tokens)
    PW_RETURN_IF_ERROR(check_tokens("--prefix-tokens", *input.prefix_tokens));
  if (input.calls && !input.prefix_tokens) {
    return invalid("--calls needs --prefix-tokens: the length of what every call repeats");
  }
  if (input.timing && !input.calls) return invalid("--every and --ttl need --calls");
  const bool needs_cost =
      !input.tokens.empty() || !input.requests.empty() || !input.lengths.empty();
  const bool timed = input.calibration && !input.tokens.empty();
  if (input.prefix_tokens && !input.calls && !(input.memory && needs_cost) && !timed) {
    return invalid(
        "--prefix-tokens needs --calls (what does caching save?), --memory and --tokens (what does "
        "sharing save?) or --calibration and --tokens (how much earlier is the first token?)");
  }
  if (input.calibration && !timed && !input.calls) {
    return invalid("--calibration needs --tokens or --calls: how long does what take?");
  }
  if (input.step_tokens < 1 || input.step_tokens > kStepTokensMax) {
    return invalid(
        fmt::format("--step-tokens: {} is not in 1 to {}", input.step_tokens, kStepTokensMax));
  }
  if ((needs_cost || !input.calls) && !input.layout && !input.token_bytes) {
    return invalid(
        "no layout: name a GGUF file or a config.json, or give --layers, --kv-heads and "
        "--head-dim, or --mib-per-token");
  }
  if (input.memory && !needs_cost) {
    return invalid("--memory needs --tokens or --requests: what is to fit?");
  }
  return check_population_flags(input);
}

/// Where KV outgrows the weights.
void add_crossovers(const PlanInput& input, Plan& plan) {
  plan.weight_bytes = weights_of(input);
  if (!plan.weight_bytes || !plan.cost) return;
  const uint64_t alone = plan.cost->tokens_exceeding(*plan.weight_bytes);
  if (alone <= kTokensMax) plan.crossover_tokens = alone;
  for (const uint64_t batch : input.batches) {
    if (batch == 0) continue;
    // batch x size > weights just when size > floor(weights / batch): sizes are whole bytes.
    const uint64_t tokens = plan.cost->tokens_exceeding(*plan.weight_bytes / batch);
    if (tokens <= kTokensMax) plan.crossovers.push_back({batch, tokens});
  }
}

/// The questions about many requests of different lengths.
Status add_populations(const PlanInput& input, Plan& plan) {
  std::vector<Member> members = members_of(input.requests);
  if (!input.requests.empty()) {
    PW_ASSIGN_OR_RETURN(plan.mix, make_mix(*plan.cost, input));
  }
  if (!input.lengths.empty()) {
    PW_ASSIGN_OR_RETURN(plan.reserve_tokens, reserve_of(input));
    members = members_of_lengths(input.lengths, plan.reserve_tokens);
    const auto planned = plan_population(*plan.cost, members, input.memory, input.prefix_tokens);
    if (!planned.has_value()) return invalid("--lengths: " + planned.error().message);
    plan.lengths = *planned;
  }
  if (input.waste) {
    PW_ASSIGN_OR_RETURN(plan.waste, make_waste(input, members));
  }
  if (input.users) {
    if (members.empty()) members = {{input.tokens.front(), input.tokens.front(), 1}};
    PW_ASSIGN_OR_RETURN(plan.reach, make_reach(input, *plan.cost, members));
  }
  return Status::ok();
}

/// How long it takes, on the machine of the calibration.
Status add_times(const PlanInput& input, Plan& plan) {
  if (!input.calibration) return Status::ok();
  const workload::Calibration& calibration = *input.calibration;
  if (plan.cost) {
    const auto elsewhere = taken_elsewhere(calibration, plan.cost->token_bytes());
    if (elsewhere) return invalid("--calibration: " + *elsewhere);
  }
  StepTimes times(calibration, input.step_tokens);
  PW_ASSIGN_OR_RETURN(plan.times,
                      make_times_rows(times, input.tokens, input.batches, input.prefix_tokens));
  if (!plan.bill) return Status::ok();
  PW_ASSIGN_OR_RETURN(plan.prefill_bill,
                      make_prefill_bill(times, *input.prefix_tokens, *input.calls, *plan.bill));
  return Status::ok();
}

/// Whether everything that was to fit does, and what helps where not.
void judge(const PlanInput& input, Plan& plan) {
  if (!input.memory) return;
  plan.fits = true;
  const PlanRow* worst = nullptr;
  for (const PlanRow& row : plan.rows) {
    if (row.paged_bytes <= *input.memory) continue;
    plan.fits = false;
    if (worst == nullptr || row.paged_bytes > worst->paged_bytes) worst = &row;
  }
  if (worst != nullptr) plan.fixes = row_fixes(input, *plan.cost, *worst);
  if (plan.mix && plan.mix->paged_bytes > *input.memory) {
    plan.fits = false;
    // The table is for one question; a row that does not fit is asked first.
    if (plan.fixes.empty()) plan.fixes = mix_fixes(input, *plan.mix);
  }
  if (plan.lengths && *plan.lengths->sequences_paged == 0) plan.fits = false;
  if (plan.reach && plan.reach->sequences < plan.reach->wanted) plan.fits = false;
}

}  // namespace

Result<std::optional<KvCost>> cost_of(const PlanInput& input) {
  if (input.token_bytes) {
    PW_ASSIGN_OR_RETURN(KvCost cost,
                        KvCost::of_token_bytes(*input.token_bytes, input.block_tokens));
    return std::optional(std::move(cost));
  }
  if (!input.layout) return std::optional<KvCost>();
  PW_CHECK(input.key_format != nullptr && input.value_format != nullptr);
  PW_ASSIGN_OR_RETURN(KvCost cost,
                      KvCost::of_layout(*input.layout, *input.key_format, *input.value_format,
                                        input.block_tokens, input.state_value_bytes));
  return std::optional(std::move(cost));
}

std::optional<uint64_t> weights_of(const PlanInput& input) {
  if (input.weight_bytes) return input.weight_bytes;
  return input.layout ? input.layout->weight_bytes : std::nullopt;
}

Status apply_device(PlanInput& input, const DeviceInput& device, bool told_block) {
  if (input.memory) return invalid("--device-memory: --memory says already what is free for KV");
  if (!input.layout) {
    return invalid("--device-memory needs a layout: name a file, or give --layers and the rest");
  }
  const std::optional<uint64_t> weights = weights_of(input);
  if (!weights) {
    return invalid(
        "--device-memory needs the weights' size, which nothing here tells: give "
        "--weights");
  }
  PW_ASSIGN_OR_RETURN(input.device, plan_device(device, *input.layout, *weights));
  input.memory = input.device->kv_bytes_distinct;
  if (!told_block) input.block_tokens = device.engine->block_tokens;
  return Status::ok();
}

Result<Plan> make_plan(const PlanInput& input) {
  PW_RETURN_IF_ERROR(check_input(input));
  Plan plan;
  PW_ASSIGN_OR_RETURN(plan.cost, cost_of(input));
  for (const uint64_t tokens : input.tokens) {
    for (const uint64_t batch : input.batches) {
      PW_ASSIGN_OR_RETURN(const PlanRow row, make_row(input, *plan.cost, tokens, batch));
      plan.rows.push_back(row);
    }
  }
  PW_RETURN_IF_ERROR(add_populations(input, plan));
  if (input.calls) {
    PW_ASSIGN_OR_RETURN(plan.bill,
                        make_bill(*input.prefix_tokens, *input.calls, input.prices, input.timing));
    if (plan.cost) plan.prefix_bytes = plan.cost->paged(*input.prefix_tokens);
  }
  PW_RETURN_IF_ERROR(add_times(input, plan));
  judge(input, plan);
  add_crossovers(input, plan);
  return plan;
}

}  // namespace pagewise::planner
