// SPDX-License-Identifier: Apache-2.0
#include "grammar/number_range.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"

namespace pagewise::grammar {
namespace {

/// One digit from `first` to `last`.
NodeId digit(Builder& builder, char first, char last) {
  return builder.byte_of(byte_range(first, last));
}

NodeId any_digits(Builder& builder, std::size_t count) {
  const auto times = static_cast<uint32_t>(count);
  return count == 0 ? builder.literal("")
                    : builder.repeat(digit(builder, '0', '9'), std::nullopt, times, times);
}

/// As many digits as `bound` has, not below it, or not above it.
NodeId bounded_digits(Builder& builder, std::string_view bound, bool below) {
  if (bound.empty()) return builder.literal("");
  const char first = bound.front();
  std::vector<NodeId> ways = {builder.sequence(
      {digit(builder, first, first), bounded_digits(builder, bound.substr(1), below)})};
  const std::size_t rest = bound.size() - 1;
  if (below && first > '0') {
    ways.push_back(builder.sequence(
        {digit(builder, '0', static_cast<char>(first - 1)), any_digits(builder, rest)}));
  } else if (!below && first < '9') {
    ways.push_back(builder.sequence(
        {digit(builder, static_cast<char>(first + 1), '9'), any_digits(builder, rest)}));
  }
  return builder.choice(ways);
}

/// Two numbers of equally many digits, and what is between.
NodeId between(Builder& builder, std::string_view min, std::string_view max) {
  if (min.empty()) return builder.literal("");
  if (min.front() == max.front()) {
    return builder.sequence(
        {builder.literal(min.substr(0, 1)), between(builder, min.substr(1), max.substr(1))});
  }
  const char low = min.front();
  const char high = max.front();
  std::vector<NodeId> ways = {
      builder.sequence({digit(builder, low, low), bounded_digits(builder, min.substr(1), false)}),
      builder.sequence({digit(builder, high, high), bounded_digits(builder, max.substr(1), true)})};
  if (high - low > 1) {
    ways.push_back(
        builder.sequence({digit(builder, static_cast<char>(low + 1), static_cast<char>(high - 1)),
                          any_digits(builder, min.size() - 1)}));
  }
  return builder.choice(ways);
}

/// Requires: 0 <= min <= max.
NodeId naturals_between(Builder& builder, int64_t min, int64_t max) {
  std::vector<NodeId> ways;
  int64_t least = 0;  // of so many digits
  int64_t most = 9;
  while (least <= max) {
    const int64_t first = std::max(min, least);
    const int64_t last = std::min(max, most);
    if (first <= last) {
      ways.push_back(between(builder, std::to_string(first), std::to_string(last)));
    }
    least = most + 1;
    most = most * 10 + 9;
  }
  return builder.choice(ways);
}

NodeId zeros(Builder& builder, uint32_t min, uint32_t max) {
  return builder.repeat(digit(builder, '0', '0'), std::nullopt, min, max);
}

/// Numbers without a sign. Requires: 0 <= min.value, and a number between them.
NodeId magnitudes_between(Builder& builder, NumberBound min, NumberBound max) {
  const NodeId point = builder.literal(".");
  const NodeId some = builder.repeat(digit(builder, '0', '9'), std::nullopt, 1, kIntegerDigitsMax);
  std::vector<NodeId> ways;
  // With any fraction: what is less than the upper bound in its integer part.
  const int64_t first = min.value + (min.exclusive ? 1 : 0);
  if (first < max.value) {
    ways.push_back(builder.sequence({integers_between(builder, first, max.value - 1),
                                     builder.optional(builder.sequence({point, some}))}));
  }
  if (min.exclusive && min.value < max.value) {  // and a fraction that is not 0
    const NodeId fraction =
        builder.sequence({zeros(builder, 0, 7), digit(builder, '1', '9'),
                          builder.repeat(digit(builder, '0', '9'), std::nullopt, 0, 7)});
    ways.push_back(builder.sequence({builder.literal(std::to_string(min.value)), point, fraction}));
  }
  if (!max.exclusive) {
    const NodeId nothing = builder.sequence({point, zeros(builder, 1, kIntegerDigitsMax)});
    ways.push_back(
        builder.sequence({builder.literal(std::to_string(max.value)), builder.optional(nothing)}));
  }
  return builder.choice(ways);
}

}  // namespace

NodeId integers_between(Builder& builder, int64_t min, int64_t max) {
  PW_CHECK(-kIntegerMax <= min && min <= max && max <= kIntegerMax);
  std::vector<NodeId> ways;
  if (max >= 0) ways.push_back(naturals_between(builder, std::max<int64_t>(min, 0), max));
  if (min < 0) {
    ways.push_back(builder.sequence(
        {builder.literal("-"), naturals_between(builder, std::max<int64_t>(-max, 1), -min)}));
  }
  return builder.choice(ways);
}

NodeId numbers_between(Builder& builder, std::optional<NumberBound> min,
                       std::optional<NumberBound> max) {
  const NumberBound low = min.value_or(NumberBound{-kIntegerMax, false});
  const NumberBound high = max.value_or(NumberBound{kIntegerMax, false});
  std::vector<NodeId> ways;
  if (high.value > 0 || (high.value == 0 && !high.exclusive)) {
    ways.push_back(magnitudes_between(builder, low.value < 0 ? NumberBound{0, false} : low, high));
  }
  if (low.value < 0) {
    const NumberBound least =
        high.value > 0 ? NumberBound{0, false} : NumberBound{-high.value, high.exclusive};
    ways.push_back(builder.sequence(
        {builder.literal("-"), magnitudes_between(builder, least, {-low.value, low.exclusive})}));
  }
  return builder.choice(ways);
}

}  // namespace pagewise::grammar
