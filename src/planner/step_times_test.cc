// SPDX-License-Identifier: Apache-2.0
#include "planner/step_times.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/prng.h"
#include "planner/numbers.h"

namespace pagewise::planner {
namespace {

// Each part in decimal places of its own, so that a sum can be read.
workload::Calibration legible() {
  workload::Calibration calibration;
  calibration.name = "m";
  calibration.kv_bytes_per_token = 8;
  calibration.step_ns = 1'000'000'000;
  calibration.prompt_token_ns = 10'000;
  calibration.prompt_position_ns = 1;
  calibration.row_ns = 100'000'000;
  calibration.row_position_ns = 1'000;
  return calibration;
}

TEST(StepTimes, APromptTakesItsChunksOneAfterTheOther) {
  StepTimes times(legible(), 4);
  // 4 + 2 tokens, which see 1 + 2 + 3 + 4 and 5 + 6 positions.
  EXPECT_EQ(times.prefill(6, 0).value(), 2 * 1'000'000'000 + 6 * 10'000 + 21);
  // 4 + 1: a chunk of one token is a row, which sees four positions before it.
  EXPECT_EQ(times.prefill(5, 0).value(),
            2 * 1'000'000'000 + 4 * 10'000 + 10 + 100'000'000 + 4 * 1'000);
  EXPECT_EQ(times.prefill(1, 0).value(), 1'100'000'000);
}

TEST(StepTimes, WhatIsCachedIsReadAndNotComputed) {
  StepTimes times(legible(), 512);
  EXPECT_EQ(times.prefill(102, 100).value(), 1'000'000'000 + 2 * 10'000 + 101 + 102);
  EXPECT_EQ(times.prefill(101, 100).value(), 1'100'000'000 + 100 * 1'000);
}

TEST(StepTimes, DecodingSequencesShareAStepWhileTheyFit) {
  StepTimes times(legible(), 4);
  EXPECT_EQ(times.decode(7, 1).value(), 1'100'000'000 + 7 * 1'000);
  EXPECT_EQ(times.decode(7, 4).value(), 1'000'000'000 + 4 * (100'000'000 + 7 * 1'000));
  EXPECT_EQ(times.decode(7, 9).value(), 3 * 1'000'000'000LL + 9 * (100'000'000 + 7 * 1'000));
}

TEST(StepTimes, LayersBehindAWindowSeeNoMoreThanIt) {
  workload::Calibration windowed = legible();
  windowed.window = 4;
  windowed.row_window_position_ns = 7;
  windowed.prompt_window_position_ns = 3;
  StepTimes with(windowed, 512), without(legible(), 512);
  // The row itself is one of the four.
  EXPECT_EQ(with.decode(100, 2).value() - without.decode(100, 2).value(), 2 * 3 * 7);
  EXPECT_EQ(with.prefill(6, 0).value() - without.prefill(6, 0).value(),
            (1 + 2 + 3 + 4 + 4 + 4) * 3);
  EXPECT_EQ(with.prefill(102, 100).value() - without.prefill(102, 100).value(), (4 + 4) * 3);
}

TEST(StepTimes, ACacheNeverMakesAPromptLaterWhateverTheMachine) {
  const uint64_t seed = 20261201;
  SCOPED_TRACE(fmt::format("seed {}", seed));
  Prng prng(seed);
  for (int round = 0; round < 500; ++round) {
    workload::Calibration calibration = legible();
    for (double* part :
         {&calibration.step_ns, &calibration.prompt_token_ns, &calibration.prompt_position_ns}) {
      *part = static_cast<double>(prng.below(1'000'000));
    }
    // A row as dear as a chunk of one token would be: else one token more can be cheaper than one.
    calibration.row_ns = calibration.prompt_token_ns + calibration.prompt_position_ns;
    calibration.row_position_ns = calibration.prompt_position_ns;
    StepTimes times(calibration, 1 + static_cast<uint32_t>(prng.below(600)));
    const uint64_t tokens = 2 + prng.below(3000);
    const uint64_t cached = prng.below(tokens - 1);
    const TimeNs less = times.prefill(tokens, cached).value();
    EXPECT_GE(times.prefill(tokens, 0).value(), less);
    EXPECT_GE(less, times.prefill(tokens, cached + 1).value());
    EXPECT_GE(times.prefill(tokens + 1, cached).value(), less);
  }
}

TEST(StepTimes, GiveARowForEachLengthAndBatch) {
  StepTimes times(legible(), 512);
  const uint64_t tokens[] = {10, 20}, batches[] = {1, 3};
  const auto rows = make_times_rows(times, tokens, batches, 15).value();
  ASSERT_EQ(rows.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(rows[i].tokens, tokens[i / 2]);
    EXPECT_EQ(rows[i].batch, batches[i % 2]);
    // All but one token of the shorter prompt.
    EXPECT_EQ(rows[i].cached_tokens, i < 2 ? 9U : 15U);
    EXPECT_EQ(rows[i].first_token_ns, times.prefill(tokens[i / 2], 0).value());
    EXPECT_EQ(rows[i].first_token_cached_ns, times.prefill(tokens[i / 2], i < 2 ? 9 : 15).value());
    EXPECT_EQ(rows[i].decode_token_ns, times.decode(tokens[i / 2], batches[i % 2]).value());
  }
  EXPECT_DOUBLE_EQ(rows[0].tokens_per_s(), 1e9 / 1'100'010'000);
  EXPECT_DOUBLE_EQ(rows[1].tokens_per_s_sum(), 3e9 / 1'300'030'000);
  EXPECT_FALSE(
      make_times_rows(times, tokens, batches, std::nullopt)->front().first_token_cached_ns);
}

TEST(StepTimes, OfAPrefixInManyCallsAreOnceOrEachTime) {
  StepTimes times(legible(), 512);
  const TimeNs once = times.prefill(100, 0).value();
  PrefixBill bill;
  const PrefillBill plain = make_prefill_bill(times, 100, 40, bill).value();
  EXPECT_EQ(plain.cached_ns, once);
  EXPECT_EQ(plain.uncached_ns, 40 * once);
  EXPECT_FALSE(plain.even_ns.has_value());
  bill.timed = TimedBill{.even_writes = 40, .random_hit_share = 0.75};
  const PrefillBill timed = make_prefill_bill(times, 100, 41, bill).value();
  EXPECT_EQ(timed.even_ns, 40 * once);
  EXPECT_EQ(timed.random_ns, 11 * once);
}

TEST(StepTimes, LongerThanACenturyOrTooManyStepsAreErrors) {
  workload::Calibration slow = legible();
  slow.step_ns = 1e12;
  StepTimes times(slow, 1);
  EXPECT_NE(times.prefill(1 << 22, 0).error().message.find("longer than a century"),
            std::string::npos);
  StepTimes calls(legible(), 512);
  EXPECT_NE(make_prefill_bill(calls, 100, uint64_t{1} << 40, {})
                .error()
                .message.find("--calibration: all these calls would take longer than a century"),
            std::string::npos);
  StepTimes many(workload::default_calibration(), 1);
  const auto refused = many.prefill(1 << 30, 0);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("more than 16,777,216 steps of 1 tokens"),
            std::string::npos);
}

TEST(Numbers, DurationsHaveThreeDigitsAndTheUnitThatFits) {
  EXPECT_EQ(duration(1), "0.001 us");
  EXPECT_EQ(duration(26'500), "26.5 us");
  EXPECT_EQ(duration(999'499), "999 us");
  EXPECT_EQ(duration(999'500), "1 ms");
  EXPECT_EQ(duration(3'714'000), "3.71 ms");
  EXPECT_EQ(duration(5'350'000'000), "5.35 s");
  EXPECT_EQ(duration(119'000'000'000), "119 s");
  EXPECT_EQ(duration(121'000'000'000), "2.02 min");
  EXPECT_EQ(duration(7'200'000'000'000), "2 h");
  EXPECT_EQ(duration(TimeNs{86'400} * 3 * 1'000'000'000), "3 days");
  EXPECT_EQ(duration(TimeNs{3'155'760'000} * 1'000'000'000), "100 years");
}

}  // namespace
}  // namespace pagewise::planner
