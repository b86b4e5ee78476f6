// SPDX-License-Identifier: Apache-2.0
// The simulation's own promises: that a seed is a whole course of events, and that the scenarios
// range over what they say. The many seeds themselves are run by the program `sim` (sim.cc).
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "sim/scenario.h"
#include "sim/shrink.h"
#include "sim/simulation.h"

namespace pagewise::engine::sim {
namespace {

TEST(Simulation, TheSameSeedTakesTheSameCourse) {
  std::vector<uint64_t> traces;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Coverage first, second;
    const Outcome once = run(seed, first), again = run(seed, second);
    EXPECT_EQ(once.failures, std::vector<std::string>{}) << "seed " << seed;
    EXPECT_EQ(once.trace, again.trace) << "seed " << seed;
    EXPECT_EQ(first.steps, second.steps) << "seed " << seed;
    traces.push_back(once.trace);
  }
  std::sort(traces.begin(), traces.end());
  EXPECT_EQ(std::unique(traces.begin(), traces.end()), traces.end()) << "two seeds, one course";
}

TEST(Simulation, QuestionsAboutPromptsChangeNothing) {
  for (uint64_t seed = 1001; seed <= 1100; ++seed) {
    Coverage coverage;
    const Outcome asked = run(seed, coverage, std::nullopt, true);
    EXPECT_EQ(asked.failures, std::vector<std::string>{}) << "seed " << seed;
    EXPECT_EQ(asked.trace, run(seed, coverage).trace) << "seed " << seed;
  }
}

TEST(Simulation, OneRequestMoreIsAnotherCourse) {
  Coverage coverage;
  EXPECT_NE(run(7, coverage).trace, run(7, coverage, std::vector<uint32_t>{0}).trace);
  EXPECT_EQ(run(7, coverage, std::vector<uint32_t>{0}).trace,
            run(7, coverage, std::vector<uint32_t>{0}).trace);
}

TEST(Simulation, ScenariosRangeOverPoolsBlocksAndCrowds) {
  Coverage::Range pools, further, blocks, crowds;
  uint64_t windows_below_a_block = 0, windows_of_many_blocks = 0, one_request_fills_the_pool = 0;
  for (uint64_t seed = 1; seed <= 10'000; ++seed) {
    Prng prng(mix64(seed));
    const Scenario scenario = make_scenario(prng);
    const FakeExecutorOptions& executor = scenario.executor;
    pools.add(executor.blocks);
    for (const uint32_t group : executor.group_blocks) further.add(group);
    blocks.add(executor.block_tokens);
    crowds.add(scenario.requests.size());
    for (const uint32_t window : executor.windows) {
      windows_below_a_block += window > 0 && window < executor.block_tokens;
      windows_of_many_blocks += window > 4 * executor.block_tokens;
    }
    const uint64_t pool_tokens = pool_tokens_of(executor);
    one_request_fills_the_pool += std::any_of(
        scenario.requests.begin(), scenario.requests.end(),
        [&](const Request& request) { return request.prompt.size() + 1 == pool_tokens; });
  }
  EXPECT_EQ(pools.least, 8U);
  EXPECT_EQ(pools.most, 512U);
  EXPECT_EQ(further.least, 4U);
  EXPECT_LE(further.most, 515U);
  EXPECT_EQ(blocks.least, 1U);
  EXPECT_EQ(blocks.most, 256U);
  EXPECT_EQ(crowds.least, 2U);
  EXPECT_EQ(crowds.most, 64U);
  EXPECT_GT(windows_below_a_block, 200U);
  EXPECT_GT(windows_of_many_blocks, 200U);
  EXPECT_GT(one_request_fills_the_pool, 200U);
}

TEST(Simulation, CoverageNamesWhatWasNeverMet) {
  Coverage coverage;
  for (const Coverage::Count& count : Coverage::kCounts) coverage.*count.value = 1;
  EXPECT_TRUE(coverage.missed().empty());
  coverage.preemptions = 0;
  EXPECT_EQ(coverage.missed(), std::vector<std::string>{"preemptions"});
}

TEST(Shrink, LeavesTheFewRequestsThatFailTogether) {
  std::vector<uint32_t> crowd(64);
  std::iota(crowd.begin(), crowd.end(), 0U);
  uint32_t tries = 0;
  const auto fails = [&](const std::vector<uint32_t>& some) {
    ++tries;
    return std::count(some.begin(), some.end(), 3U) + std::count(some.begin(), some.end(), 40U) ==
           2;
  };
  EXPECT_EQ(shrink(crowd, fails, 1000), (std::vector<uint32_t>{3, 40}));
  EXPECT_LT(tries, 100U);
  tries = 0;
  const std::vector<uint32_t> early = shrink(crowd, fails, 4);
  EXPECT_EQ(tries, 4U);
  EXPECT_TRUE(fails(early));
}

}  // namespace
}  // namespace pagewise::engine::sim
