// SPDX-License-Identifier: Apache-2.0
// Promise 1 on the real model, through the engine: the tokens and log-probabilities of a request
// have the same bits alone without a cache, in a batch, in any chunks, after a hit at any position,
// after a preemption, with blocks of any size in any order, and on any number of threads.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "base/prng.h"
#include "golden/engine_bench.h"
#include "golden/real_model.h"
#include "text/tokenizer.h"

namespace pagewise::golden {
namespace {

using engine::Options;
using engine::Request;

constexpr uint32_t kPrompts = 20;
constexpr uint32_t kHitPositions = 40;
constexpr uint32_t kNewTokens = 6;

class EngineEquality : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    model_ = new Result<RealModel>(open_real_model());
    ASSERT_TRUE(model_->has_value()) << model_->error().message;
    auto tokenizer = text::Tokenizer::from_gguf(*(*model_)->file);
    ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
    tokenizer_ = std::move(*tokenizer).release();
    make_requests();
    ASSERT_EQ(requests_->size(), kPrompts);
    // The truth: each alone, nothing cached, blocks in plain order.
    Options plain = options_of(512, false, 1);
    plain.shuffle_blocks = false;
    EngineBench alone(**model_, *tokenizer_, {}, plain);
    expected_ = new std::vector<Answer>(alone.one_by_one(*requests_));
    for (const Answer& answer : *expected_) ASSERT_EQ(answer.tokens.size(), kNewTokens * 6);
  }
  static void TearDownTestSuite() {
    delete expected_;
    delete requests_;
    delete tokenizer_;
    delete model_;
  }

