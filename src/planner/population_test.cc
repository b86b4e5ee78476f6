// SPDX-License-Identifier: Apache-2.0
#include "planner/population.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/prng.h"
#include "planner/plan.h"

namespace pagewise::planner {
namespace {

PlanInput small_model() {
  PlanInput input;
  input.layout = Layout{.groups = {{.layers = 30, .kv_heads = 3, .key_dim = 64, .value_dim = 64}}};
  input.key_format = input.value_format = find_kv_format("f16");
  return input;
}

TEST(Population, CountsLikeTakingEveryRequestOneByOne) {
  const uint64_t seed = 20261203;
  SCOPED_TRACE(fmt::format("seed {}", seed));
  Prng prng(seed);
  for (int round = 0; round < 100; ++round) {
    PlanInput input = small_model();
    input.block_tokens = uint32_t{16} << prng.below(4);
    const KvCost cost = **cost_of(input);
    std::vector<Member> members;
    uint64_t requests = 0, tokens = 0, naive = 0, used = 0, paged = 0, reserved = 0;
    for (uint64_t i = 0; i <= prng.below(5); ++i) {
      const uint64_t maximum = 1 + prng.below(3000);
      const Member member{1 + prng.below(maximum), maximum, 1 + prng.below(9)};
      members.push_back(member);
      for (uint64_t one = 0; one < member.count; ++one) {
        ++requests;
        tokens += member.used;
        naive += cost.exact(maximum);
        used += cost.exact(member.used);
        paged += cost.paged(member.used);
        reserved += cost.paged(maximum);
      }
    }
    const uint64_t memory = (1 + prng.below(1000)) * kMiB;
    const auto plan = plan_population(cost, members, memory, std::nullopt);
    ASSERT_TRUE(plan.has_value()) << plan.error().message;
    EXPECT_EQ(plan->requests, requests);
    EXPECT_EQ(plan->tokens_mean, (tokens + requests / 2) / requests);
    EXPECT_EQ(plan->naive_bytes, naive);
    EXPECT_EQ(plan->used_bytes, used);
    EXPECT_EQ(plan->wasted_bytes, naive - used);
    EXPECT_EQ(plan->paged_bytes, paged);
    EXPECT_EQ(plan->sequences_paged, memory * requests / paged);
    EXPECT_EQ(plan->sequences_naive, memory * requests / reserved);
    EXPECT_EQ(sequences_paged(cost, members, memory), plan->sequences_paged);
  }
}

TEST(Population, KeepsACommonPrefixOnce) {
  const PlanInput input = small_model();
  const KvCost cost = **cost_of(input);
  // 1,000 of 1,200 tokens in common: 31 whole blocks of 32, and 7 of each one's own.
  const std::vector<Member> members = {{1200, 4096, 3}};
  const uint64_t block = cost.block_bytes();
  const auto plan = plan_population(cost, members, 31 * block + 70 * block, 1000);
  EXPECT_EQ(plan->sequences_sharing, 10u);
  EXPECT_EQ(plan->sequences_paged, 101u / 38u);
  EXPECT_EQ(plan_population(cost, members, 30 * block, 1000)->sequences_sharing, 0u);
  // A prefix shorter than a block saves nothing.
  const auto few = plan_population(cost, members, 380 * block, 31);
  EXPECT_EQ(few->sequences_sharing, few->sequences_paged);
}

TEST(Population, RefusesWhatExceeds2To63Bytes) {
  const KvCost cost = *KvCost::of_token_bytes(kTokenBytesMax, 32);
  const auto plan =
      plan_population(cost, {{kTokensMax, kTokensMax, 4}}, std::nullopt, std::nullopt);
  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(plan.error().message, "the requests together exceed 2^63 bytes");
}

}  // namespace
}  // namespace pagewise::planner
