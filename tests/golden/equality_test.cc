// SPDX-License-Identifier: Apache-2.0
// Promise 1 on the real models, at the executor: the logits of a sequence have the same bits
// however it was batched, chunked, threaded and blocked, and with or without a KV cache.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/hash.h"
#include "base/prng.h"
#include "golden/logits_bits.h"
#include "golden/real_model.h"
#include "model/batch_driver.h"
#include "model/solo_sequence.h"

namespace pagewise::golden {
namespace {

using model::testing::BatchDriver;

struct Case {
  const char* name;
  const Source& source;
  std::vector<std::size_t> completions;  // the last one is long
  std::size_t long_prompt;               // its tokens
  KvType key_type = KvType::kF16;
  KvType value_type = KvType::kF16;
};

/// SmolLM2: seven short prompts with their completions, and one that crosses two segments of
/// attention (256). Gemma 3: three, and one that leaves its window of 512 behind. With q8_0 caches
/// fewer of each: what differs is how keys and values are written, copied and read.
const Case kCases[] = {
    {"SmolLM2", kSmolLm2, {0, 2, 4, 5, 8, 10, 13, 16}, 520},
    {"Gemma3", kGemma3, {0, 4, 10, 16}, 600},
    {"SmolLM2WithQ8Cache", kSmolLm2, {2, 16}, 300, KvType::kQ8_0, KvType::kQ8_0},
    {"Gemma3WithQ8KeysAndF16Values", kGemma3, {4, 16}, 530, KvType::kQ8_0, KvType::kF16},
};

class ExecutorEquality : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    auto model = open_real_model(GetParam().source);
    ASSERT_TRUE(model.has_value()) << model.error().message;
    model_ = std::move(*model);
    const auto completions = read_completions(GetParam().source);
    ASSERT_TRUE(completions.has_value()) << completions.error().message;
    const char* chosen = std::getenv("PAGEWISE_TEST_SEED");
    seed_ = chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : 135;
    std::printf("seed %llu (PAGEWISE_TEST_SEED repeats one)\n",
                static_cast<unsigned long long>(seed_));
    for (const std::size_t i : GetParam().completions) {
      const Completion& completion = completions->at(i);
      std::vector<TokenId> tokens = completion.prompt_ids;
      if (i == GetParam().completions.back()) tokens.resize(GetParam().long_prompt);
      const auto from = static_cast<uint32_t>(tokens.size() - 1);
      tokens.insert(tokens.end(), completion.tokens.begin(), completion.tokens.end());
      prompts_.push_back({tokens, from});
    }
  }

  std::unique_ptr<model::CpuExecutor> executor(uint32_t block_tokens, uint32_t threads) {
    auto made = make_executor(model_, {.block_tokens = block_tokens,
                                       .threads = threads,
                                       .key_type = GetParam().key_type,
                                       .value_type = GetParam().value_type});
    EXPECT_TRUE(made.has_value()) << made.error().message;
    return std::move(*made);
  }

  Bits one_by_one(model::Executor& executor, uint32_t chunk) {
    return bits_one_by_one(executor, prompts_, chunk, seed_);
  }
  Bits batched(model::Executor& executor) { return bits_batched(executor, prompts_, seed_); }

  RealModel model_;
  uint64_t seed_ = 0;
  std::vector<Prompt> prompts_;
};

INSTANTIATE_TEST_SUITE_P(RealModels, ExecutorEquality, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(ExecutorEquality, LogitsHaveTheSameBitsInEveryChunkThreadBlockAndBatchRules1And4) {
  const Bits expected = one_by_one(*executor(32, 1), 512);
  const auto check = [&](uint32_t block_tokens, uint32_t threads, std::vector<uint32_t> chunks) {
    const auto made = executor(block_tokens, threads);
    for (const uint32_t chunk : chunks) {
      EXPECT_EQ(one_by_one(*made, chunk), expected)
          << "blocks of " << block_tokens << ", " << threads << " threads, chunks of " << chunk;
    }
    EXPECT_EQ(batched(*made), expected)
        << "all in a batch, blocks of " << block_tokens << ", " << threads << " threads";
  };
  check(16, 1, {7});
  check(16, 2, {64});
  check(32, 1, {64});
  check(32, 2, {1, 7, 512});
  check(128, 1, {512});
  check(128, 2, {7, 64, 512});
}

TEST_P(ExecutorEquality, DecodingWithoutACacheGivesTheSameBits) {
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

TEST_P(ExecutorEquality, APrefixTakenOverInThePlaceOfItsOwnGivesTheSameBits) {
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
