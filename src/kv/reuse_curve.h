// SPDX-License-Identifier: Apache-2.0
// Hit rate against memory, for all sizes at once: from reuse distances, request by request.
//
// Under least-recently-used eviction a block is still there when everything touched since its last
// use, itself included, fits the memory. That many tokens are its reuse distance, and the hit rate
// with M tokens of memory is the share of prompt tokens whose distance is at most M. Looking at
// each request once gives every M.
//
//   prompt ──▶ look_up   how far back is each block's last use? counted by size of memory
//          ──▶ touch     now they are the most recently used, from the tail to the front: as a
//                        sequence's release does, so that a prefix is eaten from its end and a
//                        block's predecessors are always nearer than itself
//
// Past `blocks_max` blocks only a part of them is followed, chosen by a hash of what they are, so
// that each is followed always or never; distances count for 1/share each. What the followed ones
// count for more or less than all in sum is put to the shortest distances: blocks that everybody
// reads, which a few followed ones represent badly.
// Source: Waldspurger, Park, Garthwaite, Ahmad, "Efficient MRC Construction with SHARDS", FAST
// 2015, sections 3 and 4 (fixed-size SHARDS with its adjustment).
//
// Which blocks go when there are more than blocks_max is one of two rules:
//   - without a reach, those with the largest keys: the share goes down as long as new blocks
//     appear, and the whole history counts. For a trace, which ends.
//   - with a reach of R tokens, the share is halved while the followed blocks stand for less than R
//     tokens; from then on the least recently used one is forgotten, which only a memory of more
//     than R would still hold. Share and memory then stay what they are however long it goes on.
//     For a server, which does not end.
//
// What it leaves out: the protected share of our policy (which only gains, docs/kv.md), leases,
// blocks that running requests hold, and that the last prompt token is always computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <queue>
#include <span>
#include <vector>

#include "kv/recency_list.h"

namespace pagewise::kv {

struct CurvePoint {
  uint64_t tokens = 0;  // of memory
  double hit_rate = 0;  // of prompt tokens
  bool operator==(const CurvePoint&) const = default;
};

/// A block as the curve sees it.
struct ReuseBlock {
  uint64_t key = 0;            // a hash of all that it stands for: its own tokens and those before
  uint32_t tokens = 0;         // of the prompt, that need not be computed when it is found
  uint32_t memory_tokens = 0;  // that it takes of the memory, at least 1
};

struct ReuseCurveOptions {
  uint64_t blocks_max = 1 << 14;
  uint64_t reach_tokens = 0;  // 0: the whole history
  /// Sizes of memory that hits are counted for: 2^(1/N) apart.
  uint32_t sizes_per_octave = 2;
};

/// Thread: one at a time. No clock, no randomness. Memory: that of a RecencyList of blocks_max and
/// 320 bytes for each of sizes_per_octave, in the constructor; without a reach 8 bytes more a
/// block.
class ReuseCurve {
 public:
  /// Requires: 1 <= blocks_max < 2^30 - 1; sizes_per_octave >= 1.
  explicit ReuseCurve(const ReuseCurveOptions& options);

  /// Only blocks whose keys are at most this are followed; others need not be named.
  uint64_t limit() const { return limit_; }

  /// Counts a prompt of `tokens` tokens, of which `blocks` are followed. Cost: O(log blocks_max) a
  /// block, about 0.1 us.
  void look_up(std::span<const ReuseBlock> blocks, uint64_t tokens);
  /// The blocks of a sequence, front to tail, were used now. Cost: as look_up; rarely O(blocks_max)
  /// (the share is halved, the list closes its gaps).
  void touch(std::span<const ReuseBlock> blocks);
  /// How many blocks were used before, from the front on: up to the first that was not.
  std::size_t known(std::span<const ReuseBlock> blocks) const;
  /// As if it had never been used. Requires: options had a reach.
  void forget(uint64_t key);
  /// All that was counted so far weighs half from now on; what was used stays so.
  void halve_counts();
  /// From now on the followed blocks are to stand for so many tokens. A smaller reach than before
  /// leaves the share what it is. Requires: options had a reach; not 0.
  void set_reach(uint64_t tokens);

  /// From the smallest memory at which something is found to that at which everything is, or to the
  /// reach.
  std::vector<CurvePoint> points() const;
  /// Between two sizes, as much as the way between them on a logarithmic scale. No allocation.
  double hit_rate_at(uint64_t tokens) const;

  uint64_t blocks() const { return list_.size(); }  // followed
  double share() const;                             // of all
  /// Memory that would hold everything that is followed; larger ones cannot be told apart.
  uint64_t memory_tokens() const;
  /// Looked up and followed since the start.
  uint64_t blocks_looked_up() const { return blocks_looked_up_; }
  /// What hit rates are shares of; what was halved counts half.
  double prompt_tokens() const { return prompt_tokens_; }

  void check_invariants() const;

 private:
  double rate_of(double tokens) const;
  void use(const ReuseBlock& block);
  void make_room();
  void drop_largest();

  const uint64_t blocks_max_;
  uint64_t reach_tokens_;
  uint64_t limit_ = UINT64_MAX;
  RecencyList list_;
  std::priority_queue<uint64_t> largest_;  // without a reach: the keys of list_
  std::vector<uint64_t> sizes_;            // of memory, tokens
  std::vector<double> hits_;               // tokens by the smallest size that finds them
  double counted_ = 0;                     // tokens of looked-up blocks, each for 1/share
  double prompt_tokens_ = 0;
  uint64_t blocks_looked_up_ = 0;
};

}  // namespace pagewise::kv
