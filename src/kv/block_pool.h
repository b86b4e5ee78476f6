// SPDX-License-Identifier: Apache-2.0
// Who holds which KV block of one group, and in which state it is.
//
// A block is `block_tokens` consecutive positions of one sequence. The pool deals in ids and counts
// only; the bytes sit in the executor's arena and never move. What a block holds is the prefix
// index's business: the pool knows only whether it is findable there.
//
//             take                set_findable                release (last holder)
//   free ───────────────▶ live ───────────────▶ live, findable ──────────────▶ cached
//    ▲                     │                     ▲  │                            │ │
//    ├─ release (last) ◀───┘◀─ clear_findable ───│──┘                            │ │
//    │                                           └──────────── hold ◀────────────┘ │
//    └────────────────────────────── clear_findable (evicted) ◀────────────────────┘
//
// Invariants, proved by check_invariants() in O(blocks):
//   P1  free + live + cached == capacity
//   P2  live <=> at least one holder; cached <=> no holder and findable; free <=> neither
//   P3  the policy's list holds exactly the cached blocks; only findable blocks are leased
//
// Thread: engine thread only. Memory: all of it in the constructor.
// Source: Kwon et al., "Efficient Memory Management for Large Language Model Serving with
// PagedAttention", SOSP 2023, section 4.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "kv/eviction_policy.h"

namespace pagewise::kv {

class BlockPool {
 public:
  /// With a seed, free blocks are handed out in an order drawn from it instead of lowest id first.
  BlockPool(uint32_t blocks, double protected_share, std::optional<uint64_t> shuffle_seed);

  uint32_t capacity() const { return static_cast<uint32_t>(holders_.size()); }
  uint32_t free() const { return static_cast<uint32_t>(free_.size()); }
  uint32_t cached() const { return policy_.size(); }
  uint32_t live() const { return capacity() - free() - cached(); }
  uint32_t leased() const { return leased_count_; }
  uint32_t available() const { return free() + cached(); }

  uint32_t holders(BlockId block) const { return holders_[block.value]; }
  bool findable(BlockId block) const { return findable_[block.value] != 0; }
  bool leased(BlockId block) const { return leased_[block.value] != 0; }
  bool reused(BlockId block) const { return policy_.reused(block); }
  bool is_cached(BlockId block) const { return policy_.contains(block); }

  /// A free block, now held once. Requires: free() > 0; make room by clear_findable(victim()).
  BlockId take();
  /// The cached block to be given up next; the null block when none is cached.
  BlockId victim() const { return policy_.victim(); }
  /// One holder more. Requires: live or cached.
  void hold(BlockId block);
  /// One holder less; the last one's leaving makes the block cached when findable, else free.
  /// Requires: live.
  void release(BlockId block);

  /// The index refers to the block from now on. Requires: live, not findable.
  void set_findable(BlockId block);
  /// The index refers to it no more; a cached block becomes free. Requires: findable.
  void clear_findable(BlockId block);
  /// Requires: findable.
  void set_leased(BlockId block, bool leased);
  /// Another request read this block. Requires: findable.
  void mark_reused(BlockId block) { policy_.mark_reused(block); }
  /// A cached block was used now, though nobody holds it. Does nothing to live blocks.
  void touch(BlockId block) {
    if (policy_.contains(block)) policy_.touch(block);
  }
  /// Whether cached block `a` goes before cached block `b`.
  bool evicts_before(BlockId a, BlockId b) const { return policy_.precedes(a, b); }

  void check_invariants() const;

 private:
  void make_free(BlockId block);

  EvictionPolicy policy_;
  std::vector<uint32_t> holders_;
  std::vector<uint8_t> findable_;
  std::vector<uint8_t> leased_;
  std::vector<uint32_t> rank_;   // by id: place in the order in which free blocks are handed out
  std::vector<uint32_t> order_;  // by rank: id
  std::vector<uint32_t> free_;   // min-heap of ranks
  uint32_t leased_count_ = 0;
};

}  // namespace pagewise::kv