  /// The recorded prompts with as much of their recorded answers as makes them longer than the 40
  /// positions of the hits; one is cut to cross a segment of attention (256); the last three are
  /// random tokens. Every other one is sampled, the rest is greedy.
  static void make_requests() {
    const char* chosen = std::getenv("PAGEWISE_TEST_SEED");
    const uint64_t seed = chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : 135;
    std::printf("seed %llu (PAGEWISE_TEST_SEED repeats one)\n",
                static_cast<unsigned long long>(seed));
    Prng prng(seed);
    auto completions = read_completions();
    ASSERT_TRUE(completions.has_value()) << completions.error().message;
    ASSERT_EQ(completions->size(), kPrompts - 3);
    requests_ = new std::vector<Request>;
    for (uint32_t i = 0; i < kPrompts; ++i) {
      Request request;
      std::size_t length = kHitPositions + 1 + i % 8;
      if (i < completions->size()) {
        const Completion& completion = (*completions)[i];
        request.prompt = completion.prompt_ids;
        if (request.prompt.size() > 280) {
          length = 280;
        } else {
          request.prompt.insert(request.prompt.end(), completion.tokens.begin(),
                                completion.tokens.end());
        }
      }
      while (request.prompt.size() < length) {
        request.prompt.push_back(TokenId(static_cast<int32_t>(1000 + prng.below(40'000))));
      }
      request.prompt.resize(length);
      request.max_tokens = kNewTokens;
      request.ignore_eos = true;
      request.want_control_text = true;
      request.sampling.temperature = i % 2 == 0 ? 0.0F : 0.8F;
      request.sampling.top_p = i % 4 == 1 ? 0.95F : 1.0F;
      request.sampling.seed = seed + i;
      request.sampling.logprobs = 5;
      requests_->push_back(std::move(request));
    }
  }

  static void expect_same(const std::vector<Answer>& answers, const std::string& how) {
    ASSERT_EQ(answers.size(), expected_->size());
    for (std::size_t i = 0; i < answers.size(); ++i) {
      EXPECT_TRUE(answers[i] == (*expected_)[i]) << "prompt " << i << " differs " << how;
    }
  }

  static Result<RealModel>* model_;
  static const text::Tokenizer* tokenizer_;
  static std::vector<Request>* requests_;
  static std::vector<Answer>* expected_;
};

Result<RealModel>* EngineEquality::model_ = nullptr;
const text::Tokenizer* EngineEquality::tokenizer_ = nullptr;
std::vector<Request>* EngineEquality::requests_ = nullptr;
std::vector<Answer>* EngineEquality::expected_ = nullptr;

TEST_F(EngineEquality, InABatchOfEightWithAnyBlocksInAnyOrderOnAnyThreads) {
  for (const uint32_t block_tokens : {16U, 32U, 128U}) {
    for (const uint32_t threads : {1U, 2U}) {
      EngineBench bench(**model_, *tokenizer_, {block_tokens, threads}, options_of(512, true, 8));
      const std::string how = "with blocks of " + std::to_string(block_tokens) + " on " +
                              std::to_string(threads) + " threads";
      expect_same(bench.together(*requests_), how);
      expect_same(bench.together(*requests_), how + ", everything cached");
    }
  }
}

TEST_F(EngineEquality, InChunksOfAnySize) {
  EngineBench bench(**model_, *tokenizer_, {}, options_of(512, false, 1));
  for (const uint32_t step_tokens : {1U, 7U, 64U, 512U}) {
    bench.restart(*tokenizer_, options_of(step_tokens, false, 8));
    expect_same(bench.together(*requests_), "in steps of " + std::to_string(step_tokens));
  }
}

TEST_F(EngineEquality, AfterAHitAtEachOfFortyPositions) {
  const Options options = options_of(512, true, kPrompts);
  EngineBench bench(**model_, *tokenizer_, {}, options);
  for (uint32_t position = 1; position <= kHitPositions; ++position) {
    // First every prompt is cached to exactly there: the next token differs.
    bench.restart(*tokenizer_, options);
    std::vector<Request> seeds = *requests_;
    std::vector<Request> requests = *requests_;
    for (uint32_t i = 0; i < kPrompts; ++i) {
      requests[i].cache.cache_namespace = std::to_string(i);
      seeds[i].cache = requests[i].cache;
      seeds[i].prompt.resize(position + 1);
      seeds[i].prompt.back().value ^= 1;
      seeds[i].max_tokens = 0;
    }
    (void)bench.together(seeds);
    std::vector<std::shared_ptr<engine::Recorder>> recorders;
    for (const Request& request : requests) recorders.push_back(bench.submit(request));
    bench.run();
    std::vector<Answer> answers;
    for (const auto& recorder : recorders) {
      EXPECT_EQ(recorder->admission->cached_tokens, position);
      answers.push_back(answer_of(*recorder));
    }
    expect_same(answers, "after a hit of " + std::to_string(position) + " tokens");
  }
}

TEST_F(EngineEquality, AfterPreemptions) {
  // 33 blocks of 16 hold 528 tokens: eight or so prompts, which then grow by 40 tokens each.
  EngineBench bench(**model_, *tokenizer_, {.block_tokens = 16, .positions = 16},
                    options_of(64, true, kPrompts));
  std::vector<Request> requests = *requests_;
  for (Request& request : requests) request.max_tokens = 40;
  const std::vector<Answer> answers = bench.together(requests);
  EXPECT_GT(bench.core().stats().preemptions, 0U);
  // The same in a pool with room for all.
  EngineBench ample(**model_, *tokenizer_, {.block_tokens = 16}, options_of(512, false, kPrompts));
  std::vector<Answer> whole = ample.together(requests);
  EXPECT_EQ(ample.core().stats().preemptions, 0U);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(whole[i].tokens.size(), 40U * 6);  // per token: itself and its best five
    EXPECT_TRUE(whole[i] == answers[i]) << "prompt " << i << " differs after preemptions";
    whole[i].tokens.resize(kNewTokens * 6);
    whole[i].logprob_bits.resize(kNewTokens * 6);
  }
  expect_same(whole, "in a batch of 20");
}

TEST_F(EngineEquality, EveryChoiceOfSeveralC19) {
  EngineBench bench(**model_, *tokenizer_, {}, options_of(512, true, 8));
  for (const std::size_t i : {1U, 5U}) {  // sampled ones
    Request request = (*requests_)[i];
    request.choices = 4;
    const auto first = bench.submit(request);
    bench.run();
    EXPECT_TRUE(answer_of(*first, 0) == (*expected_)[i]) << "choice 0 is the answer of n = 1";
    EXPECT_FALSE(answer_of(*first, 0) == answer_of(*first, 1));
    const auto second = bench.submit(request);
    (void)bench.submit((*requests_)[0]);
    bench.run();
    for (uint32_t c = 0; c < 4; ++c) EXPECT_TRUE(answer_of(*first, c) == answer_of(*second, c));
  }
}

}  // namespace
}  // namespace pagewise::golden
