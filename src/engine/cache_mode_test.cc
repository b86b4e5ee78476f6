// SPDX-License-Identifier: Apache-2.0
// What joining a prefill under way is called: a read, or with CacheMode::kStrict a creation. The
// bill alone differs; what is shared and what is computed does not.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "engine/test_support.h"

namespace pagewise::engine {
namespace {

constexpr uint32_t kMarked = 203;

std::vector<TokenId> prompt_of(uint64_t count, uint64_t seed) {
  Prng prng(seed);
  return random_tokens(prng, count, 64);
}

/// A marked prefix that everybody shares, and a question of one's own.
Request ask(uint64_t question, uint32_t question_tokens = 30) {
  std::vector<TokenId> tokens = prompt_of(kMarked, 1);
  for (const TokenId token : prompt_of(question_tokens, 100 + question)) tokens.push_back(token);
  Request request = greedy(std::move(tokens), 4);
  request.cache.positions = {{kMarked}};
  request.cache.markers = {{0, LeaseClass::k5m}};
  return request;
}

/// A machine on which a step takes time, as an entry's age needs.
class Timed {
 public:
  Timed(kv::CacheMode mode, uint32_t step_tokens = 512)
      : bench(machine(), options_of(mode, step_tokens)) {}
  Bench* operator->() { return &bench; }
  Bench bench;

 private:
  FakeExecutorOptions machine() {
    FakeExecutorOptions options = pool(16, 512);
    options.on_step = [this](auto) { bench.clock.advance(1'000'000); };
    return options;
  }
  static Options options_of(kv::CacheMode mode, uint32_t step_tokens) {
    Options options;
    options.cache_mode = mode;
    options.step_tokens = step_tokens;
    return options;
  }
};

TEST(CacheMode, RequestsThatComeTogetherReadInNativeAndCreateInStrict) {
  std::vector<uint64_t> computed;
  std::vector<std::vector<uint32_t>> cached;
  for (const kv::CacheMode mode : {kv::CacheMode::kNative, kv::CacheMode::kStrict}) {
    const bool strict = mode == kv::CacheMode::kStrict;
    Timed bench(mode);
    std::vector<std::shared_ptr<Recorder>> answers;
    for (uint64_t i = 0; i < 8; ++i) answers.push_back(bench->submit(ask(i)));
    bench->run();
    cached.emplace_back();
    for (std::size_t i = 0; i < answers.size(); ++i) {
      const Admission& admission = *answers[i]->admission;
      const bool creates = strict || i == 0;
      EXPECT_EQ(admission.cache_created_5m_tokens, creates ? kMarked : 0U) << i;
      EXPECT_EQ(admission.cache_read_tokens, creates ? 0U : kMarked) << i;
      EXPECT_EQ(admission.input_tokens, 30U) << i;
      if (i > 0) {
        EXPECT_GE(admission.cached_tokens, kMarked) << i;
      }
      cached.back().push_back(admission.cached_tokens);
      EXPECT_EQ(answers[i]->choices[0].tokens, defined_tokens(bench->executor, ask(i), 0, 4)) << i;
    }
    computed.push_back(bench->executor.tokens_computed());
    const Admission later = *bench->serve(ask(99))->admission;
    EXPECT_EQ(later.cache_read_tokens, kMarked) << "whoever comes afterwards reads";
    EXPECT_EQ(later.cache_created_5m_tokens, 0U);
  }
  EXPECT_EQ(computed[0], computed[1]) << "what is computed does not depend on the mode";
  EXPECT_EQ(cached[0], cached[1]) << "nor what is shared";
}

TEST(CacheMode, WhoComesBeforeTheWritersResponseBeginsCreatesInStrict) {
  for (const kv::CacheMode mode : {kv::CacheMode::kNative, kv::CacheMode::kStrict}) {
    const bool strict = mode == kv::CacheMode::kStrict;
    Timed bench(mode, 64);
    const auto writer = bench->submit(ask(1, 200));
    for (int i = 0; i < 5; ++i) bench->step();  // 320 of 403 tokens: the marker, not the whole
    ASSERT_EQ(bench->executor.tokens_computed(), 320U);
    const auto early = bench->submit(ask(2));
    while (bench->core->stats().generation_tokens == 0) bench->step();
    const auto late = bench->submit(ask(3));
    bench->run();
    EXPECT_EQ(early->admission->cache_read_tokens, strict ? 0U : kMarked);
    EXPECT_EQ(early->admission->cache_created_5m_tokens, strict ? kMarked : 0U);
    EXPECT_GE(early->admission->cached_tokens, kMarked);
    EXPECT_EQ(late->admission->cache_read_tokens, kMarked);
  }
}

TEST(CacheMode, WithoutAResponseNothingWasWrittenInStrict) {
  for (const kv::CacheMode mode : {kv::CacheMode::kNative, kv::CacheMode::kStrict}) {
    const bool strict = mode == kv::CacheMode::kStrict;
    Timed bench(mode, 64);
    (void)bench->submit(ask(1, 200));
    for (int i = 0; i < 5; ++i) bench->step();
    bench->core->cancel(bench->last_id);
    EXPECT_EQ(bench->core->stats().blocks_leased, strict ? 0U : 13U) << "ceil(203 / 16)";
    const Admission next = *bench->serve(ask(2))->admission;
    EXPECT_EQ(next.cache_read_tokens, strict ? 0U : kMarked);
    EXPECT_EQ(next.cache_created_5m_tokens, strict ? kMarked : 0U);
    EXPECT_GE(next.cached_tokens, kMarked) << "the blocks are there in both";
    EXPECT_EQ(bench->serve(ask(3))->admission->cache_read_tokens, kMarked);
  }
}

TEST(CacheMode, APreWarmMakesItsPrefixReadableInBoth) {
  for (const kv::CacheMode mode : {kv::CacheMode::kNative, kv::CacheMode::kStrict}) {
    Timed bench(mode, 64);
    Request warm = ask(1);
    warm.max_tokens = 0;
    EXPECT_EQ(bench->serve(warm)->admission->cache_created_5m_tokens, kMarked);
    EXPECT_EQ(bench->serve(ask(2))->admission->cache_read_tokens, kMarked);
  }
}

}  // namespace
}  // namespace pagewise::engine
