// SPDX-License-Identifier: Apache-2.0
// Sampling against its definition: a plain sorted implementation, chi-square on the draws, and the
// edges.
#include "sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <set>
#include <string>

#include "base/prng.h"

namespace pagewise::sampling {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

uint64_t test_seed() {
  const char* text = std::getenv("PAGEWISE_TEST_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 20261130;
}

std::vector<float> random_logits(uint32_t count, uint64_t seed, float spread) {
  Prng prng(seed);
  std::vector<float> logits(count);
  for (float& logit : logits) {
    // A sum of uniforms: near normal, with the long flat tail that real logits have.
    float sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<float>(prng.uniform()) - 0.5F;
    logit = sum * spread;
  }
  return logits;
}

/// The definition, by sorting everything: which tokens may come, with their probabilities.
std::vector<double> distribution(const std::vector<float>& logits, const Params& params) {
  std::vector<uint32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return logits[a] > logits[b]; });
  const double max = logits[order[0]];
  std::vector<double> weight(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    weight[i] = std::exp((logits[i] - max) / params.temperature);
  }
  std::size_t kept = order.size();
  if (params.min_p > 0) {
    kept = static_cast<std::size_t>(
        std::find_if(order.begin(), order.end(),
                     [&](uint32_t id) { return weight[id] < params.min_p; }) -
        order.begin());
  }
  if (params.top_k > 0) kept = std::min<std::size_t>(kept, params.top_k);
  double total = 0;
  for (std::size_t i = 0; i < kept; ++i) total += weight[order[i]];
  if (params.top_p < 1) {
    double sum = 0;
    std::size_t count = 0;
    while (count < kept && (count == 0 || sum < params.top_p * total))
      sum += weight[order[count++]];
    kept = count;
    total = sum;
  }
  std::vector<double> result(logits.size(), 0);
  for (std::size_t i = 0; i < kept; ++i) result[order[i]] = weight[order[i]] / total;
  return result;
}

struct Cuts {
  const char* name;
  Params params;
};

std::vector<Cuts> all_cuts() {
  const auto make = [](float temperature, uint32_t top_k, float top_p, float min_p) {
    Params params;
    params.temperature = temperature;
    params.top_k = top_k;
    params.top_p = top_p;
    params.min_p = min_p;
    return params;
  };
  return {
      {"temperature 1", make(1, 0, 1, 0)},
      {"temperature 0.5", make(0.5F, 0, 1, 0)},
      {"temperature 3", make(3, 0, 1, 0)},
      {"top-k 5", make(1, 5, 1, 0)},
      {"top-p 0.8", make(1, 0, 0.8F, 0)},
      {"min-p 0.1", make(1, 0, 1, 0.1F)},
      {"top-k 10, top-p 0.7", make(1.2F, 10, 0.7F, 0)},
      {"all", make(0.9F, 12, 0.9F, 0.02F)},
  };
}

TEST(Sampler, DrawsFollowTheDefinitionOfTheDistribution) {
  const uint64_t seed = test_seed();
  RecordProperty("seed", std::to_string(seed));
  std::printf("PAGEWISE_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  const std::vector<float> logits = random_logits(24, seed, 6);
  Sampler sampler(24);
  constexpr int kDraws = 40'000;
  for (const Cuts& cuts : all_cuts()) {
    Params params = cuts.params;
    params.seed = seed;
    const std::vector<double> expected = distribution(logits, params);
    std::vector<int> counts(24, 0);
    for (int i = 0; i < kDraws; ++i) {
      const Sampled sampled = sampler.sample(logits, params, 0, static_cast<uint64_t>(i));
      ++counts[static_cast<std::size_t>(sampled.token.value)];
    }
    // Chi-square over the cells with at least 5 expected, the rest pooled into one.
    double chi_square = 0;
    int cells = 0;
    double rest_expected = 0;
    double rest_counted = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (expected[i] == 0) {
        EXPECT_EQ(counts[i], 0) << cuts.name << ": token " << i << " was cut, yet drawn";
        continue;
      }
      const double mean = expected[i] * kDraws;
      if (mean < 5) {
        rest_expected += mean;
        rest_counted += counts[i];
        continue;
      }
      chi_square += (counts[i] - mean) * (counts[i] - mean) / mean;
      ++cells;
    }
    if (rest_expected > 1) {
      chi_square += (rest_counted - rest_expected) * (rest_counted - rest_expected) / rest_expected;
      ++cells;
    }
    // Mean k, deviation sqrt(2k): six deviations and a bit leave one false alarm in some 10^6
    // seeds.
    EXPECT_LT(chi_square, cells + 7 * std::sqrt(2.0 * cells) + 10) << cuts.name;
  }
}

