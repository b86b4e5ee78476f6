// SPDX-License-Identifier: Apache-2.0
#include "simulate/curve.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/prng.h"

namespace pagewise::simulate {
namespace {

/// Blocks that stand behind each other, named by all that they continue.
class Chain {
 public:
  Chain(uint64_t seed, uint32_t block_tokens) : seed_(mix64(seed)), block_tokens_(block_tokens) {}

  void begin() { prefix_ = seed_; }
  /// Appends the piece's blocks with keys up to `limit` to `out`.
  void append(const workload::Piece& piece, uint64_t limit, std::vector<kv::ReuseBlock>& out) {
    prefix_ = mix64(prefix_ ^ mix64(uint64_t{piece.id} << 32 | piece.tokens));
    for (uint32_t at = 0; at < piece.tokens; at += block_tokens_) {
      const uint64_t key = mix64(prefix_ ^ mix64(at + 1));
      const uint32_t tokens = std::min(block_tokens_, piece.tokens - at);
      if (key <= limit) out.push_back({key, tokens, tokens});
    }
  }

 private:
  const uint64_t seed_;
  const uint32_t block_tokens_;
  uint64_t prefix_ = 0;
};

}  // namespace

double Curve::hit_rate_at(uint64_t tokens) const {
  double rate = 0;
  for (const CurvePoint& point : points) {
    if (point.tokens <= tokens) rate = point.hit_rate;
  }
  return rate;
}

Curve hit_rate_curve(const workload::Trace& trace, const CurveOptions& options) {
  PW_CHECK(options.blocks_max > 0 && options.blocks_max < (uint64_t{1} << 30) - 1);
  PW_CHECK(options.block_tokens > 0);
  kv::ReuseCurve reuse({.blocks_max = options.blocks_max});
  Chain chain(options.seed, options.block_tokens);
  std::vector<kv::ReuseBlock> blocks;
  for (const workload::TraceRequest& request : trace.requests()) {
    blocks.clear();
    chain.begin();
    for (const workload::Piece& piece : trace.pieces(request))
      chain.append(piece, reuse.limit(), blocks);
    reuse.look_up(blocks, request.prompt_tokens);
    if (request.output_tokens > 0) {
      chain.append({workload::kAnswerPiece, request.output_tokens}, reuse.limit(), blocks);
    }
    reuse.touch(blocks);
  }
  return {reuse.points(), reuse.blocks(), reuse.share()};
}

}  // namespace pagewise::simulate
