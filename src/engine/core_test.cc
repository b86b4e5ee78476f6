// SPDX-License-Identifier: Apache-2.0
// The scheduler's behaviour on the fake executor, one promise a test.
#include "engine/core.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "engine/test_support.h"

namespace pagewise::engine {
namespace {

constexpr uint64_t kSeed = 20261130;

std::vector<TokenId> prompt_of(std::size_t tokens, uint64_t seed = kSeed) {
  Prng prng(seed);
  return random_tokens(prng, tokens, 64);
}

std::vector<TokenId> joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// A request whose greedy answer satisfies `wanted`, by trying prompts.
Request request_with_answer(const std::function<bool(const std::vector<TokenId>&)>& wanted,
                            uint64_t max_tokens, std::size_t prompt_tokens = 9) {
  const FakeExecutor executor(pool(16, 1));
  for (uint64_t seed = 0; seed < 100'000; ++seed) {
    Request request = greedy(prompt_of(prompt_tokens, seed), max_tokens);
    if (wanted(defined_tokens(executor, request, 0, max_tokens))) return request;
  }
  ADD_FAILURE() << "no prompt gives the wanted answer";
  return greedy(prompt_of(1), 1);
}

TEST(Core, SamplesFromTheModelsDistributionAfterPromptAndAnswer) {
  Bench bench(pool(16, 64));
  for (const std::size_t length : {1U, 15U, 16U, 17U, 100U}) {
    Request request = greedy(prompt_of(length, length), 20);
    request.sampling.temperature = 0.8F;
    request.sampling.seed = length;
    const auto answer = bench.serve(request);
    EXPECT_EQ(answer->choices[0].tokens, defined_tokens(bench.executor, request, 0, 20));
    EXPECT_EQ(answer->choices[0].finish, FinishReason::kLength);
  }
}

TEST(Core, AHitAnswersLikeAMissAlsoTheTenthTimeC01) {
  Bench bench(pool(16, 256));
  Options off;
  off.prefix_cache = false;
  Bench uncached(pool(16, 256), off);
  for (uint64_t p = 0; p < 16; ++p) {
    const Request request = greedy(prompt_of(200 + p, p), 32);
    const auto expected = uncached.serve(request);
    for (int repeat = 0; repeat < 10; ++repeat) {
      const auto answer = bench.serve(request);
      expect_equal(expected->choices[0], answer->choices[0], "prompt " + std::to_string(p));
      if (repeat > 0) {
        EXPECT_EQ(answer->admission->cached_tokens, 199 + p);
      }
    }
  }
  EXPECT_EQ(uncached.core->stats().prefix_hit_tokens, 0U);
}

TEST(Core, RequestsWithOneNewPrefixComputeItOnceC02) {
  Bench bench(pool(16, 2048));
  Options off;
  off.prefix_cache = false;
  Bench uncached(pool(16, 2048), off);
  for (uint64_t round = 0; round < 20; ++round) {
    const std::vector<TokenId> prefix = prompt_of(1000, 100 + round);
    const uint64_t before = bench.executor.tokens_computed();
    std::vector<Request> requests;
    std::vector<std::shared_ptr<Recorder>> answers;
    for (uint64_t i = 0; i < 24; ++i) {
      requests.push_back(greedy(joined(prefix, prompt_of(5, round * 100 + i)), 8));
      answers.push_back(bench.submit(requests.back()));
    }
    bench.run();
    for (std::size_t i = 0; i < 24; ++i) {
      const auto expected = uncached.serve(requests[i]);
      expect_equal(expected->choices[0], answers[i]->choices[0], "request " + std::to_string(i));
      // Suffixes may begin alike: then the hit is longer still.
      if (i > 0) {
        EXPECT_GE(answers[i]->admission->cached_tokens, 1000U);
      }
    }
    EXPECT_LE(bench.executor.tokens_computed() - before, 1000U + 24 * (5 + 8));
  }
}

TEST(Core, AWaiterComputesOnWhenTheOneThatComputedThePrefixLeaves) {
  Options options;
  options.step_tokens = 64;
  Bench bench(pool(16, 256), options);
  const std::vector<TokenId> prefix = prompt_of(400);
  (void)bench.submit(greedy(joined(prefix, prompt_of(3, 1)), 4));
  const RequestId first = bench.last_id;
  const Request request = greedy(joined(prefix, prompt_of(3, 2)), 4);
  const auto second = bench.submit(request);
  bench.step();
  bench.step();
  EXPECT_FALSE(second->admission.has_value());
  bench.core->cancel(first);
  bench.run();
  ASSERT_TRUE(second->ok());
  EXPECT_EQ(second->choices[0].tokens, defined_tokens(bench.executor, request, 0, 4));
  EXPECT_EQ(second->admission->cached_tokens, 128U) << "what two steps had computed";
}

TEST(Core, NobodyWaitsForAPrefixThatHeCouldNotRead) {
  for (const bool other_namespace : {true, false}) {
    Options options;
    options.step_tokens = 64;
    Bench bench(pool(16, 256), options);
    (void)bench.submit(greedy(prompt_of(400), 4));
    Request request = greedy(prompt_of(400), 4);
    if (other_namespace) {
      request.cache.cache_namespace = "other";
    } else {
      request.cache.use_cache = false;
    }
    const auto answer = bench.submit(request);
    const auto unrelated = bench.submit(greedy(prompt_of(30, 9), 4));
    bench.step();
    EXPECT_TRUE(answer->admission.has_value());
    EXPECT_TRUE(unrelated->admission.has_value());
    bench.run();
    EXPECT_EQ(answer->admission->cached_tokens, 0U);
  }
}

TEST(Core, WhoWaitsForAPrefixLetsOthersPass) {
  Options options;
  options.step_tokens = 64;
  Bench bench(pool(16, 256), options);
  (void)bench.submit(greedy(prompt_of(400), 4));
  const auto joiner = bench.submit(greedy(joined(prompt_of(400), prompt_of(3, 1)), 4));
  const auto unrelated = bench.submit(greedy(prompt_of(30, 9), 4));
  bench.step();
  EXPECT_FALSE(joiner->admission.has_value());
  EXPECT_TRUE(unrelated->admission.has_value());
  bench.run();
  EXPECT_EQ(joiner->admission->cached_tokens, 400U);
}

TEST(Core, PromptLengthsAroundWholeBlocksKeepTheBooksC03) {
  constexpr uint32_t kBlock = 16;
  Bench bench(pool(kBlock, 256));
  Options off;
  off.prefix_cache = false;
  Bench uncached(pool(kBlock, 256), off);
  const std::vector<TokenId> text = prompt_of(8 * kBlock + 1);
  for (const uint64_t max_tokens : {1U, 2 * kBlock}) {
    uint32_t shorter = 0;
    for (const uint32_t n : {1U, kBlock - 1, kBlock, kBlock + 1, 2 * kBlock - 1, 2 * kBlock,
                             2 * kBlock + 1, 8 * kBlock, 8 * kBlock + 1}) {
      const Request request = greedy({text.begin(), text.begin() + n}, max_tokens);
      const auto expected = uncached.serve(request);
      for (int repeat = 0; repeat < 3; ++repeat) {
        const auto answer = bench.serve(request);
        expect_equal(expected->choices[0], answer->choices[0], "n " + std::to_string(n));
        const uint32_t cached = answer->admission->cached_tokens;
        EXPECT_LE(cached, n - 1);
        EXPECT_GE(cached, shorter) << "a longer prompt hits no less";
        if (repeat > 0) {
          EXPECT_EQ(cached, n - 1) << "hits are exact to the token";
        }
        if (repeat == 2) shorter = cached;
        const Stats stats = bench.core->stats();
        EXPECT_EQ(stats.blocks_live, 0U);
        EXPECT_EQ(stats.blocks_live + stats.blocks_cached + stats.blocks_free, stats.blocks_pool);
      }
    }
  }
}

TEST(Core, CancellingFreesEveryBlockAtOnceC07) {
  Options options;
  options.step_tokens = 32;
  options.seqs_max = 4;
  for (const uint32_t steps : {0U, 1U, 3U, 8U, 12U}) {  // waiting, prefilling, decoding
    for (const uint32_t choices : {1U, 3U}) {
      Bench bench(pool(16, 64), options);
      Request request = greedy(prompt_of(100), 400);
      request.choices = choices;
      request.sampling.temperature = 1;
      const auto answer = bench.submit(request);
      for (uint32_t i = 0; i < steps; ++i) bench.step();
      bench.core->cancel(bench.last_id);
      bench.core->check_invariants();
      EXPECT_EQ(bench.core->stats().blocks_live, 0U);
      EXPECT_EQ(bench.core->stats().requests_running, 0U);
      EXPECT_EQ(bench.core->stats().finished_cancelled, 1U);
      ASSERT_TRUE(answer->finished.has_value());
      EXPECT_EQ(answer->finished->status.code(), ErrorCode::kCancelled);
      EXPECT_EQ(answer->admission.has_value(), steps > 0) << "a waiting request is never started";
      EXPECT_FALSE(bench.core->step());
      // The next one is answered as on an idle engine.
      const Request next = greedy(prompt_of(100), 10);
      EXPECT_EQ(bench.serve(next)->choices[0].tokens, defined_tokens(bench.executor, next, 0, 10));
    }
  }
}

TEST(Core, CancellingAWaitingRequestLeavesTheOthersInOrder) {
  Options options;
  options.seqs_max = 1;
  Bench bench(pool(16, 64), options);
  std::vector<std::shared_ptr<Recorder>> answers;
  std::vector<RequestId> ids;
  for (uint64_t i = 0; i < 5; ++i) {
    answers.push_back(bench.submit(greedy(prompt_of(20, i), 3)));
    ids.push_back(bench.last_id);
  }
  bench.step();
  bench.core->cancel(ids[2]);
  bench.core->cancel(ids[2]);         // gone already: ignored
  bench.core->cancel(RequestId(99));  // never was
  bench.run();
  EXPECT_FALSE(answers[2]->admission.has_value());
  for (const std::size_t i : {0U, 1U, 3U, 4U}) EXPECT_TRUE(answers[i]->ok());
}

TEST(Core, RefusesWhatCanNeverFitThePoolWithBothNumbersC08) {
  Options options;
  options.context_max = 4096;
  Bench bench(pool(16, 64), options);
  EXPECT_EQ(bench.core->options().context_max, 1024U);
  const Status status = bench.core->check(greedy(prompt_of(2000), 10));
  EXPECT_EQ(status.code(), ErrorCode::kContextTooLong);
  EXPECT_NE(status.error().message.find("2000"), std::string::npos);
  EXPECT_NE(status.error().message.find("1024"), std::string::npos);
  EXPECT_NE(status.error().message.find("KV memory"), std::string::npos);
}

TEST(Core, AnAnswerThatFillsThePoolEndsWithTheContextC08) {
  Options options;
  options.context_max = 4096;
  Bench bench(pool(16, 64), options);
  const Request request = greedy(prompt_of(900), 500);
  const auto answer = bench.serve(request);
  EXPECT_EQ(answer->choices[0].finish, FinishReason::kContext);
  EXPECT_EQ(answer->choices[0].tokens, defined_tokens(bench.executor, request, 0, 124));
  // Again, now that all of it is cached and a copy of the last block has nowhere to go.
  const auto again = bench.serve(request);
  expect_equal(answer->choices[0], again->choices[0], "again");
}

TEST(Core, ShortRequestsAreAnsweredBetweenOnesThatFillThePoolC08) {
  Bench bench(pool(16, 64));
  std::vector<std::pair<Request, std::shared_ptr<Recorder>>> all;
  for (uint64_t i = 0; i < 5; ++i) {
    all.emplace_back(greedy(prompt_of(900, i), 500), nullptr);
    all.back().second = bench.submit(all.back().first);
    all.emplace_back(greedy(prompt_of(20, 50 + i), 10), nullptr);
    all.back().second = bench.submit(all.back().first);
  }
  bench.run();
  for (const auto& [request, answer] : all) {
    ASSERT_TRUE(answer->ok());
    EXPECT_EQ(answer->choices[0].tokens,
              defined_tokens(bench.executor, request, 0, answer->choices[0].tokens.size()));
  }
}

TEST(Core, AMarkedPrefixIsCreatedOnceAndReadAfterwardsC11) {
  Bench bench(pool(16, 512));
  const std::vector<TokenId> system = prompt_of(1203);
  const auto ask = [&](uint64_t seed, bool marked) {
    Request request = greedy(joined(system, prompt_of(30, seed)), 8);
    if (marked) {
      request.cache.positions = {{1203}};
      request.cache.markers = {{0, LeaseClass::k5m}};
    }
    const Admission admission = *bench.serve(request)->admission;
    EXPECT_EQ(admission.prompt_tokens, 1233U);
    EXPECT_EQ(admission.input_tokens + admission.cache_read_tokens +
                  admission.cache_created_5m_tokens + admission.cache_created_1h_tokens,
              1233U);
    return admission;
  };
  const Admission cold = ask(1, true);
  EXPECT_EQ(cold.cache_created_5m_tokens, 1203U);
  EXPECT_EQ(cold.cache_read_tokens, 0U);
  EXPECT_EQ(cold.cached_tokens, 0U);
  const Admission again = ask(1, true);
  EXPECT_EQ(again.cache_read_tokens, 1203U);
  EXPECT_EQ(again.cache_created_5m_tokens, 0U);
  EXPECT_EQ(again.cached_tokens, 1232U);
  const Admission other = ask(2, true);
  EXPECT_EQ(other.cache_read_tokens, 1203U) << "exact, although 1203 is no multiple of the block";
  EXPECT_EQ(other.blocks, 78U);
  EXPECT_GE(other.blocks_shared, 75U);
  const Admission unmarked = ask(1, false);
  EXPECT_EQ(unmarked.cache_read_tokens, 0U);
  EXPECT_EQ(unmarked.input_tokens, 1233U);
  EXPECT_EQ(unmarked.cached_tokens, 1232U) << "reuse is physical, marked or not";
  const Stats stats = bench.core->stats();
  EXPECT_EQ(stats.cache_created_tokens, 1203U);
  EXPECT_EQ(stats.cache_read_tokens, 2406U);
  EXPECT_EQ(stats.prompt_tokens, 4 * 1233U);
}

TEST(Core, APromisedCreationSurvivesPreemptionOfItsPrefill) {
  Options options;
  options.step_tokens = 6;
  Bench bench(pool(16, 16), options);
  // The first holds 6 blocks and needs an 8th at its 23rd token; by then the second, which holds 9,
  // has computed some 110 of its 140, short of
  // the marked 128.
  const auto older = bench.submit(greedy(prompt_of(90, 1), 30));
  while (bench.core->stats().generation_tokens == 0) bench.step();
  Request marked = greedy(prompt_of(140, 2), 4);
  marked.cache.positions = {{128}};
  marked.cache.markers = {{0, LeaseClass::k5m}};
  const auto first = bench.submit(marked);
  while (bench.core->stats().preemptions == 0) {
    ASSERT_TRUE(first->choices[0].tokens.empty()) << "it was to be preempted while prefilling";
    bench.step();
  }
  bench.run();
  ASSERT_TRUE(older->ok() && first->ok());
  EXPECT_EQ(first->admission->cache_created_5m_tokens, 128U);
  EXPECT_EQ(first->choices[0].tokens, defined_tokens(bench.executor, marked, 0, 4));
  EXPECT_EQ(bench.serve(marked)->admission->cache_read_tokens, 128U);
}

TEST(Core, ReuseNeverCrossesNamespaces) {
  Bench bench(pool(16, 64));
  Request request = greedy(prompt_of(100), 2);
  request.cache.cache_namespace = "a";
  EXPECT_EQ(bench.serve(request)->admission->cached_tokens, 0U);
  EXPECT_EQ(bench.serve(request)->admission->cached_tokens, 99U);
  request.cache.cache_namespace = "b";
  EXPECT_EQ(bench.serve(request)->admission->cached_tokens, 0U);
}

TEST(Core, WithoutTheCacheARequestNeitherReadsNorEntersIt) {
  Bench bench(pool(16, 64));
  Request request = greedy(prompt_of(100), 2);
  request.cache.positions = {{50}};
  request.cache.markers = {{0, LeaseClass::k5m}};
  Request without = request;
  without.cache.use_cache = false;
  const Admission cold = *bench.serve(without)->admission;
  EXPECT_EQ(cold.cache_created_5m_tokens, 0U);
  EXPECT_EQ(cold.input_tokens, 100U);
  EXPECT_EQ(bench.core->stats().blocks_cached, 0U);
  EXPECT_EQ(bench.serve(request)->admission->cached_tokens, 0U);
  EXPECT_EQ(bench.serve(without)->admission->cached_tokens, 0U);
  EXPECT_EQ(bench.serve(request)->admission->cached_tokens, 99U);
}

TEST(Core, TheOptionTurnsTheCacheOffForAll) {
  Options options;
  options.prefix_cache = false;
  Bench bench(pool(16, 64), options);
  const Request request = greedy(prompt_of(100), 2);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(bench.serve(request)->admission->cached_tokens, 0U);
  EXPECT_EQ(bench.core->stats().blocks_cached, 0U);
  EXPECT_EQ(bench.core->stats().prefix_query_tokens, 0U);
}

TEST(Core, TheNextTurnReadsTheAnswerOfThisOne) {
  Bench bench(pool(16, 64));
  const Request first = greedy(prompt_of(50), 30);
  const auto answer = bench.serve(first);
  const Request second =
      greedy(joined(joined(first.prompt, answer->choices[0].tokens), prompt_of(10, 3)), 5);
  const auto next = bench.serve(second);
  // The last sampled token was never fed, so its K and V do not exist.
  EXPECT_EQ(next->admission->cached_tokens, 79U);
  EXPECT_EQ(next->choices[0].tokens, defined_tokens(bench.executor, second, 0, 5));
}

TEST(Core, TextIsWholeCharactersHoweverTheTokensCutThemC12) {
  // Answers that hold bytes of longer characters, some of them incomplete at the end.
  Bench bench(pool(16, 64));
  bool whole_character = false;
  bool cut_at_the_end = false;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Request request = greedy(prompt_of(6, seed), 1 + seed % 12);
    request.sampling.temperature = 0.3F;
    request.sampling.top_k = 9;  // top-k of random logits: any tokens
    const auto answer = bench.serve(request);
    std::string raw;
    for (const TokenId token : answer->choices[0].tokens) {
      if (!bench.tokenizer.is_control(token)) raw += bench.tokenizer.token_bytes(token);
    }
    std::string expected;
    text::Utf8Assembler assembler;
    assembler.push(raw, expected);
    cut_at_the_end |= !assembler.empty();
    assembler.finish();
    EXPECT_EQ(answer->choices[0].text, expected) << "seed " << seed;
    whole_character |= expected.find("\xF0\x9F\x98\x80") != std::string::npos ||
                       expected.find("\xEF\xBF\xBD") != std::string::npos;
  }
  EXPECT_TRUE(whole_character);
  EXPECT_TRUE(cut_at_the_end);
}

TEST(Core, NothingOfAStopStringIsDeliveredC13) {
  Bench bench(pool(16, 64));
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Request plain = greedy(prompt_of(8, seed), 24);
    const auto whole = bench.serve(plain);
    const std::string& text = whole->choices[0].text;
    if (text.size() < 12) continue;
    Request stopped = plain;
    // A string across several tokens; one that begins like the text and never completes; and a
    // longer one with the same beginning, which must lose.
    const std::string stop = text.substr(6, 4);
    stopped.stops = {text.substr(2, 3) + "~", stop + text.substr(10, 1), stop};
    const auto answer = bench.serve(stopped);
    const std::size_t at = text.find(stop);
    EXPECT_EQ(answer->choices[0].text, text.substr(0, at)) << "seed " << seed;
    EXPECT_EQ(answer->choices[0].finish, FinishReason::kStopString);
    EXPECT_EQ(answer->choices[0].stop_index, 2U);
    EXPECT_LE(answer->choices[0].completion_tokens, 24U);

    Request never = plain;
    never.stops = {text.substr(6, 4) + "~"};
    expect_equal(whole->choices[0], bench.serve(never)->choices[0], "a stop that never completes");
  }
}

