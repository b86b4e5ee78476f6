// SPDX-License-Identifier: Apache-2.0
// Text and tokens leave together, whole characters only, nothing of a stop string.
#include "engine/choice_output.h"

#include <gtest/gtest.h>

#include "engine/fake_tokenizer.h"

namespace pagewise::engine {
namespace {

const FakeTokenizer& vocabulary() {
  static const FakeTokenizer tokenizer(64);
  return tokenizer;
}

sampling::Sampled token(int32_t id) {
  sampling::Sampled sampled;
  sampled.token = TokenId(id);
  return sampled;
}
sampling::Sampled letter(char c) { return token(10 + (c - 'a')); }

TEST(ChoiceOutput, ATokenComesWithTheTextThatItCompletes) {
  ChoiceOutput output(vocabulary(), {}, false);
  Delta delta;
  EXPECT_FALSE(output.push(letter('a')));
  ASSERT_TRUE(output.take(delta));
  EXPECT_EQ(delta.text, "a");
  ASSERT_EQ(delta.tokens.size(), 1U);
  EXPECT_EQ(delta.tokens[0].bytes, "a");
  EXPECT_FALSE(output.take(delta));
}

TEST(ChoiceOutput, ShowsTheControlTokensThatBelongToTheText) {
  const auto text = [](std::vector<TokenId> shown) {
    ChoiceOutput output(vocabulary(), {}, false, {}, std::move(shown));
    EXPECT_FALSE(output.push(letter('a')));
    EXPECT_FALSE(output.push(token(1)));
    EXPECT_FALSE(output.push(letter('b')));
    output.finish();
    Delta delta;
    EXPECT_TRUE(output.take(delta));
    EXPECT_EQ(delta.tokens.size(), 3U);
    return delta.text;
  };
  EXPECT_EQ(text({}), "ab");
  EXPECT_EQ(text({TokenId(1)}), "a<mark>b");
  EXPECT_EQ(text({TokenId(0)}), "ab");
}

TEST(ChoiceOutput, TheFourTokensOfAnEmojiComeTogetherC12) {
  ChoiceOutput output(vocabulary(), {}, false);
  Delta delta;
  for (const int32_t id : {2, 3, 4}) {
    EXPECT_FALSE(output.push(token(id)));
    EXPECT_FALSE(output.take(delta)) << "half a character";
  }
  EXPECT_FALSE(output.push(token(5)));
  ASSERT_TRUE(output.take(delta));
  EXPECT_EQ(delta.text, "\xF0\x9F\x98\x80");
  EXPECT_EQ(delta.tokens.size(), 4U);
  EXPECT_EQ(delta.tokens[0].bytes, "\xF0");
}

TEST(ChoiceOutput, AnIncompleteTailIsDroppedAndItsTokensKeepTheirBytesC12) {
  ChoiceOutput output(vocabulary(), {}, false);
  Delta delta;
  EXPECT_FALSE(output.push(letter('x')));
  EXPECT_FALSE(output.push(token(2)));
  EXPECT_FALSE(output.push(token(3)));
  ASSERT_TRUE(output.take(delta));
  EXPECT_EQ(delta.text, "x");
  output.finish();
  ASSERT_TRUE(output.take(delta));
  EXPECT_EQ(delta.text, "");
  ASSERT_EQ(delta.tokens.size(), 2U);
  EXPECT_EQ(delta.tokens[0].bytes, "\xF0");
}

TEST(ChoiceOutput, HoldsBackOnlyWhatCanStillBecomeAStopC13) {
  ChoiceOutput output(vocabulary(), {"abc"}, false);
  Delta delta;
  EXPECT_FALSE(output.push(letter('x')));
  EXPECT_FALSE(output.push(letter('a')));
  ASSERT_TRUE(output.take(delta));
  EXPECT_EQ(delta.text, "x");
  EXPECT_EQ(delta.tokens.size(), 1U) << "the token of the held text waits with it";
  EXPECT_FALSE(output.push(letter('b')));
  EXPECT_FALSE(output.take(delta));
  EXPECT_FALSE(output.push(letter('d')));
  ASSERT_TRUE(output.take(delta));
  EXPECT_EQ(delta.text, "abd");
  EXPECT_EQ(delta.tokens.size(), 3U);
}

TEST(ChoiceOutput, AMatchedStopTakesItsTokensWithItC13) {
  ChoiceOutput output(vocabulary(), {"zz", "bc"}, false);
  Delta delta;
  EXPECT_FALSE(output.push(letter('a')));
  EXPECT_FALSE(output.push(letter('b')));
  EXPECT_EQ(output.push(letter('c')), std::optional<std::size_t>(1));
  ASSERT_TRUE(output.take(delta));
  EXPECT_EQ(delta.text, "a");
  ASSERT_EQ(delta.tokens.size(), 1U);
  EXPECT_FALSE(output.take(delta));
}

TEST(ChoiceOutput, AnUnfinishedStopIsTextAtTheEndC13) {
  ChoiceOutput output(vocabulary(), {"abc"}, false);
  Delta delta;
  EXPECT_FALSE(output.push(letter('a')));
  EXPECT_FALSE(output.push(letter('b')));
  output.finish();
  ASSERT_TRUE(output.take(delta));
  EXPECT_EQ(delta.text, "ab");
  EXPECT_EQ(delta.tokens.size(), 2U);
}

TEST(ChoiceOutput, AStopMaySpanTheCharacterOfSeveralTokensC13) {
  ChoiceOutput output(vocabulary(), {"\xF0\x9F\x98\x80x"}, false);
  Delta delta;
  EXPECT_FALSE(output.push(letter('w')));
  for (const int32_t id : {2, 3, 4, 5}) EXPECT_FALSE(output.push(token(id)));
  EXPECT_TRUE(output.push(letter('x')).has_value());
  ASSERT_TRUE(output.take(delta));
  EXPECT_EQ(delta.text, "w");
  EXPECT_EQ(delta.tokens.size(), 1U);
}

TEST(ChoiceOutput, ControlTokensGiveTextOnlyWhenAskedFor) {
  Delta delta;
  ChoiceOutput silent(vocabulary(), {}, false);
  EXPECT_FALSE(silent.push(token(1)));
  ASSERT_TRUE(silent.take(delta));
  EXPECT_EQ(delta.text, "");
  EXPECT_EQ(delta.tokens.size(), 1U);
  ChoiceOutput spelled(vocabulary(), {}, true);
  EXPECT_FALSE(spelled.push(token(1)));
  ASSERT_TRUE(spelled.take(delta));
  EXPECT_EQ(delta.text, "<mark>");
}

TEST(ChoiceOutput, CompletesTheCharacterThatThePromptWasCutIn) {  // C20
  ChoiceOutput output(vocabulary(), {}, false, "\xF0\x9F");
  Delta delta;
  EXPECT_FALSE(output.push(token(4)));
  EXPECT_FALSE(output.take(delta));
  EXPECT_FALSE(output.push(token(5)));
  ASSERT_TRUE(output.take(delta));
  EXPECT_EQ(delta.text, "\xF0\x9F\x98\x80");
  EXPECT_EQ(delta.tokens.size(), 2U);
  ChoiceOutput other(vocabulary(), {}, false, "\xF0\x9F");
  EXPECT_FALSE(other.push(letter('a')));
  ASSERT_TRUE(other.take(delta));
  EXPECT_EQ(delta.text,
            "\xEF\xBF\xBD"
            "a")
      << "what was no character";
}

}  // namespace
}  // namespace pagewise::engine
