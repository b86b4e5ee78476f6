// SPDX-License-Identifier: Apache-2.0
// Floors and ceilings of namespaces, event by event. What holds over any course of events is in
// kv_cache_property_test.cc.
#include "kv/quota.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "kv/kv_cache.h"
#include "kv/test_tokens.h"

namespace pagewise::kv {
namespace {

constexpr uint32_t kBlockTokens = 4;

/// `blocks` blocks' worth of tokens that begin with nothing else's.
Tokens blocks_of(uint32_t blocks, int32_t first) {
  Tokens out;
  for (uint32_t i = 0; i < blocks * kBlockTokens; ++i)
    out.emplace_back(first * 1000 + static_cast<int32_t>(i));
  return out;
}

class Bench {
 public:
  explicit Bench(std::vector<NamespaceQuota> quotas, std::vector<CacheGroup> groups = {{20, 0}}) {
    CacheConfig config;
    config.block_tokens = kBlockTokens;
    config.groups = std::move(groups);
    config.quotas = std::move(quotas);
    cache_ = std::move(KvCache::create(config)).value();
  }
  KvCache* operator->() { return cache_.get(); }

  Result<Admitted> try_admit(const std::string& space, const Tokens& prompt, uint32_t marked = 0) {
    AdmitRequest request;
    request.tokens = prompt;
    request.cache_namespace = space;
    request.cover_tokens = static_cast<uint32_t>(prompt.size());
    const CachePosition position{marked};
    const CacheMarker marker{0, LeaseClass::k5m};
    if (marked > 0) {
      request.positions = {&position, 1};
      request.markers = {&marker, 1};
    }
    Orders orders;
    Result<Admitted> admitted = cache_->admit(request, orders);
    cache_->check_invariants();
    return admitted;
  }
  /// Computes the prompt; the sequence stays open.
  SeqId run(const std::string& space, const Tokens& prompt) {
    const SeqId seq = try_admit(space, prompt).value().seq;
    compute(seq, prompt);
    return seq;
  }
  void compute(SeqId seq, const Tokens& prompt) {
    Orders orders;
    ASSERT_TRUE(cache_->ensure(seq, static_cast<uint32_t>(prompt.size()), orders));
    cache_->publish(seq, prompt);
    cache_->check_invariants();
  }
  void leave(SeqId seq) {
    cache_->release(seq);
    cache_->check_invariants();
  }
  CacheUsage serve(const std::string& space, const Tokens& prompt, uint32_t marked = 0) {
    const Admitted admitted = try_admit(space, prompt, marked).value();
    compute(admitted.seq, prompt);
    leave(admitted.seq);
    return admitted.usage;
  }
  /// Whole blocks of the prompt that could be read now.
  uint32_t hit(const std::string& space, const Tokens& prompt) const {
    AdmitRequest request;
    Tokens more = prompt;
    more.emplace_back(-1);
    request.tokens = more;
    request.cache_namespace = space;
    return cache_->estimate(request).cached_tokens / kBlockTokens;
  }
  NamespaceUse use(const std::string& name) const {
    for (const NamespaceUse& use : cache_->namespaces()) {
      if (use.name == name) return use;
    }
    return {};
  }

