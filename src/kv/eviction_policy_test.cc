// SPDX-License-Identifier: Apache-2.0
#include "kv/eviction_policy.h"

#include <gtest/gtest.h>

#include <vector>

namespace pagewise::kv {
namespace {

std::vector<uint32_t> drain(EvictionPolicy& policy) {
  std::vector<uint32_t> order;
  while (policy.victim().valid()) {
    order.push_back(policy.victim().value);
    policy.erase(policy.victim());
  }
  return order;
}

TEST(EvictionPolicy, HasNoVictimWhenNothingIsCached) {
  EvictionPolicy policy(4, 0.5);
  EXPECT_FALSE(policy.victim().valid());
}

TEST(EvictionPolicy, GivesUpTheLeastRecentlyUsedFirst) {
  EvictionPolicy policy(8, 0.5);
  for (uint32_t id : {3, 1, 2}) policy.insert(BlockId(id), false);
  policy.touch(BlockId(3));
  EXPECT_EQ(drain(policy), (std::vector<uint32_t>{1, 2, 3}));
}

TEST(EvictionPolicy, KeepsReusedBlocksOverSingleUseOnes) {
  EvictionPolicy policy(8, 0.5);
  policy.mark_reused(BlockId(0));
  policy.insert(BlockId(0), false);
  for (uint32_t id : {1, 2, 3}) policy.insert(BlockId(id), false);
  EXPECT_EQ(drain(policy), (std::vector<uint32_t>{1, 2, 3, 0}));
}

TEST(EvictionPolicy, BoundsTheProtectedShareAndReturnsTheOldestToItsOldPlace) {
  EvictionPolicy policy(4, 0.5);  // two protected blocks
  policy.insert(BlockId(3), false);
  for (uint32_t id : {0, 1, 2}) {
    policy.mark_reused(BlockId(id));
    policy.insert(BlockId(id), false);
  }
  EXPECT_FALSE(policy.reused(BlockId(0)));  // it has to prove itself again
  EXPECT_EQ(drain(policy), (std::vector<uint32_t>{3, 0, 1, 2}));
}

TEST(EvictionPolicy, IsPlainLruWithoutAProtectedShare) {
  EvictionPolicy policy(8, 0);
  policy.mark_reused(BlockId(5));
  policy.insert(BlockId(5), false);
  for (uint32_t id : {1, 2}) policy.insert(BlockId(id), false);
  EXPECT_EQ(drain(policy), (std::vector<uint32_t>{5, 1, 2}));
}

TEST(EvictionPolicy, GivesUpLeasedBlocksLastAndLeastRecentlyUsedFirst) {
  EvictionPolicy policy(8, 0.5);
  policy.insert(BlockId(4), true);
  policy.insert(BlockId(2), true);
  policy.mark_reused(BlockId(0));
  policy.insert(BlockId(0), false);
  policy.insert(BlockId(1), false);
  EXPECT_EQ(drain(policy), (std::vector<uint32_t>{1, 0, 4, 2}));
}

TEST(EvictionPolicy, PutsABlockWhoseLeaseEndedBackByItsLastUse) {
  EvictionPolicy policy(8, 0.5);
  policy.insert(BlockId(0), true);
  policy.insert(BlockId(1), false);
  policy.set_leased(BlockId(0), false);
  EXPECT_EQ(drain(policy), (std::vector<uint32_t>{0, 1}));
}

TEST(EvictionPolicy, ForgetsReuseWithTheContents) {
  EvictionPolicy policy(8, 0.5);
  policy.mark_reused(BlockId(0));
  policy.forget(BlockId(0));
  policy.insert(BlockId(0), false);
  policy.insert(BlockId(1), false);
  EXPECT_EQ(drain(policy), (std::vector<uint32_t>{0, 1}));
}

TEST(EvictionPolicy, GivesUpWhatAWindowHasPassedFirst) {
  EvictionPolicy policy(4, 0.5);
  policy.insert(BlockId(0), false);
  policy.insert(BlockId(1), false, true);
  policy.insert(BlockId(2), true, true);  // a lease counts more
  policy.insert(BlockId(3), false, true);
  EXPECT_EQ(policy.victim(), BlockId(1));
  policy.keep(BlockId(1));  // in its old place among the others
  EXPECT_EQ(policy.victim(), BlockId(3));
  policy.erase(BlockId(3));
  EXPECT_EQ(policy.victim(), BlockId(0));
  EXPECT_TRUE(policy.precedes(BlockId(1), BlockId(2)));
}

// ---- What was given up and asked for again ----

/// Blocks 0, 1, 2, ... hold the contents of that number plus 100.
uint64_t digest(uint32_t block) { return 100 + block; }

void give_up(EvictionPolicy& policy, uint32_t block) {
  policy.remember(BlockId(block), digest(block));
  policy.erase(BlockId(block));
  policy.forget(BlockId(block));
}

TEST(EvictionPolicy, ProtectsWhatComesBackFromTheStart) {
  EvictionPolicy policy(8, 0.5);
  policy.insert(BlockId(0), false);
  give_up(policy, 0);
  policy.came_back(BlockId(3), digest(0), true);  // another block has its contents now
  policy.came_back(BlockId(4), digest(9), true);  // never seen
  EXPECT_TRUE(policy.reused(BlockId(3)));
  EXPECT_FALSE(policy.reused(BlockId(4)));
  policy.came_back(BlockId(5), digest(0), true);
  EXPECT_FALSE(policy.reused(BlockId(5))) << "met already";
}

TEST(EvictionPolicy, NeverProtectsABlockMoreThanItsPredecessor) {
  EvictionPolicy policy(8, 0.5);
  policy.insert(BlockId(0), false);
  give_up(policy, 0);
  policy.came_back(BlockId(3), digest(0), false);
  EXPECT_FALSE(policy.reused(BlockId(3)));
}

TEST(EvictionPolicy, ShrinksTheProtectedShareForWhatWasReadOnceAndGrowsItForWhatWasReadAgain) {
  EvictionPolicy policy(8, 0.5);
  ASSERT_EQ(policy.protected_max(), 4U);
  policy.insert(BlockId(0), false);
  give_up(policy, 0);
  policy.came_back(BlockId(0), digest(0), true);
  EXPECT_EQ(policy.protected_max(), 3U);
  policy.insert(BlockId(0), false);  // protected, because it came back
  give_up(policy, 0);
  policy.came_back(BlockId(0), digest(0), true);
  EXPECT_EQ(policy.protected_max(), 4U);
}

TEST(EvictionPolicy, TheRarerKindCountsForAsMuchMoreAsItIsRarer) {
  EvictionPolicy policy(32, 0.5);
  for (uint32_t id = 0; id < 7; ++id) {
    if (id == 0) policy.mark_reused(BlockId(id));
    policy.insert(BlockId(id), false);
  }
  for (uint32_t id = 0; id < 7; ++id) give_up(policy, id);
  policy.came_back(BlockId(1), digest(1), true);  // one of six, the other kind is one
  EXPECT_EQ(policy.protected_max(), 15U);
  policy.came_back(BlockId(0), digest(0), true);  // the one beside five
  EXPECT_EQ(policy.protected_max(), 20U);
}

TEST(EvictionPolicy, TheShareLeavesAnEighthForNewcomers) {
  EvictionPolicy policy(16, 0.5);
  for (int round = 0; round < 20; ++round) {
    policy.insert(BlockId(0), false);
    give_up(policy, 0);
    policy.came_back(BlockId(0), digest(0), false);
  }
  EXPECT_EQ(policy.protected_max(), 0U);
  policy.mark_reused(BlockId(1));
  policy.insert(BlockId(1), false);  // demoted at once: it was read again all the same
  give_up(policy, 1);
  policy.came_back(BlockId(1), digest(1), true);
  EXPECT_EQ(policy.protected_max(), 1U);
  for (int round = 0; round < 20; ++round) {
    policy.mark_reused(BlockId(0));
    policy.insert(BlockId(0), false);
    give_up(policy, 0);
    policy.came_back(BlockId(0), digest(0), true);
  }
  EXPECT_EQ(policy.protected_max(), 14U);
}

TEST(EvictionPolicy, ASmallerShareReturnsTheOldestToTheirOldPlaceAtOnce) {
  EvictionPolicy policy(8, 0.25);  // two
  policy.insert(BlockId(4), false);
  give_up(policy, 4);
  policy.mark_reused(BlockId(0));
  policy.insert(BlockId(0), false);
  policy.insert(BlockId(1), false);
  policy.mark_reused(BlockId(2));
  policy.insert(BlockId(2), false);
  ASSERT_EQ(policy.victim(), BlockId(1));
  policy.came_back(BlockId(5), digest(4), false);
  EXPECT_EQ(policy.victim(), BlockId(0)) << "older than block 1";
}

TEST(EvictionPolicy, ASmallerPoolDemotesAnyNumberInOneCall) {
  constexpr uint32_t kBlocks = 1 << 20;
  EvictionPolicy policy(kBlocks, 1);
  for (uint32_t id = 0; id < kBlocks; ++id) {
    policy.mark_reused(BlockId(id));
    policy.insert(BlockId(id), false);
  }
  policy.resize(kBlocks, 2);
  EXPECT_TRUE(policy.reused(BlockId(kBlocks - 1)));
  EXPECT_FALSE(policy.reused(BlockId(kBlocks - 3)));
  EXPECT_EQ(policy.victim(), BlockId(0));
}

TEST(EvictionPolicy, LearnsNothingAsPlainLru) {
  EvictionPolicy policy(8, 0);
  policy.insert(BlockId(0), false);
  give_up(policy, 0);
  policy.came_back(BlockId(0), digest(0), true);
  EXPECT_FALSE(policy.reused(BlockId(0)));
  EXPECT_EQ(policy.protected_max(), 0U);
}

TEST(EvictionPolicy, DoesNotLearnFromWhatAWindowHadPassed) {
  EvictionPolicy policy(8, 0.5);
  policy.insert(BlockId(0), false, true);
  give_up(policy, 0);
  policy.came_back(BlockId(0), digest(0), true);
  EXPECT_FALSE(policy.reused(BlockId(0)));
  EXPECT_EQ(policy.protected_max(), 4U);
}

TEST(EvictionPolicy, KeepsItsShareOfAPoolThatIsResized) {
  EvictionPolicy policy(8, 0.5);
  policy.resize(16, 16);
  EXPECT_EQ(policy.protected_max(), 8U);
  policy.resize(16, 4);
  EXPECT_EQ(policy.protected_max(), 2U);
}

}  // namespace
}  // namespace pagewise::kv
