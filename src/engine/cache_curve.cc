// SPDX-License-Identifier: Apache-2.0
#include "engine/cache_curve.h"

#include <algorithm>

#include "base/check.h"
#include "base/hash.h"

namespace pagewise::engine {
namespace {

constexpr uint32_t kSizesPerOctave = 8;  // 9 % apart

uint64_t reach(uint64_t pool_tokens) { return CacheCurve::kReachPools * pool_tokens; }

}  // namespace

CacheCurve::CacheCurve(uint32_t block_tokens, uint64_t pool_tokens)
    : block_tokens_(block_tokens),
      pool_tokens_(pool_tokens),
      curve_({kBlocksFollowed, reach(pool_tokens), kSizesPerOctave}) {
  PW_CHECK(block_tokens > 0 && pool_tokens > 0);
}

/// Into blocks_: the followed ones of whole blocks, then the sequence's end, which takes a block,
/// too. The prompt's end stands in it or in one of the whole blocks: it has a key of its own, by
/// which the same prompt finds it again, and next to no memory.
void CacheCurve::make_blocks(std::string_view name_space, std::span<const TokenId> tokens,
                             uint32_t prompt_tokens) {
  blocks_.clear();
  uint64_t key = xxh3(std::as_bytes(std::span(name_space)));
  const auto append = [&](uint64_t own_key, std::size_t count, uint32_t memory_tokens) {
    if (own_key > curve_.limit()) return;
    blocks_.push_back({own_key, static_cast<uint32_t>(count), memory_tokens});
  };
  const std::size_t tail = prompt_tokens % block_tokens_;
  for (std::size_t at = 0; at < tokens.size(); at += block_tokens_) {
    const std::span<const TokenId> rest = tokens.subspan(at);
    if (tail > 0 && at + tail == prompt_tokens && rest.size() > tail) {
      append(xxh3(std::as_bytes(rest.first(tail)), key), tail, 1);
    }
    const std::size_t count = std::min<std::size_t>(rest.size(), block_tokens_);
    key = xxh3(std::as_bytes(rest.first(count)), key);
    append(key, count, block_tokens_);
  }
}

void CacheCurve::admitted(std::string_view name_space, std::span<const TokenId> prompt,
                          std::optional<uint32_t> cached_tokens) {
  make_blocks(name_space, prompt, static_cast<uint32_t>(prompt.size()));
  if (cached_tokens) {
    ++requests_;
    prompt_tokens_ += prompt.size();
    ++requests_counted_;
    cached_tokens_counted_ += *cached_tokens;
    curve_.look_up(blocks_, prompt.size());
    if (requests_counted_ >= static_cast<double>(kRequestsCounted) &&
        curve_.prompt_tokens() >= static_cast<double>(kPoolsCounted * pool_tokens_)) {
      curve_.halve_counts();
      requests_counted_ /= 2;
      cached_tokens_counted_ /= 2;
    }
  }
  curve_.touch(blocks_);
}

void CacheCurve::released(std::string_view name_space, std::span<const TokenId> computed,
                          uint32_t prompt_tokens) {
  make_blocks(name_space, computed, prompt_tokens);
  curve_.touch(blocks_);
}

void CacheCurve::resize(uint64_t pool_tokens) {
  PW_CHECK(pool_tokens > 0);
  pool_tokens_ = pool_tokens;
  curve_.set_reach(reach(pool_tokens));
}

bool CacheCurve::enough() const {
  return requests_ >= kRequestsMin && curve_.blocks_looked_up() >= kLookUpsMin;
}

std::optional<std::array<double, kCurveFactors.size()>> CacheCurve::predicted() const {
  if (!enough()) return std::nullopt;
  std::array<double, kCurveFactors.size()> rates{};
  for (std::size_t i = 0; i < rates.size(); ++i) {
    rates[i] = curve_.hit_rate_at(
        static_cast<uint64_t>(kCurveFactors[i] * static_cast<double>(pool_tokens_)));
  }
  return rates;
}

CurveFigures CacheCurve::figures() const {
  CurveFigures figures;
  figures.requests = requests_;
  figures.prompt_tokens = prompt_tokens_;
  figures.requests_counted = requests_counted_;
  figures.prompt_tokens_counted = curve_.prompt_tokens();
  if (figures.prompt_tokens_counted > 0) {
    figures.hit_rate = cached_tokens_counted_ / figures.prompt_tokens_counted;
  }
  if (const auto rates = predicted()) {
    figures.enough = true;
    figures.predicted = *rates;
    figures.points = curve_.points();
  }
  figures.pool_tokens = pool_tokens_;
  figures.history_tokens = curve_.memory_tokens();
  figures.followed_share = curve_.share();
  return figures;
}

}  // namespace pagewise::engine