TEST(Sampler, OnlyEverDrawsTokensThatTheCutsLeave) {
  const uint64_t seed = test_seed() + 1;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  Prng prng(seed);
  for (int round = 0; round < 400; ++round) {
    const uint32_t vocab = 1 + static_cast<uint32_t>(prng.below(700));
    std::vector<float> logits =
        random_logits(vocab, prng.next(), static_cast<float>(1 + prng.below(30)));
    if (round % 3 == 0) {
      for (float& logit : logits) logit = std::round(logit);  // many ties
    }
    Params params;
    params.temperature = 0.1F + static_cast<float>(prng.uniform()) * 2;
    params.top_k = prng.below(2) ? 0 : 1 + static_cast<uint32_t>(prng.below(600));
    params.top_p = prng.below(2) ? 1.0F : static_cast<float>(prng.uniform());
    params.min_p = prng.below(3) ? 0.0F : static_cast<float>(prng.uniform());
    params.seed = prng.next();
    std::vector<double> allowed = distribution(logits, params);
    Sampler sampler(vocab);
    // The last token that a cut keeps hangs on the rounding of a sum; draws beyond it must not
    // happen.
    Params wider = params;
    wider.top_p = params.top_p < 1 ? std::min(1.0F, params.top_p + 1e-5F) : 1.0F;
    wider.min_p = params.min_p * (1 - 1e-5F);
    const std::vector<double> bound = distribution(logits, wider);
    for (uint64_t i = 0; i < 50; ++i) {
      const auto token = static_cast<std::size_t>(sampler.sample(logits, params, 3, i).token.value);
      EXPECT_TRUE(allowed[token] > 0 || bound[token] > 0)
          << "round " << round << " token " << token << " logit " << logits[token];
    }
  }
}

TEST(Sampler, IsAPureFunctionOfLogitsParametersChoiceAndPosition) {
  const uint64_t seed = test_seed() + 2;
  const std::vector<float> logits = random_logits(1000, seed, 8);
  const std::vector<float> other = random_logits(1000, seed + 1, 8);
  Params params;
  params.temperature = 1.3F;
  params.top_p = 0.95F;
  params.logprobs = 3;
  params.seed = 5;
  Sampler first(1000);
  Sampler second(1000);
  std::set<int32_t> seen_choices;
  std::set<int32_t> seen_positions;
  for (uint64_t i = 0; i < 200; ++i) {
    const Sampled a = first.sample(logits, params, i % 7, i);
    (void)second.sample(other, params, 1, i);  // a history that must not show
    const Sampled b = second.sample(logits, params, i % 7, i);
    EXPECT_EQ(a.token, b.token);
    EXPECT_EQ(a.logprob, b.logprob);
    ASSERT_EQ(a.top.size(), 3U);
    for (int k = 0; k < 3; ++k) EXPECT_EQ(a.top[k].logprob, b.top[k].logprob);
    seen_choices.insert(first.sample(logits, params, i, 4).token.value);
    seen_positions.insert(first.sample(logits, params, 4, i).token.value);
  }
  EXPECT_GT(seen_choices.size(), 5U) << "choices of one request must differ (C19)";
  EXPECT_GT(seen_positions.size(), 5U);
}

TEST(Sampler, GreedyTakesTheLowestIdAmongEqualMaxima) {
  for (const uint32_t vocab : {1U, 2U, 15U, 16U, 17U, 64U, 1000U}) {
    Sampler sampler(vocab);
    Params params;
    params.temperature = 0;
    for (uint32_t first = 0; first < vocab; first = first * 2 + 1) {
      std::vector<float> logits(vocab, -1.0F);
      for (uint32_t i = first; i < vocab; i += 3) logits[i] = 2.5F;
      EXPECT_EQ(sampler.sample(logits, params, 0, 0).token.value, static_cast<int32_t>(first));
    }
  }
}