TEST(Core, EndOfGenerationStopsAndIsCountedButNotDelivered) {
  Bench bench(pool(16, 64));
  Request request = request_with_answer(
      [](const std::vector<TokenId>& tokens) {
        return std::find(tokens.begin(), tokens.end(), TokenId(0)) == tokens.begin() + 4;
      },
      10);
  request.ignore_eos = false;
  const auto answer = bench.serve(request);
  EXPECT_EQ(answer->choices[0].finish, FinishReason::kStop);
  EXPECT_EQ(answer->choices[0].tokens.size(), 4U);
  EXPECT_EQ(answer->choices[0].completion_tokens, 5U);
  EXPECT_EQ(answer->choices[0].text.find("<end>"), std::string::npos);
  EXPECT_EQ(bench.core->stats().finished_stop, 1U);

  request.ignore_eos = true;
  request.want_control_text = true;
  const auto on = bench.serve(request);
  EXPECT_EQ(on->choices[0].tokens.size(), 10U);
  EXPECT_NE(on->choices[0].text.find("<end>"), std::string::npos);
  request.want_control_text = false;
  EXPECT_EQ(bench.serve(request)->choices[0].text.find("<end>"), std::string::npos);
}

TEST(Core, APromptOneShortOfTheContextGivesExactlyOneTokenC18) {
  Options options;
  options.context_max = 100;
  Bench bench(pool(16, 64), options);
  for (const std::size_t length : {100U, 101U, 200U}) {
    const Status status = bench.core->check(greedy(prompt_of(length), 16));
    EXPECT_EQ(status.code(), ErrorCode::kContextTooLong);
    EXPECT_NE(status.error().message.find(std::to_string(length)), std::string::npos);
    EXPECT_NE(status.error().message.find("the context is 100 tokens"), std::string::npos);
  }
  const auto answer = bench.serve(greedy(prompt_of(99), 16));
  EXPECT_EQ(answer->choices[0].tokens.size(), 1U);
  EXPECT_EQ(answer->choices[0].finish, FinishReason::kContext);
  EXPECT_EQ(bench.serve(greedy(prompt_of(99), 1))->choices[0].finish, FinishReason::kLength);
  EXPECT_EQ(bench.serve(greedy(prompt_of(90), 10))->choices[0].finish, FinishReason::kLength);
  EXPECT_EQ(bench.serve(greedy(prompt_of(90), 11))->choices[0].finish, FinishReason::kContext);
}

