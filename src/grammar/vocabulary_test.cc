// SPDX-License-Identifier: Apache-2.0
// The mask against its definition: each token tried on a copy of the matcher, along random walks.
#include "grammar/vocabulary.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/allocation_count_testing.h"
#include "grammar/test_grammar.h"

namespace pagewise::grammar {
namespace {

std::vector<TokenId> tried_tokens(const Matcher& matcher, const Vocabulary& vocabulary) {
  std::vector<TokenId> tokens;
  Matcher copy = matcher;
  for (uint32_t i = 0; i < vocabulary.size(); ++i) {
    const TokenId token(static_cast<int32_t>(i));
    if (vocabulary.spelling(token).empty()) continue;
    if (!copy.accept(vocabulary.spelling(token))) continue;
    tokens.push_back(token);
    copy = matcher;
  }
  return tokens;
}

/// Grammars with every kind of part, at the edges of what the mask takes short cuts for.
std::vector<GrammarPtr> varied_grammars(TokenId control_token) {
  std::vector<GrammarPtr> grammars;
  for (
      const char* schema : {
          R"({"type":"string"})",
          R"({"type":"string","minLength":3})",
          R"({"type":"string","maxLength":5})",
          R"({"type":"string","minLength":2,"maxLength":40})",
          R"({"type":"string","minLength":20,"maxLength":25})",
          R"({"type":"array","items":{"type":"string","maxLength":19}})",
          R"({"anyOf":[{"type":"string","maxLength":2},{"type":"array","items":{"type":"number"}},
               {"enum":["ab","abc","a\"b","name"]},{"type":"null"}]})",
          R"({"type":"object","properties":{"name":{"type":"string"},"a":{"type":"boolean"},
               "b":{"type":"integer","minimum":-3,"maximum":1230}},"additionalProperties":true})",
          R"({"type":"object","properties":{"name":{"type":"string"},"list":{"type":"array","items":
               {"$ref":"#"},"minItems":1,"maxItems":3}},"required":["name"]})",
          "{}",
      }) {
    grammars.push_back(schema_grammar(schema));
  }
  Builder builder;
  const NodeId call = builder.sequence({builder.json_object(), builder.literal("</call>")});
  const NodeId control = builder.sequence({builder.json_value(), builder.literal(";")});
  grammars.push_back(
      built(builder, builder.repeat(builder.text_until({{"<call>", call},
                                                        {control_spelling(control_token), control},
                                                        {"ab\xC3\xA9", builder.literal("c")}},
                                                       true),
                                    std::nullopt, 0, kUnbounded)));
  return grammars;
}

TEST(Vocabulary, TheMaskIsWhatTryingEveryTokenGives) {
  const std::vector<std::string> tokens = awkward_tokens();
  const Vocabulary vocabulary = vocabulary_of(tokens, 3);
  Prng prng(test_seed());
  SCOPED_TRACE(::testing::Message()
               << "PAGEWISE_TEST_SEED=" << test_seed() << ", " << tokens.size());
  for (const GrammarPtr& grammar :
       varied_grammars(TokenId(static_cast<int32_t>(tokens.size() + 1)))) {
    for (int walk = 0; walk < 12; ++walk) {
      // Some of them with so little memory that states are renumbered all the time.
      Matcher matcher(grammar, walk % 3 == 0 ? 2048 : kMatcherBytes);
      std::string output;
      for (int step = 0; step < 60 && !matcher.must_end(); ++step) {
        const std::vector<TokenId> found = allowed_tokens(matcher, vocabulary);
        ASSERT_EQ(found, tried_tokens(matcher, vocabulary)) << output;
        ASSERT_EQ(found, allowed_tokens(matcher, vocabulary)) << "asked twice: " << output;
        ASSERT_FALSE(found.empty()) << output;
        const std::string_view bytes = vocabulary.spelling(found[prng.below(found.size())]);
        output += bytes;
        ASSERT_TRUE(matcher.accept(bytes)) << output;
      }
    }
  }
}

