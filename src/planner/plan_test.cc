// SPDX-License-Identifier: Apache-2.0
// The figures here are those of docs/design.md section 1 ("Numbers that every version must
// reproduce").
#include "planner/plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/bytes.h"
#include "base/json.h"
#include "base/prng.h"
#include "planner/plan_output.h"

namespace pagewise::planner {
namespace {

// 32 layers, 32 KV heads, 128 values a head, f16: a classic 7B model, 0.5 MiB a token.
PlanInput classic_7b() {
  PlanInput input;
  input.layout =
      Layout{.groups = {{.layers = 32, .kv_heads = 32, .key_dim = 128, .value_dim = 128}}};
  input.key_format = input.value_format = find_kv_format("f16");
  return input;
}

Plan plan_of(const PlanInput& input) {
  auto plan = make_plan(input);
  EXPECT_TRUE(plan.has_value()) << plan.error().message;
  return std::move(plan).value();
}

std::string json_of(const PlanInput& input) { return plan_json(input, plan_of(input)); }

std::string error_of(const PlanInput& input) {
  const auto plan = make_plan(input);
  return plan.has_value() ? "(planned)" : plan.error().message;
}

TEST(Plan, OneSequenceOf2kTokensTakes1024MiB) {
  PlanInput input = classic_7b();
  input.tokens = {2048};
  const Plan plan = plan_of(input);
  ASSERT_EQ(plan.rows.size(), 1u);
  EXPECT_EQ(plan.rows[0].kv_bytes, 1024 * kMiB);
  EXPECT_EQ(plan.rows[0].kv_bytes, 2ull * 32 * 32 * 128 * 2048 * 1 * 2);
  EXPECT_FALSE(plan.rows[0].sequences_max.has_value());
  EXPECT_FALSE(plan.fits.has_value());
  EXPECT_NE(plan_text(input, plan).find("1024.0 MiB"), std::string::npos);
}

TEST(Plan, LengthsTimesBatchesGrowInBothDirections) {
  PlanInput input = classic_7b();
  input.tokens = {1024, 8192, 32768};
  input.batches = {1, 16};
  const Plan plan = plan_of(input);
  const double expected_gib[] = {0.5, 8, 4, 64, 16, 256};
  ASSERT_EQ(plan.rows.size(), 6u);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(static_cast<double>(plan.rows[i].kv_bytes) / static_cast<double>(kGiB),
              expected_gib[i]);
  }
  const std::string text = plan_text(input, plan);
  for (const char* figure :
       {"0.5 GiB", "8.0 GiB", "4.0 GiB", "64.0 GiB", "16.0 GiB", "256.0 GiB"}) {
    EXPECT_NE(text.find(figure), std::string::npos) << figure;
  }
}

TEST(Plan, ReservingEveryMaximumWastes87Percent) {
  PlanInput input = classic_7b();
  input.requests = {{300, 4096}, {1200, 4096}, {80, 4096}};
  input.token_bytes = kMiB / 2;
  input.block_tokens = 128;
  const Plan plan = plan_of(input);
  ASSERT_TRUE(plan.mix.has_value());
  EXPECT_EQ(plan.mix->naive_bytes, 6144 * kMiB);
  EXPECT_EQ(plan.mix->used_bytes, 790 * kMiB);
  EXPECT_EQ(plan.mix->wasted_bytes, 5354 * kMiB);
  EXPECT_EQ(plan.mix->paged_bytes, 896 * kMiB);
  const std::string text = plan_text(input, plan);
  for (const char* figure : {"6144.0 MiB", "790.0 MiB", "5354.0 MiB", "87 %", "896.0 MiB"}) {
    EXPECT_NE(text.find(figure), std::string::npos) << figure << " in\n" << text;
  }
}

TEST(Plan, FortySequencesOf2kOrTenOf8kFitIn40GiB) {
  PlanInput input = classic_7b();
  input.memory = 40 * kGiB;
  input.tokens = {2048, 8192};
  const Plan plan = plan_of(input);
  EXPECT_EQ(plan.rows[0].kv_bytes, kGiB);
  EXPECT_EQ(plan.rows[0].sequences_max, 40u);
  EXPECT_EQ(plan.rows[1].kv_bytes, 4 * kGiB);
  EXPECT_EQ(plan.rows[1].sequences_max, 10u);
  EXPECT_EQ(plan.fits, true);
  EXPECT_TRUE(plan.fixes.empty());
}

PlanInput twelve_of_8k() {
  PlanInput input = classic_7b();
  input.memory = 30 * kGiB;
  input.tokens = {8192};
  input.batches = {12};
  return input;
}

TEST(Plan, TwelveOf8kDoNotFitIn30GiBAndTheFixesSayWhatWould) {
  const PlanInput input = twelve_of_8k();
  const Plan plan = plan_of(input);
  EXPECT_EQ(plan.rows[0].kv_bytes, 48 * kGiB);
  EXPECT_EQ(plan.fits, false);
  ASSERT_EQ(plan.fixes.size(), 5u);
  EXPECT_EQ(plan.fixes[0].fix, "cap the context to 4k");
  EXPECT_EQ(
      plan.fixes[0].effect,
      "2.0 GiB each, 15 reserved in full, 24 when paged and the mean real length is at most 2,560");
  EXPECT_EQ(plan.fixes[0].cost, "configuration");
  EXPECT_EQ(plan.fixes[1].fix, "KV type q8_0");
  EXPECT_EQ(plan.fixes[1].effect, "25.5 GiB, 12 fit (28 at 4k), at most 14");
  EXPECT_EQ(plan.fixes[1].cost, "configuration");
  EXPECT_EQ(plan.fixes[2].fix, "share a 5,000-token prefix (blocks of 32)");
  EXPECT_EQ(plan.fixes[2].effect, "21.2 GiB, 12 fit");
  EXPECT_EQ(plan.fixes[2].cost, "engineering");
  EXPECT_EQ(plan.fixes[3].fix, "paging alone (blocks on demand)");
  EXPECT_EQ(plan.fixes[3].effect, "12 fit while the mean real length is at most 5,120");
  EXPECT_EQ(plan.fixes[3].cost, "engineering");
  EXPECT_EQ(plan.fixes[4].fix, "a second device of 30.0 GiB");
  EXPECT_EQ(plan.fixes[4].effect, "60.0 GiB >= 48.0 GiB");
  EXPECT_EQ(plan.fixes[4].cost, "money");
}

TEST(Plan, FixesFollowTheQuestionAndNotATable) {
  PlanInput input = twelve_of_8k();
  input.memory = 10 * kGiB;
  input.prefix_tokens = 8000;
  input.block_tokens = 16;
  const Plan plan = plan_of(input);
  ASSERT_EQ(plan.fixes.size(), 5u);
  // 12 of 1k take 6 GiB; of 2k 12.
  EXPECT_EQ(plan.fixes[0].fix, "cap the context to 1k");
  EXPECT_EQ(
      plan.fixes[0].effect,
      "512.0 MiB each, 20 reserved in full, 96 when paged and the mean real length is at most 208");
  EXPECT_EQ(plan.fixes[1].effect, "25.5 GiB, only 4 of 12 fit (37 at 1k)");
  // 500 blocks of 16 once, then 12 times 12 blocks: 644 blocks of 8 MiB.
  EXPECT_EQ(plan.fixes[2].effect, "5.0 GiB, 12 fit");
  EXPECT_EQ(plan.fixes[3].effect, "12 fit while the mean real length is at most 1,696");
  // Two sequences of 4 GiB a device.
  EXPECT_EQ(plan.fixes[4].fix, "6 devices of 10.0 GiB");
  EXPECT_EQ(plan.fixes[4].effect, "60.0 GiB >= 48.0 GiB");
}

TEST(Plan, OffersNoFixThatChangesNothing) {
  PlanInput input = twelve_of_8k();
  input.key_format = input.value_format = find_kv_format("q4_0");
  input.memory = 10 * kGiB;
  input.prefix_tokens = 20;  // less than a block
  for (const Fix& fix : plan_of(input).fixes) {
    EXPECT_NE(fix.fix, "KV type q8_0");
    EXPECT_EQ(fix.fix.find("share"), std::string::npos);
  }
  PlanInput one = classic_7b();
  one.memory = kMiB;  // not even one block
  one.tokens = {200};
  const Plan plan = plan_of(one);
  ASSERT_EQ(plan.fixes.size(), 1u);
  EXPECT_EQ(plan.fixes[0].fix, "112 devices of 1.0 MiB");
  EXPECT_EQ(plan.fixes[0].effect, "112.0 MiB >= 112.0 MiB, each sequence split over devices");
}

TEST(Plan, SharesAPrefixOnlyAsFarAsItFits) {
  PlanInput input = twelve_of_8k();
  input.memory = 16 * kGiB;
  input.prefix_tokens = 2048;
  // 64 shared blocks and 192 own ones a sequence: 1,024 blocks of 16 MiB hold 5.
  EXPECT_EQ(plan_of(input).fixes[2].effect, "37.0 GiB, only 5 of 12 fit");
}

TEST(Plan, ReadingAPrefixAHundredTimesBills54500InsteadOf500000) {
  PlanInput input = classic_7b();
  input.prefix_tokens = 5000;
  input.calls = 100;
  input.prices.read = 0.1;
  const Plan plan = plan_of(input);
  EXPECT_EQ(plan.bill->uncached_tokens, 500000u);
  EXPECT_EQ(plan.bill->billed_tokens, 54500u);
  EXPECT_EQ(plan.bill->break_even_calls, 2u);
  EXPECT_NE(plan_text(input, plan).find("500,000 -> 54,500 billed tokens (89 % less)"),
            std::string::npos);
  input.prices.write = 1.25;
  EXPECT_EQ(plan_of(input).bill->billed_tokens, 55750u);
}

TEST(Plan, CallsAPrefixThatIsWrittenAndNeverReadANetLoss) {
  PlanInput input = classic_7b();
  input.prefix_tokens = 5000;
  input.calls = 1;
  input.prices.write = 1.25;
  const Plan plan = plan_of(input);
  EXPECT_EQ(plan.bill->uncached_tokens, 5000u);
  EXPECT_EQ(plan.bill->billed_tokens, 6250u);
  EXPECT_NE(plan_text(input, plan).find("5,000 -> 6,250 billed tokens (25 % more): a net loss"),
            std::string::npos);
}

TEST(Plan, FindsTheCallFromWhichCachingPays) {
  struct Case {
    double read, write;
  };
  for (const Case c : {Case{0.1, 1.25}, Case{0.1, 2}, Case{0.5, 3}, Case{0.9, 5}, Case{0, 1},
                       Case{0.25, 0.5}, Case{0.1, 1}}) {
    PlanInput input;
    input.prefix_tokens = 1000;
    input.calls = 7;
    input.prices = {c.read, c.write};
    uint64_t calls = 1;
    while (c.write + static_cast<double>(calls - 1) * c.read >= static_cast<double>(calls)) ++calls;
    EXPECT_EQ(plan_of(input).bill->break_even_calls, calls) << c.read << " " << c.write;
  }
  PlanInput never;
  never.prefix_tokens = 1000;
  never.calls = 7;
  never.prices = {1, 1};
  EXPECT_FALSE(plan_of(never).bill->break_even_calls.has_value());
}

TEST(Plan, CountsBillsLikeAddingCallByCall) {
  const uint64_t seed = 20261130;
  SCOPED_TRACE(fmt::format("seed {}", seed));
  Prng prng(seed);
  for (int round = 0; round < 200; ++round) {
    PlanInput input;
    input.prefix_tokens = 1 + prng.below(10000);
    input.calls = 1 + prng.below(50);
    input.prices = {prng.uniform(), 2 * prng.uniform()};
    double billed = 0;
    uint64_t uncached = 0;
    for (uint64_t call = 0; call < *input.calls; ++call) {
      billed += static_cast<double>(*input.prefix_tokens) *
                (call == 0 ? input.prices.write : input.prices.read);
      uncached += *input.prefix_tokens;
    }
    const Plan plan = plan_of(input);
    EXPECT_EQ(plan.bill->uncached_tokens, uncached);
    EXPECT_NEAR(static_cast<double>(plan.bill->billed_tokens), billed, 0.51);
  }
}

TEST(Plan, CountsMixesLikeTakingBlocksTokenByToken) {
  const uint64_t seed = 20261201;
  SCOPED_TRACE(fmt::format("seed {}", seed));
  Prng prng(seed);
  for (int round = 0; round < 50; ++round) {
    PlanInput input = classic_7b();
    input.block_tokens = uint32_t{16} << prng.below(4);
    uint64_t naive = 0, used = 0, blocks = 0;
    for (uint64_t i = 0; i <= prng.below(8); ++i) {
      const uint64_t maximum = 1 + prng.below(3000);
      const uint64_t real = prng.below(maximum + 1);
      input.requests.push_back({real, maximum});
      naive += maximum * 524288;
      for (uint64_t position = 0; position < real; ++position) {
        used += 524288;
        if (position % input.block_tokens == 0) ++blocks;
      }
    }
    const Plan plan = plan_of(input);
    EXPECT_EQ(plan.mix->naive_bytes, naive);
    EXPECT_EQ(plan.mix->used_bytes, used);
    EXPECT_EQ(plan.mix->wasted_bytes, naive - used);
    EXPECT_EQ(plan.mix->paged_bytes, blocks * input.block_tokens * 524288);
  }
}

TEST(Plan, PagingFits85ConversationsOfAMixWhereReservingFits11) {
  PlanInput input;
  input.layout = Layout{.groups = {{.layers = 30, .kv_heads = 3, .key_dim = 64, .value_dim = 64}}};
  input.key_format = input.value_format = find_kv_format("f16");
  input.memory = kGiB;
  input.requests = {{300, 4096}, {1200, 4096}, {80, 4096}};
  const Plan plan = plan_of(input);
  EXPECT_EQ(plan.mix->sequences_naive, 11u);
  EXPECT_EQ(plan.mix->sequences_paged, 85u);
}

TEST(Plan, SaysWhatHelpsAMixThatDoesNotFit) {
  PlanInput input = classic_7b();
  input.memory = kGiB;
  input.requests = {{3000, 4096}, {1200, 4096}, {80, 4096}};
  const Plan plan = plan_of(input);
  EXPECT_EQ(plan.fits, false);
  ASSERT_EQ(plan.fixes.size(), 3u);
  EXPECT_EQ(plan.fixes[0].effect, "1 of 3 run at once");
  EXPECT_EQ(plan.fixes[1].effect, "1.1 GiB, only 2 of 3 fit");
  EXPECT_EQ(plan.fixes[2].effect, "3.0 GiB >= 2.1 GiB");
}

TEST(Plan, RoundsUpToWholeBlocksOnlyWhatIsTakenFromThePool) {
  PlanInput input = classic_7b();
  input.tokens = {2049};
  input.memory = kGiB;
  const Plan plan = plan_of(input);
  EXPECT_EQ(plan.rows[0].kv_bytes, 2049ull * 524288);
  EXPECT_EQ(plan.rows[0].paged_bytes, 2080ull * 524288);
  EXPECT_EQ(plan.rows[0].sequences_max, 0u);
  EXPECT_EQ(plan.fits, false);
}

TEST(Plan, NamesWhatIsWrong) {
  PlanInput nothing;
  EXPECT_NE(error_of(nothing).find("no layout"), std::string::npos);
  PlanInput input = classic_7b();
  input.tokens = {0};
  EXPECT_EQ(error_of(input), "--tokens: 0 is not in 1 to 1073741824");
  input.tokens = {kTokensMax + 1};
  EXPECT_EQ(error_of(input), "--tokens: 1073741825 is not in 1 to 1073741824");
  input.tokens = {1};
  input.batches = {0};
  EXPECT_EQ(error_of(input), "--batch: 0 sequences need no plan");
  input.batches = {UINT64_MAX};
  EXPECT_NE(error_of(input).find("exceed 2^63"), std::string::npos);
  input.batches = {1};
  input.memory = 0;
  EXPECT_EQ(error_of(input), "--memory: 0 bytes hold nothing");
  PlanInput idle = classic_7b();
  idle.memory = kGiB;
  EXPECT_EQ(error_of(idle), "--memory needs --tokens or --requests: what is to fit?");
  PlanInput mix = classic_7b();
  mix.requests = {{10, 9}};
  EXPECT_EQ(error_of(mix), "--requests: 10/9 uses more than its maximum");
  mix.requests = {{0, 0}};
  EXPECT_EQ(error_of(mix), "--requests: 0 is not in 1 to 1073741824");
  PlanInput bill;
  bill.calls = 3;
  EXPECT_NE(error_of(bill).find("--calls needs --prefix-tokens"), std::string::npos);
  bill.prefix_tokens = 5;
  bill.calls = 0;
  EXPECT_EQ(error_of(bill), "--calls: 0 calls cost nothing");
  bill.calls = UINT64_MAX;
  EXPECT_NE(error_of(bill).find("exceed 2^63"), std::string::npos);
  bill.calls = 1;
  bill.prices.read = -1;
  EXPECT_EQ(error_of(bill), "--read-price: -1 is not in 0 to 1000");
  bill.prices.read = std::nan("");
  EXPECT_NE(error_of(bill).find("--read-price"), std::string::npos);
  PlanInput alone = classic_7b();
  alone.prefix_tokens = 5;
  EXPECT_NE(error_of(alone).find("--prefix-tokens needs --calls"), std::string::npos);
}

TEST(Plan, SurvivesRandomQuestionsOfAnySize) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Prng prng(seed);
    const auto any = [&] { return prng.next() >> prng.below(64); };
    for (int round = 0; round < 300; ++round) {
      PlanInput input = classic_7b();
      input.layout->groups[0].window = static_cast<uint32_t>(any());
      if (prng.below(3) == 0) input.token_bytes = any();
      if (prng.below(2) == 0) input.tokens = {any(), any()};
      input.batches = {any(), any()};
      if (prng.below(2) == 0) input.memory = any();
      if (prng.below(2) == 0) {
        const uint64_t maximum = any();
        input.requests = {{maximum / 2, maximum}, {0, 1}, {any(), maximum}};
      }
      if (prng.below(2) == 0) input.prefix_tokens = any();
      if (prng.below(2) == 0) input.calls = any();
      const auto plan = make_plan(input);
      if (!plan.has_value()) {
        EXPECT_FALSE(plan.error().message.empty());
        continue;
      }
      EXPECT_TRUE(parse_json(plan_json(input, *plan)).has_value());
      EXPECT_FALSE(plan_text(input, *plan).empty());
      EXPECT_EQ(plan->fits == false, !plan->fixes.empty());
    }
  }
}

