// SPDX-License-Identifier: Apache-2.0
#include "cli/calibrate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "base/prng.h"
#include "model/passing_executor_for_tests.h"
#include "simulate/machine.h"
#include "workload/calibration_fit.h"

namespace pagewise::cli {
namespace {

using workload::Calibration;
using workload::MeasuredStep;
using workload::StepKind;

/// A simulated machine with the limits of a real executor.
struct Machine {
  Machine(const Calibration& numbers, uint32_t blocks, SimClock& clock)
      : calibration(numbers),
        geometry(simulate::plain_geometry(calibration.kv_bytes_per_token, 32)),
        simulated(calibration, geometry, {blocks}, clock) {}

  struct Limited final : model::PassingExecutor {
    using PassingExecutor::PassingExecutor;
    model::ExecutorLimits limits() const override { return {512, 64, 8448}; }
    Result<model::LogitsView> step(std::span<const model::StepRun> runs) override {
      ++steps;
      return PassingExecutor::step(runs);
    }
    int steps = 0;
  };

  const Calibration calibration;  // the executor refers to it
  const kv::Geometry geometry;
  simulate::SimulatedExecutor simulated;
  Limited executor{simulated};
};

Calibration truth() {
  Calibration calibration;
  calibration.kv_bytes_per_token = 1024;
  calibration.step_ns = 4e5;
  calibration.weights_ns = 3e6;
  calibration.prompt_token_ns = 5e5;
  calibration.prompt_position_ns = 400;
  calibration.row_ns = 7e5;
  calibration.row_position_ns = 800;
  return calibration;
}

TEST(Calibrate, MeasuresAMachineBackToItsNumbers) {
  SimClock clock;
  const Calibration machine_is = truth();
  Machine machine(machine_is, 2048, clock);
  model::StepMeter meter(machine.executor, clock);
  MeasurePlan plan;
  plan.kinds = step_kinds(8448, 40'960, /*quick=*/false);
  std::vector<double> shown;
  const auto measured = measure_steps(meter, plan, [&](double share) { shown.push_back(share); });
  ASSERT_TRUE(measured.has_value()) << measured.error().message;
  EXPECT_EQ(measured->size(), plan.kinds.size());
  for (const MeasuredStep& step : *measured) {
    EXPECT_GE(step.samples, plan.rounds);
    EXPECT_EQ(step.median_ns, workload::step_time_ns(machine_is, step.work(0)));
  }
  const Calibration found = workload::fit_calibration(*measured, 0);
  EXPECT_LT(workload::worst_deviation(found, *measured), 1e-4);
  EXPECT_NEAR(found.weights_ns, machine_is.weights_ns, 1e4);
  EXPECT_NEAR(found.row_position_ns, machine_is.row_position_ns, 1);
  EXPECT_TRUE(std::is_sorted(shown.begin(), shown.end()));
  EXPECT_EQ(shown.front(), 0);
  EXPECT_EQ(shown.back(), 1);
}

TEST(Calibrate, ShortContextsTellSequencesFromPositions) {
  for (const uint32_t context : {64U, 100U, 512U, 1000U, 1024U, 1025U}) {
    for (const bool quick : {false, true}) {
      SCOPED_TRACE(testing::Message() << context << (quick ? " quick" : ""));
      SimClock clock;
      Machine machine(truth(), 2048, clock);
      model::StepMeter meter(machine.executor, clock);
      MeasurePlan plan;
      plan.kinds = step_kinds(context, 40'960, quick);
      const auto measured = measure_steps(meter, plan, {});
      ASSERT_TRUE(measured.has_value());
      EXPECT_TRUE(check_tell_apart(*measured));
      const Calibration found = workload::fit_calibration(*measured, 0);
      // The decodes behind the nearest position and behind the furthest.
      workload::StepWork near, far;
      near.add(1, 16, 0, 8);
      far.add(1, context - 1, 0, 8);
      for (const workload::StepWork& work : {near, far}) {
        const auto is = static_cast<double>(workload::step_time_ns(truth(), work));
        EXPECT_NEAR(static_cast<double>(workload::step_time_ns(found, work)) / is, 1, 0.02);
      }
    }
  }
}

TEST(Calibrate, StepsOfOneKindSayNothingAboutTheOthers) {
  const auto step = [](StepKind kind) {
    MeasuredStep out{kind};
    out.median_ns = 1'000'000;
    return out;
  };
  std::vector<MeasuredStep> steps = {step({.prompt_tokens = 32}), step({.prompt_tokens = 128}),
                                     step({.prompt_tokens = 128, .prompt_position = 512})};
  steps.push_back(step({.rows = 1, .row_position = 64}));
  steps.push_back(step({.rows = 8, .row_position = 64}));
  EXPECT_FALSE(check_tell_apart(steps)) << "one position";
  steps.push_back(step({.rows = 1, .row_position = 512}));
  EXPECT_TRUE(check_tell_apart(steps));
  steps.erase(steps.begin());
  EXPECT_FALSE(check_tell_apart(steps)) << "two kinds of prompts";
}

TEST(Calibrate, LeavesOutWhatWouldTakeTooLong) {
  SimClock clock;
  Calibration slow = truth();  // a second for 32 tokens, 16 for a chunk of 512
  slow.prompt_token_ns = 32e6;
  Machine machine(slow, 2048, clock);
  model::StepMeter meter(machine.executor, clock);
  MeasurePlan plan;
  plan.kinds = step_kinds(8448, 40'960, /*quick=*/false);
  plan.step_ns_max = 8'000'000'000;
  const auto measured = measure_steps(meter, plan, {});
  ASSERT_TRUE(measured.has_value());
  uint32_t longest = 0;
  for (const MeasuredStep& step : *measured) {
    EXPECT_LE(step.median_ns, plan.step_ns_max);
    longest = std::max(longest, step.prompt_tokens);
  }
  EXPECT_EQ(longest, 128U);  // 4 s; 256 are never begun
  EXPECT_LT(measured->size(), plan.kinds.size());
}

TEST(Calibrate, KindsFitContextAndMemoryAndGrow) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Prng prng(seed);
    const auto context = static_cast<uint32_t>(2 + prng.below(20'000));
    const uint64_t positions = 256 + prng.below(50'000);
    const bool quick = prng.below(2) == 0;
    std::set<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>> seen;
    for (const StepKind& kind : step_kinds(context, positions, quick)) {
      uint64_t held = 0;
      for (const model::RunShape& run : runs_of(kind)) {
        EXPECT_LE(uint64_t{run.position} + run.tokens, context);
        held += run.position + run.tokens;
      }
      EXPECT_GT(held, 0U);
      EXPECT_LE(held, positions);
      EXPECT_TRUE(
          seen.insert({kind.rows, kind.row_position, kind.prompt_tokens, kind.prompt_position})
              .second);
    }
  }
  EXPECT_TRUE(step_kinds(16, 40'960, false).empty());
  EXPECT_LT(step_kinds(8448, 40'960, true).size(), 12U);
  EXPECT_GT(step_kinds(8448, 40'960, false).size(), 25U);
}

}  // namespace
}  // namespace pagewise::cli
