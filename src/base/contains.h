// SPDX-License-Identifier: Apache-2.0
// Whether a short list has a value: names in a table, mostly.
#pragma once

#include <algorithm>
#include <iterator>

namespace pagewise {

/// Cost: one comparison an item.
template <typename Range, typename Value>
constexpr bool contains(const Range& range, const Value& value) {
  return std::find(std::begin(range), std::end(range), value) != std::end(range);
}

}  // namespace pagewise
