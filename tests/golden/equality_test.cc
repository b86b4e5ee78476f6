// SPDX-License-Identifier: Apache-2.0
// Promise 1 on the real model, at the executor: the logits of a sequence have the same bits however
// it was batched, chunked, threaded and blocked, and with or without a KV cache.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/hash.h"
#include "base/prng.h"
#include "golden/real_model.h"
#include "model/batch_driver.h"
#include "model/solo_sequence.h"

namespace pagewise::golden {
namespace {

using model::testing::BatchDriver;

/// What is compared: a hash of each row of logits, [sequence][position - logits_from].
using Bits = std::vector<std::vector<uint64_t>>;

struct Prompt {
  std::vector<TokenId> tokens;
  uint32_t logits_from;
};

class ExecutorEquality : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    model_ = new Result<RealModel>(open_real_model());
    completions_ = new Result<std::vector<Completion>>(read_completions());
  }
  static void TearDownTestSuite() {
    delete model_;
    delete completions_;
  }

  void SetUp() override {
    ASSERT_TRUE(model_->has_value()) << model_->error().message;
    ASSERT_TRUE(completions_->has_value()) << completions_->error().message;
    const char* chosen = std::getenv("PAGEWISE_TEST_SEED");
    seed_ = chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : 135;
    std::printf("seed %llu (PAGEWISE_TEST_SEED repeats one)\n",
                static_cast<unsigned long long>(seed_));
    // Seven short prompts with their completions, and one that crosses two segments of attention
    // (256).
    const std::vector<Completion>& all = **completions_;
    for (const std::size_t i : {0U, 2U, 4U, 5U, 8U, 10U, 13U, 16U}) {
      std::vector<TokenId> tokens = all[i].prompt_ids;
      if (i == 16) tokens.resize(520);
      const auto from = static_cast<uint32_t>(tokens.size() - 1);
      tokens.insert(tokens.end(), all[i].tokens.begin(), all[i].tokens.end());
      prompts_.push_back({tokens, from});
    }
  }

  std::unique_ptr<model::CpuExecutor> executor(uint32_t block_tokens, uint32_t threads) {
    auto made = make_executor(**model_, {.block_tokens = block_tokens, .threads = threads});
    EXPECT_TRUE(made.has_value()) << made.error().message;
    return std::move(*made);
  }

  BatchDriver::Sink into(Bits& bits) {
    bits.resize(prompts_.size());
    for (std::size_t s = 0; s < prompts_.size(); ++s) {
      bits[s].assign(prompts_[s].tokens.size() - prompts_[s].logits_from, 0);
    }
    return [this, &bits](std::size_t s, uint32_t position, std::span<const float> logits) {
      bits[s][position - prompts_[s].logits_from] = xxh3(std::as_bytes(logits));
    };
  }

  Bits one_by_one(model::Executor& executor, uint32_t chunk) {
    Bits bits;
    const BatchDriver::Sink sink = into(bits);
    BatchDriver driver(executor, seed_);
    for (const Prompt& prompt : prompts_) {
      driver.finish(driver.add(prompt.tokens, prompt.logits_from), chunk, sink);
    }
    return bits;
  }

  /// All together: random chunks, random pauses, decode rows beside prefill chunks.
  Bits batched(model::Executor& executor) {
    Bits bits;
    const BatchDriver::Sink sink = into(bits);
    Prng prng(seed_);
    BatchDriver driver(executor, prng.next());
    for (const Prompt& prompt : prompts_) driver.add(prompt.tokens, prompt.logits_from);
    for (bool left = true; left;) {
      left = false;
      std::vector<BatchDriver::Part> parts;
      for (std::size_t s = 0; s < prompts_.size(); ++s) {
        if (driver.left(s) == 0) continue;
        left = true;
        if (prng.below(8) == 0) continue;
        const uint32_t most =
            driver.done(s) < prompts_[s].logits_from && prng.below(2) == 0 ? 200 : 3;
        parts.push_back({s, std::min(static_cast<uint32_t>(1 + prng.below(most)), driver.left(s))});
      }
      if (!parts.empty()) driver.step(parts, sink);
    }
    return bits;
  }

  static Result<RealModel>* model_;
  static Result<std::vector<Completion>>* completions_;
  uint64_t seed_ = 0;
  std::vector<Prompt> prompts_;
};

Result<RealModel>* ExecutorEquality::model_ = nullptr;
Result<std::vector<Completion>>* ExecutorEquality::completions_ = nullptr;

TEST_F(ExecutorEquality, LogitsHaveTheSameBitsInEveryChunkThreadBlockAndBatchRules1And4) {
  const Bits expected = one_by_one(*executor(32, 1), 512);
  const auto check = [&](uint32_t block_tokens, uint32_t threads, std::vector<uint32_t> chunks) {
    const auto made = executor(block_tokens, threads);
    for (const uint32_t chunk : chunks) {
      EXPECT_EQ(one_by_one(*made, chunk), expected)
          << "blocks of " << block_tokens << ", " << threads << " threads, chunks of " << chunk;
    }
    EXPECT_EQ(batched(*made), expected)
        << "batch of 8, blocks of " << block_tokens << ", " << threads << " threads";
  };
  check(16, 1, {7});
  check(16, 2, {64});
  check(32, 1, {64});
  check(32, 2, {1, 7, 512});
  check(128, 1, {512});
  check(128, 2, {7, 64, 512});
}

TEST_F(ExecutorEquality, DecodingWithoutACacheGivesTheSameBits) {
  const auto made = executor(32, 2);
  const Bits expected = one_by_one(*made, 512);
  for (std::size_t s = 0; s < prompts_.size(); ++s) {
    // The long one only for a few steps: recomputing is what a cache saves.
    const std::size_t steps = prompts_[s].tokens.size() > 100 ? 3 : 8;
    model::SoloSequence sequence(*made);
    for (std::size_t step = 0; step < steps; ++step) {
      sequence.reset();
      const auto logits =
          sequence.feed(std::span(prompts_[s].tokens).first(prompts_[s].logits_from + 1 + step));
      ASSERT_TRUE(logits.has_value());
      EXPECT_EQ(xxh3(std::as_bytes(*logits)), expected[s][step])
          << "prompt " << s << ", step " << step;
    }
  }
}

TEST_F(ExecutorEquality, APrefixTakenOverInThePlaceOfItsOwnGivesTheSameBits) {
  const auto made = executor(32, 2);
  const Prompt& prompt = prompts_.back();
  std::vector<uint64_t> bits(prompt.tokens.size());
  const auto sink = [&](std::size_t, uint32_t position, std::span<const float> logits) {
    bits[position] = xxh3(std::as_bytes(logits));
  };
  BatchDriver driver(*made, seed_);
  const std::size_t source = driver.add(prompt.tokens, prompt.logits_from);
  driver.finish(source, 512, sink);
  const std::vector<uint64_t> whole = bits;
  Prng prng(seed_);
  for (int round = 0; round < 12; ++round) {
    // Whole blocks shared, a part of one copied; the rest computed anew.
    const auto shared = static_cast<uint32_t>(1 + prng.below(prompt.tokens.size() - 1));
    bits.assign(bits.size(), 0);
    const std::size_t forked = driver.fork(source, shared, prompt.tokens);
    driver.finish(forked, 512, sink);
    for (std::size_t p = std::max(shared, prompt.logits_from); p < bits.size(); ++p) {
      ASSERT_EQ(bits[p], whole[p]) << shared << " shared positions, position " << p;
    }
    driver.drop(forked);
  }
}

}  // namespace
}  // namespace pagewise::golden
