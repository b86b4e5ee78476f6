// SPDX-License-Identifier: Apache-2.0
// How much of a prompt stands in another one, too, wherever it stands there.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"

namespace pagewise::server::explain {

/// Runs of fewer tokens are chance, or the few tokens that a template puts between two turns.
inline constexpr std::size_t kRunTokensMin = 8;

/// Finds the tokens of one prompt in others. Thread: one.
class SharedRuns {
 public:
  /// Cost: O(tokens), about 24 bytes a token while it lives. `tokens` must outlive it.
  explicit SharedRuns(std::span<const TokenId> tokens);

  /// How many tokens of `other` lie in runs that these tokens have, too. Cost: O(other).
  uint32_t count(std::span<const TokenId> other) const;

 private:
  std::span<const TokenId> tokens_;
  std::unordered_map<uint64_t, uint32_t>
      places_;  // digest of a run's first tokens: its first place
};

}  // namespace pagewise::server::explain
