// SPDX-License-Identifier: Apache-2.0
// How kernels see a paged KV cache: pointers, strides and lists of block ids, nothing else.
//
// Per (block, layer, KV head), contiguous, for block_tokens = B:
//   K  [key_dim][B]      transposed: vector lanes are tokens, so scores need no horizontal sums
//   V  [B][value_dim]    behind it, at value_offset; with latent attention there is none, and V is
//                        the first value_dim channels of K
// A type with scales (q8_0) has its codes in this order, and its f16 scales in a plane behind them:
// of K [key_dim / 32][B], of V [B][value_dim / 32].
// Position p of a sequence is slot p % B of block blocks[p / B].
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "base/ids.h"
#include "kernels/range.h"

namespace pagewise::kernels {

/// One layer of one group's KV memory. All strides in bytes.
struct PagedLayer {
  std::byte* base = nullptr;     // block id 0, first KV head of this layer
  std::size_t block_stride = 0;  // from block id n to n + 1
  std::size_t head_stride = 0;   // from KV head h to h + 1 of a block
  std::size_t value_offset = 0;  // from a head's K to its V
  uint32_t block_tokens = 0;
  uint32_t kv_heads = 0;
  uint32_t key_dim = 0;
  uint32_t value_dim = 0;
  KvType key_type = KvType::kF16;
  KvType value_type = KvType::kF16;
  /// V is the first value_dim channels of K. Requires then: value_dim <= key_dim, and value_offset
  /// 0 and value_type that of K, which is what is read.
  bool latent = false;

  std::byte* key(BlockId block, std::size_t kv_head) const {
    return base + block.value * block_stride + kv_head * head_stride;
  }
  std::byte* value(BlockId block, std::size_t kv_head) const {
    return key(block, kv_head) + value_offset;
  }
};

/// Consecutive new positions of one sequence in a step, and where its KV is.
struct PagedRun {
  uint32_t row_begin = 0;  // its first row among the step's rows
  uint32_t rows = 0;       // at least 1
  uint32_t position = 0;   // absolute position of its first row
  /// blocks[i] holds positions [i * B, (i + 1) * B). Covers position + rows positions. Entries
  /// behind a sliding window may be the null block; they are not looked at.
  std::span<const BlockId> blocks;
};

/// Writes K and V of the run's rows `rows` (a sub-range of [0, run.rows)) into its blocks,
/// converted to the cache types (round to nearest even). Row i of the run is at k + i * k_stride:
/// [kv_heads][key_dim] f32, after RoPE; v likewise: [kv_heads][value_dim], not looked at where V is
/// part of K. Strides in floats.
/// Different rows may be stored by different threads. Requires: q8_0 only for multiples of 32.
void store_kv(const PagedLayer& layer, const PagedRun& run, Range rows, const float* k,
              std::size_t k_stride, const float* v, std::size_t v_stride);

/// Reads one position back as f32: what attention sees. For tests, tools and export.
void load_kv(const PagedLayer& layer, std::span<const BlockId> blocks, uint32_t position,
             std::size_t kv_head, float* k, float* v);

}  // namespace pagewise::kernels