TEST(Core, MaxTokensAtItsEdgesC19) {
  Bench bench(pool(16, 64));
  EXPECT_EQ(bench.serve(greedy(prompt_of(20), 1))->choices[0].tokens.size(), 1U);
  for (const uint64_t huge : {uint64_t{1} << 31, uint64_t{1} << 53, ~uint64_t{0}}) {
    const auto answer = bench.serve(greedy(prompt_of(1000), huge));
    EXPECT_EQ(answer->choices[0].tokens.size(), 24U);
    EXPECT_EQ(answer->choices[0].finish, FinishReason::kContext);
  }
  // 0 fills the cache and answers nothing (reference B12).
  Request prewarm = greedy(prompt_of(200, 7), 0);
  prewarm.choices = 2;
  const auto warmed = bench.serve(prewarm);
  for (const ChoiceRecord& choice : warmed->choices) {
    EXPECT_EQ(choice.finish, FinishReason::kLength);
    EXPECT_TRUE(choice.text.empty());
    EXPECT_EQ(choice.completion_tokens, 0U);
  }
  EXPECT_EQ(bench.serve(greedy(prompt_of(200, 7), 1))->admission->cached_tokens, 199U);
}

TEST(Core, ChoicesShareThePromptAndDifferC19) {
  Bench bench(pool(16, 256));
  Request request = greedy(prompt_of(330), 20);  // 20 blocks and a part
  request.choices = 8;
  request.sampling.temperature = 1;
  request.sampling.seed = 5;
  const uint64_t before = bench.executor.tokens_computed();
  const auto answer = bench.submit(request);
  for (int i = 0; i < 5; ++i) bench.step();
  EXPECT_LE(bench.core->stats().blocks_live, 20U + 8U) << "the prompt's blocks are shared";
  EXPECT_GE(bench.executor.copies(), 7U) << "the last one is copied by whoever writes on";
  bench.run();
  EXPECT_EQ(bench.executor.tokens_computed() - before, 330U + 8 * 19) << "one prefill";
  for (uint32_t c = 0; c < 8; ++c) {
    EXPECT_EQ(answer->choices[c].tokens, defined_tokens(bench.executor, request, c, 20));
  }
  EXPECT_NE(answer->choices[0].tokens, answer->choices[1].tokens);
  EXPECT_EQ(answer->finished->completion_tokens, 160U);
  EXPECT_EQ(bench.core->stats().blocks_live, 0U);
  EXPECT_EQ(bench.core->stats().prompt_tokens, 330U) << "once";
  const auto second = bench.serve(request);
  for (uint32_t c = 0; c < 8; ++c) {
    expect_equal(answer->choices[c], second->choices[c], "choice " + std::to_string(c));
  }
}