TEST(Sampler, TopKOfOneAndTopPOfZeroAreGreedy) {
  std::vector<float> logits = random_logits(5000, test_seed() + 3, 4);
  logits[700] = logits[400] = 30;  // a tie: the lower id
  Sampler sampler(5000);
  Params params;
  params.temperature = 5;
  for (uint64_t i = 0; i < 100; ++i) {
    Params k = params;
    k.top_k = 1;
    EXPECT_EQ(sampler.sample(logits, k, 0, i).token.value, 400);
    Params p = params;
    p.top_p = 0;
    EXPECT_EQ(sampler.sample(logits, p, 0, i).token.value, 400);
    Params negative = params;
    negative.top_p = -1;
    EXPECT_EQ(sampler.sample(logits, negative, 0, i).token.value, 400);
  }
}

TEST(Sampler, ATinyTemperatureIsGreedyExceptBetweenEqualMaxima) {
  std::vector<float> logits = random_logits(300, test_seed() + 4, 4);
  logits[17] = logits[200] = 9;
  Sampler sampler(300);
  for (const float temperature : {1e-3F, 1e-10F, 1e-38F, 1e-45F}) {
    Params params;
    params.temperature = temperature;
    std::set<int32_t> seen;
    for (uint64_t i = 0; i < 64; ++i) seen.insert(sampler.sample(logits, params, 0, i).token.value);
    EXPECT_EQ(seen, (std::set<int32_t>{17, 200})) << temperature;
  }
}

TEST(Sampler, SurvivesParametersOutOfRange) {
  const std::vector<float> logits = random_logits(100, test_seed() + 5, 4);
  const uint32_t best = argmax(logits);
  Sampler sampler(100);
  for (const float temperature : {-1.0F, kNan, 0.0F}) {
    Params params;
    params.temperature = temperature;
    EXPECT_EQ(sampler.sample(logits, params, 0, 1).token.value, static_cast<int32_t>(best));
  }
  Params params;
  params.temperature = kInf;  // flat: any token, but a token
  params.min_p = 2;
  params.top_k = 1'000'000;
  const int32_t token = sampler.sample(logits, params, 0, 1).token.value;
  EXPECT_GE(token, 0);
  EXPECT_LT(token, 100);
  params.temperature = 1;  // min-p above 1 keeps the maximum
  EXPECT_EQ(sampler.sample(logits, params, 0, 1).token.value, static_cast<int32_t>(best));
}

TEST(Sampler, NanAndInfinityNeitherWinNorPoisonTheRow) {
  std::vector<float> logits(64, 0.0F);
  logits[0] = kNan;
  logits[3] = -kInf;
  logits[9] = 4;
  Sampler sampler(64);
  Params params;
  params.logprobs = 2;
  for (const float top_p : {1.0F, 0.9F}) {
    params.top_p = top_p;
    for (uint64_t i = 0; i < 300; ++i) {
      const Sampled sampled = sampler.sample(logits, params, 0, i);
      EXPECT_NE(sampled.token.value, 0);
      EXPECT_NE(sampled.token.value, 3);
      EXPECT_TRUE(std::isfinite(sampled.logprob));
      EXPECT_EQ(sampled.top[0].token.value, 9);
    }
  }
}

TEST(Sampler, SaysThatARowWithoutANumberOrWithAnInfiniteMaximumHasNoToken) {
  Sampler sampler(64);
  Sampled out;
  std::vector<float> overflown(64, 1.0F);
  overflown[50] = kInf;
  for (const float temperature : {0.0F, 1.0F}) {
    Params params;
    params.temperature = temperature;
    EXPECT_FALSE(sampler.sample(std::vector<float>(64, kNan), params, {}, 0, 0, out));
    EXPECT_FALSE(sampler.sample(std::vector<float>(64, -kInf), params, {}, 0, 0, out));
    EXPECT_FALSE(sampler.sample(overflown, params, {}, 0, 0, out));
    EXPECT_TRUE(sampler.sample(std::vector<float>(64, -1e38F), params, {}, 0, 0, out));
  }
}

