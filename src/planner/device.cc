// SPDX-License-Identifier: Apache-2.0
#include "planner/device.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"

namespace pagewise::planner {
namespace {

Error invalid(std::string message) {
  return Error{ErrorCode::kInvalidArgument, std::move(message)};
}

uint64_t share_of(double share, uint64_t bytes) {
  // Exact to a byte up to 2^63: the product is rounded down once, in 64 bits of mantissa.
  return static_cast<uint64_t>(static_cast<long double>(share) * static_cast<long double>(bytes));
}

/// How many of `devices` hold different KV heads of a layer with so many; the others hold copies.
/// Source: vLLM's ModelConfig.get_num_kv_heads, which gives each device at least one.
Result<uint64_t> distinct_devices(uint64_t kv_heads, uint64_t devices) {
  if (kv_heads >= devices ? kv_heads % devices == 0 : devices % kv_heads == 0) {
    return std::min(kv_heads, devices);
  }
  return invalid(
      fmt::format("--devices: {} KV heads do not divide among {} devices", kv_heads, devices));
}

}  // namespace

Result<DevicePlan> plan_device(const DeviceInput& input, const Layout& layout,
                               uint64_t weight_bytes) {
  PW_CHECK(input.engine != nullptr);
  const EngineRule& rule = *input.engine;
  if (input.device_bytes == 0) return invalid("--device-memory: 0 bytes hold nothing");
  if (input.devices == 0 || input.devices > kDevicesMax) {
    return invalid(fmt::format("--devices: {} is not in 1 to {}", input.devices, kDevicesMax));
  }
  if (input.devices > 1 && rule.split == DeviceSplit::kNone) {
    return invalid(fmt::format("--devices: {} uses one machine's memory", rule.name));
  }
  if (input.device_bytes > (uint64_t{1} << 62) / input.devices) {
    return invalid("--device-memory: all devices together exceed 2^62 bytes");
  }
  DevicePlan plan;
  plan.input = input;
  plan.share = input.share.value_or(rule.share);
  if (!(plan.share > 0 && plan.share <= 1)) {
    return invalid(fmt::format("--utilization: {} is not above 0 and at most 1", plan.share));
  }
  plan.weight_bytes = weight_bytes;
  plan.working_bytes = input.working_bytes.value_or(rule.working_bytes);
  const uint64_t device = input.device_bytes - std::min(input.device_bytes, rule.margin_bytes);
  const uint64_t each = rule.basis == ShareBasis::kDevice ? share_of(plan.share, device) : device;
  plan.usable_bytes = each * input.devices;
  uint64_t rest = plan.usable_bytes - std::min(plan.usable_bytes, weight_bytes);
  rest -= std::min(rest, plan.working_bytes);
  plan.kv_bytes = rule.basis == ShareBasis::kRest ? share_of(plan.share, rest) : rest;
  plan.kv_bytes_distinct = plan.kv_bytes;
  if (rule.split == DeviceSplit::kHeads) {
    // The group with the most copies bounds all: conservative where groups differ.
    uint64_t distinct = input.devices;
    for (const LayoutGroup& group : layout.groups) {
      PW_ASSIGN_OR_RETURN(const uint64_t own, distinct_devices(group.kv_heads, input.devices));
      distinct = std::min(distinct, own);
    }
    plan.kv_bytes_distinct = plan.kv_bytes / input.devices * distinct;
  }
  return plan;
}

}  // namespace pagewise::planner