TEST(Core, MoreChoicesThanThePoolHoldsAreStillAnswered) {
  Bench bench(pool(4, 16));
  Request request = greedy(prompt_of(21), 30);
  request.choices = 6;
  request.sampling.temperature = 1;
  const auto answer = bench.serve(request);
  EXPECT_GT(bench.core->stats().preemptions, 0U);
  for (uint32_t c = 0; c < 6; ++c) {
    EXPECT_EQ(answer->choices[c].tokens, defined_tokens(bench.executor, request, c, 30));
  }
}

TEST(Core, RefusesRequestsThatMakeNoSense) {
  Options options;
  options.seqs_max = 4;
  Bench bench(pool(16, 64), options);
  const auto refused = [&](Request request, const char* field) {
    const Status status = bench.core->check(request);
    EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
    if (!status) {
      EXPECT_EQ(status.error().message.rfind(field, 0), 0U) << status.error().message;
    }
  };
  refused(greedy({}, 1), "prompt");
  refused(greedy({TokenId(64)}, 1), "prompt");
  refused(greedy({TokenId(-1)}, 1), "prompt");
  Request request = greedy(prompt_of(4), 1);
  request.choices = 0;
  refused(request, "n:");
  request.choices = 5;
  refused(request, "n:");
  request.choices = 4;
  request.stops = {"a", ""};
  refused(request, "stop");
}