TEST(Sampler, LogprobsAreTheModelsOwnDistributionBeforeTemperatureAndCuts) {
  const std::vector<float> logits = random_logits(2000, test_seed() + 6, 12);
  double total = 0;
  for (const float logit : logits) total += std::exp(double{logit});
  Sampler sampler(2000);
  Params params;
  params.temperature = 0.3F;
  params.top_k = 4;
  params.logprobs = 5;
  const Sampled sampled = sampler.sample(logits, params, 0, 0);
  const auto exact = [&](TokenId id) {
    return double{logits[static_cast<std::size_t>(id.value)]} - std::log(total);
  };
  EXPECT_NEAR(sampled.logprob, exact(sampled.token), 2e-6);
  ASSERT_EQ(sampled.top.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(sampled.top[i].logprob, exact(sampled.top[i].token), 2e-6);
    if (i > 0) {
      EXPECT_LE(sampled.top[i].logprob, sampled.top[i - 1].logprob);
    }
  }
  EXPECT_EQ(sampled.top[0].token.value, static_cast<int32_t>(argmax(logits)));
  Params none;
  none.temperature = 0;
  EXPECT_TRUE(sampler.sample(logits, none, 0, 0).top.empty());
  none.logprobs = 5000;  // more than there are
  EXPECT_EQ(sampler.sample(logits, none, 0, 0).top.size(), 2000U);
}

TEST(Sampler, BestTokensListTiesByAscendingId) {
  std::vector<float> logits(1000, 1.0F);
  logits[500] = 2;
  Sampler sampler(1000);
  Params params;
  params.temperature = 0;
  for (const int32_t count : {4, 400}) {  // the heap and the selection
    params.logprobs = count;
    const Sampled sampled = sampler.sample(logits, params, 0, 0);
    ASSERT_EQ(sampled.top.size(), static_cast<std::size_t>(count));
    EXPECT_EQ(sampled.top[0].token.value, 500);
    for (int32_t i = 1; i < count; ++i)
      EXPECT_EQ(sampled.top[static_cast<std::size_t>(i)].token.value, i - 1);
  }
}

TEST(Sampler, SteadyUseAllocatesNothing) {
  const std::vector<float> logits = random_logits(4000, test_seed() + 7, 3);
  Sampler sampler(4000);
  Sampled out;
  Params params;
  params.logprobs = 5;
  params.top_p = 0.9F;
  params.frequency_penalty = 0.5F;
  params.logit_bias = {{TokenId(3), 1.0F}};
  const std::vector<TokenId> tokens(100, TokenId(7));
  ASSERT_TRUE(sampler.sample(logits, params, {tokens, tokens}, 0, 0, out));
  const auto* top = out.top.data();
  for (uint64_t i = 1; i < 50; ++i) {
    ASSERT_TRUE(sampler.sample(logits, params, {tokens, tokens}, 0, i, out));
    EXPECT_EQ(out.top.data(), top) << "the list of best tokens moved";
  }
}

/// The definition of bias and penalties, one token at a time.
std::vector<float> adjusted(std::vector<float> logits, const Params& params,
                            const History& history) {
  const auto count = [](std::span<const TokenId> tokens, std::size_t id) {
    return std::count(tokens.begin(), tokens.end(), TokenId(static_cast<int32_t>(id)));
  };
  for (std::size_t id = 0; id < logits.size(); ++id) {
    float& logit = logits[id];
    for (const TokenBias& bias : params.logit_bias) {
      if (static_cast<std::size_t>(bias.token.value) == id) logit += bias.bias;
    }
    const auto answered = count(history.answer, id);
    if (params.repetition_penalty != 1 && answered + count(history.prompt, id) > 0) {
      logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    }
    if (answered > 0) {
      logit -= params.frequency_penalty * static_cast<float>(answered) + params.presence_penalty;
    }
  }
  return logits;
}

