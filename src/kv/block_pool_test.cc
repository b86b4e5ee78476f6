// SPDX-License-Identifier: Apache-2.0
#include "kv/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace pagewise::kv {
namespace {

std::vector<uint32_t> take_all(BlockPool& pool) {
  std::vector<uint32_t> ids;
  while (pool.free() > 0) ids.push_back(pool.take().value);
  return ids;
}

TEST(BlockPool, HandsOutTheLowestFreeIdFirst) {
  BlockPool pool(5, 0.8, std::nullopt);
  EXPECT_EQ(take_all(pool), (std::vector<uint32_t>{0, 1, 2, 3, 4}));
  for (uint32_t id : {3, 1, 4}) pool.release(BlockId(id));
  EXPECT_EQ(take_all(pool), (std::vector<uint32_t>{1, 3, 4}));
  pool.check_invariants();
}

TEST(BlockPool, ShufflesByTheSeedAlone) {
  BlockPool one(64, 0.8, 1), again(64, 0.8, 1), other(64, 0.8, 2);
  const std::vector<uint32_t> order = take_all(one);
  EXPECT_EQ(order, take_all(again));
  EXPECT_NE(order, take_all(other));
  std::vector<uint32_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (uint32_t id = 0; id < 64; ++id) EXPECT_EQ(sorted[id], id);
  EXPECT_NE(order, sorted);
}

TEST(BlockPool, ShrinksByFreeBlocksAndTakesTheirIdsBackFirstWhenItGrows) {
  BlockPool pool(6, 0.8, std::nullopt);
  EXPECT_EQ(take_all(pool), (std::vector<uint32_t>{0, 1, 2, 3, 4, 5}));
  for (uint32_t id : {1, 3, 4}) pool.release(BlockId(id));
  std::vector<BlockId> dropped;
  pool.resize(4, dropped);
  pool.check_invariants();
  EXPECT_EQ(dropped, (std::vector<BlockId>{BlockId(4), BlockId(3)}));
  EXPECT_EQ(pool.capacity(), 4u);
  EXPECT_EQ(pool.free(), 1u);
  EXPECT_EQ(pool.live(), 3u);
  EXPECT_EQ(pool.ids(), 6u);
  dropped.clear();
  pool.resize(8, dropped);
  pool.check_invariants();
  EXPECT_TRUE(dropped.empty());
  EXPECT_EQ(pool.ids(), 8u);
  EXPECT_EQ(take_all(pool), (std::vector<uint32_t>{1, 3, 4, 6, 7}));
}

TEST(BlockPool, NamesOnlyDroppedBlocksThatMayHaveMemory) {
  BlockPool pool(4, 0.8, std::nullopt);
  pool.take();
  pool.release(pool.take());
  std::vector<BlockId> dropped;
  pool.resize(1, dropped);
  EXPECT_EQ(dropped, (std::vector<BlockId>{BlockId(1)}));
  pool.check_invariants();
}

TEST(BlockPool, TheProtectedTierFollowsTheSizeOfThePool) {
  BlockPool pool(8, 0.5, std::nullopt);
  for (uint32_t id = 0; id < 4; ++id) pool.set_findable(pool.take());
  for (uint32_t id = 0; id < 4; ++id) pool.mark_reused(BlockId(id));
  for (uint32_t id = 0; id < 4; ++id) pool.release(BlockId(id));
  for (uint32_t id = 0; id < 4; ++id) EXPECT_TRUE(pool.reused(BlockId(id)));
  std::vector<BlockId> dropped;
  pool.resize(4, dropped);
  pool.check_invariants();
  EXPECT_FALSE(pool.reused(BlockId(0)));
  EXPECT_FALSE(pool.reused(BlockId(1)));
  EXPECT_TRUE(pool.reused(BlockId(2)));
  EXPECT_TRUE(pool.reused(BlockId(3)));
}

TEST(BlockPool, CountsHoldersAndFreesAfterTheLast) {
  BlockPool pool(2, 0.8, std::nullopt);
  const BlockId block = pool.take();
  pool.hold(block);
  pool.release(block);
  EXPECT_EQ(pool.live(), 1u);
  pool.release(block);
  EXPECT_EQ(pool.live(), 0u);
  EXPECT_EQ(pool.free(), 2u);
  pool.check_invariants();
}

TEST(BlockPool, KeepsFindableBlocksCachedUntilTheyAreForgotten) {
  BlockPool pool(3, 0.8, std::nullopt);
  const BlockId block = pool.take();
  pool.set_findable(block);
  pool.release(block);
  EXPECT_EQ(pool.cached(), 1u);
  EXPECT_EQ(pool.victim(), block);
  pool.hold(block);  // a hit
  EXPECT_EQ(pool.live(), 1u);
  EXPECT_FALSE(pool.victim().valid());
  pool.release(block);
  pool.clear_findable(block);
  EXPECT_EQ(pool.free(), 3u);
  pool.check_invariants();
}

TEST(BlockPool, CountsLeasedBlocksLiveOrCached) {
  BlockPool pool(3, 0.8, std::nullopt);
  const BlockId block = pool.take();
  pool.set_findable(block);
  pool.set_leased(block, true);
  EXPECT_EQ(pool.leased(), 1u);
  pool.release(block);
  EXPECT_EQ(pool.leased(), 1u);
  pool.clear_findable(block);
  EXPECT_EQ(pool.leased(), 0u);
  pool.check_invariants();
}

TEST(BlockPool, WhatWasKeptOnceIsNotPassedUntilItHoldsSomethingElse) {
  BlockPool pool(3, 0.5, std::nullopt);
  const BlockId kept = pool.take(), passed = pool.take();
  for (const BlockId block : {kept, passed}) {
    pool.set_findable(block);
    pool.hold(block);
  }
  pool.release(kept);  // somebody's point
  pool.release(kept, true);
  pool.release(passed, true);
  pool.release(passed, true);
  EXPECT_EQ(pool.victim(), passed);
  EXPECT_TRUE(pool.kept(kept));
  pool.keep(passed);
  EXPECT_EQ(pool.victim(), kept);
  pool.clear_findable(kept);
  EXPECT_EQ(pool.take(), kept);
  EXPECT_FALSE(pool.kept(kept));
  pool.check_invariants();
}

TEST(BlockPool, NamesIdleBlocksOnceInTheOrderInWhichTheyBecameFree) {
  BlockPool pool(4, 0.5, std::nullopt);
  pool.set_time(10);
  const BlockId a = pool.take(), b = pool.take(), c = pool.take();
  pool.release(b);
  pool.set_time(20);
  pool.release(a);
  pool.set_time(30);
  pool.release(c);
  pool.check_invariants();
  EXPECT_EQ(pool.oldest_idle(), 10);
  std::vector<BlockId> idle;
  pool.take_idle(20, idle);
  EXPECT_EQ(idle, (std::vector<BlockId>{b, a}));
  EXPECT_EQ(pool.oldest_idle(), 30);
  EXPECT_EQ(pool.take(), a);
  pool.release(a);  // taken again, idle again
  pool.take_idle(100, idle);
  EXPECT_EQ(idle, (std::vector<BlockId>{b, a, c, a}));
  EXPECT_FALSE(pool.oldest_idle());
  pool.check_invariants();
}

TEST(BlockPoolDeathTest, StopsOnABlockThatNobodyHolds) {
  BlockPool pool(2, 0.8, std::nullopt);
  EXPECT_DEATH(pool.release(BlockId(0)), "holders");
  EXPECT_DEATH(pool.hold(BlockId(1)), "holders");
}

}  // namespace
}  // namespace pagewise::kv
