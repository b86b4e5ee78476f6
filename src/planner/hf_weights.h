// SPDX-License-Identifier: Apache-2.0
// How much memory a model's weights take, from its config.json alone: the parameters of the
// families whose layers are told completely there, times the bytes of its `dtype`.
#pragma once

#include <cstdint>
#include <optional>

#include "base/json.h"

namespace pagewise::planner {

/// Parameters, norms and biases included. nullopt where the configuration does not tell them all,
/// or its family is not one of these.
std::optional<uint64_t> parameters_of_config(const json::object& config);

/// The same in bytes. nullopt also for quantised weights, whose sizes stand elsewhere, and without
/// a `dtype` (or `torch_dtype`).
std::optional<uint64_t> weight_bytes_of_config(const json::object& config);

}  // namespace pagewise::planner