TEST(Sampler, BiasAndPenaltiesFollowTheirDefinitionHoweverTheyAreCombined) {
  const uint64_t seed = test_seed();
  std::printf("PAGEWISE_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  Prng prng(seed);
  constexpr uint32_t kVocab = 40;
  Sampler sampler(kVocab);
  const auto draw_tokens = [&] {
    std::vector<TokenId> tokens(prng.below(60));
    for (TokenId& token : tokens) token = TokenId(static_cast<int32_t>(prng.below(kVocab)));
    return tokens;
  };
  int moved = 0;
  for (int round = 0; round < 3000; ++round) {
    const std::vector<float> logits = random_logits(kVocab, prng.next(), 6);
    const std::vector<TokenId> prompt = draw_tokens(), answer = draw_tokens();
    const History history{prompt, answer};
    Params params;
    params.temperature = round % 2 == 0 ? 0.0F : 1.0F;
    params.logprobs = 3;
    params.seed = seed;
    const auto penalty = [&] { return static_cast<float>(prng.uniform() * 4 - 2); };
    if (prng.below(2) == 0) params.frequency_penalty = penalty();
    if (prng.below(2) == 0) params.presence_penalty = penalty();
    if (prng.below(2) == 0) params.repetition_penalty = static_cast<float>(0.5 + prng.uniform());
    for (int32_t id = 0; id < 40 && prng.below(3) == 0; id += 3) {
      params.logit_bias.push_back({TokenId(id), penalty() * 3});
    }
    Params plain = params;
    plain.frequency_penalty = plain.presence_penalty = 0;
    plain.repetition_penalty = 1;
    plain.logit_bias.clear();
    const std::vector<float> expected = adjusted(logits, params, history);
    const Sampled got = sampler.sample(logits, params, history, 0, 5);
    const Sampled wanted = sampler.sample(expected, plain, 0, 5);
    ASSERT_EQ(got.token, wanted.token) << "round " << round;
    // What is reported is the model's own opinion, whatever was asked of the draw.
    Sampled scored;
    sampler.score(logits, got.token, 3, scored);
    EXPECT_EQ(got.logprob, scored.logprob);
    const Sampled own = sampler.sample(logits, plain, 0, 5);
    ASSERT_EQ(got.top.size(), own.top.size());
    for (std::size_t i = 0; i < own.top.size(); ++i) {
      EXPECT_EQ(got.top[i].token, own.top[i].token);
      EXPECT_EQ(got.top[i].logprob, own.top[i].logprob);
    }
    moved += got.token != own.token ? 1 : 0;
  }
  EXPECT_GT(moved, 300) << "penalties that change nothing prove nothing";
}

TEST(Sampler, ABiasOfAHundredForcesATokenAndMinusAHundredBansIt) {
  const std::vector<float> logits = random_logits(300, test_seed() + 8, 8);
  Sampler sampler(300);
  const TokenId best(static_cast<int32_t>(argmax(logits)));
  for (const float temperature : {0.0F, 0.7F, 1.0F}) {
    Params params;
    params.temperature = temperature;
    params.logit_bias = {{TokenId(17), 100}};
    Params banned = params;
    banned.logit_bias = {{best, -100}};
    for (uint64_t position = 0; position < 300; ++position) {
      EXPECT_EQ(sampler.sample(logits, params, 0, position).token, TokenId(17));
      EXPECT_NE(sampler.sample(logits, banned, 0, position).token, best);
    }
  }
}

TEST(Sampler, PenaltiesOfThePastDoNotLeakIntoTheNextCall) {
  const std::vector<float> logits = random_logits(50, test_seed() + 9, 6);
  Sampler fresh(50), used(50);
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < 50; ++i) tokens.emplace_back(i % 7);
  Params params;
  params.frequency_penalty = 2;
  params.repetition_penalty = 1.3F;
  for (uint64_t i = 0; i < 20; ++i) used.sample(logits, params, {tokens, tokens}, 0, i);
  const std::span<const TokenId> few = std::span(tokens).first(3);
  for (uint64_t i = 0; i < 50; ++i) {
    EXPECT_EQ(used.sample(logits, params, {few, few}, 0, i).token,
              fresh.sample(logits, params, {few, few}, 0, i).token);
  }
}

