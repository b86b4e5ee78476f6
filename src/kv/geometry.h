// SPDX-License-Identifier: Apache-2.0
// All byte arithmetic of the KV cache: pure functions shared by server, planner and simulator, so
// that the plan and what is then allocated cannot differ.
//
// A block is `block_tokens` consecutive positions of one sequence: K and V of every layer of one
// group. A group is the layers with the same attention kind and row sizes; each group has its own
// block table.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/dtype.h"

namespace pagewise::kv {

struct GroupGeometry {
  uint32_t layers = 0;
  uint32_t kv_heads = 0;
  uint32_t key_dim = 0;    // elements of K per head
  uint32_t value_dim = 0;  // elements of V per head
  uint32_t window = 0;     // 0: full attention; else the last `window` positions
  KvType key_type = KvType::kF16;
  KvType value_type = KvType::kF16;

  /// K and V of one token in all layers of this group.
  uint64_t token_bytes() const {
    return uint64_t{layers} * kv_heads *
           (kv_row_bytes(key_type, key_dim) + kv_row_bytes(value_type, value_dim));
  }
  bool operator==(const GroupGeometry&) const = default;
};

struct Geometry {
  uint32_t block_tokens = 32;
  std::vector<GroupGeometry> groups;

  uint64_t token_bytes() const {
    uint64_t sum = 0;
    for (const GroupGeometry& group : groups) sum += group.token_bytes();
    return sum;
  }
  uint64_t block_bytes(uint32_t group) const { return groups[group].token_bytes() * block_tokens; }
  /// Distance of neighbouring blocks in the arena: whole pages, so that one can be given back
  /// alone.
  uint64_t block_stride(uint32_t group) const { return round_up(block_bytes(group), 4 * kKiB); }
  uint64_t blocks_for(uint64_t tokens) const { return ceil_div(tokens, block_tokens); }
  bool operator==(const Geometry&) const = default;
};

}  // namespace pagewise::kv
