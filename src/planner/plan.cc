// SPDX-License-Identifier: Apache-2.0
#include "planner/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/bytes.h"
#include "base/check.h"
#include "planner/numbers.h"

namespace pagewise::planner {
namespace {

constexpr uint64_t kSizeMax = (uint64_t{1} << 63) - 1;
// The prefix of the fixes table when the question names none: a policy manual.
constexpr uint64_t kPrefixExample = 5000;
// Below this a cap makes no assistant.
constexpr uint64_t kCapMin = 256;

Error invalid(std::string message) {
  return Error{ErrorCode::kInvalidArgument, std::move(message)};
}

Status check_tokens(std::string_view flag, uint64_t tokens) {
  if (tokens >= 1 && tokens <= kTokensMax) return Status::ok();
  return invalid(fmt::format("{}: {} is not in 1 to {}", flag, tokens, kTokensMax));
}

uint64_t saturated_product(uint64_t a, uint64_t b) {
  uint64_t out = 0;
  return __builtin_mul_overflow(a, b, &out) ? UINT64_MAX : out;
}

/// a * b, or an error that says what became too large.
Result<uint64_t> product(uint64_t a, uint64_t b, std::string_view what) {
  uint64_t out = 0;
  if (__builtin_mul_overflow(a, b, &out) || out > kSizeMax) {
    return invalid(fmt::format("{} x {} {} exceed 2^63", a, b, what));
  }
  return out;
}

Result<std::optional<KvCost>> cost_of(const PlanInput& input) {
  if (input.token_bytes) {
    PW_ASSIGN_OR_RETURN(KvCost cost,
                        KvCost::of_token_bytes(*input.token_bytes, input.block_tokens));
    return std::optional(std::move(cost));
  }
  if (!input.layout) return std::optional<KvCost>();
  PW_CHECK(input.key_format != nullptr && input.value_format != nullptr);
  PW_ASSIGN_OR_RETURN(KvCost cost, KvCost::of_layout(*input.layout, *input.key_format,
                                                     *input.value_format, input.block_tokens));
  return std::optional(std::move(cost));
}

Result<PlanRow> make_row(const KvCost& cost, uint64_t tokens, uint64_t batch,
                         std::optional<uint64_t> memory) {
  PW_RETURN_IF_ERROR(check_tokens("--tokens", tokens));
  if (batch == 0) return invalid("--batch: 0 sequences need no plan");
  PlanRow row{.tokens = tokens, .batch = batch};
  PW_ASSIGN_OR_RETURN(row.kv_bytes, product(cost.exact(tokens), batch, "bytes"));
  PW_ASSIGN_OR_RETURN(row.paged_bytes, product(cost.paged(tokens), batch, "bytes"));
  if (memory) row.sequences_max = cost.sequences_max(*memory, tokens);
  return row;
}

Result<MixPlan> make_mix(const KvCost& cost, const PlanInput& input) {
  MixPlan mix;
  uint64_t naive_paged = 0;
  for (const RequestShape& request : input.requests) {
    PW_RETURN_IF_ERROR(check_tokens("--requests", request.maximum));
    if (request.used > request.maximum) {
      return invalid(fmt::format("--requests: {}/{} uses more than its maximum", request.used,
                                 request.maximum));
    }
    // At most 2^62 each; a sum beyond 2^63 cannot wrap before it is seen.
    mix.naive_bytes += cost.exact(request.maximum);
    mix.used_bytes += cost.exact(request.used);
    mix.paged_bytes += cost.paged(request.used);
    naive_paged += cost.paged(request.maximum);
    if (std::max(naive_paged, mix.naive_bytes) > kSizeMax) {
      return invalid("--requests: the maxima together exceed 2^63 bytes");
    }
  }
  mix.wasted_bytes = mix.naive_bytes - mix.used_bytes;
  if (input.memory) {
    const auto fit = [&](uint64_t mix_bytes) -> uint64_t {
      if (mix_bytes == 0) return 0;
      return static_cast<uint64_t>(static_cast<unsigned __int128>(*input.memory) *
                                   input.requests.size() / mix_bytes);
    };
    mix.sequences_naive = fit(naive_paged);
    mix.sequences_paged = fit(mix.paged_bytes);
  }
  return mix;
}

Result<PrefixBill> make_bill(uint64_t prefix, uint64_t calls, const CachePrices& prices) {
  if (calls == 0) return invalid("--calls: 0 calls cost nothing");
  for (const auto& [flag, price] :
       {std::pair("--read-price", prices.read), std::pair("--write-price", prices.write)}) {
    if (!(price >= 0 && price <= 1000)) {
      return invalid(fmt::format("{}: {} is not in 0 to 1000", flag, price));
    }
  }
  PrefixBill bill;
  PW_ASSIGN_OR_RETURN(bill.uncached_tokens, product(prefix, calls, "tokens"));
  const long double billed =
      static_cast<long double>(prefix) *
      (static_cast<long double>(prices.write) +
       static_cast<long double>(calls - 1) * static_cast<long double>(prices.read));
  if (billed > static_cast<long double>(kSizeMax)) {
    return invalid("--calls: more than 2^63 billed tokens");
  }
  bill.billed_tokens = static_cast<uint64_t>(std::llround(billed));
  // write + (n - 1) * read < n, solved for the least whole n.
  if (prices.write < 1) {
    bill.break_even_calls = 1;
  } else if (prices.read < 1) {
    const double calls_needed = (prices.write - prices.read) / (1 - prices.read);
    bill.break_even_calls = static_cast<uint64_t>(std::floor(calls_needed)) + 1;
  }
  return bill;
}

// The fixes for one row that does not fit. Reserved in full means that each sequence holds the
// blocks of its whole length; paged means that it holds those of the length it has.
class FixTable {
 public:
  FixTable(const PlanInput& input, const KvCost& cost, const PlanRow& row)
      : input_(input), cost_(cost), row_(row), memory_(*input.memory), cap_(find_cap()) {}