TEST(Core, ALongPrefillNeverTakesAnothersTurnC21) {
  Options options;
  options.step_tokens = 64;
  FakeExecutorOptions executor_options = pool(16, 2048);
  Bench bench(executor_options, options);
  const auto stream = bench.submit(greedy(prompt_of(10), 400));
  for (int i = 0; i < 20; ++i) bench.step();
  const auto prompt = bench.submit(greedy(prompt_of(8000, 2), 4));
  uint64_t generated = bench.core->stats().generation_tokens;
  while (prompt->choices[0].completion_tokens == 0) {
    bench.step();
    EXPECT_GE(bench.core->stats().generation_tokens, generated + 1) << "a token in every step";
    generated = bench.core->stats().generation_tokens;
  }
  EXPECT_GT(stream->choices[0].completion_tokens, 120U);
  bench.run();
  EXPECT_LE(bench.executor.largest_step_tokens(), 64U);
}

TEST(Core, GapsDoNotGrowWithTheLengthOfAnothersPromptC21) {
  // A machine on which a row costs 1 ms, and as much again for every 1,000 positions before it.
  const auto longest_gap_ms = [](std::size_t prompt_tokens) {
    SimClock* clock = nullptr;
    FakeExecutorOptions executor = pool(16, 1024);
    TimeNs step_ns = 0;
    executor.on_step = [&](std::span<const model::StepRun> runs) {
      step_ns = 0;
      for (const model::StepRun& run : runs) {
        step_ns += static_cast<TimeNs>(run.tokens.size()) *
                   (1'000'000 + TimeNs{1'000} * (run.position + run.tokens.size() / 2));
      }
      clock->advance(step_ns);
    };
    Bench bench(executor);
    clock = &bench.clock;
    const auto stream = bench.submit(greedy(prompt_of(10), 2000));
    for (int i = 0; i < 20; ++i) bench.step();
    const auto prompt = bench.submit(greedy(prompt_of(prompt_tokens, 2), 1));
    TimeNs longest = 0;
    while (!prompt->finished) {
      bench.step();
      longest = std::max(longest, step_ns);
    }
    EXPECT_FALSE(stream->finished.has_value());
    return longest / 1'000'000;
  };
  const int64_t short_gap = longest_gap_ms(2000);
  const int64_t long_gap = longest_gap_ms(8000);
  // The very first chunk is cut before anything was measured: up to 512 tokens.
  EXPECT_LE(short_gap, 700);
  EXPECT_LE(long_gap, short_gap * 3 / 2);
}

TEST(Core, PromptsAreComputedInOrderOfArrival) {
  Options options;
  options.step_tokens = 50;
  Bench bench(pool(16, 256), options);
  std::vector<std::shared_ptr<Recorder>> answers;
  for (uint64_t i = 0; i < 4; ++i) answers.push_back(bench.submit(greedy(prompt_of(120, i), 5)));
  std::vector<std::size_t> order;
  while (bench.step()) {
    for (std::size_t i = 0; i < 4; ++i) {
      if (answers[i]->choices[0].deltas > 0 &&
          std::find(order.begin(), order.end(), i) == order.end()) {
        order.push_back(i);
      }
    }
  }
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 3}));
}

TEST(Core, ALargeRequestAtTheFrontIsNotOvertaken) {
  Bench bench(pool(16, 64));
  const auto running = bench.submit(greedy(prompt_of(500, 1), 100));
  bench.step();
  const auto large = bench.submit(greedy(prompt_of(900, 2), 4));
  const auto small = bench.submit(greedy(prompt_of(10, 3), 4));
  while (!large->admission) {
    ASSERT_FALSE(small->admission.has_value());
    ASSERT_TRUE(bench.step());
  }
  EXPECT_TRUE(running->finished.has_value());
  bench.run();
  EXPECT_TRUE(large->ok() && small->ok());
}

