// SPDX-License-Identifier: Apache-2.0
#include "kv/reuse_curve.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <list>
#include <vector>

#include "base/allocation_count_testing.h"
#include "base/prng.h"

namespace pagewise::kv {
namespace {

constexpr uint32_t kBlock = 32;
using Prompt = std::vector<uint64_t>;  // keys of its blocks

/// Prompts that continue, repeat or leave earlier ones, without an end: what is older than `memory`
/// prompts is never asked for again.
class Traffic {
 public:
  explicit Traffic(uint64_t seed, std::size_t memory = 60) : prng_(mix64(seed)), memory_(memory) {}

  const Prompt& next() {
    Prompt prompt;
    if (!known_.empty() && prng_.below(3) != 0) {
      auto it = known_.begin();
      std::advance(it, prng_.below(known_.size()));
      prompt = *it;
      prompt.resize(1 + prng_.below(prompt.size()));
    }
    for (uint64_t fresh = 1 + prng_.below(6); fresh > 0; --fresh) {
      prompt.push_back(mix64(++fresh_));
    }
    known_.push_back(std::move(prompt));
    if (known_.size() > memory_) known_.pop_front();
    return known_.back();
  }

 private:
  Prng prng_;
  const std::size_t memory_;
  std::list<Prompt> known_;
  uint64_t fresh_ = 0;
};

std::vector<ReuseBlock> blocks_of(const Prompt& prompt) {
  std::vector<ReuseBlock> blocks;
  for (const uint64_t key : prompt) blocks.push_back({key, kBlock, kBlock});
  return blocks;
}

void serve(ReuseCurve& curve, const Prompt& prompt) {
  std::vector<ReuseBlock> blocks = blocks_of(prompt);
  std::erase_if(blocks, [&](const ReuseBlock& block) { return block.key > curve.limit(); });
  curve.look_up(blocks, prompt.size() * kBlock);
  curve.touch(blocks);
}

/// The definition: an LRU list of so many blocks.
class LruList {
 public:
  explicit LruList(std::size_t blocks_max) : blocks_max_(blocks_max) {}
  void serve(const Prompt& prompt) {
    for (const uint64_t key : prompt) {
      ++asked_;
      found_ += std::find(list_.begin(), list_.end(), key) != list_.end();
    }
    for (std::size_t i = prompt.size(); i-- > 0;) {
      list_.remove(prompt[i]);
      list_.push_front(prompt[i]);
    }
    while (list_.size() > blocks_max_) list_.pop_back();
  }
  double hit_rate() const { return static_cast<double>(found_) / static_cast<double>(asked_); }

 private:
  const std::size_t blocks_max_;
  std::list<uint64_t> list_;
  uint64_t found_ = 0, asked_ = 0;
};

TEST(ReuseCurve, IsTheHitRateOfAnLruListOfEachSize) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    for (const uint64_t reach : {uint64_t{0}, uint64_t{1} << 30}) {
      ReuseCurve curve({.blocks_max = 1 << 12, .reach_tokens = reach, .sizes_per_octave = 3});
      std::vector<LruList> lists;
      for (std::size_t blocks = 2; blocks < 4096; blocks *= 2) lists.emplace_back(blocks);
      Traffic traffic(seed);
      for (int i = 0; i < 400; ++i) {
        const Prompt& prompt = traffic.next();
        serve(curve, prompt);
        for (LruList& list : lists) list.serve(prompt);
      }
      ASSERT_EQ(curve.share(), 1);
      curve.check_invariants();
      std::size_t blocks = 2;
      for (const LruList& list : lists) {
        EXPECT_NEAR(curve.hit_rate_at(blocks * kBlock), list.hit_rate(), 1e-9) << blocks;
        blocks *= 2;
      }
    }
  }
}

TEST(ReuseCurve, KeepsAPrefixLongerThanWhatFollowsIt) {
  // Two prompts in turns, of four blocks each, in a memory of six: one finds two blocks of its
  // front, because the other has eaten its tail.
  ReuseCurve curve({.blocks_max = 64, .sizes_per_octave = 64});
  const Prompt a = {mix64(1), mix64(2), mix64(3), mix64(4)};
  const Prompt b = {mix64(5), mix64(6), mix64(7), mix64(8)};
  serve(curve, a);
  serve(curve, b);
  curve.look_up(blocks_of({a[0], a[1]}), 2 * kBlock);
  constexpr uint64_t kSix = 6 * kBlock + kBlock / 4, kEight = 8 * kBlock + kBlock / 4;
  EXPECT_NEAR(curve.hit_rate_at(kSix), 2.0 / 10, 1e-9);
  curve.look_up(blocks_of({a[2], a[3]}), 2 * kBlock);
  EXPECT_NEAR(curve.hit_rate_at(kSix), 2.0 / 12, 1e-9);
  EXPECT_NEAR(curve.hit_rate_at(kEight), 4.0 / 12, 1e-9);
}