TEST(Sampler, ScoringATokenEqualsWhatSamplingItReports) {
  const std::vector<float> logits = random_logits(5000, test_seed() + 10, 4);
  Sampler sampler(5000);
  Params params;
  params.logprobs = 4;
  Sampled scored;
  for (uint64_t i = 0; i < 50; ++i) {
    const Sampled sampled = sampler.sample(logits, params, 0, i);
    sampler.score(logits, sampled.token, 4, scored);
    EXPECT_EQ(scored.token, sampled.token);
    EXPECT_EQ(scored.logprob, sampled.logprob);
    ASSERT_EQ(scored.top.size(), 4U);
    for (std::size_t t = 0; t < 4; ++t) EXPECT_EQ(scored.top[t].logprob, sampled.top[t].logprob);
  }
}

TEST(Sampler, AMaskIsAsIfTheModelHadRuledTheOthersOut) {
  constexpr uint32_t kVocab = 333;  // the last word of a mask is not full
  Sampler sampler(kVocab);
  Prng prng(test_seed());
  SCOPED_TRACE(testing::Message() << "PAGEWISE_TEST_SEED=" << test_seed());
  for (uint64_t round = 0; round < 300; ++round) {
    const std::vector<float> logits = random_logits(kVocab, prng.next(), 12);
    std::vector<uint64_t> allowed((kVocab + 63) / 64);
    const uint64_t percent = 1 + prng.below(100);
    allowed[round % allowed.size()] = round % 7 == 0 ? ~uint64_t{0} : 0;  // a word of all or none
    for (uint32_t i = 0; i < kVocab; ++i) {
      if (prng.below(100) < percent) allowed[i / 64] |= uint64_t{1} << (i % 64);
    }
    allowed[1] |= 1;  // never nothing
    std::vector<float> ruled = logits;
    for (uint32_t i = 0; i < kVocab; ++i) {
      if ((allowed[i / 64] >> (i % 64) & 1) == 0) ruled[i] = -kInf;
    }
    Params params;
    params.temperature = round % 3 == 0 ? 0.0F : 0.5F + static_cast<float>(prng.uniform());
    params.top_k = prng.below(3) == 0 ? 1 + static_cast<uint32_t>(prng.below(40)) : 0;
    params.top_p = prng.below(3) == 0 ? static_cast<float>(prng.uniform()) : 1.0F;
    params.min_p = prng.below(4) == 0 ? static_cast<float>(prng.uniform()) : 0.0F;
    params.seed = round;
    params.logprobs = static_cast<int32_t>(prng.below(3)) - 1;
    // What is left out stays so, whatever is added to it.
    if (prng.below(2) == 0) params.logit_bias = {{TokenId(5), 100}, {TokenId(64), -3}};
    if (prng.below(3) == 0) params.repetition_penalty = 1.5F;
    const std::vector<TokenId> before = {TokenId(5), TokenId(64), TokenId(9)};
    const History history{before, before};
    Sampled masked;
    ASSERT_TRUE(sampler.sample(logits, params, history, 1, round, allowed, masked)) << round;
    const auto token = static_cast<uint32_t>(masked.token.value);
    EXPECT_NE(allowed[token / 64] >> (token % 64) & 1, 0U) << round;
    EXPECT_EQ(masked.token, sampler.sample(ruled, params, history, 1, round).token) << round;
    // The log-probabilities are those of the model.
    if (params.logprobs < 0) continue;
    Sampled scored;
    sampler.score(logits, masked.token, static_cast<uint32_t>(params.logprobs), scored);
    EXPECT_EQ(masked.logprob, scored.logprob);
    ASSERT_EQ(masked.top.size(), scored.top.size());
    for (std::size_t i = 0; i < scored.top.size(); ++i) {
      EXPECT_EQ(masked.top[i].token, scored.top[i].token);
    }
  }
}

TEST(Sampler, AMaskOfNothingButNonsenseGivesNoToken) {
  Sampler sampler(70);
  std::vector<float> logits(70, 1.0F);
  logits[66] = -kInf;
  const std::vector<uint64_t> allowed = {0, uint64_t{1} << 2};
  Sampled out;
  EXPECT_FALSE(sampler.sample(logits, Params(), History(), 0, 0, allowed, out));
}

}  // namespace
}  // namespace pagewise::sampling