 private:
  std::unique_ptr<KvCache> cache_;
};

TEST(Quota, AFloorIsKeptThroughAFloodOfAnothersPrompts) {
  for (const uint32_t floor : {0U, 5U, 8U}) {
    Bench bench({{"team", floor, 0}});
    const Tokens manual = blocks_of(8, 1);
    bench.serve("team", manual);
    const SeqId other = bench.run("guest", blocks_of(1, 2));  // nobody is ever alone
    for (int32_t i = 0; i < 50; ++i) bench.serve("guest", blocks_of(6, 10 + i));
    EXPECT_EQ(bench.hit("team", manual), floor) << "eaten from its tail, down to the floor";
    EXPECT_EQ(bench->counters().evictions_below_floor, 0U);
    bench.leave(other);
  }
}

TEST(Quota, AFloorIsOfANameAndAllBelowItTogether) {
  Bench bench({{"team", 6, 0}});
  bench.serve("team/one", blocks_of(4, 1));
  bench.serve("team/two", blocks_of(4, 2));
  bench.serve("teams", blocks_of(4, 3));
  const SeqId other = bench.run("guest", blocks_of(1, 4));
  for (int32_t i = 0; i < 20; ++i) bench.serve("guest", blocks_of(6, 10 + i));
  EXPECT_EQ(bench.use("team/one").blocks_cached + bench.use("team/two").blocks_cached, 6U);
  EXPECT_EQ(bench.use("teams").blocks_cached, 0U) << "another name";
  bench.leave(other);
}

TEST(Quota, AFloorIsNoReserveOfFreeBlocks) {
  Bench bench({{"team", 15, 0}});
  bench.serve("team", blocks_of(3, 1));
  const SeqId other = bench.run("guest", blocks_of(1, 2));
  EXPECT_TRUE(bench.try_admit("guest", blocks_of(16, 3)).has_value()) << "all but those three";
  bench.leave(other);
}

TEST(Quota, WhoRunsAloneTakesWhatAFloorKeeps) {
  Bench bench({{"team", 8, 0}});
  const Tokens manual = blocks_of(8, 1);
  bench.serve("team", manual);
  const SeqId other = bench.run("guest", blocks_of(1, 2));
  const auto waits = bench.try_admit("guest", blocks_of(15, 3));
  ASSERT_FALSE(waits.has_value()) << "20 - 8 - 1 can be had while another runs";
  EXPECT_EQ(waits.error().code, ErrorCode::kPoolExhausted);
  EXPECT_EQ(bench.hit("team", manual), 8U);
  bench.leave(other);
  const auto served = bench.try_admit("guest", blocks_of(15, 3));
  ASSERT_TRUE(served.has_value()) << "a request that fits the pool never waits for ever";
  EXPECT_EQ(bench.hit("team", manual), 5U) << "and takes no more than it needs";
  EXPECT_EQ(bench->counters().evictions_below_floor, 3U);
  // So does its growth.
  Orders orders;
  EXPECT_TRUE(bench->ensure(served->seq, 20 * kBlockTokens, orders));
  EXPECT_EQ(bench.hit("team", manual), 0U);
  bench->check_invariants();
}

TEST(Quota, GrowthBesideOthersStopsAtAFloor) {
  Bench bench({{"team", 8, 0}});
  bench.serve("team", blocks_of(8, 1));
  const SeqId one = bench.run("guest", blocks_of(5, 2));
  const SeqId two = bench.run("guest", blocks_of(5, 3));
  Orders orders;
  EXPECT_EQ(bench->coverable(one, 100), 7 * kBlockTokens);
  EXPECT_TRUE(bench->ensure(one, 7 * kBlockTokens, orders));
  EXPECT_EQ(bench->ensure(one, 8 * kBlockTokens, orders).code(), ErrorCode::kPoolExhausted);
  bench.leave(two);
  EXPECT_EQ(bench->coverable(one, 100), 20 * kBlockTokens);
  EXPECT_TRUE(bench->ensure(one, 12 * kBlockTokens, orders));
  EXPECT_EQ(bench.hit("team", blocks_of(8, 1)), 8U);
}

TEST(Quota, ANamespaceMayPushItselfBelowItsFloor) {
  Bench bench({{"team", 8, 0}});
  bench.serve("team", blocks_of(8, 1));
  const SeqId other = bench.run("guest", blocks_of(1, 2));
  EXPECT_TRUE(bench.try_admit("team", blocks_of(18, 3)).has_value());
  EXPECT_EQ(bench.hit("team", blocks_of(8, 1)), 1U);
  EXPECT_EQ(bench->counters().evictions_below_floor, 0U);
  bench.leave(other);
}

TEST(Quota, AFloorGoesBeforeAnothersLease) {
  Bench bench({{"team", 8, 0}});
  bench->set_time(1);
  bench.serve("team", blocks_of(8, 1));
  bench.serve("guest", blocks_of(6, 2), 6 * kBlockTokens);
  EXPECT_EQ(bench->counts(0).leased, 6U);
  const SeqId other = bench.run("third", blocks_of(1, 3));
  bench.serve("third", blocks_of(10, 4));
  EXPECT_EQ(bench.hit("team", blocks_of(8, 1)), 8U);
  EXPECT_EQ(bench->counters().leases_broken, 1U) << "a lease never makes a request wait";
  bench.leave(other);
}

TEST(Quota, BeyondItsCeilingANamespaceGivesUpItsOwn) {
  Bench bench({{"team", 0, 6}});
  bench.serve("guest", blocks_of(4, 9));
  for (int32_t i = 1; i <= 5; ++i) {
    bench.serve("team", blocks_of(4, i));
    EXPECT_LE(bench.use("team").blocks_cached, 6U);
  }
  EXPECT_EQ(bench.use("team").blocks_cached, 6U);
  EXPECT_EQ(bench.hit("team", blocks_of(4, 5)), 4U) << "the last one whole";
  EXPECT_EQ(bench.hit("team", blocks_of(4, 4)), 2U) << "of the one before the beginning";
  EXPECT_EQ(bench.hit("guest", blocks_of(4, 9)), 4U) << "others are not touched";
  EXPECT_EQ(bench->counts(0).free, 10U) << "although there was room";
  EXPECT_EQ(bench->counters().evictions_ceiling, 14U);
}

TEST(Quota, ACeilingBoundsWhatIsCachedNeverWhatIsInUse) {
  Bench bench({{"team", 0, 3}});
  const SeqId seq = bench.run("team", blocks_of(12, 1));
  EXPECT_EQ(bench.use("team").blocks_live, 12U);
  bench.leave(seq);
  EXPECT_EQ(bench.use("team").blocks_cached, 3U);
  EXPECT_EQ(bench.hit("team", blocks_of(12, 1)), 3U) << "the beginning, which most can share";
  // What is in use counts.
  const SeqId running = bench.run("team", blocks_of(2, 2));
  EXPECT_EQ(bench.use("team").blocks_cached, 1U);
  bench.leave(running);
}

TEST(Quota, WhatACeilingWouldGiveUpIsNotLeased) {
  Bench bench({{"team", 0, 5}});
  bench->set_time(1);
  EXPECT_EQ(bench.serve("team", blocks_of(8, 1), 8 * kBlockTokens), (CacheUsage{0, 0, 0, 32}))
      << "8 blocks: no lease, no creation";
  EXPECT_EQ(bench->counters().leases_refused, 1U);
  EXPECT_EQ(bench.serve("team/w", blocks_of(3, 2), 3 * kBlockTokens), (CacheUsage{0, 12, 0, 0}));
  EXPECT_EQ(bench.serve("team/x", blocks_of(3, 3), 3 * kBlockTokens), (CacheUsage{0, 0, 0, 12}))
      << "the ceiling is of all below the name";
  EXPECT_EQ(bench->counters().leases_broken, 1U) << "3 blocks in use beside 3 leased ones are 6";
  EXPECT_EQ(bench.serve("guest", blocks_of(8, 4), 8 * kBlockTokens), (CacheUsage{0, 32, 0, 0}));
}

TEST(Quota, FloorsThatThePoolCannotKeepAreRefusedWithBothNumbers) {
  CacheConfig config;
  config.block_tokens = kBlockTokens;
  config.groups = {{20, 0}, {8, 6}};
  config.quotas = {{"a", 12, 0}, {"b", 9, 0}};
  auto refused = KvCache::create(config);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused.error().message,
            "the floors of namespaces sum to 21 KV blocks, and the pool has room for 20: lower "
            "some, or make the pool larger");
  config.quotas[1].floor_blocks = 8;
  EXPECT_TRUE(KvCache::create(config).has_value());
  config.quotas[1] = {"b", 8, 7};
  EXPECT_FALSE(KvCache::create(config).has_value()) << "a floor above its ceiling";
  config.quotas[1] = {"a", 1, 0};
  EXPECT_FALSE(KvCache::create(config).has_value()) << "two of a name";
  config.quotas[1] = {"b/c", 1, 0};
  EXPECT_FALSE(KvCache::create(config).has_value());
}

TEST(Quota, AResizeBelowTheFloorsIsRefusedAndOneAboveKeepsThem) {
  Bench bench({{"team", 8, 0}});
  bench.serve("guest", blocks_of(6, 2));
  bench.serve("team", blocks_of(10, 1));
  bench.serve("guest", blocks_of(4, 3));
  std::vector<FreshBlock> dropped;
  const Status refused = bench->resize(std::vector<uint32_t>{7}, dropped);
  EXPECT_EQ(refused.code(), ErrorCode::kPoolExhausted);
  EXPECT_NE(refused.error().message.find("sum to 8 KV blocks"), std::string::npos);
  EXPECT_NE(refused.error().message.find("room for 7"), std::string::npos);
  EXPECT_EQ(bench->counts(0).pool, 20U);
  EXPECT_TRUE(bench->resize(std::vector<uint32_t>{9}, dropped));
  bench->check_invariants();
  EXPECT_EQ(bench.hit("team", blocks_of(10, 1)), 8U);
  EXPECT_EQ(bench.use("guest").blocks_cached, 1U);
  EXPECT_EQ(bench->counters().evictions_below_floor, 0U);
}

TEST(Quota, OfASlidingGroupItIsTheSameShare) {
  Bench bench({{"team", 10, 15}, {"b", 3, 0}}, {{20, 0}, {12, 6}});
  const std::vector<QuotaUse> quotas = bench->quotas();
  ASSERT_EQ(quotas.size(), 2U);
  EXPECT_EQ(quotas[0].floor_blocks, 10U + 6U);
  EXPECT_EQ(quotas[0].ceiling_blocks, 15U + 9U);
  EXPECT_EQ(quotas[1].floor_blocks, 3U + 1U) << "rounded down";
  EXPECT_EQ(quotas[1].ceiling_blocks, 0U);
  std::vector<FreshBlock> dropped;
  ASSERT_TRUE(bench->resize(std::vector<uint32_t>{40, 12}, dropped));
  EXPECT_EQ(bench->quotas()[0].floor_blocks, 10U + 3U) << "and follows the pools";
  EXPECT_EQ(bench->quotas()[0].ceiling_blocks, 15U + 5U) << "rounded up";
}

TEST(Quota, AWindowBeforeAPromptsEndIsKeptAsWell) {
  Bench bench({{"team", 8, 0}}, {{20, 0}, {20, 6}});
  const Tokens manual = blocks_of(8, 1);
  bench.serve("team", manual);
  const SeqId other = bench.run("guest", blocks_of(1, 2));
  for (int32_t i = 0; i < 50; ++i) bench.serve("guest", blocks_of(6, 10 + i));
  EXPECT_EQ(bench.hit("team", manual), 8U) << "without its window nothing could be read there";
  bench.leave(other);
}

TEST(Quota, WhoSkipsTheCacheRespectsFloorsAndCountsForHisOwn) {
  Bench bench({{"team", 8, 0}});
  bench.serve("team", blocks_of(8, 1));
  const SeqId other = bench.run("guest", blocks_of(1, 2));
  const auto ask = [&](const std::string& space) {
    const Tokens prompt = blocks_of(15, 3);
    AdmitRequest request;
    request.tokens = prompt;
    request.cache_namespace = space;
    request.use_cache = false;
    request.cover_tokens = static_cast<uint32_t>(prompt.size());
    return bench->estimate(request).fits_now;
  };
  EXPECT_FALSE(ask("guest"));
  EXPECT_TRUE(ask("team"));
  bench.leave(other);
}

TEST(Quota, ForksCountTheirSharedBlocksOnce) {
  Bench bench({{"team", 0, 8}});
  const SeqId first = bench.run("team", blocks_of(4, 1));
  const SeqId second = bench->fork(first);
  bench.serve("team", blocks_of(4, 2));
  EXPECT_EQ(bench.use("team").blocks_live + bench.use("team").blocks_cached, 8U);
  bench.leave(second);
  bench.leave(first);
  EXPECT_EQ(bench.use("team").blocks_cached, 8U);
}

TEST(Quota, ClearingForgetsAFloorsBlocksToo) {
  Bench bench({{"team", 8, 10}});
  bench.serve("team", blocks_of(8, 1));
  EXPECT_EQ(bench->clear("team"), 8U);
  EXPECT_EQ(bench->counts(0).free, 20U);
  bench.serve("team", blocks_of(8, 1));
  EXPECT_EQ(bench.use("team").blocks_cached, 8U) << "and the name keeps its quota";
}

}  // namespace
}  // namespace pagewise::kv
