// SPDX-License-Identifier: Apache-2.0
// A steady decode step allocates nothing: every operator new of this program is counted.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "base/allocation_count_testing.h"
#include "kv/kv_cache.h"

namespace pagewise::kv {
namespace {

TEST(SteadyState, AllocatesNothingInADecodeStep) {
  CacheConfig config;
  config.block_tokens = 4;
  config.groups = {{64, 0}, {64, 0}, {24, 9}};
  auto cache = std::move(KvCache::create(config)).value();
  Orders orders;
  std::vector<TokenId> tokens;
  tokens.reserve(400);
  const auto answer = [&](int32_t first) {  // the slot's tables grow once, and are then kept
    tokens.assign(5, TokenId(first));
    AdmitRequest request;
    request.tokens = tokens;
    const Admitted admitted = cache->admit(request, orders).value();
    const uint64_t before = testing::allocation_count();
    for (int32_t i = 0; i < 200; ++i) {
      orders.clear();
      EXPECT_TRUE(cache->ensure(admitted.seq, static_cast<uint32_t>(tokens.size()), orders));
      cache->publish(admitted.seq, tokens);
      tokens.emplace_back(i);
    }
    const uint64_t made = testing::allocation_count() - before;
    cache->release(admitted.seq);
    return made;
  };
  EXPECT_GT(answer(1), 0u);  // the count counts
  EXPECT_EQ(answer(2), 0u);
  EXPECT_EQ(answer(3), 0u);  // also when blocks are evicted all the time
  EXPECT_GT(cache->counters().evictions, 0u);
}

}  // namespace
}  // namespace pagewise::kv