TEST(PlanJson, LeavesOutWhatDoesNotApply) {
  PlanInput input = classic_7b();
  const std::string layout =
      R"("kv_bytes_per_token":524288,"groups":[{"layers":32,"kv_heads":32,"key_dim":128,)"
      R"("value_dim":128,"window":0,"bytes_per_token":524288}])";
  EXPECT_EQ(json_of(input), "{" + layout + "}");
  input.tokens = {2048};
  EXPECT_EQ(json_of(input),
            R"({"rows":[{"tokens":2048,"batch":1,"kv_bytes":1073741824}],"tokens":2048,"batch":1,)"
            R"("kv_bytes":1073741824,)" +
                layout + "}");
  input.batches = {1, 2};
  input.memory = 3 * kGiB;
  const auto parsed = parse_json(json_of(input));
  ASSERT_TRUE(parsed.has_value());
  const json::object& object = parsed->as_object();
  EXPECT_EQ(object.at("rows").as_array().size(), 2u);
  EXPECT_EQ(object.at("rows").as_array()[1].as_object().at("max_sequences").as_int64(), 3);
  EXPECT_FALSE(object.contains("tokens"));
  EXPECT_EQ(object.at("fits").as_bool(), true);
  EXPECT_FALSE(object.contains("fixes"));
}