TEST(Core, TheYoungestIsPreemptedAndAnswersTheSame) {
  Bench bench(pool(16, 24));
  std::vector<Request> requests;
  std::vector<std::shared_ptr<Recorder>> answers;
  for (uint64_t i = 0; i < 6; ++i) {
    requests.push_back(greedy(prompt_of(40, i), 120));
    requests.back().sampling.temperature = 1;
    requests.back().sampling.seed = i;
    answers.push_back(bench.submit(requests.back()));
  }
  uint32_t first_tokens = 0;
  while (bench.step()) {
    // The oldest gets its token in every step, whoever else must wait. (Bytes of a character that
    // is not complete yet are not delivered: at most three tokens.)
    if (!answers[0]->finished) {
      EXPECT_GE(answers[0]->choices[0].completion_tokens + 3, ++first_tokens);
    }
  }
  EXPECT_GT(bench.core->stats().preemptions, 0U);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(answers[i]->choices[0].tokens, defined_tokens(bench.executor, requests[i], 0, 120));
    EXPECT_EQ(answers[i]->admission->cached_tokens, 0U);
  }
  EXPECT_EQ(bench.core->stats().prefix_hit_tokens, 0U)
      << "reading one's own tokens after a preemption is no hit";
  EXPECT_EQ(bench.core->stats().prompt_tokens, 240U);
}

TEST(Core, APreemptionIsNoReasonToKeepAPromptLonger) {
  Bench bench(pool(16, 24));
  for (uint64_t i = 0; i < 6; ++i) (void)bench.submit(greedy(prompt_of(40, i), 120));
  bench.run();
  ASSERT_GT(bench.core->stats().preemptions, 0U);
  // Twice the pool, and none of it is asked for again.
  for (uint64_t i = 0; i < 6; ++i) (void)bench.serve(greedy(prompt_of(128, 100 + i), 0));
  for (uint64_t i = 0; i < 6; ++i) {
    const std::vector<TokenId> prompt = prompt_of(40, i);
    EXPECT_LT(bench.core->look_up({prompt}).found.cached_tokens, 16U) << "request " << i;
  }
}

TEST(Core, ManyMoreSequencesThanAStepTakesAllAdvance) {
  Options options;
  options.step_tokens = 3;
  Bench bench(pool(16, 64), options);
  std::vector<std::shared_ptr<Recorder>> answers;
  for (uint64_t i = 0; i < 10; ++i) answers.push_back(bench.submit(greedy(prompt_of(2, i), 30)));
  for (int i = 0; i < 40; ++i) bench.step();
  const auto [least, most] =
      std::minmax_element(answers.begin(), answers.end(), [](const auto& a, const auto& b) {
        return a->choices[0].completion_tokens < b->choices[0].completion_tokens;
      });
  EXPECT_GT((*least)->choices[0].completion_tokens, 0U);
  EXPECT_LT((*most)->choices[0].completion_tokens, 30U);
  bench.run();
  EXPECT_LE(bench.executor.largest_step_tokens(), 3U);
}

TEST(Core, AFailedStepEndsItsRequestsAndNobodyElse) {
  Options options;
  options.seqs_max = 2;
  Bench bench(pool(16, 64), options);
  const auto first = bench.submit(greedy(prompt_of(20, 1), 10));
  const auto second = bench.submit(greedy(prompt_of(20, 2), 10));
  const Request waiting = greedy(prompt_of(20, 3), 10);
  const auto third = bench.submit(waiting);
  bench.step();
  bench.executor.fail_next_steps(1);
  bench.step();
  for (const auto& answer : {first, second}) {
    ASSERT_TRUE(answer->finished.has_value());
    EXPECT_EQ(answer->finished->status.code(), ErrorCode::kInternal);
  }
  EXPECT_EQ(bench.core->stats().blocks_live, 0U);
  bench.run();
  EXPECT_EQ(third->choices[0].tokens, defined_tokens(bench.executor, waiting, 0, 10));
  EXPECT_EQ(bench.core->stats().finished_error, 2U);
}

TEST(Core, ScoresThatAreNotNumbersEndTheirRequestAndNobodyElse) {
  for (const uint32_t choices : {1U, 3U}) {
    Bench bench(pool(16, 128));
    Request overflowing = greedy(prompt_of(20, 1), 10);
    overflowing.choices = choices;
    overflowing.prompt.back() = TokenId(7);
    const Request other = greedy(prompt_of(20, 2), 10);
    ASSERT_EQ(std::ranges::find(other.prompt, TokenId(7)), other.prompt.end());
    bench.executor.overflow_at(TokenId(7));
    const auto first = bench.submit(overflowing);
    const auto second = bench.submit(other);
    bench.run();
    ASSERT_TRUE(first->finished.has_value());
    EXPECT_EQ(first->finished->status.code(), ErrorCode::kInternal);
    EXPECT_NE(first->finished->status.error().message.find("not numbers"), std::string::npos);
    EXPECT_EQ(second->choices[0].tokens, defined_tokens(bench.executor, other, 0, 10));
    EXPECT_EQ(bench.core->stats().blocks_live, 0U);
    EXPECT_EQ(bench.core->stats().finished_error, 1U);
  }
}

TEST(Core, ScoresThatStopBeingNumbersInOneChoiceEndTheWholeRequest) {
  Bench bench(pool(16, 128));
  Request request = greedy(prompt_of(20, 1), 10);
  request.choices = 3;
  request.sampling.temperature = 1;
  request.sampling.seed = 5;
  const std::vector<TokenId> middle = defined_tokens(bench.executor, request, 1, 10);
  bench.executor.overflow_at(middle[4]);
  const auto answer = bench.submit(request);
  bench.run();
  ASSERT_TRUE(answer->finished.has_value());
  EXPECT_EQ(answer->finished->status.code(), ErrorCode::kInternal);
  EXPECT_EQ(bench.core->stats().blocks_live, 0U);
}

TEST(Core, MemoryThatTheSystemRefusesEndsTheRequestThatNeededIt) {
  Bench bench(pool(16, 64));
  const Request running = greedy(prompt_of(20, 1), 40);
  const auto first = bench.submit(running);
  bench.step();
  bench.executor.fail_next_commits(1);
  const auto second = bench.submit(greedy(prompt_of(20, 2), 40));
  bench.step();
  ASSERT_TRUE(second->finished.has_value());
  EXPECT_EQ(second->finished->status.code(), ErrorCode::kIo);
  bench.run();
  EXPECT_EQ(first->choices[0].tokens, defined_tokens(bench.executor, running, 0, 40));
}