  std::vector<Fix> make() {
    cap_context();
    smaller_type();
    share_prefix();
    page();
    add_devices();
    return std::move(fixes_);
  }

 private:
  void add(std::string fix, std::string effect, std::string cost) {
    fixes_.push_back({std::move(fix), std::move(effect), std::move(cost)});
  }

  std::string how_many_fit(uint64_t sequences) const {
    if (sequences >= row_.batch) return fmt::format("{} fit", grouped(row_.batch));
    return fmt::format("only {} of {} fit", grouped(sequences), grouped(row_.batch));
  }

  /// The greatest power of two below the row's length at which the batch fits in full.
  std::optional<uint64_t> find_cap() const {
    uint64_t cap = kTokensMax;
    for (; cap >= row_.tokens; cap /= 2) {
    }
    for (; cap >= kCapMin; cap /= 2) {
      if (cost_.sequences_max(memory_, cap) >= row_.batch) return cap;
    }
    return std::nullopt;
  }

  void cap_context() {
    if (!cap_) return;
    std::string effect =
        fmt::format("{} each, {} reserved in full", format_size(cost_.paged(*cap_)),
                    grouped(cost_.sequences_max(memory_, *cap_)));
    // As many more sequences as each became shorter, as long as most do not reach the cap.
    const uint64_t count =
        static_cast<uint64_t>(static_cast<unsigned __int128>(row_.batch) * row_.tokens / *cap_);
    const uint64_t mean = cost_.mean_tokens_max(memory_, count, *cap_);
    if (mean > 0 && count > cost_.sequences_max(memory_, *cap_)) {
      effect += fmt::format(", {} when paged and the mean real length is at most {}",
                            grouped(count), grouped(mean));
    }
    add(fmt::format("cap the context to {}", short_tokens(*cap_)), effect, "configuration");
  }

