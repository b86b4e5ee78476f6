// SPDX-License-Identifier: Apache-2.0
#include "kv/cache_marker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <ostream>
#include <vector>

#include "base/prng.h"

namespace pagewise::kv {

void PrintTo(const CacheUsage& usage, std::ostream* out) {
  *out << "read " << usage.read_tokens << ", 5m " << usage.created_5m_tokens << ", 1h "
       << usage.created_1h_tokens << ", input " << usage.input_tokens;
}

namespace {

constexpr LeaseClass k5m = LeaseClass::k5m, k1h = LeaseClass::k1h;
using Markers = std::vector<MarkedPrefix>;

TEST(CacheUsage, IsAllInputWithoutMarkers) {
  EXPECT_EQ(cache_usage(100, 0, Markers{}, 32), (CacheUsage{0, 0, 0, 100}));
}

TEST(CacheUsage, CreatesOnTheFirstRequestAndReadsOnTheSecond) {
  const Markers marker = {{90, k5m}};
  EXPECT_EQ(cache_usage(100, 0, marker, 32), (CacheUsage{0, 90, 0, 10}));
  EXPECT_EQ(cache_usage(100, 90, marker, 32), (CacheUsage{90, 0, 0, 10}));
}

TEST(CacheUsage, ReadsALongPrefixAndBillsAShortQuestion) {
  const Markers marker = {{200000, k5m}};
  EXPECT_EQ(cache_usage(200050, 200000, marker, 1024), (CacheUsage{200000, 0, 0, 50}));
}

TEST(CacheUsage, DividesCreationBetweenTheHourAndTheMinutes) {
  const Markers markers = {{40, k1h}, {90, k5m}};
  EXPECT_EQ(cache_usage(100, 0, markers, 1), (CacheUsage{0, 50, 40, 10}));
  EXPECT_EQ(cache_usage(100, 40, markers, 1), (CacheUsage{40, 50, 0, 10}));
}

TEST(CacheUsage, CountsAHitBetweenTwoMarkersFromTheHit) {
  const Markers markers = {{40, k1h}, {90, k5m}};
  EXPECT_EQ(cache_usage(100, 60, markers, 1), (CacheUsage{60, 30, 0, 10}));
  const Markers hours = {{40, k1h}, {90, k1h}};
  EXPECT_EQ(cache_usage(100, 60, hours, 1), (CacheUsage{60, 0, 30, 10}));
}

TEST(CacheUsage, CreatesNothingWhenTheHitIsBehindEveryMarker) {
  const Markers markers = {{40, k5m}};
  EXPECT_EQ(cache_usage(100, 60, markers, 1), (CacheUsage{60, 0, 0, 40}));
}

TEST(CacheUsage, LeavesOutMarkersBelowTheMinimum) {
  const Markers one = {{31, k5m}};
  EXPECT_EQ(cache_usage(100, 0, one, 32), (CacheUsage{0, 0, 0, 100}));
  const Markers two = {{31, k1h}, {32, k5m}};
  EXPECT_EQ(cache_usage(100, 0, two, 32), (CacheUsage{0, 32, 0, 68}));
}

TEST(CacheUsage, HasNoInputLeftWhenTheWholePromptIsMarked) {
  const Markers whole = {{100, k5m}};
  EXPECT_EQ(cache_usage(100, 0, whole, 1), (CacheUsage{0, 100, 0, 0}));
  EXPECT_EQ(cache_usage(100, 100, whole, 1), (CacheUsage{100, 0, 0, 0}));
}

/// Each token is judged on its own: read up to the hit, then created by the last marker in front of
/// which it stands, in the class of the last hour marker if that is behind it, else input.
TEST(CacheUsage, C11AddsUpToThePromptAndAgreesWithJudgingEveryToken) {
  constexpr uint64_t kSeed = 3;
  std::printf("seed %lu\n", kSeed);
  Prng prng(kSeed);
  for (int round = 0; round < 5000; ++round) {
    const auto n = static_cast<uint32_t>(1 + prng.below(30));
    const auto read = static_cast<uint32_t>(prng.below(n + 1));
    const auto minimum = static_cast<uint32_t>(prng.below(10));
    Markers markers;
    for (uint64_t i = prng.below(5); i > 0; --i) {
      markers.push_back({static_cast<uint32_t>(1 + prng.below(n)), prng.below(2) ? k1h : k5m});
    }
    std::sort(markers.begin(), markers.end(),
              [](const MarkedPrefix& a, const MarkedPrefix& b) { return a.tokens < b.tokens; });
    CacheUsage expected;
    for (uint32_t token = 0; token < n; ++token) {
      bool created = false, hour = false;
      for (const MarkedPrefix& marker : markers) {
        if (marker.tokens < minimum || marker.tokens <= token) continue;
        created = true;
        hour = hour || marker.lease == k1h;
      }
      if (token < read) {
        ++expected.read_tokens;
      } else if (!created) {
        ++expected.input_tokens;
      } else {
        ++(hour ? expected.created_1h_tokens : expected.created_5m_tokens);
      }
    }
    ASSERT_EQ(cache_usage(n, read, markers, minimum), expected) << "round " << round;
  }
}

}  // namespace
}  // namespace pagewise::kv
