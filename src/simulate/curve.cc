// SPDX-License-Identifier: Apache-2.0
#include "simulate/curve.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <queue>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/prng.h"

namespace pagewise::simulate {
namespace {

constexpr std::size_t kSizes = 80;
constexpr uint64_t kSizeMin = 64;

/// Memory sizes that hits are counted for: kSizeMin * 2^(i/2).
std::array<uint64_t, kSizes> make_sizes() {
  std::array<uint64_t, kSizes> sizes;
  for (std::size_t i = 0; i < kSizes; ++i) {
    const double size = static_cast<double>(kSizeMin) * std::exp2(static_cast<double>(i) / 2);
    sizes[i] = static_cast<uint64_t>(std::llround(size));
  }
  return sizes;
}

/// Sums over a row of numbers, any of which may change: both in O(log size).
/// Source: Fenwick, Software: Practice and Experience 24(3), 1994.
class PrefixSums {
 public:
  explicit PrefixSums(std::size_t size) : sums_(size + 1, 0) {}
  void add(std::size_t at, int64_t value) {
    total_ += value;
    for (std::size_t i = at + 1; i < sums_.size(); i += i & (~i + 1)) sums_[i] += value;
  }
  /// Of all behind `at`.
  int64_t sum_behind(std::size_t at) const {
    int64_t sum = 0;
    for (std::size_t i = at + 1; i > 0; i -= i & (~i + 1)) sum += sums_[i];
    return total_ - sum;
  }
  void clear() {
    std::fill(sums_.begin(), sums_.end(), 0);
    total_ = 0;
  }

 private:
  std::vector<int64_t> sums_;
  int64_t total_ = 0;
};

struct Block {
  uint64_t key = 0;  // a hash of all that it stands for: its own tokens and those before
  uint32_t tokens = 0;
};

/// The blocks in order of last use: each use takes the next place, the old one stays empty.
class RecencyList {
 public:
  explicit RecencyList(uint64_t blocks_max)
      : blocks_max_(blocks_max), places_(2 * blocks_max + 2), sums_(places_.size()) {
    place_of_.reserve(blocks_max + 1);
  }

  /// Only keys up to this one are followed.
  uint64_t limit() const { return limit_; }
  double share() const { return std::ldexp(static_cast<double>(limit_) + 1, -64); }
  uint64_t size() const { return place_of_.size(); }

  /// Tokens of what was used since the block's last use, its own included; 0: never used.
  uint64_t distance(const Block& block) const {
    const auto found = place_of_.find(block.key);
    if (found == place_of_.end()) return 0;
    return static_cast<uint64_t>(sums_.sum_behind(found->second)) + places_[found->second].tokens;
  }

  /// Requires: key <= limit().
  void use(const Block& block) {
    if (next_ == places_.size()) close_gaps();
    const auto [found, inserted] = place_of_.emplace(block.key, static_cast<uint32_t>(next_));
    if (inserted) {
      largest_.push(block.key);
    } else {
      vacate(found->second);
      found->second = static_cast<uint32_t>(next_);
    }
    places_[next_] = block;
    sums_.add(next_, block.tokens);
    ++next_;
    if (place_of_.size() > blocks_max_) drop_largest();
  }

 private:
  void vacate(std::size_t place) {
    sums_.add(place, -static_cast<int64_t>(places_[place].tokens));
    places_[place].tokens = 0;  // blocks have some
  }

  void drop_largest() {
    const uint64_t key = largest_.top();
    largest_.pop();
    limit_ = key - 1;
    const auto found = place_of_.find(key);
    vacate(found->second);
    place_of_.erase(found);
  }

  void close_gaps() {
    std::size_t end = 0;
    sums_.clear();
    for (std::size_t i = 0; i < next_; ++i) {
      if (places_[i].tokens == 0) continue;
      const Block block = places_[i];
      places_[i].tokens = 0;
      places_[end] = block;
      place_of_[block.key] = static_cast<uint32_t>(end);
      sums_.add(end, block.tokens);
      ++end;
    }
    next_ = end;
    PW_CHECK(next_ < places_.size());
  }

  const uint64_t blocks_max_;
  uint64_t limit_ = UINT64_MAX;
  std::vector<Block> places_;  // without tokens: empty
  std::size_t next_ = 0;
  PrefixSums sums_;
  std::unordered_map<uint64_t, uint32_t> place_of_;
  std::priority_queue<uint64_t> largest_;  // all keys in place_of_
};

/// Blocks that stand behind each other, named by all that they continue.
class Chain {
 public:
  Chain(uint64_t seed, uint32_t block_tokens) : seed_(mix64(seed)), block_tokens_(block_tokens) {}

  void begin() { prefix_ = seed_; }
  /// Appends the piece's blocks with keys up to `limit` to `out`.
  void append(const workload::Piece& piece, uint64_t limit, std::vector<Block>& out) {
    prefix_ = mix64(prefix_ ^ mix64(uint64_t{piece.id} << 32 | piece.tokens));
    for (uint32_t at = 0; at < piece.tokens; at += block_tokens_) {
      const uint64_t key = mix64(prefix_ ^ mix64(at + 1));
      if (key <= limit) out.push_back({key, std::min(block_tokens_, piece.tokens - at)});
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
  PW_CHECK(options.blocks_max > 0 && options.blocks_max < (uint64_t{1} << 30));
  PW_CHECK(options.block_tokens > 0);
  static const std::array<uint64_t, kSizes> sizes = make_sizes();
  std::array<double, kSizes> hits{};  // tokens by the smallest size that finds them
  RecencyList list(options.blocks_max);
  Chain chain(options.seed, options.block_tokens);
  std::vector<Block> blocks;
  double counted = 0;
  for (const workload::TraceRequest& request : trace.requests()) {
    blocks.clear();
    chain.begin();
    for (const workload::Piece& piece : trace.pieces(request))
      chain.append(piece, list.limit(), blocks);
    const double share = list.share();
    for (const Block& block : blocks) {
      const double tokens = block.tokens / share;
      counted += tokens;
      const uint64_t distance = list.distance(block);
      if (distance == 0) continue;
      const auto scaled = static_cast<uint64_t>(static_cast<double>(distance) / share);
      const auto size = std::lower_bound(sizes.begin(), sizes.end(), scaled);
      if (size != sizes.end()) hits[static_cast<std::size_t>(size - sizes.begin())] += tokens;
    }
    if (request.output_tokens > 0) {
      chain.append({workload::kAnswerPiece, request.output_tokens}, list.limit(), blocks);
    }
    for (std::size_t i = blocks.size(); i-- > 0;) {
      if (blocks[i].key <= list.limit()) list.use(blocks[i]);
    }
  }

  Curve curve;
  curve.blocks = list.size();
  curve.share = list.share();
  const auto all = static_cast<double>(trace.prompt_tokens());
  const auto first = std::find_if(hits.begin(), hits.end(), [](double mass) { return mass > 0; });
  if (first == hits.end()) return curve;
  *first += all - counted;
  std::size_t last = kSizes - 1;
  while (hits[last] == 0) --last;
  double sum = 0;
  for (auto i = static_cast<std::size_t>(first - hits.begin()); i <= last; ++i) {
    sum += hits[i];
    const double before = curve.points.empty() ? 0 : curve.points.back().hit_rate;
    curve.points.push_back({sizes[i], std::clamp(sum / all, before, 1.0)});
  }
  return curve;
}

}  // namespace pagewise::simulate
