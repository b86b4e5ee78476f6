// SPDX-License-Identifier: Apache-2.0
// What a namespace is guaranteed of the cache, and where its own part of it ends.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/ids.h"

namespace pagewise::kv {

/// Counts for a namespace `name` and those below it ("name/...") together, which may not contain a
/// '/'. In blocks of the smallest full group (without one, of the smallest group): as many prefixes
/// of block_tokens tokens. Other full groups have the same number; of a sliding group's pool it is
/// the same share.
struct NamespaceQuota {
  std::string name;
  /// Of its cached blocks, so many are not given up for anybody else's sake: but for a sequence
  /// that runs alone and has no other block left to take.
  uint32_t floor_blocks = 0;
  /// Beyond so many blocks, in use and cached together, its own cached ones go first, and as long
  /// as it has any. It never bounds what is in use. 0: none.
  uint32_t ceiling_blocks = 0;
};

/// The namespace itself, or the one that it stands below.
inline std::string_view top_namespace(std::string_view name) {
  return name.substr(0, name.find('/'));
}

/// Who shares a floor and a ceiling; 0: those that have neither.
using QuotaId = StrongId<struct QuotaTag, uint32_t>;

inline constexpr QuotaId kNoQuota{0};

}  // namespace pagewise::kv
