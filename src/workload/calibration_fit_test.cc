// SPDX-License-Identifier: Apache-2.0
#include "workload/calibration_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/prng.h"

namespace pagewise::workload {
namespace {

/// Steps as a measurement has them, without times.
std::vector<MeasuredStep> kinds() {
  std::vector<MeasuredStep> steps;
  for (const uint32_t rows : {1U, 2U, 4U, 8U, 32U}) {
    for (const uint32_t position : {64U, 1024U, 4096U}) steps.push_back({{rows, position, 0, 0}});
  }
  for (const uint32_t tokens : {32U, 128U, 512U}) {
    for (const uint32_t position : {0U, 1024U, 4096U}) steps.push_back({{0, 0, tokens, position}});
  }
  steps.push_back({{8, 512, 128, 512}});
  return steps;
}

/// Times of a machine that is as `truth` says, give or take `noise` of each.
std::vector<MeasuredStep> measured(const Calibration& truth, double noise, Prng& prng) {
  std::vector<MeasuredStep> steps = kinds();
  for (MeasuredStep& step : steps) {
    const double apart = 1 + noise * (2 * prng.uniform() - 1);
    step.median_ns = std::llround(step_time_exact(truth, step.work(truth.window)) * apart);
  }
  return steps;
}

Calibration machine(Prng& prng) {
  const auto between = [&](double low, double high) {
    return low * std::pow(high / low, prng.uniform());
  };
  Calibration truth;
  truth.weights_ns = between(1e6, 1e8);
  truth.step_ns = truth.weights_ns * between(0.05, 1);
  truth.prompt_token_ns = truth.weights_ns * between(0.02, 0.3);
  truth.row_ns = truth.prompt_token_ns * between(1, 2);
  truth.prompt_position_ns = truth.prompt_token_ns * between(2e-4, 2e-3);
  truth.row_position_ns = truth.weights_ns * between(5e-5, 5e-4);
  return truth;
}

void expect_near(const Calibration& found, const Calibration& truth, double relative) {
  EXPECT_NEAR(found.step_ns / truth.step_ns, 1, relative);
  EXPECT_NEAR(found.weights_ns / truth.weights_ns, 1, relative);
  EXPECT_NEAR(found.prompt_token_ns / truth.prompt_token_ns, 1, relative);
  EXPECT_NEAR(found.prompt_position_ns / truth.prompt_position_ns, 1, relative);
  EXPECT_NEAR(found.row_ns / truth.row_ns, 1, relative);
  EXPECT_NEAR(found.row_position_ns / truth.row_position_ns, 1, relative);
}

TEST(CalibrationFit, FindsTheMachineThatMadeTheTimes) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Prng prng(seed);
    const Calibration truth = machine(prng);
    const std::vector<MeasuredStep> steps = measured(truth, 0, prng);
    const Calibration found = fit_calibration(steps, 0);
    EXPECT_LT(worst_deviation(found, steps), 1e-4);  // numbers of six digits
    expect_near(found, truth, 0.01);
  }
}

TEST(CalibrationFit, NoiseMovesTheFittedStepsLessThanItself) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Prng prng(seed);
    const Calibration truth = machine(prng);
    const Calibration found = fit_calibration(measured(truth, 0.08, prng), 0);
    double squares = 0;
    for (MeasuredStep step : kinds()) {
      step.median_ns = std::llround(step_time_exact(truth, step.work(0)));
      squares += std::pow(deviation(found, step), 2);
    }
    // Even noise of +-8 % is of this size on average.
    EXPECT_LT(std::sqrt(squares / static_cast<double>(kinds().size())), 0.08 / std::sqrt(3.0));
  }
}

TEST(CalibrationFit, TellsLayersWithAWindowFromTheOthers) {
  Prng prng(3);
  Calibration truth = machine(prng);
  truth.window = 512;
  truth.prompt_window_position_ns = 3 * truth.prompt_position_ns;
  truth.row_window_position_ns = 3 * truth.row_position_ns;
  const std::vector<MeasuredStep> steps = measured(truth, 0, prng);
  const Calibration found = fit_calibration(steps, 512);
  EXPECT_LT(worst_deviation(found, steps), 1e-4);
  EXPECT_EQ(found.window, 512U);
  expect_near(found, truth, 0.01);
  EXPECT_NEAR(found.row_window_position_ns / truth.row_window_position_ns, 1, 0.01);
  // Without them it does not fit.
  EXPECT_GT(worst_deviation(fit_calibration(steps, 0), steps), 0.05);
}

TEST(CalibrationFit, AMachineThatIsAPlainSumIsOneToo) {
  Calibration truth;  // what a step takes hides behind nothing
  truth.step_ns = 3e6;
  truth.prompt_token_ns = 5e5;
  truth.prompt_position_ns = 400;
  truth.row_ns = 6e5;
  truth.row_position_ns = 800;
  Prng prng(4);
  const std::vector<MeasuredStep> steps = measured(truth, 0, prng);
  const Calibration found = fit_calibration(steps, 0);
  EXPECT_LT(worst_deviation(found, steps), 1e-3);
  EXPECT_NEAR(found.row_ns, 6e5, 6e3);
}

TEST(CalibrationFit, NoNumberIsNegativeHoweverStrangeTheTimes) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Prng prng(seed);
    std::vector<MeasuredStep> steps = kinds();
    steps.resize(1 + prng.below(steps.size()));
    for (MeasuredStep& step : steps) {
      step.median_ns = std::llround(std::pow(10, 12 * prng.uniform()));
    }
    const Calibration found = fit_calibration(steps, prng.below(2) == 0 ? 0 : 512);
    // All zero would be off by 1 everywhere: nothing that was found is worse.
    double squares = 0;
    for (const MeasuredStep& step : steps) squares += std::pow(deviation(found, step), 2);
    EXPECT_LE(squares, static_cast<double>(steps.size()) * (1 + 1e-6));
    for (const double number : {found.step_ns, found.weights_ns, found.prompt_token_ns,
                                found.prompt_position_ns, found.row_ns, found.row_position_ns,
                                found.prompt_window_position_ns, found.row_window_position_ns}) {
      EXPECT_TRUE(number >= 0 && std::isfinite(number)) << number;
    }
  }
}

TEST(CalibrationFit, ShortAndLongStepsCountTheSame) {
  // Two kinds that one number must serve: the answer lies between them by ratio, not by size.
  std::vector<MeasuredStep> steps = {{{0, 0, 100, 0}}, {{0, 0, 100, 0}}};
  steps[0].median_ns = 1'000'000;
  steps[1].median_ns = 2'000'000;
  const Calibration found = fit_calibration(steps, 0);
  EXPECT_NEAR(deviation(found, steps[0]), 0.2, 1e-3);  // 1.2 ms: the sum of squares is smallest
  EXPECT_NEAR(deviation(found, steps[1]), -0.4, 1e-3);
}

}  // namespace
}  // namespace pagewise::workload
