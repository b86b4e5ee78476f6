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

/// K and V of one token in `layers` layers, from the bytes of one row of K and of V per KV head.
constexpr uint64_t token_bytes_of(uint64_t layers, uint64_t kv_heads, uint64_t key_row_bytes,
                                  uint64_t value_row_bytes) {
  return layers * kv_heads * (key_row_bytes + value_row_bytes);
}

/// Positions that a sequence of `tokens` still reads: all of them, or the last `window`.
constexpr uint64_t tokens_read(uint64_t tokens, uint32_t window) {
  return window != 0 && tokens > window ? window : tokens;
}

/// Blocks that a sequence of `tokens` holds at rest. Behind a window, the most over all positions:
/// the window seldom begins where a block does, so it touches one block more than it would fill.
constexpr uint64_t blocks_held(uint64_t tokens, uint32_t window, uint32_t block_tokens) {
  const uint64_t all = ceil_div(tokens, block_tokens);
  if (window == 0) return all;
  const uint64_t touched = ceil_div(uint64_t{window} - 1, block_tokens) + 1;
  return touched < all ? touched : all;
}

/// Index of the first block that a sequence of `tokens` still holds: the one with the oldest of its
/// last `window` positions. Blocks before it are behind the window.
constexpr uint64_t first_block_held(uint64_t tokens, uint32_t window, uint32_t block_tokens) {
  return window == 0 || tokens <= window ? 0 : (tokens - window) / block_tokens;
}

/// Blocks that a sequence of `tokens` needs at most to get on by one more token: those at rest, and
/// the one that the token is written to.
constexpr uint64_t blocks_needed(uint64_t tokens, uint32_t window, uint32_t block_tokens) {
  const uint64_t all = ceil_div(tokens, block_tokens);
  if (window == 0) return all;
  const uint64_t touched = ceil_div(uint64_t{window}, block_tokens) + 1;
  return touched < all ? touched : all;
}

/// Distance of neighbouring blocks in the arena: whole pages, so that one can be given back alone.
constexpr uint64_t block_stride_of(uint64_t block_bytes) { return round_up(block_bytes, 4 * kKiB); }

struct GroupGeometry {
  uint32_t layers = 0;
  uint32_t kv_heads = 0;
  uint32_t key_dim = 0;    // elements of K per head
  uint32_t value_dim = 0;  // elements of V per head
  uint32_t window = 0;     // 0: full attention; else the last `window` positions
  KvType key_type = KvType::kF16;
  KvType value_type = KvType::kF16;
  bool latent = false;  // V is the first value_dim elements of K: nothing is stored for it

  /// One token's K and V in one layer and KV head.
  uint64_t key_row_bytes() const { return kv_row_bytes(key_type, key_dim); }
  uint64_t value_row_bytes() const { return latent ? 0 : kv_row_bytes(value_type, value_dim); }

  /// K and V of one token in all layers of this group.
  uint64_t token_bytes() const {
    return token_bytes_of(layers, kv_heads, key_row_bytes(), value_row_bytes());
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
  uint64_t block_stride(uint32_t group) const { return block_stride_of(block_bytes(group)); }
  uint64_t blocks_for(uint64_t tokens) const { return ceil_div(tokens, block_tokens); }
  bool operator==(const Geometry&) const = default;
};

}  // namespace pagewise::kv
