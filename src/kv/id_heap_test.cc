// SPDX-License-Identifier: Apache-2.0
#include "kv/id_heap.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "base/prng.h"

namespace pagewise::kv {
namespace {

TEST(IdHeap, AgreesWithASortedSet) {
  constexpr uint64_t kSeed = 7;
  SCOPED_TRACE(kSeed);
  Prng prng(kSeed);
  IdHeap heap(50);
  std::set<std::pair<uint64_t, uint32_t>> model;
  for (int i = 0; i < 20000; ++i) {
    const auto id = static_cast<uint32_t>(prng.below(50));
    const uint64_t key = prng.below(100);
    if (!heap.contains(id)) {
      heap.push(id, key);
      model.emplace(key, id);
    } else if (prng.below(3) == 0) {
      model.erase({heap.key(id), id});
      model.emplace(key, id);
      heap.set_key(id, key);
    } else {
      model.erase({heap.key(id), id});
      heap.erase(id);
    }
    ASSERT_EQ(heap.size(), model.size());
    ASSERT_TRUE(model.empty() || heap.top() == model.begin()->second);
  }
  while (!model.empty()) {
    ASSERT_EQ(heap.pop(), model.begin()->second);
    model.erase(model.begin());
  }
  EXPECT_TRUE(heap.empty());
}

}  // namespace
}  // namespace pagewise::kv
