// SPDX-License-Identifier: Apache-2.0
// Looking without touching.
#include "kv/inspection.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/prng.h"
#include "kv/kv_cache.h"
#include "kv/test_tokens.h"

namespace pagewise::kv {
namespace {

/// Blocks of 4 tokens, leases of 5 and 60 units of time.
std::unique_ptr<KvCache> make_cache(std::vector<CacheGroup> groups) {
  CacheConfig config;
  config.block_tokens = 4;
  config.groups = std::move(groups);
  config.lease_5m_ns = 5;
  config.lease_1h_ns = 60;
  return *KvCache::create(config);
}

Admitted serve(KvCache& cache, const Tokens& prompt, TimeNs now,
               std::vector<MarkedPrefix> marks = {}) {
  std::vector<CachePosition> positions;
  std::vector<CacheMarker> markers;
  for (const MarkedPrefix& mark : marks) {
    markers.push_back({static_cast<uint32_t>(positions.size()), mark.lease});
    positions.push_back({mark.tokens});
  }
  AdmitRequest request;
  request.tokens = prompt;
  request.cache_namespace = "mine";
  request.positions = positions;
  request.markers = markers;
  request.start = now;
  Orders orders;
  cache.set_time(now);
  Result<Admitted> admitted = cache.admit(request, orders);
  EXPECT_TRUE(admitted.has_value());
  EXPECT_TRUE(cache.ensure(admitted->seq, static_cast<uint32_t>(prompt.size()), orders));
  cache.publish(admitted->seq, prompt);
  cache.release(admitted->seq);
  return *admitted;
}

Inspection inspect(const KvCache& cache, const Tokens& prompt, TimeNs now = 0,
                   std::string_view name_space = "mine", uint32_t beyond = 100) {
  AdmitRequest request;
  request.tokens = prompt;
  request.cache_namespace = name_space;
  return cache.inspect(request, now, beyond);
}

TEST(Inspection, TellsWhatAnAdmissionWouldReadAndHowTheCachedPromptGoesOn) {
  const auto cache = make_cache({{16, 0}});
  serve(*cache, tokens({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), 0);
  const Inspection parted = inspect(*cache, tokens({1, 2, 3, 4, 5, 6, 70, 80, 90}));
  EXPECT_EQ(parted.cached_tokens, 6U);
  EXPECT_EQ(parted.matched_tokens, 6U);
  EXPECT_EQ(parted.blocks, 2U);
  EXPECT_EQ(parted.beyond, tokens({7, 8, 9, 10}));
  EXPECT_FALSE(parted.lease.has_value());

  const Inspection between = inspect(*cache, tokens({1, 2, 3, 4, 50}));
  EXPECT_EQ(between.cached_tokens, 4U);
  EXPECT_EQ(between.beyond, tokens({5, 6, 7, 8, 9, 10}));
  EXPECT_EQ(inspect(*cache, tokens({1, 2, 3, 4, 50}), 0, "mine", 3).beyond, tokens({5, 6, 7}));

  const Inspection whole = inspect(*cache, tokens({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  EXPECT_EQ(whole.cached_tokens, 9U) << "the last token is computed anyway";
  EXPECT_EQ(whole.matched_tokens, 10U);
  EXPECT_TRUE(whole.beyond.empty());
}

TEST(Inspection, SaysNothingOfAnotherNamespace) {
  const auto cache = make_cache({{16, 0}});
  serve(*cache, tokens({1, 2, 3, 4, 5}), 0);
  const Inspection seen = inspect(*cache, tokens({1, 2, 3, 4, 5}), 0, "theirs");
  EXPECT_EQ(seen.cached_tokens, 0U);
  EXPECT_EQ(seen.matched_tokens, 0U);
  EXPECT_TRUE(seen.beyond.empty());
  EXPECT_TRUE(inspect(*cache, tokens({9})).beyond.empty()) << "nothing is shared";
}

TEST(Inspection, NamesTheLongestLeaseThatStillStands) {
  const auto cache = make_cache({{16, 0}});
  const Tokens prompt = tokens({1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  serve(*cache, prompt, 100, {{4, LeaseClass::k1h}, {7, LeaseClass::k5m}});
  const Tokens asked = tokens({1, 2, 3, 4, 5, 6, 7, 80});
  EXPECT_EQ(inspect(*cache, asked, 101).lease, (StandingLease{7, LeaseClass::k5m, 105}));
  EXPECT_EQ(inspect(*cache, asked, 105).lease, (StandingLease{4, LeaseClass::k1h, 160}));
  EXPECT_FALSE(inspect(*cache, asked, 160).lease.has_value());
  EXPECT_EQ(inspect(*cache, tokens({1, 2, 3, 4, 5, 6, 70}), 101).lease->tokens, 4U);
  EXPECT_FALSE(inspect(*cache, tokens({1, 2, 3, 40}), 101).lease.has_value());
}

TEST(Inspection, CountsTheBlocksOfEveryGroupThatTheHitNeeds) {
  const auto cache = make_cache({{16, 0}, {16, 4}});
  serve(*cache, tokens({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}), 0);
  const Inspection seen = inspect(*cache, tokens({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}));
  EXPECT_EQ(seen.cached_tokens, 13U);
  // Four of the full group; of the window's the last two: 3 positions before the next one.
  EXPECT_EQ(seen.blocks, 6U);
}

TEST(Inspection, ChangesNothing) {
  // The same life twice, once under constant inspection: every admission and the order in which
  // blocks are given up must be the same.
  for (const uint64_t seed : {1, 2, 3, 4, 5}) {
    Prng prng(seed);
    const auto plain = make_cache({{10, 0}});
    const auto watched = make_cache({{10, 0}});
    for (int round = 0; round < 300; ++round) {
      Tokens prompt;
      for (uint32_t i = 0, n = 1 + static_cast<uint32_t>(prng.below(20)); i < n; ++i) {
        prompt.emplace_back(static_cast<int32_t>(prng.below(2)));
      }
      std::vector<MarkedPrefix> marks;
      if (prng.below(3) == 0) {
        marks.push_back({static_cast<uint32_t>(prompt.size()), LeaseClass::k5m});
      }
      const Inspection seen = inspect(*watched, prompt, round);
      Tokens other = prompt;
      other.back() = TokenId(7);
      inspect(*watched, other, round);
      const Admitted a = serve(*plain, prompt, round, marks);
      const Admitted b = serve(*watched, prompt, round, marks);
      ASSERT_EQ(a.cached_tokens, b.cached_tokens) << "seed " << seed << ", round " << round;
      ASSERT_EQ(a.usage, b.usage) << "seed " << seed << ", round " << round;
      ASSERT_EQ(seen.cached_tokens, b.cached_tokens) << "seed " << seed << ", round " << round;
      ASSERT_EQ(plain->counters().evictions, watched->counters().evictions);
      ASSERT_EQ(plain->counters().leases_broken, watched->counters().leases_broken);
      ASSERT_EQ(plain->counters().query_tokens, watched->counters().query_tokens);
    }
    EXPECT_GT(plain->counters().evictions, 50U) << "the pool must have been short";
    watched->check_invariants();
  }
}

}  // namespace
}  // namespace pagewise::kv
