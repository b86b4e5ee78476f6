// SPDX-License-Identifier: Apache-2.0
// How near the served kernels come to an exact pass over the same weights, measured as a published
// implementation is measured (docs/design.md, section 5, Exactness), on its own recorded
// completions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "golden/real_model.h"
#include "kernels/isa_testing.h"
#include "model/batch_driver.h"

namespace pagewise::golden {
namespace {

constexpr std::size_t kMeasuredBest = 10;

/// The published implementation's mean divergence on a model, and the bounds for ours. The
/// likeliest token must be the exact one's where that leads by `clear_nats`.
struct Bounds {
  double peer_mean;
  double mean_max;
  double step_max;
  double clear_nats = 0.3;
};
constexpr Bounds kSmolLm2Bounds = {0.0019, 1.15 * 0.0019, 0.05};
// The peer's own mean moves up to 0.0048 with its batch shape, 4 % under which is the bound.
constexpr Bounds kGemma3Bounds = {0.0028, 0.0045, 0.07};

/// Divergence of `measured` from `exact` over the tokens that both name, the rest taken as one
/// event.
double divergence(const std::vector<LogprobEntry>& exact,
                  const std::vector<LogprobEntry>& measured) {
  std::map<int32_t, double> by_token;
  for (std::size_t i = 0; i < std::min(measured.size(), kMeasuredBest); ++i) {
    by_token[measured[i].token] = measured[i].logprob;
  }
  double sum = 0, exact_mass = 0, measured_mass = 0;
  for (const LogprobEntry& entry : exact) {
    const auto found = by_token.find(entry.token);
    if (found == by_token.end()) continue;
    sum += std::exp(entry.logprob) * (entry.logprob - found->second);
    exact_mass += std::exp(entry.logprob);
    measured_mass += std::exp(found->second);
  }
  constexpr double kLeast = 1e-12;
  const double exact_rest = std::max(1 - exact_mass, kLeast);
  const double measured_rest = std::max(1 - measured_mass, kLeast);
  return sum + exact_rest * std::log(exact_rest / measured_rest);
}

/// The best ten of a row of logits, as log-probabilities.
std::vector<LogprobEntry> best_of(std::span<const float> logits) {
  const double max = double{*std::max_element(logits.begin(), logits.end())};
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - max);
  std::vector<LogprobEntry> entries;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    entries.push_back({static_cast<int32_t>(i), double{logits[i]} - max - std::log(sum)});
  }
  const auto better = [](const LogprobEntry& a, const LogprobEntry& b) {
    return a.logprob != b.logprob ? a.logprob > b.logprob : a.token < b.token;
  };
  std::partial_sort(entries.begin(), entries.begin() + kMeasuredBest, entries.end(), better);
  entries.resize(kMeasuredBest);
  return entries;
}

struct Means {
  double sum = 0;
  double worst = 0;
  void add(double divergence) {
    sum += divergence;
    worst = std::max(worst, divergence);
  }
};

/// Teacher-forced through all completions on the instruction set that is chosen now.
void measure(const RealModel& model, const std::vector<Completion>& completions,
             const Bounds& bounds, KvType kv_type = KvType::kF16) {
  const auto executor = make_executor(model, {.key_type = kv_type, .value_type = kv_type});
  ASSERT_TRUE(executor.has_value()) << executor.error().message;
  Means ours, peer;
  std::size_t count = 0;
  for (const Completion& completion : completions) {
    ASSERT_EQ(completion.tokens.size(), completion.exact.size());
    ASSERT_EQ(completion.tokens.size(), completion.steps.size());
    // The prompt, and all but the last recorded token.
    std::vector<TokenId> tokens = completion.prompt_ids;
    const auto first = static_cast<uint32_t>(tokens.size() - 1);
    tokens.insert(tokens.end(), completion.tokens.begin(), completion.tokens.end() - 1);
    model::testing::BatchDriver driver(**executor, 1);
    std::size_t steps = 0;
    driver.finish(driver.add(tokens, first), 512, [&](std::size_t, uint32_t position, auto logits) {
      const std::size_t step = position - first;
      SCOPED_TRACE(::testing::Message() << completion.prompt.substr(0, 60) << ", step " << step);
      const std::vector<LogprobEntry>& exact = completion.exact[step];
      const std::vector<LogprobEntry> measured = best_of(logits);
      const double divergence_of_ours = divergence(exact, measured);
      EXPECT_LE(divergence_of_ours, bounds.step_max);
      if (exact[0].logprob - exact[1].logprob >= bounds.clear_nats) {
        EXPECT_EQ(measured[0].token, exact[0].token);
      }
      ours.add(divergence_of_ours);
      peer.add(divergence(exact, completion.steps[step]));
      ++steps;
    });
    ASSERT_EQ(steps, completion.tokens.size());
    count += steps;
  }
  const auto steps = static_cast<double>(count);
  std::printf("divergence from the exact pass over %zu steps, in nats, KV %s, on %s\n", count,
              std::string(kv_type_name(kv_type)).c_str(), std::string((*executor)->isa()).c_str());
  std::printf("  ours       mean %.5f  worst %.4f\n", ours.sum / steps, ours.worst);
  std::printf("  llama.cpp  mean %.5f  worst %.4f  (bound for ours: mean %.5f, worst %.2f)\n",
              peer.sum / steps, peer.worst, bounds.mean_max, bounds.step_max);
  EXPECT_LE(ours.sum / steps, bounds.mean_max);
  // The recorded peer must come out as it was published: the measure itself is under test here.
  EXPECT_NEAR(peer.sum / steps, bounds.peer_mean, 0.0002);
}

void measure_on_each_isa(const Source& source, const Bounds& bounds) {
  const auto model = open_real_model(source);
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const auto completions = read_completions(source);
  ASSERT_TRUE(completions.has_value()) << completions.error().message;
  ASSERT_FALSE(completions->empty());
  kernels::testing::on_each_isa([&](bool serves) {
    // Without FMA nothing is served in earnest, and 10,000 tokens take minutes.
    if (serves) measure(*model, *completions, bounds);
  });
}

TEST(Golden, StaysAsNearToTheExactPassAsThePublishedImplementation) {
  measure_on_each_isa(kSmolLm2, kSmolLm2Bounds);
}

// Eight bits a value in the cache cost something, and the design sets no bar for it. Measured: mean
// 0.00190 on SmolLM2 (f16 0.00138) and 0.00147 on Gemma 3 (0.00108). The bounds are that and a
// third, so that a mistake in the type shows.
constexpr Bounds kSmolLm2Q8CacheBounds = {0.0019, 0.0025, 0.06, 0.6};
constexpr Bounds kGemma3Q8CacheBounds = {0.0028, 0.0020, 0.06, 0.6};

TEST(Golden, AQ8CacheStaysNearTheExactPass) {
  for (const auto& [source, bounds] :
       {std::pair(kSmolLm2, kSmolLm2Q8CacheBounds), {kGemma3, kGemma3Q8CacheBounds}}) {
    const auto model = open_real_model(source);
    ASSERT_TRUE(model.has_value()) << model.error().message;
    const auto completions = read_completions(source);
    ASSERT_TRUE(completions.has_value()) << completions.error().message;
    measure(*model, *completions, bounds, KvType::kQ8_0);
  }
}

TEST(Golden, StaysAsNearToTheExactPassOnGemma3WithItsSlidingWindows) {
  measure_on_each_isa(kGemma3, kGemma3Bounds);
}

}  // namespace
}  // namespace pagewise::golden
