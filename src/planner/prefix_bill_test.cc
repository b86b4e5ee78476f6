// SPDX-License-Identifier: Apache-2.0
#include "planner/prefix_bill.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/prng.h"

namespace pagewise::planner {
namespace {

TimedBill timed(const CachePrices& prices, double gap_s, double ttl_s, uint64_t calls = 100) {
  const auto bill = make_bill(5000, calls, prices, CallTiming{gap_s, ttl_s});
  EXPECT_TRUE(bill.has_value()) << bill.error().message;
  return *bill->timed;
}

TEST(PrefixBill, WritesOnceWhileCallsOnTheBeatComeBeforeTheEntryEnds) {
  const CachePrices prices{.read = 0.1, .write = 1.25};
  EXPECT_EQ(timed(prices, 300, 300).even_writes, 1u);
  EXPECT_EQ(timed(prices, 300, 300).even_billed_tokens, 55750u);
  EXPECT_EQ(timed(prices, 301, 300).even_writes, 100u);
  EXPECT_EQ(timed(prices, 301, 300).even_billed_tokens, 625000u);
}

TEST(PrefixBill, ExpectsOfRandomCallsWhatDrawingThemGives) {
  const uint64_t seed = 20261204;
  SCOPED_TRACE(fmt::format("seed {}", seed));
  Prng prng(seed);
  const CachePrices prices{.read = 0.1, .write = 1.25};
  for (const double gap_s : {60.0, 300.0, 1200.0}) {
    constexpr int kRounds = 2000;
    double billed = 0;
    for (int round = 0; round < kRounds; ++round) {
      billed += 5000 * prices.write;
      for (int call = 1; call < 100; ++call) {
        const double gap = -gap_s * std::log(1 - prng.uniform());
        billed += 5000 * (gap <= 300 ? prices.read : prices.write);
      }
    }
    const double drawn = billed / kRounds;
    // 200,000 draws of two values: the mean is known to about 0.2 %.
    EXPECT_NEAR(static_cast<double>(timed(prices, gap_s, 300).random_billed_tokens), drawn,
                drawn * 0.01);
  }
}

TEST(PrefixBill, BreaksEvenAtTheGapItNames) {
  const CachePrices prices{.read = 0.1, .write = 1.25};
  const double gap = *timed(prices, 60, 300).random_gap_max_s;
  const double miss = std::exp(-300 / gap);
  EXPECT_NEAR(miss * prices.write + (1 - miss) * prices.read, 1.0, 1e-12);
  // Nothing can be lost where a write costs no more, or won where a read costs as much.
  EXPECT_FALSE(timed({.read = 0.1, .write = 1}, 60, 300).random_gap_max_s.has_value());
  EXPECT_FALSE(timed({.read = 1, .write = 1.25}, 60, 300).random_gap_max_s.has_value());
}

TEST(PrefixBill, NamesTheFlagThatIsOutOfRange) {
  const auto error_of = [](double gap_s, double ttl_s) {
    return make_bill(5000, 10, {}, CallTiming{gap_s, ttl_s}).error().message;
  };
  EXPECT_EQ(error_of(0, 300), "--every: 0 s are not above 0 and at most a century");
  EXPECT_EQ(error_of(60, -1), "--ttl: -1 s are not above 0 and at most a century");
}

}  // namespace
}  // namespace pagewise::planner
