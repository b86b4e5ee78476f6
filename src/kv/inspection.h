// SPDX-License-Identifier: Apache-2.0
// What is known of a prompt, told without touching it: the answer to "why would this miss?".
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "kv/cache_marker.h"

namespace pagewise::kv {

/// A marked prefix that is readable now.
struct StandingLease {
  uint32_t tokens = 0;
  LeaseClass lease = LeaseClass::k5m;
  TimeNs expires = 0;
  bool operator==(const StandingLease&) const = default;
};

struct Inspection {
  uint32_t cached_tokens = 0;  // what an admission would read
  /// Leading tokens that the index knows. More than cached_tokens where a sliding group has lost
  /// its blocks, and by one where the whole prompt is known (its last token is computed anyway).
  uint32_t matched_tokens = 0;
  uint32_t blocks = 0;                 // that hold the cached tokens, all groups
  std::optional<StandingLease> lease;  // the longest along the matched tokens
  /// How one cached prompt goes on behind matched_tokens; empty when none does.
  std::vector<TokenId> beyond;
};

}  // namespace pagewise::kv
