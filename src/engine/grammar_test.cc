// SPDX-License-Identifier: Apache-2.0
// Answers that a grammar holds to their form: their end, what may cut them, and that they are those
// of the same request alone, whatever happens around it.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/allocation_count_testing.h"
#include "engine/test_support.h"
#include "grammar/grammar.h"
#include "grammar/matcher.h"
#include "grammar/test_grammar.h"

namespace pagewise::engine {
namespace {

using grammar::Builder;
using grammar::built;
using grammar::GrammarPtr;
using grammar::NodeId;

constexpr TokenId kEnd(0);
constexpr TokenId kMark(1);

/// "x", then three to nine of four words, then "z".
GrammarPtr words_grammar() {
  Builder builder;
  const NodeId word = builder.words({"ab", "ba", "c\xF0\x9F\x98\x80", "dd"});
  return built(builder,
               builder.sequence({builder.literal("x"), builder.repeat(word, std::nullopt, 3, 9),
                                 builder.literal("z")}));
}

/// Letters, as many as one likes.
GrammarPtr letters_grammar(uint32_t min) {
  Builder builder;
  return built(builder, builder.repeat(builder.byte_of(grammar::byte_range('a', 'z')), std::nullopt,
                                       min, grammar::kUnbounded));
}

FakeExecutorOptions machine(uint32_t blocks = 512) {
  FakeExecutorOptions options = pool(16, blocks);
  options.vocab_size = 200;
  return options;
}

Request asked(Prng& prng, GrammarPtr grammar, uint64_t max_tokens) {
  Request request = greedy(random_tokens(prng, 30, 200), max_tokens);
  request.ignore_eos = false;
  request.grammar = std::move(grammar);
  return request;
}

/// Whether a choice is the beginning of something that the grammar has, and all of it where it
/// stopped of itself.
void expect_follows(const FakeTokenizer& tokenizer, const Request& request,
                    const ChoiceRecord& choice) {
  grammar::Matcher matcher(request.grammar);
  for (const TokenId token : choice.tokens) {
    if (tokenizer.is_eog(token)) continue;
    ASSERT_TRUE(matcher.accept(tokenizer.token_bytes(token))) << choice.text;
  }
  if (choice.finish == FinishReason::kStop) {
    EXPECT_TRUE(matcher.may_end()) << choice.text;
  }
}

TEST(CoreGrammar, EveryChoiceFollowsItAndStopsWhereItMust) {
  Bench bench(machine());
  Prng prng(7);
  for (const float temperature : {0.0F, 1.0F, 3.0F}) {
    Request request = asked(prng, words_grammar(), 100);
    request.sampling.temperature = temperature;
    request.choices = 4;
    const auto recorder = bench.serve(request);
    for (const ChoiceRecord& choice : recorder->choices) {
      expect_follows(bench.tokenizer, request, choice);
      EXPECT_EQ(choice.finish, FinishReason::kStop);
      EXPECT_EQ(choice.text.front(), 'x');
      EXPECT_EQ(choice.text.back(), 'z');
      // No token was spent on the end.
      EXPECT_EQ(choice.completion_tokens, choice.tokens.size());
    }
  }
}

TEST(CoreGrammar, AnEndTokenComesOnlyWhereTheAnswerMayEnd) {
  Bench bench(machine());
  Prng prng(11);
  Request request = asked(prng, letters_grammar(12), 400);
  request.sampling.logit_bias = {{kEnd, 100}};
  const auto recorder = bench.serve(request);
  EXPECT_EQ(recorder->choices[0].finish, FinishReason::kStop);
  EXPECT_GE(recorder->choices[0].text.size(), 12U);
  EXPECT_LE(recorder->choices[0].text.size(), 13U);  // a token of two letters may go beyond
  expect_follows(bench.tokenizer, request, recorder->choices[0]);

  request.ignore_eos = true;
  request.max_tokens = 40;
  const auto longer = bench.serve(request);
  EXPECT_EQ(longer->choices[0].finish, FinishReason::kLength);
  EXPECT_EQ(longer->choices[0].tokens.size(), 40U);
}

TEST(CoreGrammar, MaxTokensAndStopStringsCutAsEver) {
  Bench bench(machine());
  Prng prng(13);
  Request request = asked(prng, words_grammar(), 3);
  const auto cut = bench.serve(request);
  EXPECT_EQ(cut->choices[0].finish, FinishReason::kLength);
  EXPECT_EQ(cut->choices[0].completion_tokens, 3U);
  expect_follows(bench.tokenizer, request, cut->choices[0]);

  request.max_tokens = 100;
  const std::string whole = bench.serve(request)->choices[0].text;
  request.stops = {whole.substr(3, 2)};
  const auto stopped = bench.serve(request);
  EXPECT_EQ(stopped->choices[0].finish, FinishReason::kStopString);
  EXPECT_EQ(stopped->choices[0].text, whole.substr(0, whole.find(request.stops[0])));

  request.stops.clear();
  request.max_tokens = 0;
  EXPECT_EQ(bench.serve(request)->choices[0].finish, FinishReason::kLength);
}

TEST(CoreGrammar, WhatTheVocabularyCannotWriteFailsInWordsAndHarmsNobodyElse) {
  Bench bench(machine());
  Prng prng(17);
  Builder builder;
  const GrammarPtr impossible =
      built(builder, builder.sequence({builder.literal("abc"), builder.literal("{}")}));
  Request request = asked(prng, impossible, 100);
  request.choices = 3;
  const auto stuck = bench.submit(request);
  Request other = asked(prng, words_grammar(), 100);
  const auto fine = bench.submit(other);
  bench.run();
  ASSERT_TRUE(stuck->finished.has_value());
  EXPECT_EQ(stuck->finished->status.code(), ErrorCode::kUnsupported);
  EXPECT_NE(stuck->finished->status.error().message.find("vocabulary"), std::string::npos);
  EXPECT_TRUE(fine->ok());
  expect_follows(bench.tokenizer, other, fine->choices[0]);
}

TEST(CoreGrammar, AnAnswerThatMayEndAndCannotGoOnEnds) {
  Bench bench(machine());
  Prng prng(19);
  Builder builder;
  const NodeId more = builder.optional(builder.literal("{"));
  Request request =
      asked(prng, built(builder, builder.sequence({builder.literal("ab"), more})), 50);
  request.ignore_eos = true;
  const auto recorder = bench.serve(request);
  EXPECT_EQ(recorder->choices[0].text, "ab");
  EXPECT_EQ(recorder->choices[0].finish, FinishReason::kStop);

  request.grammar = built(builder, builder.literal(""));
  EXPECT_EQ(bench.serve(request)->choices[0].text, "");
}

TEST(CoreGrammar, ControlTokensComeWhereTheGrammarAsksForThem) {
  Bench bench(machine());
  Prng prng(23);
  Builder builder;
  const NodeId call = builder.words({"ab", "ba"});
  Request request = asked(
      prng, built(builder, builder.text_until({{grammar::control_spelling(kMark), call}}, false)),
      400);
  request.sampling.logit_bias = {{kMark, 6}};
  request.want_control_text = true;
  const auto recorder = bench.serve(request);
  const std::string& text = recorder->choices[0].text;
  EXPECT_EQ(recorder->choices[0].finish, FinishReason::kStop);
  const std::size_t mark = text.find("<mark>");
  ASSERT_NE(mark, std::string::npos) << text;
  EXPECT_TRUE(text.substr(mark + 6) == "ab" || text.substr(mark + 6) == "ba") << text;
}

TEST(CoreGrammar, BiasAndPenaltiesActAmongWhatIsAllowed) {
  Bench bench(machine());
  Prng prng(29);
  Builder builder;
  const GrammarPtr grammar =
      built(builder, builder.repeat(builder.words({"a", "b"}), std::nullopt, 8, 8));
  Request request = asked(prng, grammar, 100);
  request.sampling.logit_bias = {{TokenId(10), -100},
                                 {TokenId(12), 100}};  // a; and c, which may not
  const auto recorder = bench.serve(request);
  EXPECT_EQ(recorder->choices[0].text.find('c'), std::string::npos);
  // Tokens of two letters have no bias.
  expect_follows(bench.tokenizer, request, recorder->choices[0]);
  for (const TokenId token : recorder->choices[0].tokens) EXPECT_NE(token, TokenId(10));
}

TEST(CoreGrammar, LogProbabilitiesAreTheModelsOwn) {
  Bench bench(machine());
  Prng prng(31);
  Request request = asked(prng, words_grammar(), 100);
  request.sampling.logprobs = 3;
  const auto recorder = bench.serve(request);
  sampling::Sampler sampler(200);
  std::vector<TokenId> tokens = request.prompt;
  for (const sampling::Sampled& sampled : recorder->choices[0].sampled) {
    sampling::Sampled scored;
    sampler.score(bench.executor.logits_after(tokens), sampled.token, 3, scored);
    EXPECT_EQ(scored.logprob, sampled.logprob);
    ASSERT_EQ(sampled.top.size(), 3U);
    EXPECT_EQ(scored.top[0].token, sampled.top[0].token);  // allowed or not
    tokens.push_back(sampled.token);
  }
}

TEST(CoreGrammar, APoolThatRunsOutAndACacheThatHitsDoNotShow) {
  Prng prng(37);
  std::vector<Request> requests;
  const std::vector<TokenId> shared = random_tokens(prng, 40, 200);
  for (uint32_t i = 0; i < 12; ++i) {
    Request request = asked(prng, i % 3 == 0 ? letters_grammar(60) : words_grammar(), 90);
    request.prompt.insert(request.prompt.begin(), shared.begin(), shared.end());
    request.sampling.temperature = i % 2 == 0 ? 0.0F : 1.0F;
    request.sampling.seed = i;
    request.choices = 1 + i % 2;
    requests.push_back(request);
  }
  Bench bench(machine(24));
  std::vector<std::shared_ptr<Recorder>> recorders;
  for (const Request& request : requests) recorders.push_back(bench.submit(request));
  bench.run();
  EXPECT_GT(bench.core->stats().preemptions, 0U);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Options options;
    options.prefix_cache = false;
    const auto alone = Bench(machine(), options).serve(requests[i]);
    ASSERT_TRUE(recorders[i]->ok());
    for (std::size_t c = 0; c < alone->choices.size(); ++c) {
      expect_equal(alone->choices[c], recorders[i]->choices[c], "request " + std::to_string(i));
      expect_follows(bench.tokenizer, requests[i], alone->choices[c]);
    }
  }
}

TEST(CoreGrammar, ASteadyDecodeStepAllocatesOnlyItsDeltas) {
  FakeExecutor executor(machine(4096));
  const FakeTokenizer tokenizer(200);
  const SimClock clock;
  auto core = Core::create(executor, tokenizer, clock, Options{});
  ASSERT_TRUE(core.has_value());
  Prng prng(41);
  std::vector<std::shared_ptr<CountingSink>> sinks;
  for (uint64_t i = 0; i < 16; ++i) {
    Request request = asked(prng, letters_grammar(3), 1500);
    request.sampling.temperature = 1;
    request.sampling.logprobs = -1;
    request.ignore_eos = true;
    sinks.push_back(std::make_shared<CountingSink>());
    (*core)->submit(RequestId(i + 1), std::move(request), sinks.back(), 0);
  }
  for (int i = 0; i < 300; ++i) (*core)->step();
  const uint64_t before = pagewise::testing::allocation_count();
  for (int i = 0; i < 1000; ++i) (*core)->step();
  EXPECT_LE(pagewise::testing::allocation_count() - before, 16U * 1000U * 3 / 2);
  EXPECT_GE(sinks[0]->tokens, 1200U);
}

}  // namespace
}  // namespace pagewise::engine
