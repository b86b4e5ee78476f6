// SPDX-License-Identifier: Apache-2.0
#include "kv/stamp_order.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "base/prng.h"

namespace pagewise::kv {
namespace {

using Model = std::set<std::pair<uint64_t, uint32_t>>;  // stamp, id

TEST(StampOrder, AgreesWithSortedSetsWhateverOrderStampsComeIn) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    Prng prng(mix64(seed));
    constexpr uint32_t kIds = 60;
    // Two orders that share their links, as the tiers of a policy do.
    StampLinks links(kIds / 2);
    links.grow(kIds);
    StampOrder orders[2];
    Model models[2];
    std::set<uint64_t> taken;
    uint64_t latest = 1000;
    // From only the newest stamps to any.
    const uint64_t late_of_ten = prng.below(11);
    for (int event = 0; event < 5000; ++event) {
      const auto id = static_cast<uint32_t>(prng.below(kIds));
      const std::size_t own = prng.below(2);
      if (links.contains(id)) {
        const uint64_t stamp = links.stamp(id);
        const std::size_t which = models[0].contains({stamp, id}) ? 0 : 1;
        orders[which].erase(links, id);
        ASSERT_EQ(models[which].erase({stamp, id}), 1U);
        taken.erase(stamp);
        // Sometimes it moves and keeps its stamp.
        if (prng.below(3) == 0) {
          orders[own].push(links, id, stamp);
          models[own].emplace(stamp, id);
          taken.insert(stamp);
        }
      } else {
        const uint64_t stamp = prng.below(10) < late_of_ten ? ++latest : prng.below(latest);
        if (!taken.insert(stamp).second) continue;
        orders[own].push(links, id, stamp);
        models[own].emplace(stamp, id);
      }
      for (std::size_t i = 0; i < 2; ++i) {
        ASSERT_EQ(orders[i].size(), models[i].size());
        ASSERT_EQ(orders[i].empty(), models[i].empty());
        if (models[i].empty()) continue;
        ASSERT_EQ(orders[i].first().id, models[i].begin()->second);
        ASSERT_EQ(orders[i].first().stamp, models[i].begin()->first);
      }
    }
    for (std::size_t i = 0; i < 2; ++i) {
      while (!models[i].empty()) {
        const uint32_t id = models[i].begin()->second;
        ASSERT_EQ(orders[i].first().id, id);
        orders[i].erase(links, id);
        ASSERT_FALSE(links.contains(id));
        models[i].erase(models[i].begin());
      }
      EXPECT_TRUE(orders[i].empty());
    }
  }
}

TEST(StampOrderDeathTest, StopsWhenAMemberOfAnotherOrderIsTakenOut) {
  StampLinks links(4);
  StampOrder first, second;
  first.push(links, 0, 1);
  second.push(links, 1, 2);
  EXPECT_DEATH(second.erase(links, 0), "check failed");
}

}  // namespace
}  // namespace pagewise::kv
