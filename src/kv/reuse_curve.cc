// SPDX-License-Identifier: Apache-2.0
#include "kv/reuse_curve.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace pagewise::kv {
namespace {

constexpr double kSizeMin = 64;
constexpr uint32_t kOctaves = 40;  // up to 2^46 tokens

std::vector<uint64_t> make_sizes(uint32_t per_octave) {
  PW_CHECK(per_octave > 0);
  std::vector<uint64_t> sizes(std::size_t{kOctaves} * per_octave);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const double size = kSizeMin * std::exp2(static_cast<double>(i) / per_octave);
    sizes[i] = static_cast<uint64_t>(std::llround(size));
  }
  return sizes;
}

}  // namespace

ReuseCurve::ReuseCurve(const ReuseCurveOptions& options)
    : blocks_max_(options.blocks_max),
      reach_tokens_(options.reach_tokens),
      list_(options.blocks_max + (options.reach_tokens == 0 ? 1 : 0)),  // one more for a moment
      sizes_(make_sizes(options.sizes_per_octave)),
      hits_(sizes_.size()) {
  PW_CHECK(blocks_max_ > 0);
}

double ReuseCurve::share() const { return std::ldexp(static_cast<double>(limit_) + 1, -64); }

uint64_t ReuseCurve::memory_tokens() const {
  return static_cast<uint64_t>(static_cast<double>(list_.total()) / share());
}

void ReuseCurve::look_up(std::span<const ReuseBlock> blocks, uint64_t tokens) {
  prompt_tokens_ += static_cast<double>(tokens);
  blocks_looked_up_ += blocks.size();
  const double share = this->share();
  for (const ReuseBlock& block : blocks) {
    const double stands_for = block.tokens / share;
    counted_ += stands_for;
    const uint64_t distance = list_.distance(block.key);
    if (distance == 0) continue;
    const auto scaled = static_cast<uint64_t>(static_cast<double>(distance) / share);
    const auto size = std::lower_bound(sizes_.begin(), sizes_.end(), scaled);
    if (size != sizes_.end()) hits_[static_cast<std::size_t>(size - sizes_.begin())] += stands_for;
  }
}

void ReuseCurve::touch(std::span<const ReuseBlock> blocks) {
  for (std::size_t i = blocks.size(); i-- > 0;) {
    if (blocks[i].key <= limit_) use(blocks[i]);
  }
}

/// Requires: key <= limit().
void ReuseCurve::use(const ReuseBlock& block) {
  if (!list_.contains(block.key)) {
    if (reach_tokens_ == 0) {
      largest_.push(block.key);
    } else {
      make_room();
      if (block.key > limit_) return;
    }
  }
  list_.use(block.key, block.memory_tokens);
  if (list_.size() > blocks_max_) drop_largest();
}

/// With a reach: for one block more.
void ReuseCurve::make_room() {
  while (list_.size() >= blocks_max_) {
    if (memory_tokens() < reach_tokens_ && limit_ > 1) {
      limit_ /= 2;
      list_.erase_above(limit_);
    } else {
      list_.erase_oldest();
    }
  }
}

/// Without a reach.
void ReuseCurve::drop_largest() {
  const uint64_t key = largest_.top();
  largest_.pop();
  limit_ = key - 1;
  list_.erase(key);
}

std::size_t ReuseCurve::known(std::span<const ReuseBlock> blocks) const {
  const auto unknown = std::find_if(blocks.begin(), blocks.end(), [&](const ReuseBlock& block) {
    return !list_.contains(block.key);
  });
  return static_cast<std::size_t>(unknown - blocks.begin());
}

void ReuseCurve::forget(uint64_t key) {
  PW_CHECK(reach_tokens_ > 0);
  if (list_.contains(key)) list_.erase(key);
}

void ReuseCurve::halve_counts() {
  for (double& hits : hits_) hits /= 2;
  counted_ /= 2;
  prompt_tokens_ /= 2;
}

void ReuseCurve::set_reach(uint64_t tokens) {
  PW_CHECK(reach_tokens_ > 0 && tokens > 0);
  reach_tokens_ = tokens;
}

/// Of so many prompt tokens found.
double ReuseCurve::rate_of(double tokens) const {
  return std::clamp(tokens / prompt_tokens_, 0.0, 1.0);
}

std::vector<CurvePoint> ReuseCurve::points() const {
  std::vector<CurvePoint> points;
  const auto found = [](double mass) { return mass > 0; };
  const auto first = std::find_if(hits_.begin(), hits_.end(), found);
  const auto last = std::find_if(hits_.rbegin(), hits_.rend(), found).base();
  double sum = prompt_tokens_ - counted_;
  for (auto it = first; it < last; ++it) {
    sum += *it;
    const uint64_t size = sizes_[static_cast<std::size_t>(it - hits_.begin())];
    if (reach_tokens_ == 0 || size <= reach_tokens_) points.push_back({size, rate_of(sum)});
  }
  return points;
}

double ReuseCurve::hit_rate_at(uint64_t tokens) const {
  const auto above = static_cast<std::size_t>(
      std::upper_bound(sizes_.begin(), sizes_.end(), tokens) - sizes_.begin());
  const double hits =
      std::accumulate(hits_.begin(), hits_.begin() + static_cast<std::ptrdiff_t>(above), 0.0);
  const double correction = prompt_tokens_ - counted_;  // belongs to the first that finds something
  const double below = hits > 0 ? rate_of(correction + hits) : 0;
  if (above == 0 || above == sizes_.size() || hits_[above] == 0) return below;
  const auto log_of = [](uint64_t size) { return std::log2(static_cast<double>(size)); };
  const double way = (log_of(tokens) - log_of(sizes_[above - 1])) /
                     (log_of(sizes_[above]) - log_of(sizes_[above - 1]));
  return below + (rate_of(correction + hits + hits_[above]) - below) * way;
}

void ReuseCurve::check_invariants() const {
  list_.check_invariants();
  PW_CHECK(list_.size() <= blocks_max_);
  PW_CHECK(reach_tokens_ != 0 || largest_.size() == list_.size());
}

}  // namespace pagewise::kv
