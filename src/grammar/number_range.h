// SPDX-License-Identifier: Apache-2.0
// The decimal integers of an interval as a grammar.
#pragma once

#include <cstdint>

#include "grammar/grammar.h"

namespace pagewise::grammar {

/// Digits of the largest integer that is ever written: every one of so many is exact as a double.
inline constexpr uint32_t kIntegerDigitsMax = 15;
inline constexpr int64_t kIntegerMax = 999'999'999'999'999;

/// `min` to `max`, as JSON writes them. Requires: -kIntegerMax <= min <= max <= kIntegerMax.
NodeId integers_between(Builder& builder, int64_t min, int64_t max);

}  // namespace pagewise::grammar