TEST(ReuseCurve, WithAReachShareAndMemoryStayWhatTheyAreHoweverLongItGoesOn) {
  constexpr uint64_t kBlocksMax = 1 << 10, kReach = 8000 * kBlock;
  ReuseCurve bounded({.blocks_max = kBlocksMax, .reach_tokens = kReach, .sizes_per_octave = 2});
  ReuseCurve whole({.blocks_max = 1 << 18, .sizes_per_octave = 2});
  Traffic traffic(1, 1000);
  const uint64_t before = testing::allocation_count();
  std::vector<Prompt> prompts;
  for (int i = 0; i < 30'000; ++i) prompts.push_back(traffic.next());
  EXPECT_GT(testing::allocation_count(), before) << "the count counts";
  double share_once = 0;
  std::vector<ReuseBlock> blocks;
  blocks.reserve(100'000);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    serve(whole, prompts[i]);
    blocks.clear();
    for (const uint64_t key : prompts[i]) {
      if (key <= bounded.limit()) blocks.push_back({key, kBlock, kBlock});
    }
    const uint64_t allocated = testing::allocation_count();
    bounded.look_up(blocks, prompts[i].size() * kBlock);
    bounded.touch(blocks);
    ASSERT_EQ(testing::allocation_count(), allocated);
    if (i == 5000) share_once = bounded.share();
  }
  EXPECT_EQ(bounded.share(), share_once);
  EXPECT_EQ(bounded.share(), 1.0 / 8);
  EXPECT_EQ(bounded.blocks(), kBlocksMax);
  EXPECT_GE(bounded.memory_tokens(), kReach);
  bounded.check_invariants();
  // 100,000 blocks have appeared, of which 1,000 are followed.
  ASSERT_EQ(whole.share(), 1);
  EXPECT_GT(whole.memory_tokens(), 10 * kReach);
  for (uint64_t size = 100 * kBlock; size <= kReach; size *= 2) {
    EXPECT_NEAR(bounded.hit_rate_at(size), whole.hit_rate_at(size), 0.03) << size;
  }
  for (const CurvePoint& point : bounded.points()) EXPECT_LE(point.tokens, kReach);
}

TEST(ReuseCurve, ALargerReachFollowsAPartOfTheSameBlocks) {
  ReuseCurve curve({.blocks_max = 256, .reach_tokens = 200 * kBlock, .sizes_per_octave = 2});
  Traffic traffic(3);
  for (int i = 0; i < 1000; ++i) serve(curve, traffic.next());
  EXPECT_EQ(curve.share(), 1);
  curve.set_reach(2000 * kBlock);
  for (int i = 0; i < 3000; ++i) serve(curve, traffic.next());
  EXPECT_EQ(curve.share(), 1.0 / 8);
  EXPECT_GE(curve.memory_tokens(), 2000U * kBlock);
  curve.check_invariants();
  curve.set_reach(200 * kBlock);
  for (int i = 0; i < 1000; ++i) serve(curve, traffic.next());
  EXPECT_EQ(curve.share(), 1.0 / 8) << "what was not followed cannot be known";
}

TEST(ReuseCurve, HalvedCountsGiveWayToWhatComesAfterwards) {
  ReuseCurve curve({.blocks_max = 1 << 12, .sizes_per_octave = 64});
  const Prompt same = {mix64(1), mix64(2)};
  serve(curve, same);
  for (int i = 0; i < 99; ++i) serve(curve, same);
  EXPECT_NEAR(curve.hit_rate_at(1 << 20), 0.99, 1e-9);
  curve.halve_counts();
  EXPECT_NEAR(curve.hit_rate_at(1 << 20), 0.99, 1e-9);
  for (uint64_t i = 0; i < 50; ++i) serve(curve, {mix64(100 + 2 * i), mix64(101 + 2 * i)});
  EXPECT_NEAR(curve.hit_rate_at(1 << 20), 0.495, 1e-9) << "50 of 100, each half as much";
  EXPECT_EQ(curve.prompt_tokens(), 100 * 2 * kBlock);
  // Distances are not: they are those of all that was used.
  serve(curve, same);
  EXPECT_NEAR(curve.hit_rate_at(104 * kBlock), 0.5, 1e-9);
  EXPECT_NEAR(curve.hit_rate_at(98 * kBlock), 3168.0 / 6464, 1e-9);
}

TEST(ReuseCurve, BetweenTwoSizesIsWhatLiesBetween) {
  ReuseCurve curve({.blocks_max = 64, .sizes_per_octave = 1});
  const Prompt a = {mix64(1)}, b = {mix64(2)}, c = {mix64(3)}, d = {mix64(4)};
  for (int i = 0; i < 2; ++i) {
    for (const Prompt& prompt : {a, b, c, d}) serve(curve, prompt);
  }
  EXPECT_EQ(curve.hit_rate_at(64), 0);
  EXPECT_NEAR(curve.hit_rate_at(128), 0.5, 1e-9);
  const double middle = curve.hit_rate_at(static_cast<uint64_t>(std::lround(64 * std::sqrt(2))));
  EXPECT_NEAR(middle, 0.25, 0.01);
  EXPECT_NEAR(curve.hit_rate_at(UINT64_MAX), 0.5, 1e-9);
}

TEST(ReuseCurve, WithoutTrafficIsEmpty) {
  const ReuseCurve curve({.blocks_max = 64, .reach_tokens = 100});
  EXPECT_TRUE(curve.points().empty());
  EXPECT_EQ(curve.hit_rate_at(1000), 0);
  EXPECT_EQ(curve.memory_tokens(), 0U);
}

}  // namespace
}  // namespace pagewise::kv
