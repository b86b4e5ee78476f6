// SPDX-License-Identifier: Apache-2.0
// When steps are quiet. That a leap over them gives the same as the steps is proved with crowds in
// src/simulate/simulation_test.cc.
#include <gtest/gtest.h>

#include "engine/test_support.h"

namespace pagewise::engine {
namespace {

std::vector<TokenId> prompt_of(std::size_t size, uint64_t seed) {
  Prng prng(mix64(seed));
  return random_tokens(prng, size, 64);
}

TEST(QuietSteps, AreThoseUpToTheLastTokenOfWhoEndsFirst) {
  Bench bench(pool(16, 64));
  EXPECT_EQ(bench.core->quiet_steps().steps, 0U) << "nobody runs";
  bench.submit(greedy(prompt_of(20, 1), 50));
  EXPECT_EQ(bench.core->quiet_steps().steps, 0U) << "somebody waits";
  bench.step();
  EXPECT_EQ(bench.core->quiet_steps().steps, 48U) << "one token is there, the last one ends it";
  EXPECT_EQ(bench.core->quiet_steps().rows, 1U);
  EXPECT_EQ(bench.core->quiet_steps().positions, 20U);
  bench.submit(greedy(prompt_of(37, 2), 11));
  EXPECT_EQ(bench.core->quiet_steps().steps, 0U) << "somebody waits again";
  bench.step();
  EXPECT_EQ(bench.core->quiet_steps().steps, 9U);
  EXPECT_EQ(bench.core->quiet_steps().rows, 2U);
  EXPECT_EQ(bench.core->quiet_steps().positions, 21U + 37U);
}

TEST(QuietSteps, EndWhereTheBlocksDo) {
  Bench bench(pool(16, 8));
  bench.submit(greedy(prompt_of(17, 1), 60));
  bench.submit(greedy(prompt_of(17, 2), 60));
  bench.step();
  // 2 blocks each; four left: each has 15 positions in its last block, and two blocks more.
  EXPECT_EQ(bench.core->quiet_steps().steps, 15U + 32U);
}

TEST(QuietSteps, AreNoneWhereStepsDoMoreThanAppend) {
  const auto steps_of = [](auto change, Options options = {}) {
    FakeExecutorOptions machine = pool(16, 64);
    Request request = greedy(prompt_of(20, 1), 50);
    change(request, options, machine);
    Bench bench(machine, options);
    bench.submit(request);
    bench.step();
    return bench.core->quiet_steps().steps;
  };
  EXPECT_EQ(steps_of([](Request&, Options&, FakeExecutorOptions&) {}), 48U);
  EXPECT_EQ(steps_of([](Request& r, Options&, FakeExecutorOptions&) { r.choices = 2; }), 0U);
  EXPECT_EQ(steps_of([](Request& r, Options&, FakeExecutorOptions&) { r.stops = {"zzzz"}; }), 0U);
  EXPECT_EQ(steps_of([](Request& r, Options&, FakeExecutorOptions&) { r.max_tokens = 2; }), 0U);
  EXPECT_EQ(
      steps_of([](Request& r, Options&, FakeExecutorOptions&) { r.prompt = prompt_of(32, 1); }), 0U)
      << "at a block's end nobody knows yet whether the next one is known text";
  EXPECT_EQ(steps_of([](Request&, Options&, FakeExecutorOptions& m) { m.windows = {0, 32}; }), 0U);
  EXPECT_EQ(steps_of([](Request&, Options& o, FakeExecutorOptions&) { o.step_tokens = 16; }), 0U)
      << "the prompt is not computed yet";
  EXPECT_EQ(steps_of([](Request&, Options& o, FakeExecutorOptions&) { o.prefix_cache = false; }),
            48U);
}

TEST(QuietSteps, WhoWaitsForASlotDoesNotDisturb) {
  Options options;
  options.seqs_max = 1;
  Bench bench(pool(16, 64), options);
  bench.submit(greedy(prompt_of(20, 1), 50));
  bench.step();
  bench.submit(greedy(prompt_of(20, 2), 50));
  EXPECT_EQ(bench.core->quiet_steps().steps, 48U);
}

TEST(QuietSteps, AreNoneOnTextThatIsKnownAlready) {
  Bench bench(pool(16, 64));
  const Request request = greedy(prompt_of(20, 1), 50);
  bench.serve(request);
  bench.submit(request);  // the same answer once more: twins of what is cached
  bench.step();
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(bench.core->quiet_steps().steps, 0U) << i;
    bench.step();
  }
}

}  // namespace
}  // namespace pagewise::engine