TEST(Core, SaysWhatIsHeldAndWhatReservingWouldTake) {
  Options options;
  options.context_max = 512;
  Bench bench(pool(16, 256), options);
  for (uint64_t i = 0; i < 8; ++i) {
    (void)bench.submit(greedy(prompt_of(30 + 7 * i, i), i == 0 ? 100'000 : 50));
  }
  for (int i = 0; i < 20; ++i) {
    bench.step();
    const Stats stats = bench.core->stats();
    EXPECT_LT(stats.slack_tokens, 8U * 16U) << "less than a block a sequence";
    EXPECT_EQ(stats.blocks_live + stats.blocks_cached + stats.blocks_free, 256U);
    uint64_t reserve = 512;  // clamped to the context
    for (uint64_t n = 1; n < 8; ++n) reserve += 30 + 7 * n + 50;
    EXPECT_EQ(stats.naive_reserve_bytes, reserve * 16);
    EXPECT_EQ(stats.requests_running, 8U);
  }
  bench.run();
  const Stats stats = bench.core->stats();
  EXPECT_EQ(stats.slack_tokens, 0U);
  EXPECT_EQ(stats.naive_reserve_bytes, 0U);
  EXPECT_EQ(stats.finished_length, 8U);
}

TEST(Core, ForksThatStillShareTheirLastBlockCountItsFreePositionsOnce) {  // C25
  Options options;
  options.seqs_max = 8;
  Bench bench(pool(16, 64), options);
  Request forked = greedy(prompt_of(20, 1), 40);
  forked.choices = 8;
  (void)bench.submit(forked);
  uint64_t slack_max = 0;
  while (!bench.core->idle()) {
    bench.step();
    const Stats stats = bench.core->stats();
    EXPECT_LE(stats.slack_tokens, uint64_t{stats.blocks_live} * 16);
    slack_max = std::max(slack_max, stats.slack_tokens);
  }
  EXPECT_GT(slack_max, 16U) << "behind their first step each has a block of its own";
}

TEST(Core, MemoryIsIdleFromWhenItBecameFreeHoweverLongTheStepTook) {
  SimClock* clock = nullptr;
  FakeExecutorOptions executor = pool(16, 64);
  executor.on_step = [&](std::span<const model::StepRun>) { clock->advance(30'000'000'000); };
  Bench bench(executor);
  clock = &bench.clock;
  Request request = greedy(prompt_of(40, 1), 1);
  request.cache.use_cache = false;
  (void)bench.submit(request);
  bench.run();
  bench.core->tend();
  EXPECT_EQ(bench.core->stats().blocks_returned, 0U);
  bench.clock.advance(11'000'000'000);
  bench.core->tend();
  EXPECT_EQ(bench.core->stats().blocks_returned, 3U);
}

// ---- Sliding windows ----

/// A Gemma-like machine: a full group, and one that sees the last 512 positions.
FakeExecutorOptions window_model(uint32_t full_blocks, uint32_t sliding_blocks) {
  return {.block_tokens = 32, .windows = {512, 0}, .group_blocks = {sliding_blocks, full_blocks}};
}

TEST(Core, ARepeatedPromptOnASlidingWindowModelIsReadFromTheCacheC06) {
  Bench bench(window_model(512, 200));
  Prng prng(6);
  const std::vector<TokenId> prompt = random_tokens(prng, 3000, 64);
  const auto cold = bench.serve(greedy(prompt, 40));
  EXPECT_EQ(cold->admission->cached_tokens, 0U);
  const uint64_t before = bench.executor.tokens_computed();

  // (a) The identical prompt: all but its last token.
  const auto again = bench.serve(greedy(prompt, 40));
  EXPECT_EQ(again->admission->cached_tokens, 2999U);
  EXPECT_EQ(bench.executor.tokens_computed() - before, 1U + 39U);
  expect_equal(cold->choices[0], again->choices[0], "the same prompt again");

  // (b) The conversation goes on: everything that was computed of prompt and answer.
  std::vector<TokenId> next = prompt;
  next.insert(next.end(), cold->choices[0].tokens.begin(), cold->choices[0].tokens.end());
  for (const TokenId token : random_tokens(prng, 50, 64)) next.push_back(token);
  const Request turn = greedy(next, 10);
  const auto second = bench.serve(turn);
  EXPECT_EQ(second->admission->cached_tokens, 3039U);
  EXPECT_EQ(second->choices[0].tokens, defined_tokens(bench.executor, turn, 0, 10));

  // (c) Other last five tokens: everything before them.
  std::vector<TokenId> changed = prompt;
  for (std::size_t i = 2995; i < 3000; ++i) changed[i] = TokenId((changed[i].value + 1) % 64);
  const Request other = greedy(changed, 10);
  const auto third = bench.serve(other);
  EXPECT_EQ(third->admission->cached_tokens, 2995U);
  EXPECT_EQ(third->choices[0].tokens, defined_tokens(bench.executor, other, 0, 10));
}

TEST(Core, TheWindowBeforeAPromptsEndOutlivesWhatOthersPassC06) {
  // The sliding pool holds about three windows; others compute 15,000 tokens meanwhile.
  Bench bench(window_model(1024, 60));
  Prng prng(7);
  const std::vector<TokenId> prompt = random_tokens(prng, 3000, 64);
  const auto cold = bench.serve(greedy(prompt, 600));  // the answer is longer than a window
  for (int i = 0; i < 5; ++i) {
    // They share nothing: what they pass goes, not the ends of prompts that were read again.
    (void)bench.serve(greedy(prompt, 1));
    (void)bench.serve(greedy(random_tokens(prng, 3000, 64), 1));
  }
  EXPECT_EQ(bench.serve(greedy(prompt, 600))->admission->cached_tokens, 2999U);
  std::vector<TokenId> changed = prompt;
  changed[2995] = TokenId((changed[2995].value + 1) % 64);
  EXPECT_EQ(bench.serve(greedy(changed, 5))->admission->cached_tokens, 2995U);
}

TEST(Core, ALongPromptTakesAWindowOfTheSlidingPoolAtMost) {
  // 17 blocks: one window of 512 and the block that is written. No limit to the context.
  Bench bench(window_model(256, 17));
  EXPECT_EQ(bench.core->options().context_max, 256U * 32);
  Prng prng(8);
  const Request request = greedy(random_tokens(prng, 5000, 64), 20);
  EXPECT_EQ(bench.serve(request)->choices[0].tokens,
            defined_tokens(bench.executor, request, 0, 20));
}

TEST(Core, PoolsThatHoldLessThanAWindowLimitTheContext) {
  Bench bench(window_model(256, 16));
  EXPECT_EQ(bench.core->options().context_max, 16U * 32);
  Prng prng(9);
  const Request request = greedy(random_tokens(prng, 16 * 32 - 10, 64), 1000);
  const auto answer = bench.serve(request);
  EXPECT_EQ(answer->choices[0].finish, FinishReason::kContext);
  EXPECT_EQ(answer->choices[0].tokens, defined_tokens(bench.executor, request, 0, 10));
}

TEST(Core, SequencesThatOutgrowTheSlidingPoolArePreemptedAndAnswerTheSame) {
  FakeExecutorOptions machine;
  machine.block_tokens = 4;
  machine.windows = {0, 30};
  machine.group_blocks = {400, 24};
  Bench bench(machine);
  Prng prng(10);
  std::vector<Request> requests;
  std::vector<std::shared_ptr<Recorder>> answers;
  for (int i = 0; i < 8; ++i) {
    requests.push_back(greedy(random_tokens(prng, 3 + prng.below(60), 64), 60));
    answers.push_back(bench.submit(requests.back()));
  }
  bench.run();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    ASSERT_TRUE(answers[i]->ok());
    EXPECT_EQ(answers[i]->choices[0].tokens, defined_tokens(bench.executor, requests[i], 0, 60));
  }
  EXPECT_GT(bench.core->stats().preemptions, 0U);
}

// ---- What time alone asks for ----

TEST(Core, MemoryOfFreeBlocksGoesBackAfterTenSecondsAndIsCommittedAgain) {
  Options options;
  options.prefix_cache = false;  // so that blocks become free, not cached
  Bench bench({}, options);
  const Request request = greedy(std::vector<TokenId>(100, TokenId(7)), 20);
  const auto first = bench.serve(request);
  EXPECT_EQ(bench.executor.committed(), 8U);
  const TimeNs due = *bench.core->next_tend();
  EXPECT_GT(due, bench.clock.now() + 9'000'000'000);
  bench.clock.set(due - 1);
  bench.core->tend();
  EXPECT_EQ(bench.executor.committed(), 8U);
  bench.clock.set(due);
  bench.core->tend();
  EXPECT_EQ(bench.executor.committed(), 0U);
  EXPECT_FALSE(bench.core->next_tend());
  const auto second = bench.serve(request);
  expect_equal(first->choices[0], second->choices[0], "after the memory went back");
  EXPECT_EQ(bench.executor.committed(), 8U);
}

TEST(Core, CachedBlocksKeepTheirMemoryHoweverLongNobodyComes) {
  Bench bench;
  const Request request = greedy(std::vector<TokenId>(100, TokenId(7)), 20);
  (void)bench.serve(request);
  bench.clock.advance(3'600'000'000'000);
  bench.core->tend();
  EXPECT_EQ(bench.executor.committed(), 8U);
  EXPECT_EQ(bench.serve(request)->admission->cached_tokens, 99U);
}

/// What ten thousand prompts that nobody sends again leave of one marked prefix, in a pool that
/// holds some eight of them. `pause`: between the marked request and the others.
Admission marked_prefix_behind_a_crowd(TimeNs pause) {
  Bench bench(pool(16, 32));
  Request marked = greedy(prompt_of(150, 1), 1);
  marked.cache.positions = {{128}};
  marked.cache.markers = {{0, LeaseClass::k5m}};
  EXPECT_EQ(bench.serve(marked)->admission->cache_created_5m_tokens, 128U);
  bench.clock.advance(pause);
  for (uint64_t i = 0; i < 10'000; ++i) {
    const auto single = bench.serve(greedy(prompt_of(60, 1000 + i), 0));
    EXPECT_LT(single->admission->cached_tokens, 16U) << "it was to be new";
  }
  EXPECT_GT(bench.core->stats().evictions, 20'000U) << "the pool was to overflow";
  EXPECT_EQ(bench.core->stats().leases_broken, 0U);
  // 10,000 steps of a millisecond are less than a lease.
  return *bench.serve(marked)->admission;
}

TEST(Core, ALeasedPrefixSurvivesTenThousandSingleUsePromptsThatOverflowThePool) {
  const Admission again = marked_prefix_behind_a_crowd(0);
  EXPECT_EQ(again.cache_read_tokens, 128U);
  EXPECT_EQ(again.cache_created_5m_tokens, 0U);
  EXPECT_GE(again.cached_tokens, 128U);
}

TEST(Core, AnExpiredLeaseProtectsNothing) {
  const Admission again = marked_prefix_behind_a_crowd(Options{}.lease_5m_ns);
  EXPECT_EQ(again.cache_read_tokens, 0U);
  EXPECT_EQ(again.cache_created_5m_tokens, 128U);
  EXPECT_LT(again.cached_tokens, 16U) << "its blocks are gone";
}

TEST(Core, LeasesEndWhileNothingRuns) {
  Bench bench;
  Request request = greedy(std::vector<TokenId>(100, TokenId(7)), 5);
  request.cache.positions = {{64}};
  request.cache.markers = {{0, LeaseClass::k5m}};
  (void)bench.serve(request);
  EXPECT_EQ(bench.core->stats().blocks_leased, 4U);
  bench.clock.set(*bench.core->next_tend());
  bench.core->tend();
  EXPECT_EQ(bench.core->stats().blocks_leased, 0U);
  bench.core->check_invariants();
}

TEST(Core, TellsWhatAConfigurationLacks) {
  FakeExecutor executor(pool(1, 1));
  const FakeTokenizer tokenizer(64);
  const SimClock clock;
  const auto core = Core::create(executor, tokenizer, clock, Options{});
  ASSERT_FALSE(core.has_value());
  EXPECT_EQ(core.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(core.error().message.find("KV memory"), std::string::npos);
}

}  // namespace
}  // namespace pagewise::engine