  void smaller_type() {
    if (!input_.layout || input_.token_bytes) return;
    const KvFormat* smaller = find_kv_format("q8_0");
    PW_CHECK(smaller != nullptr);
    const auto cost = KvCost::of_layout(*input_.layout, *smaller, *smaller, input_.block_tokens);
    // A head that q8_0 does not fit, or a type that is small already: no such fix.
    if (!cost.has_value() || cost->token_bytes() >= cost_.token_bytes()) return;
    const uint64_t each = cost->paged(row_.tokens);
    const uint64_t most = cost->sequences_max(memory_, row_.tokens);
    if (most == 0) return;
    std::string effect =
        fmt::format("{}, {}", format_size(saturated_product(each, row_.batch)), how_many_fit(most));
    if (cap_) {
      effect += fmt::format(" ({} at {})", grouped(cost->sequences_max(memory_, *cap_)),
                            short_tokens(*cap_));
    }
    if (most > row_.batch) effect += fmt::format(", at most {}", grouped(most));
    add("KV type q8_0", effect, "configuration");
  }

  void share_prefix() {
    if (row_.batch < 2) return;
    uint64_t prefix = kPrefixExample < row_.tokens ? kPrefixExample : row_.tokens / 2;
    if (input_.prefix_tokens) prefix = std::min(*input_.prefix_tokens, row_.tokens);
    const uint64_t need = cost_.paged_sharing(row_.tokens, row_.batch, prefix);
    if (prefix == 0 || need >= row_.paged_bytes) return;  // shorter than a block, or behind windows
    if (cost_.paged(row_.tokens) > memory_) return;
    uint64_t most = 1;
    for (uint64_t step = std::bit_floor(row_.batch); step > 0; step /= 2) {
      if (most + step <= row_.batch &&
          cost_.paged_sharing(row_.tokens, most + step, prefix) <= memory_) {
        most += step;
      }
    }
    add(fmt::format("share a {}-token prefix (blocks of {})", grouped(prefix), input_.block_tokens),
        fmt::format("{}, {}", format_size(need), how_many_fit(most)), "engineering");
  }

  void page() {
    const uint64_t mean = cost_.mean_tokens_max(memory_, row_.batch, row_.tokens);
    if (mean == 0) return;
    add("paging alone (blocks on demand)",
        fmt::format("{} fit while the mean real length is at most {}", grouped(row_.batch),
                    grouped(mean)),
        "engineering");
  }

  void add_devices() {
    // Whole sequences on each device; one that no device holds must be split, which needs the sum.
    const uint64_t per_device = cost_.sequences_max(memory_, row_.tokens);
    const uint64_t devices =
        per_device > 0 ? ceil_div(row_.batch, per_device) : ceil_div(row_.paged_bytes, memory_);
    const std::string device = format_size(memory_);
    std::string effect = fmt::format("{} >= {}", format_size(saturated_product(memory_, devices)),
                                     format_size(row_.paged_bytes));
    if (per_device == 0) effect += ", each sequence split over devices";
    add(devices == 2 ? fmt::format("a second device of {}", device)
                     : fmt::format("{} devices of {}", grouped(devices), device),
        effect, "money");
  }

