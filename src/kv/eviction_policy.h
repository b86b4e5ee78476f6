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
// Karedla, Love, Wherry, Computer 27(3), 1994).
//
// How large a share? Too small, and it protects nothing; too large, and yesterday's favourites
// starve today's newcomers. No fixed one is right for all work (docs/kv.md has the figures), so it
// follows what turns out to be missed: the digests of what was given up lately are remembered, four
// times as many as the pool has blocks. When a request has to compute such a block again, keeping
// it would have been right. One that had been read only once shrinks the share by a block, one that
// had been read again grows it (to seven eighths at most), and the rarer kind counts for more, by
// as much as it is rarer.
// Either way it has now been asked for twice, and is protected from the start, so that a prefix
// whose readers come further apart than a pool of newcomers is kept from the second on.
// Source: Megiddo, Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache", FAST 2003, section
// III, for the rule by which the share moves. Different: one list for both kinds of what was given
// up, longer than the cache; nothing is moved at a hit before its reader has left; and a share of
// zero is plain LRU, which learns nothing.
//
// A long prefix is eaten from its tail without any rule for it: who releases a sequence reports its
// last block first, so that a block's use is always older than its predecessor's; and whoever reads
// a block has read all blocks before it, so that a predecessor's tier is never lower. A block that
// comes back is protected only when its predecessor is.
//
// Every block counts for a quota. The order is one, whatever the quotas; who looks for a victim may
// leave the blocks of some quotas out.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "kv/ghost_list.h"
#include "kv/quota.h"
#include "kv/stamp_order.h"

namespace pagewise::kv {

/// Thread: engine thread only. Memory: 150 to 200 bytes a block in the constructor and resize; what
/// comes out of the order of time (stamp_order.h) grows by its number. Cost: O(quotas) a call, and
/// O(log blocks) for those; for each block that a shrinking share demotes as much again, and
/// O(blocks) for resize.
class EvictionPolicy {
 public:
  /// `protected_share` in [0, 1]: part of `blocks` that the protected tier may take at first; with
  /// 0 it never may. `quotas`: how many there are, the one of blocks without a quota included.
  EvictionPolicy(uint32_t blocks, double protected_share, uint32_t quotas = 1);

  /// Admits ids below `ids`. The protected tier may take the same part of `blocks` as before of
  /// another number; what is too much for it returns to probation, least recently used first.
  void resize(uint32_t ids, uint32_t blocks);

  /// The block counts for this quota from now on. Requires: not cached.
  void set_quota(BlockId block, QuotaId quota);
  QuotaId quota(BlockId block) const { return blocks_[block.value].quota; }

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

  // What was given up and asked for again. `digest` stands for the contents: the whole prefix.

  /// This cached block is about to be given up to make room. Requires: cached.
  void remember(BlockId block, uint64_t digest);
  /// remember or came_back follows for this digest: what it needs is fetched meanwhile. Changes
  /// nothing.
  void expect(uint64_t digest) const { ghosts_.prefetch(digest); }
  /// A request had to compute what `digest` names, and the block has it now. If it was remembered,
  /// the share moves; where the predecessor counts as reused, or there is none, so does the block.
  /// Requires: not cached.
  void came_back(BlockId block, uint64_t digest, bool predecessor_reused);

  /// The block to give up next of those whose quota `may(quota)` give one up; the null block when
  /// there is none.
  template <typename May>
  BlockId victim(May may) const {
    for (std::size_t tier = 0; tier < kTiers; ++tier) {
      const BlockId first = first_of(static_cast<Tier>(tier), may);
      if (first.valid()) return first;
    }
    return BlockId();
  }
  BlockId victim() const {
    return victim([](QuotaId) { return true; });
  }
  /// Whether `a` would be given up before `b`. Requires: both cached.
  bool precedes(BlockId a, BlockId b) const;
  bool contains(BlockId block) const { return links_.contains(block.value); }
  uint32_t size() const { return size_; }
  uint32_t size(QuotaId quota) const {
    uint32_t sum = 0;
    for (const StampOrder& order : quotas_[quota.value]) sum += order.size();
    return sum;
  }
  bool reused(BlockId block) const { return blocks_[block.value].reused; }
  /// Blocks that the protected tier may take now.
  uint32_t protected_max() const { return protected_max_; }

 private:
  enum class Tier : uint8_t { kPassed, kProbation, kProtected, kLeased };
  static constexpr std::size_t kTiers = 4;

  /// The share does not grow beyond all but an eighth: what has just been computed must live long
  /// enough to be asked for once. Measured with a mix of work in 4,000 blocks: without this bound
  /// 0.2 points below plain LRU, with it as much above; with a quarter 0.4 above, but half a point
  /// less elsewhere (docs/kv.md).
  static constexpr uint32_t kNewcomersPart = 8;
  /// Remembered digests for each block of the pool: with fewer, what returns after long is not
  /// recognised; more were not better on the traces (docs/kv.md).
  static constexpr uint64_t kGhostsPerBlock = 4;

  struct Block {
    QuotaId quota = kNoQuota;
    Tier tier = Tier::kProbation;  // of a cached one
    bool reused = false;
    bool was_reused = false;  // before the protected tier overflowed, too
    bool passed = false;
  };

  template <typename May>
  BlockId first_of(Tier tier, May may) const {
    StampOrder::Member first;
    for (uint32_t q = 0; q < quotas_.size(); ++q) {
      const StampOrder& order = quotas_[q][static_cast<std::size_t>(tier)];
      if (order.empty() || !may(QuotaId(q))) continue;
      if (order.first().stamp < first.stamp) first = order.first();
    }
    return first.stamp == UINT64_MAX ? BlockId() : BlockId(first.id);
  }
  StampOrder& order(BlockId block) {
    const Block& its = blocks_[block.value];
    return quotas_[its.quota.value][static_cast<std::size_t>(its.tier)];
  }
  void demote_overflow();
  void put(BlockId block, Tier tier, uint64_t stamp);
  /// put(), and the protected tier keeps to its share.
  void place(BlockId block, Tier tier, uint64_t stamp);
  Tier natural_tier(BlockId block, bool leased) const;

  std::vector<std::array<StampOrder, kTiers>> quotas_;  // by last use
  StampLinks links_;
  std::vector<Block> blocks_;  // by id
  const bool adapts_;
  uint32_t capacity_;  // of the pool
  uint32_t protected_max_;
  uint32_t protected_size_ = 0, size_ = 0;
  uint64_t stamp_ = 0;
  GhostList ghosts_;
};

}  // namespace pagewise::kv
