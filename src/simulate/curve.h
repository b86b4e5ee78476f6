// SPDX-License-Identifier: Apache-2.0
// Hit rate against memory of a whole trace, for all sizes at once and without simulating anything:
// its prompts and answers as blocks, in order of arrival, one request after the other. How the
// curve comes from them, and what it leaves out: kv/reuse_curve.h.
#pragma once

#include <cstdint>
#include <vector>

#include "kv/reuse_curve.h"
#include "workload/trace.h"

namespace pagewise::simulate {

using kv::CurvePoint;

struct Curve {
  /// From the smallest memory at which something is found to that at which everything is, each
  /// sqrt(2) times the one before.
  std::vector<CurvePoint> points;
  uint64_t blocks = 0;                        // followed at the end
  double share = 1;                           // of all
  double hit_rate_at(uint64_t tokens) const;  // between two points: that of the smaller
};

struct CurveOptions {
  uint64_t blocks_max = 1 << 18;  // beyond, a part of the blocks is followed
  /// A piece is looked at in blocks of so many tokens at most: pieces of a generated trace are
  /// thousands of tokens long, and memory gives them up in parts.
  uint32_t block_tokens = 512;
  uint64_t seed = 1;
};

/// Cost: about 0.1 us a block that is followed and a few ns for others. Memory: under 100 bytes for
/// each of blocks_max.
Curve hit_rate_curve(const workload::Trace& trace, const CurveOptions& options);

}  // namespace pagewise::simulate