TEST(PlanJson, CarriesTheFixes) {
  const auto parsed = parse_json(json_of(twelve_of_8k()));
  ASSERT_TRUE(parsed.has_value());
  const json::object& object = parsed->as_object();
  EXPECT_EQ(object.at("fits").as_bool(), false);
  EXPECT_EQ(object.at("kv_bytes").as_int64(), 48 * static_cast<int64_t>(kGiB));
  const json::array& fixes = object.at("fixes").as_array();
  ASSERT_EQ(fixes.size(), 5u);
  for (const json::value& fix : fixes) {
    EXPECT_EQ(fix.as_object().size(), 3u);
    for (const char* key : {"fix", "effect", "cost"}) EXPECT_TRUE(fix.as_object().contains(key));
  }
}

TEST(PlanText, TellsWhenALengthIsBeyondTheModelsContext) {
  PlanInput input = classic_7b();
  input.layout->context = 4096;
  input.tokens = {4096, 8192};
  const std::string text = plan_text(input, plan_of(input));
  EXPECT_NE(text.find("8,192 tokens are more than the 4,096 positions"), std::string::npos);
  EXPECT_EQ(text.find("4,096 tokens are more"), std::string::npos);
}

TEST(PlanText, TellsWhereKvOutgrowsTheWeights) {
  PlanInput input = classic_7b();
  input.layout->weight_bytes = 14 * kGiB;
  const Plan plan = plan_of(input);
  EXPECT_EQ(plan.crossover_tokens, 14 * kGiB / 524288 + 1);
  EXPECT_NE(plan_text(input, plan).find("weights 14.0 GiB; from 28,673 tokens on KV is larger"),
            std::string::npos);
}

