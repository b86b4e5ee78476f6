// SPDX-License-Identifier: Apache-2.0
#include "planner/fixes.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "planner/numbers.h"

namespace pagewise::planner {
namespace {

// The prefix of the fixes table when the question names none: a policy manual.
constexpr uint64_t kPrefixExample = 5000;
// Below this a cap makes no assistant.
constexpr uint64_t kCapMin = 256;
// More devices than that are no fix.
constexpr uint32_t kDevicesSensible = 1024;

uint64_t saturated_product(uint64_t a, uint64_t b) {
  uint64_t out = 0;
  return __builtin_mul_overflow(a, b, &out) ? UINT64_MAX : out;
}

/// So many devices of so many bytes.
struct DeviceCount {
  uint64_t bytes = 0;
  uint64_t count = 0;
};

std::string device_text(const DeviceCount& devices) {
  const std::string device = format_size(devices.bytes);
  return devices.count == 2 ? fmt::format("a second device of {}", device)
                            : fmt::format("{} devices of {}", grouped(devices.count), device);
}

Fix more_devices(const DeviceCount& devices, uint64_t need, std::string_view remark) {
  return {device_text(devices),
          fmt::format("{} >= {}{}", format_size(saturated_product(devices.bytes, devices.count)),
                      format_size(need), remark),
          "money"};
}

/// By the engine's own rule: the fewest devices, doubled from what there is, whose KV memory holds
/// `need`. An engine that uses one machine gets a larger one.
std::optional<Fix> more_engine_devices(const DevicePlan& now, const Layout& layout, uint64_t need) {
  DeviceInput input = now.input;
  const bool one = input.engine->split == DeviceSplit::kNone;
  for (uint32_t doubled = 2; doubled <= kDevicesSensible; doubled *= 2) {
    if (one) {
      if (now.input.device_bytes > (uint64_t{1} << 50) / doubled) return std::nullopt;
      input.device_bytes = now.input.device_bytes * doubled;
    } else {
      input.devices = now.input.devices * doubled;
    }
    const auto plan = plan_device(input, layout, now.weight_bytes);
    if (!plan.has_value()) return std::nullopt;
    if (plan->kv_bytes_distinct < need) continue;
    return Fix{
        one ? fmt::format("a machine of {}", format_size(input.device_bytes))
            : device_text({input.device_bytes, input.devices}),
        fmt::format("{} of KV >= {}", format_size(plan->kv_bytes_distinct), format_size(need)),
        "money"};
  }
  return std::nullopt;
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
    const auto cost = KvCost::of_layout(*input_.layout, *smaller, *smaller, input_.block_tokens,
                                        input_.state_value_bytes);
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
    if (input_.device) {
      if (auto fix = more_engine_devices(*input_.device, *input_.layout, row_.paged_bytes)) {
        fixes_.push_back(std::move(*fix));
      }
      return;
    }
    // Whole sequences on each device; one that no device holds must be split, which needs the sum.
    const uint64_t per_device = cost_.sequences_max(memory_, row_.tokens);
    const uint64_t devices =
        per_device > 0 ? ceil_div(row_.batch, per_device) : ceil_div(row_.paged_bytes, memory_);
    fixes_.push_back(more_devices({memory_, devices}, row_.paged_bytes,
                                  per_device == 0 ? ", each sequence split over devices" : ""));
  }

  const PlanInput& input_;
  const KvCost& cost_;
  const PlanRow& row_;
  const uint64_t memory_;
  const std::optional<uint64_t> cap_;
  std::vector<Fix> fixes_;
};

}  // namespace

std::vector<Member> members_of(const std::vector<RequestShape>& requests) {
  std::vector<Member> members;
  members.reserve(requests.size());
  for (const RequestShape& request : requests)
    members.push_back({request.used, request.maximum, 1});
  return members;
}

std::vector<Fix> row_fixes(const PlanInput& input, const KvCost& cost, const PlanRow& row) {
  return FixTable(input, cost, row).make();
}

std::vector<Fix> mix_fixes(const PlanInput& input, const PopulationPlan& mix) {
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
      const auto planned =
          plan_population(**cost, members_of(other.requests), memory, std::nullopt);
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
  if (input.device) {
    if (auto fix = more_engine_devices(*input.device, *input.layout, mix.paged_bytes)) {
      fixes.push_back(std::move(*fix));
    }
  } else {
    fixes.push_back(more_devices({memory, ceil_div(mix.paged_bytes, memory)}, mix.paged_bytes, ""));
  }
  return fixes;
}

}  // namespace pagewise::planner
