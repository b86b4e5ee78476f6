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

uint64_t CacheCurve::root_key(std::string_view name_space) {
  return xxh3(std::as_bytes(std::span(name_space)));
}

/// Into blocks_, from token `begin` on, where `key` stands for all before it: the followed ones of
/// whole blocks, then the sequence's end, which takes a block, too. The prompt's end stands in it
/// or in one of the whole blocks: it has a key of its own, by which the same prompt finds it again,
/// and next to no memory. Returns the key of the whole blocks.
uint64_t CacheCurve::make_blocks(uint64_t key, std::span<const TokenId> tokens, uint32_t begin,
                                 uint32_t prompt_tokens) {
  blocks_.clear();
  ends_.clear();
  const auto append = [&](uint64_t own_key, std::size_t at, std::size_t count,
                          uint32_t memory_tokens) {
    if (own_key > curve_.limit()) return;
    blocks_.push_back({own_key, static_cast<uint32_t>(count), memory_tokens});
    ends_.push_back(static_cast<uint32_t>(at + count));
  };
  const std::size_t tail = prompt_tokens % block_tokens_;
  for (std::size_t at = begin; at < tokens.size(); at += block_tokens_) {
    const std::span<const TokenId> rest = tokens.subspan(at);
    if (tail > 0 && at + tail == prompt_tokens && rest.size() > tail) {
      append(xxh3(std::as_bytes(rest.first(tail)), key), at, tail, 1);
    }
    const std::size_t count = std::min<std::size_t>(rest.size(), block_tokens_);
    const uint64_t own_key = xxh3(std::as_bytes(rest.first(count)), key);
    append(own_key, at, count, block_tokens_);
    if (count == block_tokens_) key = own_key;
  }
  return key;
}

CacheCurve::Visit CacheCurve::admitted(std::string_view name_space, std::span<const TokenId> prompt,
                                       std::optional<uint32_t> cached_tokens) {
  Visit visit;
  visit.prompt_key =
      make_blocks(root_key(name_space), prompt, 0, static_cast<uint32_t>(prompt.size()));
  const std::size_t known = curve_.known(blocks_);
  visit.known_tokens = known == 0 ? 0 : ends_[known - 1];
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
  return visit;
}

void CacheCurve::ended(const Visit& visit, const Ending& ending) {
  const std::span<const TokenId> computed = ending.tokens.first(ending.computed);
  const uint64_t root = root_key(ending.name_space);
  if (ending.others_go_on && ending.computed >= ending.prompt_tokens) {
    make_blocks(visit.prompt_key, computed, ending.prompt_tokens / block_tokens_ * block_tokens_,
                ending.prompt_tokens);
    curve_.touch(behind(ending.prompt_tokens));
    return;
  }
  if (ending.computed < ending.prompt_tokens) {
    // Others may be computing the same: they touch it again when they end.
    make_blocks(root, ending.tokens.first(ending.prompt_tokens), 0, ending.prompt_tokens);
    for (const kv::ReuseBlock& block : behind(std::max(ending.computed, visit.known_tokens)))
      curve_.forget(block.key);
  }
  make_blocks(root, computed, 0, ending.prompt_tokens);
  curve_.touch(blocks_);
}

/// Of blocks_, those that end behind `tokens`.
std::span<const kv::ReuseBlock> CacheCurve::behind(uint32_t tokens) const {
  const auto first = std::upper_bound(ends_.begin(), ends_.end(), tokens) - ends_.begin();
  return std::span(blocks_).subspan(static_cast<std::size_t>(first));
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
