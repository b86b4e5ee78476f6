// SPDX-License-Identifier: Apache-2.0
#include "kv/recency_list.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <list>

#include "base/prng.h"

namespace pagewise::kv {
namespace {

struct Entry {
  uint64_t key = 0;
  uint32_t weight = 0;
};

/// The definition: a list, the most recently used first.
class NaiveList {
 public:
  void use(uint64_t key, uint32_t weight) {
    erase(key);
    entries_.push_front({key, weight});
  }
  void erase(uint64_t key) {
    entries_.remove_if([key](const Entry& entry) { return entry.key == key; });
  }
  void erase_oldest() { entries_.pop_back(); }
  void erase_above(uint64_t key) {
    entries_.remove_if([key](const Entry& entry) { return entry.key > key; });
  }
  uint64_t distance(uint64_t key) const {
    uint64_t sum = 0;
    for (const Entry& entry : entries_) {
      sum += entry.weight;
      if (entry.key == key) return sum;
    }
    return 0;
  }
  std::size_t size() const { return entries_.size(); }
  const std::list<Entry>& entries() const { return entries_; }

 private:
  std::list<Entry> entries_;
};

TEST(RecencyList, TellsWhatAListTells) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Prng prng(mix64(seed));
    const uint64_t keys_max = 1 + prng.below(40);
    // Few different low bits make long runs of slots; keys of one slot must not hide each other.
    const uint64_t keys = 1 + prng.below(3 * keys_max), stride = uint64_t{1} << prng.below(9);
    RecencyList list(keys_max);
    NaiveList naive;
    for (int i = 0; i < 2000; ++i) {
      const uint64_t key = prng.below(keys) * stride;
      const auto weight = static_cast<uint32_t>(1 + prng.below(50));
      const uint64_t event = prng.below(20);
      if (event == 0 && naive.size() > 0) {
        list.erase_oldest();
        naive.erase_oldest();
      } else if (event == 1 && list.contains(key)) {
        list.erase(key);
        naive.erase(key);
      } else if (event == 2 && prng.below(10) == 0) {
        list.erase_above(key);
        naive.erase_above(key);
      } else if (list.contains(key) || list.size() < keys_max) {
        list.use(key, weight);
        naive.use(key, weight);
      }
      list.check_invariants();
      ASSERT_EQ(list.size(), naive.size());
      const uint64_t asked = prng.below(keys) * stride;
      ASSERT_EQ(list.distance(asked), naive.distance(asked));
      ASSERT_EQ(list.contains(asked), naive.distance(asked) > 0);
    }
    uint64_t total = 0;
    for (const Entry& entry : naive.entries()) {
      total += entry.weight;
      EXPECT_EQ(list.distance(entry.key), total);
    }
    EXPECT_EQ(list.total(), total);
  }
}

TEST(RecencyList, TheLastUseDecidesTheOrderHoweverOftenGapsClose) {
  RecencyList list(3);
  for (int round = 0; round < 100; ++round) {
    for (const uint64_t key : {7, 8, 9}) list.use(key, 10);
    list.use(7, 1);
    EXPECT_EQ(list.distance(7), 1U);
    EXPECT_EQ(list.distance(9), 11U);
    EXPECT_EQ(list.distance(8), 21U);
    list.check_invariants();
  }
  list.erase_oldest();
  EXPECT_EQ(list.distance(8), 0U);
  EXPECT_EQ(list.total(), 11U);
}

}  // namespace
}  // namespace pagewise::kv