TEST(PlanText, SpeaksOfLatentRowsStatesAndLayersThatShare) {
  PlanInput input = classic_7b();
  input.layout->groups = {{.layers = 27, .kv_heads = 1, .key_dim = 576, .value_dim = 0}};
  input.layout->states = {{.layers = 3, .values = 1000}};
  input.layout->layers_sharing = 5;
  const std::string text = plan_text(input, plan_of(input));
  EXPECT_NE(text.find("27 layers x 1 latent row x 576"), std::string::npos) << text;
  EXPECT_NE(text.find("5 layers that read the rows of others"), std::string::npos);
  EXPECT_NE(text.find("3 layers with a state of 1,000 values"), std::string::npos);
  EXPECT_NE(text.find("12,000 bytes of state a sequence (11.7 KiB), 4 bytes a value"),
            std::string::npos);
}

TEST(Plan, CountsHowManyShareAPrefixAsBlocksTakenOneByOneWould) {
  const uint64_t seed = 20261202;
  SCOPED_TRACE(fmt::format("seed {}", seed));
  Prng prng(seed);
  for (int round = 0; round < 50; ++round) {
    PlanInput input = classic_7b();
    input.block_tokens = uint32_t{16} << prng.below(4);
    input.tokens = {1 + prng.below(3000)};
    input.prefix_tokens = 1 + prng.below(4000);
    input.memory = (1 + prng.below(200)) * 64 * kMiB;
    const KvCost cost = **cost_of(input);
    // The last token of a sequence is its own, whatever the prefix.
    const uint64_t prefix = std::min(*input.prefix_tokens, input.tokens[0] - 1);
    uint64_t fitting = 0;
    while (cost.paged_sharing(input.tokens[0], fitting + 1, prefix) <= *input.memory) ++fitting;
    EXPECT_EQ(plan_of(input).rows[0].sequences_sharing_max, fitting);
  }
}

