// SPDX-License-Identifier: Apache-2.0
// Random traces of whole blocks: prompts that continue, repeat or leave earlier ones.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/prng.h"
#include "workload/trace.h"

namespace pagewise::simulate {

struct RandomTraceShape {
  uint32_t requests = 0;
  uint32_t output_tokens = 0;
  uint32_t block_tokens = 0;
  uint32_t pieces_max = 1;        // that no earlier prompt has, of each prompt
  uint32_t piece_blocks_max = 1;  // of each of these
};

inline workload::Trace random_trace(uint64_t seed, const RandomTraceShape& shape) {
  Prng prng(mix64(seed));
  std::vector<std::vector<workload::Piece>> known;
  workload::Trace trace;
  uint32_t next_id = 1;
  for (uint32_t i = 0; i < shape.requests; ++i) {
    std::vector<workload::Piece> pieces;
    if (!known.empty() && prng.below(3) != 0) {
      pieces = known[known.size() - 1 - prng.below(std::min<std::size_t>(known.size(), 60))];
      pieces.resize(1 + prng.below(pieces.size()));
    }
    for (uint64_t fresh = 1 + prng.below(shape.pieces_max); fresh > 0; --fresh) {
      const auto blocks = static_cast<uint32_t>(
          shape.piece_blocks_max == 1 ? 1 : 1 + prng.below(shape.piece_blocks_max));
      pieces.push_back({next_id++, blocks * shape.block_tokens});
    }
    trace.add(i, pieces, shape.output_tokens);
    known.push_back(std::move(pieces));
  }
  return trace;
}

}  // namespace pagewise::simulate
