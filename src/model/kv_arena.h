// SPDX-License-Identifier: Apache-2.0
// The bytes behind block ids: one mapping per KV group, each block at a fixed place in it.
//
// A block is Geometry::block_stride(group) bytes from its neighbour, a multiple of 4 KiB, so that
// one block can be given back to the system alone. Address space is taken once, for more blocks
// than there are at first where that is asked for, so that the arena can grow in place; memory is
// taken only when a block is first written, and release() returns it. How many blocks may have
// memory at a time is not decided here: whoever deals in ids keeps to the pool's size.
//
// Within a block, per (layer, KV head) and contiguous: K transposed [key_dim][block_tokens], then V
// [block_tokens][value_dim], none of it where V is a part of K (latent attention); behind each the
// scales of a type that has them (docs/formats/kv_block.md has it byte by byte). K transposed makes
// vector lanes tokens, so that scores need no horizontal sums; the price is a scattered store of
// each new token's K.
//
// Zero-fill: rule 5 of the arithmetic contract wants positions beyond the written ones to be
// finite. A block that was used before is zeroed again by commit(); a fresh one already is, by the
// system.
//
// Thread: the calls here are the engine thread's; kernels read and write block bytes from their own
// threads within a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "kv/geometry.h"

namespace pagewise::model {

class KvArena {
 public:
  /// blocks[g]: capacity of group g, at least 1. Takes address space only, for up to
  /// `blocks_reserved[g]` blocks (empty, or fewer than blocks[g]: for those alone); where the
  /// system gives less, growth is bounded by what it gives. Errors: kInvalidArgument for a size
  /// that overflows; kIo with the system's words and the size asked for.
  static Result<std::unique_ptr<KvArena>> create(const kv::Geometry& geometry,
                                                 std::span<const uint32_t> blocks,
                                                 std::span<const uint32_t> blocks_reserved = {});
  ~KvArena();
  KvArena(const KvArena&) = delete;
  KvArena& operator=(const KvArena&) = delete;

  const kv::Geometry& geometry() const { return geometry_; }
  uint32_t blocks(uint32_t group) const { return groups_[group].blocks; }
  /// How far grow() can go.
  uint32_t blocks_reserved(uint32_t group) const { return groups_[group].blocks_reserved; }
  /// From now on group g has ids below blocks[g], or as many as before where that is more. What is
  /// there stays where and what it is. Errors: kInvalidArgument beyond what is reserved, kIo with
  /// the system's words; some groups may have grown then, which harms nothing.
  Status grow(std::span<const uint32_t> blocks);

  /// First byte of a block; it never moves. Requires: id < blocks(group).
  std::byte* block(uint32_t group, BlockId id);
  const std::byte* block(uint32_t group, BlockId id) const;
  /// First byte of block 0; block i begins at base + i * block_stride(group).
  std::byte* base(uint32_t group) { return groups_[group].base; }

  /// Where K of (layer, head) begins within a block, and V.
  uint64_t key_offset(uint32_t group, uint32_t group_layer, uint32_t kv_head) const;
  uint64_t value_offset(uint32_t group, uint32_t group_layer, uint32_t kv_head) const;

  /// Makes blocks zero-filled and usable. Cost: a memset of each block that was used before.
  void commit(uint32_t group, std::span<const BlockId> blocks);
  /// Gives the blocks' memory back; their bytes are lost.
  void release(uint32_t group, std::span<const BlockId> blocks);
  /// Copies the first `positions` positions of `from` to `to`, all layers and heads.
  void copy(uint32_t group, BlockId from, BlockId to, uint32_t positions);
  void read(uint32_t group, BlockId block, std::span<std::byte> out) const;
  void write(uint32_t group, BlockId block, std::span<const std::byte> bytes);

  /// Blocks whose memory is taken now.
  uint32_t committed(uint32_t group) const { return groups_[group].used_count; }
  /// Bytes of all groups' blocks whose memory is taken now.
  uint64_t committed_bytes() const;

 private:
  struct Group {
    std::byte* base = nullptr;
    uint64_t mapped_bytes = 0;
    uint32_t blocks = 0;
    uint32_t blocks_reserved = 0;
    std::vector<bool> used;  // written or handed out since the memory last came from the system
    uint32_t used_count = 0;
    std::vector<bool> small_pages;  // by huge page of the mapping: advised against being one
  };
  std::span<std::byte> unused_around(uint32_t group, BlockId id) const;
  void advise_pages_of(uint32_t group, BlockId id);
  explicit KvArena(kv::Geometry geometry) : geometry_(std::move(geometry)) {}

  kv::Geometry geometry_;
  std::vector<Group> groups_;
};

}  // namespace pagewise::model
