// SPDX-License-Identifier: Apache-2.0
#include "simulate/histogram.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/prng.h"

namespace pagewise::simulate {
namespace {

TEST(Histogram, QuantilesAreWithinASixtyFourthOfTheTrueOnes) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Prng prng(mix64(seed));
    Histogram histogram, half, other_half;
    std::vector<TimeNs> values;
    for (uint64_t i = 0, count = 1 + prng.below(2000); i < count; ++i) {
      const auto value = static_cast<TimeNs>(prng.next() >> (1 + prng.below(63)));
      values.push_back(value);
      histogram.add(value);
      (i % 2 == 0 ? half : other_half).add(value);
    }
    std::sort(values.begin(), values.end());
    for (const double q : {0.0, 0.5, 0.9, 0.99, 1.0}) {
      const TimeNs exact = values[static_cast<std::size_t>(q * double(values.size() - 1))];
      EXPECT_LE(histogram.quantile(q), exact);
      EXPECT_GE(histogram.quantile(q), exact - exact / 64);
    }
    EXPECT_EQ(histogram.max(), values.back());
    half.merge(other_half);
    EXPECT_EQ(half, histogram);
  }
}

TEST(Histogram, SmallValuesAreExactAndCountsAddUp) {
  Histogram histogram;
  EXPECT_EQ(histogram.quantile(0.5), 0);
  histogram.add(100, 9);
  histogram.add(127);
  EXPECT_EQ(histogram.count(), 10U);
  EXPECT_EQ(histogram.quantile(0.5), 100);
  EXPECT_EQ(histogram.quantile(1), 127);
}

}  // namespace
}  // namespace pagewise::simulate