TEST(Vocabulary, TokensThatAreNoTextAreNeverAllowed) {
  const std::vector<std::string> tokens = {"a", "", "\xFF", "b\xFE", "a"};
  const Vocabulary vocabulary = vocabulary_of(tokens, 1);
  EXPECT_EQ(vocabulary.size(), 6U);
  EXPECT_EQ(vocabulary.spelling(TokenId(2)), "");
  EXPECT_EQ(vocabulary.spelling(TokenId(5)), control_spelling(TokenId(5)));
  Builder builder;
  const GrammarPtr text = built(builder, builder.text_until({}, true));
  EXPECT_EQ(allowed_tokens(Matcher(text), vocabulary), (std::vector{TokenId(0), TokenId(4)}));
  const GrammarPtr control = built(builder, builder.control(TokenId(5)));
  EXPECT_EQ(allowed_tokens(Matcher(control), vocabulary), std::vector{TokenId(5)});
}

TEST(Vocabulary, AnEmptyOneAllowsNothing) {
  const Vocabulary vocabulary{std::span<const TokenText>()};
  Builder builder;
  EXPECT_TRUE(allowed_tokens(Matcher(built(builder, builder.literal("a"))), vocabulary).empty());
}

TEST(Vocabulary, LongTokensComeWhereTheirCharactersHaveRoom) {
  std::vector<std::string> tokens = {"\"", "a", "\\n"};
  for (const std::size_t characters : {22, 16, 15, 19, 17, 30, 20, 18, 21}) {
    tokens.emplace_back(characters, 'a');
  }
  const Vocabulary vocabulary = vocabulary_of(tokens);
  for (std::size_t max = 14; max <= 31; ++max) {
    Matcher matcher(schema_grammar(R"({"type":"string","maxLength":)" + std::to_string(max) + "}"));
    ASSERT_TRUE(matcher.accept("\""));
    const std::vector<TokenId> allowed = allowed_tokens(matcher, vocabulary);
    EXPECT_EQ(allowed, tried_tokens(matcher, vocabulary)) << max;
    const auto fitting =
        std::count_if(tokens.begin(), tokens.end(),
                      [max](const std::string& token) { return token.size() <= max; });
    EXPECT_EQ(allowed.size(), static_cast<std::size_t>(fitting)) << max;
  }
}

/// A string whose length is bounded at `max_length`, in an object that comes again and again.
void expect_no_allocation(const std::string& max_length) {
  const std::vector<std::string> tokens = awkward_tokens();
  const Vocabulary vocabulary = vocabulary_of(tokens);
  Matcher matcher(schema_grammar(
      R"({"type":"array","items":{"type":"object","properties":{"name":{"type":"string"},
          "n":{"type":"number"},"s":{"type":"string","maxLength":)" +
      max_length + R"(}},"required":["name"]}})"));
  std::vector<uint64_t> mask(vocabulary.mask_words());
  const std::string item = R"({"name":"abc é","n":-1.5e2, "s":"aa"},)";
  ASSERT_TRUE(matcher.accept("["));
  const auto round = [&] {
    for (const char& c : item) {
      allowed(matcher, vocabulary, mask);
      ASSERT_TRUE(matcher.accept(std::string_view(&c, 1)));
    }
  };
  for (int i = 0; i < 3; ++i) round();
  const uint64_t before = pagewise::testing::allocation_count();
  for (int i = 0; i < 100; ++i) round();
  EXPECT_EQ(pagewise::testing::allocation_count(), before) << "maxLength " << max_length;
}

TEST(Vocabulary, AWalkThatGoesWhereItWasAllocatesNothing) {
  expect_no_allocation("40");  // room for every token
  expect_no_allocation("20");  // not for the longest
}

}  // namespace
}  // namespace pagewise::grammar
