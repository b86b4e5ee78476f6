// SPDX-License-Identifier: Apache-2.0
// The same things in another order: keys of JSON objects, tools in a list, lines.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "server/explain/cause.h"

namespace pagewise::server::explain {

struct OrderChange {
  Cause cause = Cause::kKeyOrder;      // kKeyOrder, kToolOrder or kMoved
  std::size_t b_begin = 0, b_end = 0;  // what was put in another order, in `b`
};

/// Two texts that agree up to `offset` and part there. Looks at the JSON value around the place,
/// whatever text surrounds it, and at lines and separated items. nullopt: nothing was permuted.
/// Cost: O(length), at most 256 KiB of it.
std::optional<OrderChange> order_change_at(std::string_view a, std::string_view b,
                                           std::size_t offset);

}  // namespace pagewise::server::explain