TEST(Plan, FindsWhereABatchOutgrowsTheWeights) {
  PlanInput input = classic_7b();
  input.tokens = {1024};
  input.batches = {1, 16, 3};
  input.weight_bytes = 14 * kGiB;
  const Plan plan = plan_of(input);
  ASSERT_EQ(plan.crossovers.size(), 3u);
  for (const Crossover& crossover : plan.crossovers) {
    EXPECT_GT(crossover.batch * crossover.tokens * 524288, 14 * kGiB);
    EXPECT_LE(crossover.batch * (crossover.tokens - 1) * 524288, 14 * kGiB);
  }
  EXPECT_NE(plan_text(input, plan).find("16 at once: from 1,793 tokens each"), std::string::npos);
}

TEST(Plan, NamesWhatIsWrongWithQuestionsAboutManyRequests) {
  PlanInput input = classic_7b();
  input.waste = true;
  EXPECT_NE(error_of(input).find("--waste needs --requests"), std::string::npos);
  input = classic_7b();
  input.reserve_tokens = 4096;
  EXPECT_NE(error_of(input).find("--max-tokens needs --lengths"), std::string::npos);
  input.lengths = {{100, 1}, {5000, 2}};
  EXPECT_EQ(error_of(input), "--max-tokens: 4096 is less than the longest request, 5000");
  input = classic_7b();
  input.users = 12;
  EXPECT_NE(error_of(input).find("--users needs --memory"), std::string::npos);
  input.memory = kGiB;
  input.tokens = {1024, 2048};
  EXPECT_NE(error_of(input).find("--users needs one length"), std::string::npos);
  input.users = 0;
  EXPECT_EQ(error_of(input), "--users: 0 is not in 1 to 1073741824");
  input = classic_7b();
  input.timing = CallTiming{.gap_s = 1, .ttl_s = 300};
  EXPECT_EQ(error_of(input), "--every and --ttl need --calls");
}

