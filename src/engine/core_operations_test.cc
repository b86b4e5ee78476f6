// SPDX-License-Identifier: Apache-2.0
// A pool that changes its size under running requests, and pools so small that requests take turns:
// all requests end, and every answer is the one of the request alone.
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "engine/test_support.h"

namespace pagewise::engine {
namespace {

FakeExecutorOptions small_pool(uint32_t blocks, uint32_t block_tokens = 4) {
  FakeExecutorOptions options;
  options.block_tokens = block_tokens;
  options.blocks = blocks;
  return options;
}

Status resize(Bench& bench, std::vector<uint32_t> blocks) {
  const Status status = bench.core->resize(blocks);
  bench.core->check_invariants();
  return status;
}

TEST(CoreResize, EveryAnswerStaysTheSameWhileThePoolGrowsAndShrinks) {
  uint32_t grown = 0, shrunk = 0, refused = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Prng prng(seed);
    FakeExecutorOptions options = small_pool(24, 1 + static_cast<uint32_t>(prng.below(8)));
    if (prng.below(2) == 1) options.windows = {0, 2 + static_cast<uint32_t>(prng.below(20))};
    Options engine_options;
    engine_options.step_tokens = 1 + static_cast<uint32_t>(prng.below(64));
    Bench bench(options, engine_options);
    std::vector<Request> requests;
    std::vector<std::shared_ptr<Recorder>> answers;
    const std::vector<TokenId> shared = random_tokens(prng, 12, 64);
    for (uint32_t i = 0; i < 12; ++i) {
      std::vector<TokenId> prompt = shared;
      prompt.resize(1 + prng.below(12));
      for (const TokenId token : random_tokens(prng, prng.below(6), 64)) prompt.push_back(token);
      Request request = greedy(prompt, 1 + prng.below(6));
      requests.push_back(request);
      answers.push_back(bench.submit(std::move(request)));
    }
    for (uint32_t i = 0; bench.step(); ++i) {
      ASSERT_LT(i, 10'000U) << "requests do not end";
      if (prng.below(3) != 0) continue;
      std::vector<uint32_t> blocks;
      for (std::size_t g = 0; g < options.windows.size(); ++g)
        blocks.push_back(1 + static_cast<uint32_t>(prng.below(60)));
      const uint32_t before = bench.core->stats().blocks_pool;
      if (resize(bench, blocks)) {
        const uint32_t now = bench.core->stats().blocks_pool;
        grown += now > before;
        shrunk += now < before;
      } else {
        ++refused;
      }
    }
    for (std::size_t i = 0; i < requests.size(); ++i) {
      ASSERT_TRUE(answers[i]->ok()) << answers[i]->finished->status.error().message;
      EXPECT_EQ(answers[i]->choices[0].tokens,
                defined_tokens(bench.executor, requests[i], 0, requests[i].max_tokens));
    }
  }
  std::printf("pools grown %u, shrunk %u, refused %u\n", grown, shrunk, refused);
  EXPECT_GT(grown, 0U);
  EXPECT_GT(shrunk, 0U);
  EXPECT_GT(refused, 0U);
}

TEST(CoreResize, RefusesWithNumbersWhatLiveBlocksOrAcceptedRequestsNeed) {
  Bench bench(small_pool(16));
  Prng prng(7);
  bench.submit(greedy(random_tokens(prng, 10, 64), 20));
  bench.step();
  EXPECT_EQ(resize(bench, {2}).error().message, "3 KV blocks are in use, 2 would be left of 16");
  const Status refused = resize(bench, {7});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.code(), ErrorCode::kPoolExhausted);
  EXPECT_EQ(refused.error().message,
            "a request under way may take 30 tokens, the pool would hold 28 of one sequence: try "
            "again when it has ended");
  EXPECT_EQ(bench.core->stats().blocks_pool, 16U);
  EXPECT_EQ(bench.core->options().context_max, 64U);
  EXPECT_TRUE(resize(bench, {8}).has_value());
  bench.run();
  EXPECT_TRUE(resize(bench, {1}).has_value()) << "nothing runs any more";
  EXPECT_EQ(resize(bench, {0}).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(bench.core->options().context_max, 4U);
}

TEST(CoreResize, RefusesWhileAPreemptedOrWaitingRequestWouldNotFitAnyMore) {
  Options one_at_a_time;
  one_at_a_time.seqs_max = 1;
  Bench bench(small_pool(16), one_at_a_time);
  Prng prng(8);
  auto first = bench.submit(greedy(random_tokens(prng, 4, 64), 4));
  auto waiting = bench.submit(greedy(random_tokens(prng, 40, 64), 1'000'000));
  bench.step();
  EXPECT_EQ(
      resize(bench, {10}).error().message,
      "a request under way needs 41 tokens, the pool would hold 40 of one sequence: try again "
      "when it has ended");
  EXPECT_TRUE(resize(bench, {11}).has_value());
  bench.run();
  EXPECT_TRUE(first->ok());
  ASSERT_TRUE(waiting->ok());
  EXPECT_EQ(waiting->choices[0].tokens.size(), 4U) << "its max_tokens follows the context";
  EXPECT_EQ(waiting->choices[0].finish, FinishReason::kContext);
}

TEST(CoreResize, APromptThatBecameTooLongOnItsWayInEndsAtOnceWithBothNumbers) {
  Bench bench(small_pool(16));
  Prng prng(9);
  Request request = greedy(random_tokens(prng, 30, 64), 4);
  ASSERT_TRUE(bench.core->check(request).has_value());
  ASSERT_TRUE(resize(bench, {4}).has_value());
  auto recorder = std::make_shared<Recorder>();
  bench.core->submit(RequestId(1), request, recorder, bench.clock.now());
  ASSERT_TRUE(recorder->finished.has_value());
  EXPECT_EQ(recorder->finished->status.code(), ErrorCode::kContextTooLong);
  EXPECT_EQ(
      recorder->finished->status.error().message,
      "prompt has 30 tokens, the context is 16 tokens for prompt and answer together (as much "
      "as the KV memory holds)");
  EXPECT_FALSE(bench.step());
}

TEST(CoreResize, TheServedContextFollowsThePoolUpToWhatWasAskedFor) {
  Options asked;
  asked.context_max = 40;
  Bench bench(small_pool(4), asked);
  EXPECT_EQ(bench.core->options().context_max, 16U);
  ASSERT_TRUE(resize(bench, {20}).has_value());
  EXPECT_EQ(bench.core->options().context_max, 40U);
  EXPECT_EQ(bench.core->stats().context_max, 40U);
  Prng prng(10);
  const Request request = greedy(random_tokens(prng, 30, 64), 10);
  EXPECT_EQ(bench.serve(request)->choices[0].tokens,
            defined_tokens(bench.executor, request, 0, 10));
}

TEST(CoreResize, MemoryOfBlocksThatAreGoneGoesBackToTheSystem) {
  Bench bench(small_pool(32));
  Prng prng(11);
  bench.serve(greedy(random_tokens(prng, 60, 64), 20));
  EXPECT_EQ(bench.executor.committed(), 20U);
  ASSERT_TRUE(resize(bench, {5}).has_value());
  EXPECT_EQ(bench.executor.committed(), 5U);
  EXPECT_EQ(bench.core->stats().blocks_returned, 15U);
  ASSERT_TRUE(resize(bench, {32}).has_value());
  EXPECT_EQ(bench.executor.committed(), 5U) << "memory comes as blocks are used";
}

TEST(CoreResize, AnExecutorThatCannotGrowChangesNothing) {
  Bench bench(small_pool(8));
  bench.executor.fail_next_grow();
  EXPECT_EQ(resize(bench, {9}).code(), ErrorCode::kIo);
  EXPECT_EQ(bench.core->stats().blocks_pool, 8U);
  EXPECT_TRUE(resize(bench, {9}).has_value());
}

TEST(CoreReport, TellsWhoseTokensAndBlocksTheCacheHolds) {
  Bench bench(small_pool(32));
  Prng prng(12);
  const auto ask = [&](const std::string& account, const std::string& space,
                       std::vector<TokenId> prompt) {
    Request request = greedy(std::move(prompt), 1);
    request.cache.account = account;
    request.cache.cache_namespace = space;
    request.cache.positions = {{8}};
    request.cache.markers = {{0, kv::LeaseClass::k5m}};
    bench.serve(std::move(request));
  };
  const std::vector<TokenId> prompt = random_tokens(prng, 11, 64);
  ask("a", "a/1", prompt);
  ask("a", "a/1", prompt);
  ask("a", "a/2", prompt);
  ask("ab", "ab/1", prompt);
  CacheReport report = bench.core->cache_report();
  ASSERT_EQ(report.accounts.size(), 2U);
  const AccountReport& a = report.accounts[0];
  EXPECT_EQ(a.account, "a");
  EXPECT_EQ(a.ledger.total().computed, 23U);
  EXPECT_EQ(a.ledger.total().reused, 10U);
  EXPECT_EQ(a.ledger.total().created(), 16U);
  EXPECT_EQ(a.ledger.total().read, 8U);
  EXPECT_EQ(a.namespaces, 2U);
  EXPECT_EQ(a.blocks_live, 0U);
  EXPECT_EQ(a.blocks_cached, 6U);
  EXPECT_EQ(a.blocks_leased, 4U);
  ASSERT_EQ(a.leases.size(), 2U);
  EXPECT_EQ(a.leases[0].tokens, 8U);
  EXPECT_GT(a.leases[0].left_ns, 0);
  EXPECT_LE(a.leases[0].left_ns, a.leases[1].left_ns);
  EXPECT_EQ(report.pool.blocks().cached, 9U);

  const Cleared cleared = bench.core->clear_cache("a");
  EXPECT_EQ(cleared.blocks, 6U);
  EXPECT_EQ(cleared.leases, 2U);
  report = bench.core->cache_report();
  EXPECT_EQ(report.accounts[0].blocks_cached, 0U);
  EXPECT_EQ(report.accounts[1].blocks_cached, 3U) << "'ab' is not below 'a'";
}

TEST(CoreReport, ClearingLeavesRunningRequestsTheirBlocks) {
  Bench bench(small_pool(32));
  Prng prng(13);
  const Request request = greedy(random_tokens(prng, 20, 64), 6);
  bench.serve(greedy(random_tokens(prng, 8, 64), 2));
  auto running = bench.submit(request);
  bench.step();
  const Cleared cleared = bench.core->clear_cache(std::nullopt);
  bench.core->check_invariants();
  EXPECT_EQ(cleared.blocks, 3U);
  EXPECT_EQ(cleared.blocks_live, 5U);
  bench.run();
  EXPECT_EQ(running->choices[0].tokens, defined_tokens(bench.executor, request, 0, 6));
  EXPECT_EQ(bench.core->stats().blocks_cached, 0U);
}

// Pools from just one request upwards: everybody ends, everybody is answered as if alone.
TEST(CorePressure, PoolsFromOneRequestUpwardsServeEveryoneC08) {
  for (const uint32_t window : {0U, 9U}) {
    for (const uint32_t block_tokens : {1U, 4U, 16U}) {
      const uint32_t request_tokens = 40;
      const auto needed = static_cast<uint32_t>(kv::blocks_needed(request_tokens, 0, block_tokens));
      for (uint32_t blocks = needed; blocks <= 3 * needed; blocks += 1 + needed / 4) {
        SCOPED_TRACE(std::to_string(blocks) + " blocks of " + std::to_string(block_tokens) +
                     ", window " + std::to_string(window));
        FakeExecutorOptions options = small_pool(blocks, block_tokens);
        if (window != 0) options.windows = {0, window};
        Bench bench(options);
        Prng prng(blocks * 100 + block_tokens);
        std::vector<Request> requests;
        std::vector<std::shared_ptr<Recorder>> answers;
        for (uint32_t i = 0; i < 8; ++i) {
          const uint32_t prompt = i % 2 == 0 ? 25 : 1 + static_cast<uint32_t>(prng.below(30));
          requests.push_back(greedy(random_tokens(prng, prompt, 64), request_tokens - prompt));
          answers.push_back(bench.submit(requests.back()));
        }
        bench.run(20'000);
        for (std::size_t i = 0; i < requests.size(); ++i) {
          ASSERT_TRUE(answers[i]->ok());
          EXPECT_EQ(answers[i]->choices[0].tokens,
                    defined_tokens(bench.executor, requests[i], 0, requests[i].max_tokens));
        }
        EXPECT_EQ(bench.core->stats().blocks_live, 0U);
      }
    }
  }
}

}  // namespace
}  // namespace pagewise::engine
