// SPDX-License-Identifier: Apache-2.0
#include "text/special_tokens.h"

#include <gtest/gtest.h>

#include "base/prng.h"
#include "text/test_vocabulary.h"

namespace pagewise::text {
namespace {

SpecialTokens make(const std::vector<std::pair<std::string, Trust>>& entries) {
  SpecialTokens tokens;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    tokens.add(entries[i].first, TokenId(static_cast<int32_t>(i)), entries[i].second);
  }
  tokens.build();
  return tokens;
}

TEST(SpecialTokens, FindsTheLeftmostAndThereTheLongest) {
  const SpecialTokens tokens =
      make({{"<a", Trust::kTemplate}, {"<ab>", Trust::kTemplate}, {"b>", Trust::kTemplate}});
  const auto first = tokens.find("x<ab><ac", 0, Trust::kTemplate);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->begin, 1u);
  EXPECT_EQ(first->end, 5u);
  EXPECT_EQ(first->token, TokenId(1));
  const auto second = tokens.find("x<ab><ac", first->end, Trust::kTemplate);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->begin, 5u);
  EXPECT_EQ(second->token, TokenId(0));
  EXPECT_FALSE(tokens.find("x<ab><ac", second->end, Trust::kTemplate));
}

TEST(SpecialTokens, RecognisesOnlyWhatTheTrustOfTheTextAllows_C16) {
  const SpecialTokens tokens =
      make({{"<c>", Trust::kTemplate}, {"<think>", Trust::kPlain}, {"    ", Trust::kContent}});
  for (const auto& [text, trust_min] : std::vector<std::pair<std::string, Trust>>{
           {"<c>", Trust::kTemplate}, {"<think>", Trust::kPlain}, {"    ", Trust::kContent}}) {
    for (const Trust trust : {Trust::kContent, Trust::kPlain, Trust::kTemplate}) {
      EXPECT_EQ(tokens.find(text, 0, trust).has_value(), trust >= trust_min) << text;
    }
  }
}

TEST(SpecialTokens, TakesAShorterMatchWhereTheLongerNeedsMoreTrust) {
  const SpecialTokens tokens = make({{"  ", Trust::kContent}, {"  <", Trust::kTemplate}});
  EXPECT_EQ(tokens.find("  <", 0, Trust::kContent)->token, TokenId(0));
  EXPECT_EQ(tokens.find("  <", 0, Trust::kTemplate)->token, TokenId(1));
}

TEST(SpecialTokens, AgreesWithATryOfEverySpellingAtEveryPlace) {
  const uint64_t seed = testing::test_seed();
  SCOPED_TRACE(::testing::Message() << "PAGEWISE_SEED=" << seed);
  Prng prng(seed);
  const auto random_text = [&](uint64_t length) {
    std::string text;
    for (; length > 0; --length) text.push_back("ab\xFF\0"[prng.below(4)]);
    return text;
  };
  int found = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::pair<std::string, Trust>> entries;
    for (uint64_t n = prng.below(6); n > 0; --n) {
      entries.emplace_back(random_text(1 + prng.below(4)), static_cast<Trust>(prng.below(3)));
    }
    const SpecialTokens tokens = make(entries);
    const std::string text = random_text(prng.below(12));
    const auto trust = static_cast<Trust>(prng.below(3));
    const auto match = tokens.find(text, 0, trust);
    std::size_t begin = 0;
    int best = -1;
    for (; begin < text.size() && best < 0; ++begin) {
      for (std::size_t i = 0; i < entries.size(); ++i) {
        // The first of equal spellings counts, with its trust.
        std::size_t first = 0;
        while (entries[first].first != entries[i].first) ++first;
        if (first != i || entries[i].second > trust) continue;
        if (!std::string_view(text).substr(begin).starts_with(entries[i].first)) continue;
        if (best < 0 ||
            entries[i].first.size() > entries[static_cast<std::size_t>(best)].first.size()) {
          best = static_cast<int>(i);
        }
      }
    }
    ASSERT_EQ(match.has_value(), best >= 0) << "round " << round;
    if (!match) continue;
    ++found;
    ASSERT_EQ(match->begin, begin - 1) << "round " << round;
    ASSERT_EQ(match->token, TokenId(best)) << "round " << round;
  }
  EXPECT_GT(found, 500);
}

}  // namespace
}  // namespace pagewise::text