  const PlanInput& input_;
  const KvCost& cost_;
  const PlanRow& row_;
  const uint64_t memory_;
  const std::optional<uint64_t> cap_;
  std::vector<Fix> fixes_;
};

// The fixes for a mix of requests that does not fit even in blocks.
std::vector<Fix> mix_fixes(const PlanInput& input, const MixPlan& mix) {
  std::vector<Fix> fixes;
  const uint64_t memory = *input.memory;
  const uint64_t wanted = input.requests.size();
  if (*mix.sequences_paged > 0) {
    fixes.push_back(
        {"let requests wait",
         fmt::format("{} of {} run at once", grouped(*mix.sequences_paged), grouped(wanted)),
         "configuration"});
  }
  const KvFormat* smaller = find_kv_format("q8_0");
  PW_CHECK(smaller != nullptr);
  if (input.layout && !input.token_bytes) {
    PlanInput other = input;
    other.key_format = other.value_format = smaller;
    const auto cost = cost_of(other);
    if (cost.has_value()) {
      const auto planned = make_mix(**cost, other);
      if (planned.has_value() && planned->paged_bytes < mix.paged_bytes) {
        const bool fits = planned->paged_bytes <= memory;
        fixes.push_back(
            {"KV type q8_0",
             fmt::format("{}, {}", format_size(planned->paged_bytes),
                         fits ? fmt::format("all {} fit", grouped(wanted))
                              : fmt::format("only {} of {} fit", grouped(*planned->sequences_paged),
                                            grouped(wanted))),
             "configuration"});
      }
    }
  }
  const uint64_t devices = ceil_div(mix.paged_bytes, memory);
  fixes.push_back({devices == 2
                       ? fmt::format("a second device of {}", format_size(memory))
                       : fmt::format("{} devices of {}", grouped(devices), format_size(memory)),
                   fmt::format("{} >= {}", format_size(saturated_product(memory, devices)),
                               format_size(mix.paged_bytes)),
                   "money"});
  return fixes;
}

Status check_input(const PlanInput& input) {
  if (input.memory && *input.memory == 0) return invalid("--memory: 0 bytes hold nothing");
  if (input.memory && *input.memory > kSizeMax) return invalid("--memory: more than 2^63 bytes");
  if (input.prefix_tokens)
    PW_RETURN_IF_ERROR(check_tokens("--prefix-tokens", *input.prefix_tokens));
  if (input.calls && !input.prefix_tokens) {
    return invalid("--calls needs --prefix-tokens: the length of what every call repeats");
  }
  if (input.prefix_tokens && !input.calls && !(input.memory && !input.tokens.empty())) {
    return invalid(
        "--prefix-tokens needs --calls (what does caching save?) or --memory and --tokens "
        "(what does sharing save?)");
  }
  const bool needs_cost = !input.tokens.empty() || !input.requests.empty();
  if ((needs_cost || !input.calls) && !input.layout && !input.token_bytes) {
    return invalid(
        "no layout: name a GGUF file, or give --layers, --kv-heads and --head-dim, or "
        "--mib-per-token");
  }
  if (input.memory && !needs_cost) {
    return invalid("--memory needs --tokens or --requests: what is to fit?");
  }
  return Status::ok();
}

}  // namespace

Result<Plan> make_plan(const PlanInput& input) {
  PW_RETURN_IF_ERROR(check_input(input));
  Plan plan;
  PW_ASSIGN_OR_RETURN(plan.cost, cost_of(input));
  const PlanRow* worst = nullptr;
  for (const uint64_t tokens : input.tokens) {
    for (const uint64_t batch : input.batches) {
      PW_ASSIGN_OR_RETURN(const PlanRow row, make_row(*plan.cost, tokens, batch, input.memory));
      plan.rows.push_back(row);
    }
  }
  if (input.memory) plan.fits = true;
  for (const PlanRow& row : plan.rows) {
    if (!input.memory || row.paged_bytes <= *input.memory) continue;
    plan.fits = false;
    if (worst == nullptr || row.paged_bytes > worst->paged_bytes) worst = &row;
  }
  if (worst != nullptr) plan.fixes = FixTable(input, *plan.cost, *worst).make();
  if (!input.requests.empty()) {
    PW_ASSIGN_OR_RETURN(plan.mix, make_mix(*plan.cost, input));
    if (input.memory && plan.mix->paged_bytes > *input.memory) {
      plan.fits = false;
      // The table is for one question; a row that does not fit is asked first.
      if (plan.fixes.empty()) plan.fixes = mix_fixes(input, *plan.mix);
    }
  }
  if (input.calls) {
    PW_ASSIGN_OR_RETURN(plan.bill, make_bill(*input.prefix_tokens, *input.calls, input.prices));
  }
  if (input.layout && input.layout->weight_bytes && plan.cost) {
    plan.weight_bytes = input.layout->weight_bytes;
    const uint64_t crossover = plan.cost->tokens_exceeding(*plan.weight_bytes);
    if (crossover <= kTokensMax) plan.crossover_tokens = crossover;
  }
  return plan;
}

}  // namespace pagewise::planner
