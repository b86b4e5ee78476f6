// SPDX-License-Identifier: Apache-2.0
#include "engine/cache_curve.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/allocation_count_testing.h"
#include "engine/test_support.h"

namespace pagewise::engine {
namespace {

constexpr uint32_t kBlock = 16;

std::vector<TokenId> prompt_of(std::size_t count, uint64_t seed) {
  Prng prng(mix64(seed));
  return random_tokens(prng, count, 64);
}

Request named(std::vector<TokenId> prompt, std::string name, uint64_t max_tokens = 0) {
  Request request = greedy(std::move(prompt), max_tokens);
  request.cache.cache_namespace = std::move(name);
  return request;
}

Options with_curve() {
  Options options;
  options.cache_curve = true;
  return options;
}

FakeExecutorOptions pool(uint32_t blocks) {
  FakeExecutorOptions options;
  options.block_tokens = kBlock;
  options.blocks = blocks;
  return options;
}

CurveFigures figures(const Bench& bench) {
  const CurveReport report = bench.core->curve_report();
  EXPECT_TRUE(report.figures.has_value());
  return report.figures.value_or(CurveFigures());
}

/// So many requests with prompts that nobody sent before, so that there is enough traffic.
void add_traffic(Bench& bench, uint64_t requests, uint64_t seed) {
  for (uint64_t i = 0; i < requests; ++i)
    (void)bench.serve(greedy(prompt_of(4 * kBlock, 1000 * seed + i), 0));
}

TEST(CacheCurve, CountsWhatEachRequestAskedForAndWhatItFound) {
  Bench bench(pool(1024), with_curve());
  const std::vector<TokenId> prompt = prompt_of(100, 1);
  EXPECT_EQ(bench.serve(greedy(prompt, 5))->admission->cached_tokens, 0U);
  EXPECT_EQ(bench.serve(greedy(prompt, 5))->admission->cached_tokens, 99U);
  const CurveFigures found = figures(bench);
  EXPECT_EQ(found.requests, 2U);
  EXPECT_EQ(found.prompt_tokens, 200U);
  EXPECT_NEAR(found.hit_rate, 99.0 / 200, 1e-9);
  EXPECT_EQ(found.pool_tokens, 1024U * kBlock);
  EXPECT_EQ(found.history_tokens, 7U * kBlock + 1)
      << "six whole blocks, the one of the sequence's end, and a mark where the prompt ends";
  EXPECT_FALSE(found.enough);
  EXPECT_TRUE(found.points.empty());
  EXPECT_FALSE(bench.core->stats().predicted_hit_rates.has_value());
}

TEST(CacheCurve, PredictsFromAHundredRequestsOnAndNotBefore) {
  Bench bench(pool(4096), with_curve());
  const std::vector<TokenId> prompt = prompt_of(3 * kBlock + 5, 1);
  for (int i = 0; i < 99; ++i) (void)bench.serve(greedy(prompt, 0));
  EXPECT_FALSE(figures(bench).enough);
  (void)bench.serve(greedy(prompt, 0));
  const CurveFigures found = figures(bench);
  ASSERT_TRUE(found.enough);
  for (const double rate : found.predicted) {
    EXPECT_NEAR(rate, 0.99, 1e-9) << "the same prompt again, to its end";
  }
  EXPECT_EQ(bench.core->stats().predicted_hit_rates, found.predicted);
}

TEST(CacheCurve, NamespacesFindNothingOfEachOther) {
  const std::vector<TokenId> prompt = prompt_of(4 * kBlock, 1);
  for (const bool apart : {false, true}) {
    Bench bench(pool(4096), with_curve());
    for (int i = 0; i < 100; ++i) {
      (void)bench.serve(named(prompt, apart ? fmt::format("tenant:{}", i) : "everyone"));
    }
    EXPECT_NEAR(figures(bench).predicted[3], apart ? 0 : 0.99, 1e-9);
  }
}

TEST(CacheCurve, RequestsThatSkipTheCacheLeaveNoTrace) {
  Bench bench(pool(4096), with_curve());
  Request request = greedy(prompt_of(4 * kBlock, 1), 3);
  request.cache.use_cache = false;
  for (int i = 0; i < 3; ++i) (void)bench.serve(request);
  EXPECT_EQ(figures(bench).requests, 0U);
  EXPECT_EQ(figures(bench).history_tokens, 0U);
}

TEST(CacheCurve, AScoredPromptIsNoQuestionButCanBeFoundAfterwards) {
  Bench bench(pool(4096), with_curve());
  const std::vector<TokenId> prompt = prompt_of(4 * kBlock, 1);
  Request scored = greedy(prompt, 3);
  scored.prompt_logprobs = 0;
  (void)bench.serve(scored);
  EXPECT_EQ(figures(bench).requests, 0U);
  EXPECT_EQ(figures(bench).history_tokens, 5U * kBlock) << "and its answer, of which two tokens";
  (void)bench.serve(greedy(prompt, 0));
  add_traffic(bench, 99, 2);
  EXPECT_NEAR(figures(bench).predicted[3], 1.0 / 100, 1e-9);
}

TEST(CacheCurve, ATurnThatGoesOnFindsTheLastAnswersWholeBlocks) {
  Bench bench(pool(4096), with_curve());
  const std::vector<TokenId> prompt = prompt_of(4 * kBlock + 8, 1);
  const auto first = bench.serve(greedy(prompt, 2 * kBlock + 1));
  std::vector<TokenId> next = prompt;
  next.insert(next.end(), first->choices[0].tokens.begin(), first->choices[0].tokens.end());
  next.resize(8 * kBlock, TokenId(7));
  (void)bench.serve(greedy(next, 0));
  add_traffic(bench, 98, 2);
  const CurveFigures found = figures(bench);
  EXPECT_EQ(found.prompt_tokens, (4 * kBlock + 8) + 8 * kBlock + 98 * 4 * kBlock);
  EXPECT_NEAR(found.predicted[3], 6.0 * kBlock / static_cast<double>(found.prompt_tokens), 1e-9)
      << "six whole blocks were computed; half a block more is in the cache itself";
}

TEST(CacheCurve, WhatSharesARunningPrefillIsFoundThereAsInTheCache) {
  Bench bench(pool(4096), with_curve());
  add_traffic(bench, 98, 2);
  const std::vector<TokenId> prompt = prompt_of(40 * kBlock, 1);
  const auto first = bench.submit(greedy(prompt, 30));
  const auto second = bench.submit(greedy(prompt, 30));
  bench.run();
  EXPECT_EQ(second->admission->cached_tokens, 40 * kBlock - 1);
  const CurveFigures found = figures(bench);
  const double all = 98.0 * 4 * kBlock + 2.0 * 40 * kBlock;
  EXPECT_NEAR(found.predicted[3], 40.0 * kBlock / all, 1e-9);
  // Others' first tokens agree here and there: the cache reads to the token.
  EXPECT_NEAR(found.hit_rate, (40.0 * kBlock - 1) / all, 0.01);
}

TEST(CacheCurve, GoesOnWhenTheCacheIsClearedAndFollowsThePoolWhenItIsResized) {
  Bench bench(pool(1024), with_curve());
  const std::vector<TokenId> prompt = prompt_of(4 * kBlock, 1);
  for (int i = 0; i < 100; ++i) {
    (void)bench.serve(greedy(prompt, 0));
    (void)bench.core->clear_cache(std::nullopt);
  }
  CurveFigures found = figures(bench);
  EXPECT_EQ(found.hit_rate, 0) << "measured: nothing was there any more";
  EXPECT_NEAR(found.predicted[1], 0.99, 1e-9) << "predicted: what memory would have found";
  // 24 prompts in turns need 96 blocks: twice 64, and not 64.
  Bench turns(pool(64), with_curve());
  for (int round = 0; round < 10; ++round) {
    for (uint64_t i = 0; i < 24; ++i) (void)turns.serve(greedy(prompt_of(4 * kBlock, i), 0));
  }
  EXPECT_NEAR(figures(turns).predicted[1], 0, 1e-9);
  EXPECT_NEAR(figures(turns).predicted[2], 0.9, 1e-9);
  const uint32_t blocks = 128;
  ASSERT_TRUE(turns.core->resize(std::span(&blocks, 1)).has_value());
  found = figures(turns);
  EXPECT_EQ(found.pool_tokens, 128U * kBlock);
  EXPECT_NEAR(found.predicted[0], 0, 1e-9);
  EXPECT_NEAR(found.predicted[1], 0.9, 1e-9);
  EXPECT_EQ(turns.core->stats().predicted_hit_rates, found.predicted);
}

TEST(CacheCurve, SequencesThatArePreemptedCountOnce) {
  FakeExecutorOptions machine = pool(24);
  Options options = with_curve();
  Bench bench(machine, options);
  for (uint64_t i = 0; i < 6; ++i) (void)bench.submit(greedy(prompt_of(40, i), 120));
  bench.run();
  ASSERT_GT(bench.core->stats().preemptions, 0U);
  EXPECT_EQ(figures(bench).requests, 6U);
  EXPECT_EQ(figures(bench).prompt_tokens, 240U);
  EXPECT_EQ(figures(bench).hit_rate, 0);
}

TEST(CacheCurve, PreemptionsLeaveNoTrace) {
  CurveFigures found[2];
  for (const bool short_of_memory : {false, true}) {
    Bench bench(pool(short_of_memory ? 24 : 1024), with_curve());
    for (uint64_t i = 0; i < 6; ++i) (void)bench.submit(greedy(prompt_of(40, i), 120));
    bench.run();
    ASSERT_EQ(bench.core->stats().preemptions > 0, short_of_memory);
    found[short_of_memory ? 1 : 0] = figures(bench);
  }
  EXPECT_EQ(found[1].history_tokens, found[0].history_tokens) << "ends that never were";
  EXPECT_EQ(found[1].prompt_tokens, found[0].prompt_tokens);
}

TEST(CacheCurve, OfACancelledPromptOnlyWhatWasComputedCanBeFound) {
  Options options = with_curve();
  options.step_tokens = 2 * kBlock;
  Bench bench(pool(4096), options);
  const std::vector<TokenId> prompt = prompt_of(8 * kBlock + 3, 1);
  (void)bench.submit(greedy(prompt, 5));
  for (int i = 0; i < 2; ++i) bench.step();
  bench.core->cancel(bench.last_id);
  EXPECT_EQ(figures(bench).history_tokens, 4 * kBlock);
  EXPECT_EQ(bench.serve(greedy(prompt, 0))->admission->cached_tokens, 4 * kBlock);
  add_traffic(bench, 98, 2);
  const CurveFigures found = figures(bench);
  EXPECT_NEAR(found.predicted[3], 4.0 * kBlock / static_cast<double>(found.prompt_tokens), 1e-9);
}

TEST(CacheCurve, ACancelledPromptTakesNothingAwayThatWasKnownBefore) {
  Options options = with_curve();
  options.step_tokens = 2 * kBlock;
  Bench bench(pool(4096), options);
  const std::vector<TokenId> prompt = prompt_of(6 * kBlock, 1);
  (void)bench.serve(greedy(prompt, 0));
  (void)bench.core->clear_cache(std::nullopt);
  std::vector<TokenId> longer = prompt;
  longer.resize(9 * kBlock, TokenId(7));
  (void)bench.submit(greedy(longer, 5));
  bench.step();
  bench.core->cancel(bench.last_id);
  EXPECT_EQ(figures(bench).history_tokens, 6 * kBlock);
}

TEST(CacheCurve, AnAnswerThatIsCancelledWhilePreemptedWasComputedAllTheSame) {
  Bench bench(pool(24), with_curve());
  std::vector<RequestId> ids;
  for (uint64_t i = 0; i < 6; ++i) {
    (void)bench.submit(greedy(prompt_of(40, i), 120));
    ids.push_back(bench.last_id);
  }
  while (bench.core->stats().preemptions == 0) bench.step();
  const uint64_t before = figures(bench).history_tokens;
  bench.core->cancel(ids.back());  // the youngest
  EXPECT_GT(figures(bench).history_tokens, before);
}

TEST(CacheCurve, ChoicesShareTheirPrompt) {
  // 37 tokens of a prompt, and behind them four answers of 19, of which the last is not computed.
  Bench bench(pool(1024), with_curve());
  Request request = greedy(prompt_of(2 * kBlock + 5, 1), 20);
  request.sampling.temperature = 1;
  request.choices = 4;
  (void)bench.serve(request);
  EXPECT_EQ(figures(bench).history_tokens, 2 * kBlock + 1 + 4 * 2 * kBlock);
}

TEST(CacheCurve, WithoutTheOptionOrThePrefixCacheThereIsNone) {
  Bench off(pool(64));
  EXPECT_FALSE(off.core->curve_report().figures.has_value());
  EXPECT_TRUE(off.core->curve_report().prefix_cache);
  Options options = with_curve();
  options.prefix_cache = false;
  Bench uncached(pool(64), options);
  EXPECT_FALSE(uncached.core->curve_report().figures.has_value());
  EXPECT_FALSE(uncached.core->curve_report().prefix_cache);
}

TEST(CacheCurve, TheFullGroupsPoolIsWhatItMeasures) {
  // A text's blocks behind the window come and go in the sliding pool, however small that is.
  FakeExecutorOptions machine = pool(256);
  machine.windows = {512, 0};
  machine.group_blocks = {40, 256};
  EXPECT_EQ(figures(Bench(machine, with_curve())).pool_tokens, 256U * kBlock);
  machine.windows = {512};
  machine.group_blocks = {40};
  EXPECT_EQ(figures(Bench(machine, with_curve())).pool_tokens, 40U * kBlock);
}

// ---- The curve alone ----

TEST(CacheCurve, AChoiceThatEndsBeforeTheOthersIsItsAnswerAlone) {
  CacheCurve curve(kBlock, 1024 * kBlock);
  const uint32_t prompt_tokens = 4 * kBlock + 5;
  const std::vector<TokenId> whole = prompt_of(prompt_tokens + 2 * kBlock, 1);
  const auto visit = curve.admitted("", std::span(whole).first(prompt_tokens), 0);
  EXPECT_EQ(curve.figures().history_tokens, 5 * kBlock);
  // However long the prompt: its whole blocks are not looked at again.
  std::vector<TokenId> ending = whole;
  std::fill_n(ending.begin(), 4 * kBlock, TokenId(0));
  curve.ended(visit, {"", ending, prompt_tokens, 6 * kBlock, true});
  EXPECT_EQ(curve.figures().history_tokens, 7 * kBlock);
  // The last one makes the prompt's end a part of a block, and finds the answer where it is.
  curve.ended(visit, {"", whole, prompt_tokens, 6 * kBlock, false});
  EXPECT_EQ(curve.figures().history_tokens, 6 * kBlock + 1);
}

TEST(CacheCurve, RecentTrafficCountsMost) {
  constexpr uint64_t kPool = 64 * kBlock;
  CacheCurve curve(kBlock, kPool);
  const std::vector<TokenId> same = prompt_of(4 * kBlock, 1);
  const auto serve = [&](const std::vector<TokenId>& prompt, uint32_t cached) {
    const auto tokens = static_cast<uint32_t>(prompt.size());
    curve.ended(curve.admitted("", prompt, cached), {"", prompt, tokens, tokens});
  };
  uint64_t fresh = 100;
  for (int i = 0; i < 10'000; ++i) serve(same, 4 * kBlock - 1);
  EXPECT_GT(curve.figures().predicted[1], 0.99);
  EXPECT_GT(curve.figures().hit_rate, 0.98);
  EXPECT_EQ(curve.figures().requests, 10'000U);
  EXPECT_LT(curve.figures().requests_counted, CacheCurve::kRequestsCounted);
  for (uint64_t i = 0; i < 3 * CacheCurve::kRequestsCounted; ++i)
    serve(prompt_of(4 * kBlock, ++fresh), 0);
  EXPECT_LT(curve.figures().predicted[1], 0.1);
  EXPECT_LT(curve.figures().hit_rate, 0.1);
  EXPECT_EQ(curve.figures().prompt_tokens, (10'000 + 3 * CacheCurve::kRequestsCounted) * 64);
}

TEST(CacheCurve, CountsAsManyPoolsAsRequests) {
  // A pool that 2,048 prompts do not fill: the counts go on until they have filled it often enough.
  constexpr uint64_t kPool = 100'000 * kBlock;
  CacheCurve curve(kBlock, kPool);
  const std::vector<TokenId> prompt = prompt_of(4 * kBlock, 1);
  for (uint64_t i = 0; i < 2 * CacheCurve::kRequestsCounted; ++i) curve.admitted("", prompt, 0);
  EXPECT_EQ(curve.figures().requests_counted, 2.0 * CacheCurve::kRequestsCounted);
}

TEST(CacheCurve, ServingMoreTakesNoMoreMemory) {
  constexpr uint64_t kPool = 100'000 * kBlock;
  CacheCurve curve(kBlock, kPool);
  std::vector<std::vector<TokenId>> prompts;
  for (uint64_t i = 0; i < 1000; ++i) prompts.push_back(prompt_of(100 * kBlock, i));
  curve.admitted("", prompts[0], 0);
  const uint64_t before = testing::allocation_count();
  for (const std::vector<TokenId>& prompt : prompts) {
    curve.ended(curve.admitted("", prompt, 0), {"", prompt, 100 * kBlock, 100 * kBlock});
  }
  EXPECT_EQ(testing::allocation_count(), before);
  EXPECT_LT(curve.figures().followed_share, 0.5);
  curve.check_invariants();
}

}  // namespace
}  // namespace pagewise::engine
