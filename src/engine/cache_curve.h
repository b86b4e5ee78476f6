// SPDX-License-Identifier: Apache-2.0
// What half, twice and four times the memory would find in the cache, from the requests that the
// engine serves, while it serves them.
//
//   admitted   its prompt's blocks are looked up in the history, and touched: who comes meanwhile
//              finds them, as requests that share a running prefill do
//   ended      everything that was computed is touched again, the answer's end first: as the pool
//              does. Of a prompt that was cancelled before it was computed the rest is forgotten,
//              unless it was known before
//
// A request is one visit. A preemption is no part of it: that depends on the memory there is. Of
// several choices each touches its answer when it ends, and the last one the prompt they share.
//
// A block's key is a hash of its namespace, the blocks before it and its tokens: namespaces find
// nothing of each other. Hits are whole blocks, and the end of a prompt behind its last whole block
// when the very same prompt comes again; the cache itself goes on to the token, so that a
// conversation's next turn reads up to a block more than the curve says.
//
// Recent traffic counts most: whenever the counts have come to kRequestsCounted requests and
// kPoolsCounted pools of prompt tokens, all of them are halved. Distances stay what they are.
//
// Thread: that of the core. No clock, no randomness. Memory: kBlocksFollowed blocks of a
// ReuseCurve, 0.8 MiB, whatever the pool and however long it goes on. Cost: 0.05 to 0.1 us at an
// admission, and again at a release, for each followed block of the request (all of them up to
// pools of 65,536 tokens in blocks of 32, then fewer), and 2 us; nothing in a step that only
// decodes. Measured on Zen 4: 13 to 26 us for a request of 5,000 tokens.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "kv/reuse_curve.h"

namespace pagewise::engine {

/// Of the memory that there is now.
inline constexpr std::array<double, 4> kCurveFactors = {0.5, 1, 2, 4};

/// What the curve says now.
struct CurveFigures {
  /// Requests that looked into the cache, and their prompts' tokens, since the start.
  uint64_t requests = 0, prompt_tokens = 0;
  /// The same as they weigh in the rates.
  double requests_counted = 0, prompt_tokens_counted = 0;
  double hit_rate = 0;  // of these tokens, read from the cache; 0 without any
  /// Whether there was enough traffic for a prediction: kRequestsMin requests, kLookUpsMin followed
  /// blocks.
  bool enough = false;
  std::array<double, kCurveFactors.size()> predicted{};  // by kCurveFactors; 0 without enough
  std::vector<kv::CurvePoint> points;                    // empty without enough
  uint64_t pool_tokens = 0;                              // now
  uint64_t history_tokens = 0;  // memory that would still hold all that is followed
  double followed_share = 1;    // of the blocks
};

class CacheCurve {
 public:
  static constexpr uint64_t kBlocksFollowed = 1 << 14;
  // A history of eight pools tells of four with room to spare.
  static constexpr uint64_t kReachPools = 8;
  // Half of them are left: a share of 1,024 requests has a standard error of at most 1.6 points.
  static constexpr uint64_t kRequestsCounted = 2048;
  // And what comes and goes with the hour should be in it as often as memory has turned over.
  static constexpr uint64_t kPoolsCounted = 16;
  static constexpr uint64_t kRequestsMin = 100;  // at most 5 points
  static constexpr uint64_t kLookUpsMin = 256;

  /// Requires: both at least 1.
  CacheCurve(uint32_t block_tokens, uint64_t pool_tokens);

  /// What a request's end needs to know of its beginning.
  struct Visit {
    uint64_t prompt_key = 0;    // of the prompt's whole blocks
    uint32_t known_tokens = 0;  // of the prompt, that the history had before
  };
  /// A sequence of it has ended.
  struct Ending {
    std::string_view name_space;
    std::span<const TokenId> tokens;  // the prompt and more
    uint32_t prompt_tokens = 0;
    uint32_t computed = 0;      // of the tokens
    bool others_go_on = false;  // other choices, with the same prompt
  };

  /// A request's first admission. `cached_tokens`: what the cache found of it; none when the
  /// request did not look. Requires: a token at least.
  Visit admitted(std::string_view name_space, std::span<const TokenId> prompt,
                 std::optional<uint32_t> cached_tokens);
  void ended(const Visit& visit, const Ending& ending);
  /// The pool holds so many tokens from now on. What was used and counted stays. Requires: not 0.
  void resize(uint64_t pool_tokens);

  CurveFigures figures() const;
  /// By kCurveFactors; none without enough traffic. Cost: about 1 us.
  std::optional<std::array<double, kCurveFactors.size()>> predicted() const;

  void check_invariants() const { curve_.check_invariants(); }

 private:
  static uint64_t root_key(std::string_view name_space);
  uint64_t make_blocks(uint64_t key, std::span<const TokenId> tokens, uint32_t begin,
                       uint32_t prompt_tokens);
  std::span<const kv::ReuseBlock> behind(uint32_t tokens) const;
  bool enough() const;

  const uint32_t block_tokens_;
  uint64_t pool_tokens_;
  kv::ReuseCurve curve_;
  uint64_t requests_ = 0, prompt_tokens_ = 0;
  double requests_counted_ = 0, cached_tokens_counted_ = 0;
  std::vector<kv::ReuseBlock> blocks_;  // scratch
  std::vector<uint32_t> ends_;          // of blocks_, in tokens
};

}  // namespace pagewise::engine