TEST(Plan, FindsWhatReachesTwelveUsers) {
  PlanInput input = twelve_of_8k();
  input.users = 12;
  input.batches = {1};
  const Plan plan = plan_of(input);
  EXPECT_EQ(plan.fits, false);
  EXPECT_EQ(plan.reach->sequences, 7u);
  const auto option = [&](std::string_view by, std::string_view value) {
    for (const ReachOption& option : plan.reach->options) {
      if (option.by == by && option.value == value) return option;
    }
    ADD_FAILURE() << by << " " << value;
    return ReachOption();
  };
  // design.md, section 1: q8_0 lets 14 of them fit, 12 fit while their lengths are at most 5,120,
  // and f16 needs 48 GiB.
  EXPECT_EQ(option("KV type", "f16").sequences, 7u);
  EXPECT_FALSE(option("KV type", "f16").reached);
  EXPECT_EQ(option("KV type", "f16").memory_bytes, 48 * kGiB);
  EXPECT_EQ(option("KV type", "q8_0").sequences, 14u);
  EXPECT_TRUE(option("KV type", "q8_0").reached);
  EXPECT_FALSE(option("KV type", "q4_0").served);
  EXPECT_EQ(option("block size", "128").sequences, 7u);
  EXPECT_EQ(option("context cap", "5,120 tokens").sequences, 12u);
  EXPECT_EQ(option("memory", "48.0 GiB").sequences, 12u);
}

}  // namespace
}  // namespace pagewise::planner
