// SPDX-License-Identifier: Apache-2.0
// A steady decode step allocates nothing: every operator new of this program is counted.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "kv/kv_cache.h"

namespace {
uint64_t allocations = 0;

void* counted(std::size_t size) noexcept {
  ++allocations;
  return std::malloc(size == 0 ? 1 : size);
}
}  // namespace

// The whole family, so that a sanitizer never sees a block that one half made and another frees.
void* operator new(std::size_t size) {
  if (void* memory = counted(size)) return memory;
  throw std::bad_alloc();
}
void* operator new[](std::size_t size) { return operator new(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return counted(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return counted(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }

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
    const uint64_t before = allocations;
    for (int32_t i = 0; i < 200; ++i) {
      orders.clear();
      EXPECT_TRUE(cache->ensure(admitted.seq, static_cast<uint32_t>(tokens.size()), orders));
      cache->publish(admitted.seq, tokens);
      tokens.emplace_back(i);
    }
    const uint64_t made = allocations - before;
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
