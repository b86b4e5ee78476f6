// SPDX-License-Identifier: Apache-2.0
// Hit rate against memory, for all sizes at once: from reuse distances, without simulating
// anything.
//
// Under least-recently-used eviction a block is still there when everything touched since its last
// use, itself included, fits the memory. That many tokens are its reuse distance, and the hit rate
// with M tokens of memory is the share of prompt tokens whose distance is at most M. One pass over
// the trace gives every M.
//
// A request looks up all blocks of its prompt, then touches them from its tail to its front, its
// answer before all: as release does, so that a prefix is eaten from its end and a block's
// predecessors are always nearer than itself.
//
// Past `blocks_max` blocks only a part of them is followed, chosen by a hash of what they are, so
// that each is followed always or never; the share goes down as more appear, distances count for
// 1/share each. What the followed ones count for more or less than all in sum is put to the
// shortest distances: blocks that everybody reads, which a few followed ones represent badly.
// Source: Waldspurger, Park, Garthwaite, Ahmad, "Efficient MRC Construction with SHARDS", FAST
// 2015, sections 3 and 4 (fixed-size SHARDS with its adjustment).
//
// What it leaves out: the protected share of our policy (which only gains, docs/kv.md), blocks that
// running requests hold, partial blocks, and the last prompt token, which is always computed.
#pragma once

#include <cstdint>
#include <vector>

#include "workload/trace.h"

namespace pagewise::simulate {

struct CurvePoint {
  uint64_t tokens = 0;  // of memory
  double hit_rate = 0;  // of prompt tokens
  bool operator==(const CurvePoint&) const = default;
};

struct Curve {
  /// From the smallest memory at which something is found to that at which everything is, each
  /// sqrt(2) times the one before.
  std::vector<CurvePoint> points;
  uint64_t blocks = 0;                        // followed at the end
  double share = 1;                           // of all
  double hit_rate_at(uint64_t tokens) const;  // between two points: that of the smaller
};

struct CurveOptions {
  uint64_t blocks_max = 1 << 18;
  /// A piece is looked at in blocks of so many tokens at most: pieces of a generated trace are
  /// thousands of tokens long, and memory gives them up in parts.
  uint32_t block_tokens = 512;
  uint64_t seed = 1;
};

/// Cost: about 0.1 us a block that is followed and a few ns for others. Memory: under 100 bytes for
/// each of blocks_max.
Curve hit_rate_curve(const workload::Trace& trace, const CurveOptions& options);

}  // namespace pagewise::simulate
