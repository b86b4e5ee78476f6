// SPDX-License-Identifier: Apache-2.0
// Small pieces of text that change from request to request although nobody asks anything new: time
// stamps, dates, identifiers, counters.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "server/explain/cause.h"

namespace pagewise::server::explain {

/// What changed at one place, and where it ends on either side.
struct VolatileChange {
  Cause cause = Cause::kId;  // kTimeStamp, kDate, kId or kCounter
  std::size_t begin = 0;     // in both
  std::size_t a_end = 0, b_end = 0;
  /// The words around it say that it changes by itself ("it is", "request id", "turn"): even where
  /// people ask their questions it is no part of one.
  bool announced = false;
};

/// Two texts that agree up to `offset` and part there. nullopt: what changed there is nothing of
/// the kind.
std::optional<VolatileChange> volatile_change_at(std::string_view a, std::string_view b,
                                                 std::size_t offset);

}  // namespace pagewise::server::explain
