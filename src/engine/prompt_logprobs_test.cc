// SPDX-License-Identifier: Apache-2.0
// Prompts whose own tokens are scored (C20), and what else a request asks of logits: against the
// definition, whatever the cache holds and however the prompt is cut.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/test_support.h"

namespace pagewise::engine {
namespace {

constexpr uint32_t kVocab = 64;

std::vector<TokenId> prompt_of(std::size_t tokens, uint64_t seed) {
  Prng prng(seed);
  return random_tokens(prng, tokens, kVocab);
}

Request scored(std::vector<TokenId> prompt, uint64_t max_tokens, int32_t best = 2) {
  Request request = greedy(std::move(prompt), max_tokens);
  request.prompt_logprobs = best;
  return request;
}

/// Straight from the definition.
std::vector<sampling::Sampled> defined_scores(const FakeExecutor& executor,
                                              const Request& request) {
  sampling::Sampler sampler(executor.vocab_size());
  std::vector<sampling::Sampled> scores(request.prompt.size());
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (i == 0) {
      scores[i].token = request.prompt[i];
    } else {
      sampler.score(executor.logits_after(std::span(request.prompt).first(i)), request.prompt[i],
                    static_cast<uint32_t>(request.prompt_logprobs), scores[i]);
    }
  }
  return scores;
}

TEST(PromptLogprobs, AreThoseOfTheDefinitionHoweverThePromptIsCutC20) {
  for (const uint32_t step_tokens : {1U, 2U, 7U, 31U, 32U, 33U, 512U}) {
    Options options;
    options.step_tokens = step_tokens;
    Bench bench(pool(16, 64), options);
    for (const std::size_t length : {1U, 2U, 32U, 33U, 34U, 117U, 512U}) {
      for (const uint64_t max_tokens : {0U, 1U, 5U}) {
        const Request request = scored(prompt_of(length, length), max_tokens);
        const auto answer = bench.serve(request);
        const std::string what =
            std::to_string(length) + " tokens in steps of " + std::to_string(step_tokens);
        expect_equal(defined_scores(bench.executor, request), answer->prompt, what);
        EXPECT_EQ(answer->choices[0].tokens,
                  defined_tokens(bench.executor, request, 0, max_tokens));
        EXPECT_EQ(answer->admission->cached_tokens, 0U) << what;
      }
    }
  }
}

TEST(PromptLogprobs, AreTheSameColdWarmSharedAndInParallelAndEnterTheCacheC20) {
  Bench bench(pool(16, 256));
  const Request request = scored(prompt_of(117, 1), 1);
  const auto expected = defined_scores(bench.executor, request);
  expect_equal(expected, bench.serve(request)->prompt, "cold");
  // A request of the common kind reads what this one computed.
  const auto plain = bench.serve(greedy(request.prompt, 3));
  EXPECT_EQ(plain->admission->cached_tokens, 116U);
  expect_equal(expected, bench.serve(request)->prompt, "warm");
  const std::vector<TokenId> half(request.prompt.begin(), request.prompt.begin() + 60);
  bench.serve(greedy(half, 9));
  expect_equal(expected, bench.serve(request)->prompt, "behind one that shares the first half");
  const auto one = bench.submit(request), two = bench.submit(request);
  const auto beside = bench.submit(greedy(prompt_of(40, 2), 20));
  bench.run();
  expect_equal(expected, one->prompt, "the first of two in parallel");
  expect_equal(expected, two->prompt, "the second of two in parallel");
  EXPECT_TRUE(beside->ok());
  EXPECT_EQ(one->admission->cached_tokens + two->admission->cached_tokens, 0U);
}

TEST(PromptLogprobs, AreToldOnceAlsoForSeveralChoices) {
  Bench bench(pool(16, 64));
  Request request = scored(prompt_of(50, 3), 6);
  request.choices = 3;
  request.sampling.temperature = 1;
  const auto answer = bench.serve(request);  // the recorder sees to order and gaps
  expect_equal(defined_scores(bench.executor, request), answer->prompt, "three choices");
  for (uint32_t c = 0; c < 3; ++c) {
    EXPECT_EQ(answer->choices[c].tokens, defined_tokens(bench.executor, request, c, 6));
  }
}

TEST(PromptLogprobs, SurviveThePreemptionOfThePrefill) {
  Options options;
  options.step_tokens = 6;
  Bench bench(pool(16, 16), options);
  const auto older = bench.submit(greedy(prompt_of(90, 1), 60));
  while (bench.core->stats().generation_tokens == 0) bench.step();
  const Request request = scored(prompt_of(140, 2), 4);
  const auto younger = bench.submit(request);
  while (bench.core->stats().preemptions == 0) {
    ASSERT_TRUE(younger->choices[0].tokens.empty()) << "it was to be preempted while prefilling";
    bench.step();
  }
  ASSERT_GT(younger->prompt.size(), 0U);
  bench.run();
  ASSERT_TRUE(older->ok() && younger->ok());
  expect_equal(defined_scores(bench.executor, request), younger->prompt, "preempted");
  EXPECT_EQ(younger->choices[0].tokens, defined_tokens(bench.executor, request, 0, 4));
}

TEST(PromptLogprobs, TakeABoundedNumberOfRowsOfAStepAndLeaveTheRestToOthers) {
  FakeExecutorOptions executor = pool(16, 512);
  std::size_t rows_max = 0, tokens_max = 0, steps = 0;
  executor.on_step = [&](std::span<const model::StepRun> runs) {
    std::size_t rows = 0, tokens = 0;
    for (const model::StepRun& run : runs) {
      rows += run.logits_rows.size();
      tokens += run.tokens.size();
    }
    rows_max = std::max(rows_max, rows);
    tokens_max = std::max(tokens_max, tokens);
    ++steps;
  };
  Bench bench(executor);
  std::vector<std::shared_ptr<Recorder>> answers;
  for (uint64_t i = 0; i < 3; ++i) answers.push_back(bench.submit(scored(prompt_of(640, i), 1)));
  const auto plain = bench.submit(greedy(prompt_of(900, 9), 1));
  bench.run();
  for (const auto& answer : answers) EXPECT_TRUE(answer->ok());
  EXPECT_LE(rows_max, 32U + 4U);
  EXPECT_GE(tokens_max, 400U) << "a prompt that is not scored uses what the others leave";
  EXPECT_TRUE(plain->ok());
  EXPECT_LE(steps, 3U * 640U / 32U + 10U);
}

TEST(Core, PenaltiesAndBiasAreThoseOfTheDefinitionAlsoAfterAPreemption) {
  Bench bench(pool(16, 24));
  std::vector<Request> requests;
  std::vector<std::shared_ptr<Recorder>> answers;
  for (uint64_t i = 0; i < 6; ++i) {
    Request request = greedy(prompt_of(40, i), 120);
    request.sampling.temperature = i % 2 == 0 ? 0.0F : 1.0F;
    request.sampling.frequency_penalty = 0.5F;
    request.sampling.presence_penalty = -0.3F;
    request.sampling.repetition_penalty = 1.2F;
    request.sampling.logit_bias = {{TokenId(11), 1.5F}, {TokenId(0), -100}};
    requests.push_back(request);
    answers.push_back(bench.submit(std::move(request)));
  }
  bench.run();
  EXPECT_GT(bench.core->stats().preemptions, 0U);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const std::vector<TokenId>& tokens = answers[i]->choices[0].tokens;
    EXPECT_EQ(tokens, defined_tokens(bench.executor, requests[i], 0, 120));
    EXPECT_EQ(std::count(tokens.begin(), tokens.end(), TokenId(0)), 0);
    Request plain = requests[i];
    plain.sampling.frequency_penalty = plain.sampling.presence_penalty = 0;
    plain.sampling.repetition_penalty = 1;
    EXPECT_NE(tokens, defined_tokens(bench.executor, plain, 0, 120)) << "the penalties do nothing";
  }
}

TEST(Core, ABiasOutsideTheVocabularyIsRefusedByItsId) {
  Bench bench(pool(16, 64));
  Request request = greedy(prompt_of(4, 1), 1);
  request.sampling.logit_bias = {{TokenId(5), 1}, {TokenId(64), 1}};
  const Status status = bench.core->check(request);
  EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(status.error().message.find("64"), std::string::npos);
}

TEST(Core, TheSumOfLogprobsCountsTheTokenThatEndedTheAnswerToo) {
  Bench bench(pool(16, 64));
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Request request = greedy(prompt_of(9, seed), 30);
    request.ignore_eos = false;
    const auto answer = bench.serve(request);
    const ChoiceRecord& choice = answer->choices[0];
    if (choice.finish != FinishReason::kStop) continue;
    double sum = 0;
    for (const sampling::Sampled& token : choice.sampled) sum += token.logprob;
    EXPECT_LT(choice.logprob_sum, sum);
    EXPECT_EQ(choice.completion_tokens, choice.sampled.size() + 1);
    return;
  }
  FAIL() << "no prompt ends by itself";
}

}  // namespace
}  // namespace pagewise::engine
