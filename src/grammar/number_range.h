// SPDX-License-Identifier: Apache-2.0
// The decimal numbers of an interval as a grammar.
#pragma once

#include <cstdint>
#include <optional>

#include "grammar/grammar.h"

namespace pagewise::grammar {

/// Digits of the largest integer that is ever written: every one of so many is exact as a double.
inline constexpr uint32_t kIntegerDigitsMax = 15;
inline constexpr int64_t kIntegerMax = 999'999'999'999'999;

struct NumberBound {
  int64_t value = 0;
  bool exclusive = false;
};

/// `min` to `max`, as JSON writes them. Requires: -kIntegerMax <= min <= max <= kIntegerMax.
NodeId integers_between(Builder& builder, int64_t min, int64_t max);

/// The decimal numbers of an interval, without exponents. A bound that is not there is one of
/// kIntegerDigitsMax digits. Requires: bounds within kIntegerMax, and a number between them.
NodeId numbers_between(Builder& builder, std::optional<NumberBound> min,
                       std::optional<NumberBound> max);

}  // namespace pagewise::grammar
