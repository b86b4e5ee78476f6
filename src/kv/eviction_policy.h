// SPDX-License-Identifier: Apache-2.0
// Which cached block is given up next. The one place that decides it; everything else only reports
// what happened.
//
// A cached block stands in one of four tiers, each ordered by last use:
//
//   given up first                                                                   given up last
//   ├── passed ──────────┤├── probation ────────┤├── protected ─────────────┤├── leased ─────────┤
//     a sliding window     read by nobody since   read again at least once    covered by an
//     has moved past it,   it was computed        (at most a share of the     unexpired entry,
//     and no request is                           pool; the overflow, least   whatever its use
//     likely to begin                             recently used, returns to
//     behind it                                   probation in its old place)
//
// Only groups with a sliding window have passed blocks. A request can read such a block only if it
// differs from the known text within a window behind it; most begin where another one ended.
//
// Why not plain LRU: a batch job that sends ten thousand prompts once each would push out the
// system prompt that everybody shares. Here such prompts only push out each other (segmented LRU;
// Karedla, Love, Wherry, Computer 27(3), 1994). The share is bounded, so that yesterday's
// favourites cannot starve today's newcomers. A share of zero is plain LRU.
//
// A long prefix is eaten from its tail without any rule for it: who releases a sequence reports its
// last block first, so that a block's use is always older than its predecessor's; and whoever reads
// a block has read all blocks before it, so that a predecessor's tier is never lower.
//
// Every block counts for a quota. The order is one, whatever the quotas; who looks for a victim may
// leave the blocks of some quotas out.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "kv/id_heap.h"
#include "kv/quota.h"

namespace pagewise::kv {

/// Thread: engine thread only. Memory: that of quota 0 in the constructor and resize, others grow
/// by what they hold. Cost: O(log blocks + quotas) a call.
class EvictionPolicy {
 public:
  /// `protected_share` in [0, 1]: part of `blocks` that the protected tier may take. `quotas`: how
  /// many there are, the one of blocks without a quota included.
  EvictionPolicy(uint32_t blocks, double protected_share, uint32_t quotas = 1);

  /// Admits ids below `ids`, and takes the protected tier's share of `blocks` from now on; what is
  /// too much for it returns to probation, least recently used first.
  void resize(uint32_t ids, uint32_t blocks);

  /// The block counts for this quota from now on. Requires: not cached.
  void set_quota(BlockId block, QuotaId quota);
  QuotaId quota(BlockId block) const { return quota_[block.value]; }

  /// The block became cached: the most recently used of its tier. Requires: not cached.
  void insert(BlockId block, bool leased, bool passed = false);
  /// The block counts as passed no more; its last use stays what it was. Any block.
  void keep(BlockId block);
  /// The block is cached no more: held again, or given up. Requires: cached.
  void erase(BlockId block);
  /// A cached block was used just now. Requires: cached.
  void touch(BlockId block);
  /// Another request read what this block holds. Any block, cached or not.
  void mark_reused(BlockId block);
  /// A cached block gained its first or lost its last lease; its last use stays what it was.
  /// Requires: cached.
  void set_leased(BlockId block, bool leased);
  /// The block's contents are no more; whatever it holds next starts anew. Requires: not cached.
  void forget(BlockId block);

  /// The block to give up next of those whose quota `may(quota)` give one up; the null block when
  /// there is none.
  template <typename May>
  BlockId victim(May may) const {
    for (std::size_t tier = 0; tier < kTiers; ++tier) {
      const SharedIdHeap* first = nullptr;
      for (uint32_t q = 0; q < quotas_.size(); ++q) {
        const SharedIdHeap& heap = quotas_[q][tier];
        if (heap.empty() || !may(QuotaId(q))) continue;
        // Stamps are distinct.
        if (first == nullptr || heap.top_key() < first->top_key()) first = &heap;
      }
      if (first != nullptr) return BlockId(first->top());
    }
    return BlockId();
  }
  BlockId victim() const {
    return victim([](QuotaId) { return true; });
  }
  /// Whether `a` would be given up before `b`. Requires: both cached.
  bool precedes(BlockId a, BlockId b) const;
  bool contains(BlockId block) const { return places_.contains(block.value); }
  uint32_t size() const { return size_; }
  uint32_t size(QuotaId quota) const {
    uint32_t sum = 0;
    for (const SharedIdHeap& heap : quotas_[quota.value]) sum += heap.size();
    return sum;
  }
  bool reused(BlockId block) const { return reused_[block.value] != 0; }

 private:
  enum class Tier : uint8_t { kPassed, kProbation, kProtected, kLeased };
  static constexpr std::size_t kTiers = 4;

  SharedIdHeap& heap(BlockId block) {
    return quotas_[quota_[block.value].value][static_cast<std::size_t>(tier_[block.value])];
  }
  const SharedIdHeap& heap(BlockId block) const {
    return const_cast<EvictionPolicy*>(this)->heap(block);
  }
  void reserve(uint32_t ids);
  void demote_overflow();
  void place(BlockId block, Tier tier, uint64_t stamp);
  uint64_t stamp_of(BlockId block) const { return heap(block).key(places_, block.value); }
  Tier natural_tier(BlockId block, bool leased) const;

  std::vector<std::array<SharedIdHeap, kTiers>> quotas_;  // keys: stamps of last use
  IdPlaces places_;
  std::vector<QuotaId> quota_;
  std::vector<Tier> tier_;  // of cached blocks
  std::vector<uint8_t> reused_;
  std::vector<uint8_t> is_passed_;
  const double protected_share_;
  uint32_t protected_max_;
  uint32_t protected_size_ = 0, size_ = 0;
  uint64_t stamp_ = 0;
};

}  // namespace pagewise::kv
