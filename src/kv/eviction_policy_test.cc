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

}  // namespace
}  // namespace pagewise::kv
