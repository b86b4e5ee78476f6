// SPDX-License-Identifier: Apache-2.0
#include "kv/ghost_list.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "base/prng.h"

namespace pagewise::kv {
namespace {

TEST(GhostList, RemembersTheLastOnesAndTheirKind) {
  GhostList list(3);
  list.add(1, GhostKind::kOnce);
  list.add(2, GhostKind::kReadAgain);
  list.add(3, GhostKind::kOnce);
  list.add(4, GhostKind::kOnce);
  EXPECT_EQ(list.size(GhostKind::kOnce), 2U);
  EXPECT_EQ(list.size(GhostKind::kReadAgain), 1U);
  EXPECT_EQ(list.take(1), std::nullopt);
  EXPECT_EQ(list.take(2), GhostKind::kReadAgain);
  EXPECT_EQ(list.take(2), std::nullopt) << "met once, it is forgotten";
  EXPECT_EQ(list.take(4), GhostKind::kOnce);
}

TEST(GhostList, WhatIsGivenUpAgainIsTheNewest) {
  GhostList list(3);
  for (const uint64_t digest : {1, 2, 3}) list.add(digest, GhostKind::kOnce);
  list.add(1, GhostKind::kReadAgain);
  EXPECT_EQ(list.size(), 3U);
  list.add(4, GhostKind::kOnce);
  list.add(5, GhostKind::kOnce);
  EXPECT_EQ(list.take(3), std::nullopt);
  EXPECT_EQ(list.take(1), GhostKind::kReadAgain);
}

TEST(GhostList, AnEmptyOneRemembersNothing) {
  GhostList list(0);
  list.add(1, GhostKind::kOnce);
  EXPECT_EQ(list.size(), 0U);
  EXPECT_EQ(list.take(1), std::nullopt);
}

TEST(GhostList, KeepsTheNewestWhenItsSizeChanges) {
  GhostList list(8);
  for (uint64_t digest = 0; digest < 12; ++digest) list.add(digest, GhostKind::kOnce);
  list.resize(3);
  EXPECT_EQ(list.size(), 3U);
  list.resize(100);
  EXPECT_EQ(list.take(8), std::nullopt);
  for (const uint64_t digest : {9, 10, 11}) EXPECT_EQ(list.take(digest), GhostKind::kOnce);
}

/// By the definition: an entry lives until so many others have been added behind it.
TEST(GhostList, AgreesWithAQueue) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    Prng prng(mix64(seed));
    const uint64_t entries = 1 + prng.below(20);
    GhostList list(entries);
    std::map<uint64_t, std::pair<uint64_t, GhostKind>> model;  // when it was added, and its kind
    uint64_t added = 0;
    for (int event = 0; event < 2000; ++event) {
      // Half of them have one home in the table, the others any: runs that begin at different homes
      // grow into each other, and around the table's end.
      const uint64_t small = prng.below(12) + (prng.below(4) << 40);
      const uint64_t digest = small % 2 == 0 ? small : mix64(small);
      if (prng.below(2) == 0) {
        const GhostKind kind = prng.below(2) == 0 ? GhostKind::kOnce : GhostKind::kReadAgain;
        list.add(digest, kind);
        model[digest] = {++added, kind};
        std::erase_if(model,
                      [&](const auto& entry) { return entry.second.first + entries <= added; });
      } else {
        const auto found = model.find(digest);
        const std::optional<GhostKind> kind = list.take(digest);
        ASSERT_EQ(kind.has_value(), found != model.end());
        if (!kind) continue;
        ASSERT_EQ(*kind, found->second.second);
        model.erase(found);
      }
      ASSERT_EQ(list.size(), model.size());
    }
  }
}

}  // namespace
}  // namespace pagewise::kv
