// SPDX-License-Identifier: Apache-2.0
// How much a steady decode step allocates: only what it hands to the clients.
#include <gtest/gtest.h>

#include "base/allocation_count_testing.h"
#include "engine/test_support.h"

namespace pagewise::engine {

namespace {

TEST(Core, ASteadyDecodeStepAllocatesOnlyItsDeltas) {
  FakeExecutor executor({.block_tokens = 32, .blocks = 2048});
  const FakeTokenizer tokenizer(64);
  const SimClock clock;
  auto core = Core::create(executor, tokenizer, clock, Options{});
  ASSERT_TRUE(core.has_value());
  Prng prng(1);
  std::vector<std::shared_ptr<CountingSink>> sinks;
  for (uint64_t i = 0; i < 32; ++i) {
    Request request = greedy(random_tokens(prng, 40, 64), 1500);
    request.sampling.temperature = 1;
    request.sampling.logprobs = -1;
    sinks.push_back(std::make_shared<CountingSink>());
    (*core)->submit(RequestId(i + 1), std::move(request), sinks.back(), 0);
  }
  for (int i = 0; i < 300; ++i) (*core)->step();
  const uint64_t before = testing::allocation_count();
  for (int i = 0; i < 1000; ++i) (*core)->step();
  // A delta's list of tokens is the client's to keep: one a token. The rest, growing tables and
  // queues, is to stay below half of that.
  EXPECT_LE(testing::allocation_count() - before, 32U * 1000U * 3 / 2);
}

}  // namespace
}  // namespace pagewise::engine
