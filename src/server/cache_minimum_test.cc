// SPDX-License-Identifier: Apache-2.0
#include "server/cache_minimum.h"

#include <gtest/gtest.h>

#include <set>

namespace pagewise::server {
namespace {

TEST(CacheMinimum, IsANumberOrWhatAFamilyAsksFor) {
  EXPECT_EQ(parse_cache_minimum("0").value(), 0U);
  EXPECT_EQ(parse_cache_minimum("300").value(), 300U);
  EXPECT_EQ(parse_cache_minimum("4294967295").value(), UINT32_MAX);
  // One of each class of the reference's list, and the other vendor's.
  EXPECT_EQ(parse_cache_minimum("opus-5.5").value(), 512U);
  EXPECT_EQ(parse_cache_minimum("sonnet-4.5").value(), 1024U);
  EXPECT_EQ(parse_cache_minimum("opus-4.7").value(), 2048U);
  EXPECT_EQ(parse_cache_minimum("haiku-4.5").value(), 4096U);
  EXPECT_EQ(parse_cache_minimum("openai").value(), 1024U);
  for (const CacheMinimum& minimum : cache_minimums())
    EXPECT_EQ(parse_cache_minimum(minimum.family).value(), minimum.tokens);
}

TEST(CacheMinimum, NamesEveryFamilyOnce) {
  std::set<std::string_view> names;
  for (const CacheMinimum& minimum : cache_minimums()) {
    EXPECT_TRUE(names.insert(minimum.family).second) << minimum.family;
    EXPECT_TRUE(std::set<uint32_t>({512, 1024, 2048, 4096}).contains(minimum.tokens));
  }
}

TEST(CacheMinimum, SaysWhichFamiliesThereAreWhenItKnowsNone) {
  for (const std::string_view text : {"", "-1", "1x", "4294967296", "Opus 5", "opus-5.9", "1e3"}) {
    const auto minimum = parse_cache_minimum(text);
    ASSERT_FALSE(minimum.has_value()) << text;
    EXPECT_NE(minimum.error().message.find("no whole number"), std::string::npos);
    EXPECT_NE(minimum.error().message.find("haiku-4.5"), std::string::npos);
  }
}

}  // namespace
}  // namespace pagewise::server
