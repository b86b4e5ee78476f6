// SPDX-License-Identifier: Apache-2.0
// From the memory of devices to the memory for KV, by the rule of an engine.
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "planner/engine_rules.h"
#include "planner/layout.h"

namespace pagewise::planner {

struct DeviceInput {
  uint64_t device_bytes = 0;
  uint32_t devices = 1;
  const EngineRule* engine = nullptr;     // required
  std::optional<double> share;            // in place of the rule's
  std::optional<uint64_t> working_bytes;  // in place of the rule's; of all devices together
};

struct DevicePlan {
  DeviceInput input;
  double share = 1;           // as used
  uint64_t weight_bytes = 0;  // of all devices together, as is what follows
  uint64_t working_bytes = 0;
  uint64_t usable_bytes = 0;  // what the engine lets weights, working memory and KV take
  uint64_t kv_bytes = 0;      // what is left for KV; 0 when the weights do not fit
  // As many bytes of KV as if nothing were stored twice: where devices hold copies (fewer KV heads
  // than devices, latent rows), less than kv_bytes. What plans count with.
  uint64_t kv_bytes_distinct = 0;
};

inline constexpr uint32_t kDevicesMax = 65536;

/// Errors: kInvalidArgument naming the flag: several devices for an engine that uses one, or KV
/// heads that do not divide among them; a share that is not in (0, 1].
Result<DevicePlan> plan_device(const DeviceInput& input, const Layout& layout,
                               uint64_t weight_bytes);

}  // namespace pagewise::planner
