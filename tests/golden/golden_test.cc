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
#include "model/batch_driver.h"

namespace pagewise::golden {
namespace {

constexpr std::size_t kMeasuredBest = 10;
// The published implementation's mean on this model, and how much worse ours may be.
constexpr double kPeerMean = 0.0019;
constexpr double kMeanMax = 1.15 * kPeerMean;
constexpr double kStepMax = 0.05;
constexpr double kClearNats = 0.3;

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

TEST(Golden, StaysAsNearToTheExactPassAsThePublishedImplementation) {
  const auto model = open_real_model();
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const auto completions = read_completions();
  ASSERT_TRUE(completions.has_value()) << completions.error().message;
  ASSERT_FALSE(completions->empty());
  const auto executor = make_executor(*model, {});
  ASSERT_TRUE(executor.has_value()) << executor.error().message;

  double ours_sum = 0, ours_worst = 0, peer_sum = 0, peer_worst = 0;
  std::size_t count = 0;
  for (const Completion& completion : *completions) {
    ASSERT_EQ(completion.tokens.size(), completion.exact.size());
    ASSERT_EQ(completion.tokens.size(), completion.steps.size());
    // Teacher-forced: the prompt and all but the last recorded token.
    std::vector<TokenId> tokens = completion.prompt_ids;
    const auto first = static_cast<uint32_t>(tokens.size() - 1);
    tokens.insert(tokens.end(), completion.tokens.begin(), completion.tokens.end() - 1);
    model::testing::BatchDriver driver(**executor, 1);
    std::size_t steps = 0;
    driver.finish(driver.add(tokens, first), 512, [&](std::size_t, uint32_t position, auto logits) {
      const std::size_t step = position - first;
      const std::vector<LogprobEntry>& exact = completion.exact[step];
      const std::vector<LogprobEntry> measured = best_of(logits);
      const double ours = divergence(exact, measured);
      const double peer = divergence(exact, completion.steps[step]);
      EXPECT_LE(ours, kStepMax) << "'" << completion.prompt.substr(0, 60) << "', step " << step;
      if (exact[0].logprob - exact[1].logprob >= kClearNats) {
        EXPECT_EQ(measured[0].token, exact[0].token)
            << "'" << completion.prompt.substr(0, 60) << "', step " << step;
      }
      ours_sum += ours;
      peer_sum += peer;
      ours_worst = std::max(ours_worst, ours);
      peer_worst = std::max(peer_worst, peer);
      ++steps;
    });
    ASSERT_EQ(steps, completion.tokens.size());
    count += steps;
  }
  const auto steps = static_cast<double>(count);
  std::printf("divergence from the exact pass over %zu steps, nats (isa %s)\n", count,
              std::string((*executor)->isa()).c_str());
  std::printf("  ours       mean %.5f  worst %.4f\n", ours_sum / steps, ours_worst);
  std::printf("  llama.cpp  mean %.5f  worst %.4f  (bound for ours: mean %.5f, worst %.2f)\n",
              peer_sum / steps, peer_worst, kMeanMax, kStepMax);
  EXPECT_LE(ours_sum / steps, kMeanMax);
  // The recorded peer must come out as it was published: the measure itself is under test here.
  EXPECT_NEAR(peer_sum / steps, kPeerMean, 0.0002);
}

}  // namespace
}  // namespace pagewise::golden
