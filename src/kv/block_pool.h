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
//   P1  free + live + cached == capacity; ids beyond that many are absent: in none of these states
//   P2  live <=> at least one holder; cached <=> no holder and findable; free <=> neither
//   P3  the policy's list holds exactly the cached blocks; only findable blocks are leased
//   P4  the idle list holds free blocks only, in the order in which they became free
//   P5  a block counts for the quota of who took it, until it is free: used(quota) is their number
//
// The pool may be resized while its blocks are in use. It becomes smaller by free blocks that turn
// absent, whichever these are: ids are places in the arena, and an absent one takes no memory
// there. Absent ids come back, lowest first, before new ones are made.
//
// Thread: engine thread only. Memory: all of it in the constructor and resize.
// Source: Kwon et al., "Efficient Memory Management for Large Language Model Serving with
// PagedAttention", SOSP 2023, section 4.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "kv/eviction_policy.h"

namespace pagewise::kv {

class BlockPool {
 public:
  /// With a seed, free blocks are handed out in an order drawn from it instead of lowest id first.
  BlockPool(uint32_t blocks, double protected_share, std::optional<uint64_t> shuffle_seed,
            uint32_t quotas = 1);

  // What a quota allows here. Floors sum to at most the capacity.
  void set_limits(QuotaId quota, uint32_t floor, uint32_t ceiling) {
    quotas_[quota.value].floor = floor;
    quotas_[quota.value].ceiling = ceiling;
  }
  uint32_t floor(QuotaId quota) const { return quotas_[quota.value].floor; }
  uint32_t ceiling(QuotaId quota) const { return quotas_[quota.value].ceiling; }
  uint32_t used(QuotaId quota) const { return quotas_[quota.value].used; }
  uint32_t cached(QuotaId quota) const { return policy_.size(quota); }
  QuotaId quota(BlockId block) const { return policy_.quota(block); }
  /// More blocks than its ceiling with `more`, of which some are cached.
  bool exceeds_ceiling(QuotaId quota, uint32_t more = 0) const {
    return uint64_t{used(quota)} + more > ceiling(quota) && cached(quota) > 0;
  }

  uint32_t capacity() const { return capacity_; }
  /// Ids are below this; as many as the largest capacity so far.
  uint32_t ids() const { return static_cast<uint32_t>(holders_.size()); }
  uint32_t free() const { return static_cast<uint32_t>(free_.size()); }
  uint32_t cached() const { return policy_.size(); }
  uint32_t live() const { return capacity() - free() - cached(); }
  uint32_t leased() const { return leased_count_; }
  uint32_t available() const { return free() + cached(); }
  /// Of these, what `taker` can have without going below another's floor.
  uint32_t available_to(QuotaId taker) const;

  uint32_t holders(BlockId block) const { return holders_[block.value]; }
  bool findable(BlockId block) const { return findable_[block.value] != 0; }
  bool leased(BlockId block) const { return leased_[block.value] != 0; }
  bool reused(BlockId block) const { return policy_.reused(block); }
  bool kept(BlockId block) const { return kept_[block.value] != 0; }
  bool is_cached(BlockId block) const { return policy_.contains(block); }

  /// A free block, now held once. Requires: free() > 0; make room by clear_findable(victim()).
  BlockId take(QuotaId taker = kNoQuota);
  /// The cached block to be given up next; the null block when none is cached.
  BlockId victim() const { return policy_.victim(); }
  /// The same among those that `taker` can have without going below another's floor.
  BlockId victim_for(QuotaId taker) const {
    return policy_.victim([&](QuotaId quota) { return quota == taker || !at_floor(quota); });
  }
  /// The same among the quota's own.
  BlockId victim_of(QuotaId quota) const {
    return policy_.victim([&](QuotaId other) { return other == quota; });
  }
  bool at_floor(QuotaId quota) const { return cached(quota) <= floor(quota); }
  /// One holder more. Requires: live or cached.
  void hold(BlockId block);
  /// One holder less; the last one's leaving makes the block cached when findable, else free. With
  /// `passed` a window has moved past it: the last one's leaving makes it first to be given up,
  /// unless somebody kept it, now or before. Requires: live.
  void release(BlockId block, bool passed = false);
  /// A point where requests are likely to begin stands within a window behind the block: as long as
  /// it holds what it holds, it does not count as passed. Requires: findable.
  void keep(BlockId block);

  /// The index refers to the block from now on. Requires: live, not findable.
  void set_findable(BlockId block);
  /// The index refers to it no more; a cached block becomes free. Requires: findable.
  void clear_findable(BlockId block);
  // For the policy to learn from (eviction_policy.h): `digest` stands for the block's contents and
  // all before them.

  /// Requires: cached, and about to be given up to make room.
  void remember(BlockId block, uint64_t digest) { policy_.remember(block, digest); }
  /// remember or came_back follows for this digest. Changes nothing.
  void expect(uint64_t digest) const { policy_.expect(digest); }
  /// A request had to compute what the block holds. Requires: live, findable.
  void came_back(BlockId block, uint64_t digest, bool predecessor_reused) {
    policy_.came_back(block, digest, predecessor_reused);
  }

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

  /// From now on there are `blocks`. Those that turned absent and may still have memory are
  /// appended to `dropped`: it goes back to the system. Requires: capacity() - free() <= blocks.
  /// Cost: O(ids).
  void resize(uint32_t blocks, std::vector<BlockId>& dropped);

  /// When blocks that are freed from now on became free. Goes forward only.
  void set_time(TimeNs now) { now_ = std::max(now_, now); }
  /// Blocks that have been free since `until` or longer, and were handed out since they were last
  /// named here: appended to `out`, longest free first. Their memory may go back to the system.
  void take_idle(TimeNs until, std::vector<BlockId>& out);
  /// Since when the first of those blocks has been free.
  std::optional<TimeNs> oldest_idle() const;

  void check_invariants() const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct IdleLink {
    TimeNs since = 0;
    uint32_t previous = kNone, next = kNone;
    bool linked = false;
  };

  struct Quota {
    uint32_t floor = 0, ceiling = UINT32_MAX;
    uint32_t used = 0;
  };

  void make_free(BlockId block);
  void link_idle(uint32_t id);
  void unlink_idle(uint32_t id);

  void drop(uint32_t blocks, std::vector<BlockId>& dropped);
  void add(uint32_t blocks);

  uint32_t capacity_ = 0;
  EvictionPolicy policy_;
  std::vector<Quota> quotas_;
  std::vector<uint32_t> holders_;
  std::vector<uint8_t> findable_;
  std::vector<uint8_t> leased_;
  std::vector<uint8_t> kept_;
  std::vector<uint8_t> absent_;
  std::vector<uint32_t> rank_;   // by id: place in the order in which free blocks are handed out
  std::vector<uint32_t> order_;  // by rank: id
  std::vector<uint32_t> free_;   // min-heap of ranks
  uint32_t leased_count_ = 0;
  std::vector<IdleLink> idle_;  // by id: a list of free blocks that were handed out before
  uint32_t idle_first_ = kNone, idle_last_ = kNone;
  TimeNs now_ = INT64_MIN;
};

}  // namespace pagewise::kv
