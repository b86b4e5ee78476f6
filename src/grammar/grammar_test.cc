// SPDX-License-Identifier: Apache-2.0
// Each part of a grammar alone, what build refuses, and JSON's own grammar.
#include "grammar/grammar.h"

#include <string>
#include <vector>

#include "grammar/test_grammar.h"

namespace pagewise::grammar {
namespace {

std::string refusal(Builder& builder, NodeId root) {
  const Result<GrammarPtr> grammar = builder.build(root);
  EXPECT_FALSE(grammar.has_value());
  return grammar ? "" : grammar.error().message;
}

TEST(Grammar, ALiteralIsItself) {
  Builder builder;
  const GrammarPtr grammar = built(builder, builder.literal("abc"));
  expect_matches(grammar, {"abc"}, {"", "ab", "abcd", "abd", "Abc"});
}

TEST(Grammar, WordsMayBeginEachOther) {
  Builder builder;
  const GrammarPtr grammar =
      built(builder, builder.sequence({builder.words({"1", "12", "2", ""}), builder.literal(";")}));
  expect_matches(grammar, {"1;", "12;", "2;", ";"}, {"122;", "1", "21;"});
}

TEST(Grammar, SequenceChoiceAndOptionalNest) {
  Builder builder;
  const NodeId ab = builder.choice({builder.literal("a"), builder.literal("ab")});
  const GrammarPtr grammar =
      built(builder, builder.sequence({ab, builder.optional(builder.literal("b")),
                                       builder.sequence({}), builder.literal("c")}));
  expect_matches(grammar, {"ac", "abc", "abbc"}, {"bc", "abbbc", "a", "c"});
}

TEST(Grammar, RepeatCountsItemsWithAndWithoutASeparator) {
  Builder builder;
  const NodeId a = builder.literal("a");
  const NodeId comma = builder.literal(",");
  const NodeId root = builder.choice(
      {builder.sequence({builder.literal("1:"), builder.repeat(a, std::nullopt, 2, 3)}),
       builder.sequence({builder.literal("2:"), builder.repeat(a, comma, 0, 2)}),
       builder.sequence({builder.literal("3:"), builder.repeat(a, comma, 2, kUnbounded)}),
       builder.sequence({builder.literal("4:"), builder.repeat(a, comma, 0, 0)}),
       builder.sequence({builder.literal("5:"), builder.repeat(a, comma, 0, kUnbounded)})});
  const GrammarPtr grammar = built(builder, root);
  expect_matches(
      grammar,
      {"1:aa", "1:aaa", "2:", "2:a", "2:a,a", "3:a,a", "3:a,a,a,a,a", "4:", "5:", "5:a,a,a"},
      {"1:a", "1:aaaa", "2:a,", "2:a,a,a", "3:a", "3:a,a,", "4:a", "5:,a", "5:aa"});
}

TEST(Grammar, AnUnboundedRepeatStaysInFewStates) {
  Builder builder;
  const GrammarPtr grammar =
      built(builder, builder.repeat(builder.literal("a"), builder.literal(","), 3, kUnbounded));
  Matcher matcher(grammar, 16'384);
  ASSERT_TRUE(matcher.accept("a,a"));
  EXPECT_FALSE(matcher.may_end());
  for (int i = 0; i < 100'000; ++i) ASSERT_TRUE(matcher.accept(",a"));
  EXPECT_TRUE(matcher.may_end());
}

TEST(Grammar, RecursionEndsWithTheLevelsThatAreLeft) {
  Builder builder;
  const NodeId list = builder.forward();
  builder.define(list, builder.nest(builder.sequence(
                           {builder.literal("("), builder.optional(list), builder.literal(")")})));
  const GrammarPtr grammar = built(builder, list);
  const std::string most = std::string(kNestMax, '(') + std::string(kNestMax, ')');
  expect_matches(
      grammar, {"()", "((()))", most},
      {"(", ")(", "(()", std::string(kNestMax + 1, '(') + std::string(kNestMax + 1, ')')});
  Matcher matcher(grammar);
  ASSERT_TRUE(matcher.accept(std::string(kNestMax, '(')));
  EXPECT_FALSE(matcher.accept("("));
  EXPECT_TRUE(matcher.accept(std::string(kNestMax, ')')));
  EXPECT_TRUE(matcher.must_end());
}

TEST(Grammar, APartThatNeedsMoreLevelsThanAreLeftIsNotBegun) {
  Builder builder;
  const NodeId tree = builder.forward();
  const NodeId pair = builder.nest(builder.sequence(
      {builder.literal("("), builder.repeat(tree, std::nullopt, 1, 2), builder.literal(")")}));
  builder.define(tree, builder.choice({pair, builder.literal("x")}));
  const GrammarPtr grammar = built(builder, tree);
  Matcher matcher(grammar);
  ASSERT_TRUE(matcher.accept(std::string(kNestMax, '(')));
  EXPECT_FALSE(matcher.accept("("));
  EXPECT_TRUE(matcher.accept("xx"));
}

TEST(Grammar, FreeTextEndsAtTheFirstTrigger) {
  Builder builder;
  const NodeId call = builder.sequence({builder.literal("{}"), builder.literal("</call>")});
  const NodeId other = builder.literal("!");
  const GrammarPtr grammar = built(
      builder, builder.text_until({{"<call>", call}, {"<c", other}, {"l>>", builder.literal("")}},
                                  /*may_end=*/false));
  // "<c" is complete before "<call>" can be.
  expect_matches(grammar, {"some <c!", "<<c!", "l>l>>"}, {"", "text", "<call>{}</call>", "l>>x"});
}

TEST(Grammar, FreeTextFindsATriggerThatBeginsInsideTheBeginningOfAnother) {
  Builder builder;
  const GrammarPtr grammar = built(builder, builder.text_until({{"abac", builder.literal("1")},
                                                                {"bab", builder.literal("2")},
                                                                {"c", builder.literal("3")}},
                                                               false));
  expect_matches(grammar, {"abac1", "abab2", "aabac1", "xxc3", "abc3", "abaabac1"},
                 {"abac3", "abab1", "abab", "ab", "abaca1"});
}

TEST(Grammar, FreeTextMayEndTheWholeOutputInstead) {
  Builder builder;
  const NodeId call = builder.literal("{}</call>");
  const NodeId text = builder.text_until({{"<call>", call}}, /*may_end=*/true);
  const GrammarPtr grammar = built(builder, builder.repeat(text, std::nullopt, 0, kUnbounded));
  expect_matches(grammar,
                 {"", "hello \xFD\x80", "<call", "a<call>{}</call>",
                  "<call>{}</call><call>{}</call>", "x<call>{}</call> and then"},
                 {"<call>", "<call>{", "<call>{}</call", "a<call>b", "<ca<call>b"});
}

TEST(Grammar, AControlTokenIsNoTextAndATriggerCanBeOne) {
  Builder builder;
  const NodeId text =
      builder.text_until({{control_spelling(TokenId(12)), builder.literal("[]")}}, true);
  const GrammarPtr grammar = built(builder, text);
  expect_matches(grammar, {"12", "a" + control_spelling(TokenId(12)) + "[]"},
                 {control_spelling(TokenId(13)), control_spelling(TokenId(1)), "a\xFF",
                  control_spelling(TokenId(12)),
                  "\xFF"
                  "1",
                  "\xFE"});
  const GrammarPtr alone = built(builder, builder.control(TokenId(7)));
  expect_matches(alone, {control_spelling(TokenId(7))}, {"7", control_spelling(TokenId(70))});
}

TEST(Grammar, ARefusedTextLeavesTheMatcherWhereItWas) {
  Builder builder;
  Matcher matcher(built(builder, builder.literal("abc")));
  ASSERT_TRUE(matcher.accept("a"));
  EXPECT_FALSE(matcher.accept("bx"));
  EXPECT_FALSE(matcher.must_end());
  EXPECT_TRUE(matcher.accept("bc"));
  EXPECT_TRUE(matcher.must_end());
  EXPECT_FALSE(matcher.accept("c"));
  EXPECT_TRUE(matcher.accept(""));
}

TEST(Grammar, CopiesOfAMatcherGoTheirOwnWays) {
  Builder builder;
  Matcher one(built(builder, builder.words({"ab", "ac"})));
  ASSERT_TRUE(one.accept("a"));
  Matcher two = one;
  EXPECT_TRUE(one.accept("b"));
  EXPECT_TRUE(two.accept("c"));
  one = two;
  EXPECT_TRUE(one.must_end());
}

TEST(Grammar, ManyEqualBeginningsAreCutToSomeAndTheOutputStillEnds) {
  Builder builder;
  const NodeId list = builder.forward();
  // Two ways for every level: 2^level readings of "(((".
  const NodeId one = builder.sequence({builder.literal("("), list, builder.literal(")")});
  const NodeId two = builder.sequence({builder.literal("("), list, builder.literal("]")});
  builder.define(list, builder.nest(builder.choice({one, two, builder.literal("x")})));
  Matcher matcher(built(builder, list));
  ASSERT_TRUE(matcher.accept(std::string(20, '(') + "x"));
  int closed = 0;
  while (!matcher.must_end()) {
    ASSERT_TRUE(matcher.accept(")") || matcher.accept("]"));
    ASSERT_LE(++closed, 20);
  }
  EXPECT_EQ(closed, 20);
}

TEST(Grammar, BuildRefusesWhatCannotWork) {
  Builder builder;
  EXPECT_NE(refusal(builder, builder.forward()).find("never defined"), std::string::npos);

  NodeId loop = builder.forward();
  builder.define(loop, builder.choice({loop, builder.literal("a")}));
  EXPECT_NE(refusal(builder, loop).find("nothing between"), std::string::npos);

  loop = builder.forward();
  builder.define(loop, builder.sequence({builder.optional(builder.literal("a")), loop}));
  EXPECT_NE(refusal(builder, loop).find("nothing between"), std::string::npos);

  const NodeId inner = builder.forward();
  builder.define(inner, builder.optional(inner));
  EXPECT_NE(
      refusal(builder, builder.sequence({builder.literal("a"), inner})).find("nothing between"),
      std::string::npos);

  EXPECT_NE(refusal(builder, builder.repeat(builder.literal(""), std::nullopt, 0, 5)).find("empty"),
            std::string::npos);
  EXPECT_NE(refusal(builder, builder.text_until({}, false)).find("levels of nesting"),
            std::string::npos);

  const NodeId endless = builder.forward();
  builder.define(endless, builder.nest(builder.sequence({builder.literal("("), endless})));
  EXPECT_NE(refusal(builder, endless).find("levels of nesting"), std::string::npos);

  // And can be used again afterwards.
  expect_matches(built(builder, builder.literal("a")), {"a"}, {"b"});
}

TEST(Grammar, JsonValuesAreReadWithOneFormOfWhiteSpace) {
  Builder builder;
  const GrammarPtr grammar = built(builder, builder.json_value());
  expect_matches(grammar,
                 {"null", "true", "false", "0", "-0", "-12.50e-07", "123456789012345", "1E9",
                  "\"\"", "[]", "{}", "[1,2, 3]", R"({"a":1, "b": [true,{"":null}],"a":"twice"})"},
                 {"",           "nul",         "nulls",
                  "01",         "+1",          ".5",
                  "1.",         "1e",          "1234567890123456",
                  "1e100",      "-",           "[1,]",
                  "[1,  2]",    "[ 1]",        "[1 ]",
                  "{\"a\" :1}", "{\"a\":\n1}", "{,}",
                  "{\"a\"}",    "{1:2}",       " 1",
                  "1 ",         "[}",          "NaN",
                  "'a'"});
  EXPECT_TRUE(matches(grammar, std::string(kNestMax, '[') + std::string(kNestMax, ']')));
  EXPECT_FALSE(matches(grammar, std::string(kNestMax + 1, '[') + std::string(kNestMax + 1, ']')));
}

TEST(Grammar, JsonStringsAreValidUtf8WithValidEscapes) {
  Builder builder;
  const GrammarPtr grammar = built(builder, builder.json_string());
  const auto quoted = [](const std::vector<std::string>& insides) {
    std::vector<std::string> texts;
    for (const std::string& inside : insides) texts.push_back("\"" + inside + "\"");
    return texts;
  };
  expect_matches(
      grammar,
      quoted({"", "a", " ", "\x7F", R"(\"\\\/\b\f\n\r\t)",
              R"(\u0000\u00e9\uFFFF\ud7ff\ue000\uD0aA)", R"(\ud83d\ude00)", R"(\uDBFF\uDFFF)",
              "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
              "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF", "\xF0\x9F\x98\x80z"}),
      quoted({"\"",
              "\\",
              "\\x",
              R"(\u12)",
              R"(\u12g4)",
              R"(\ud83d)",
              R"(\ude00)",
              R"(\ud83d\n)",
              R"(\ud83d\u0041)",
              R"(\ud83dx)",
              "\n",
              "\x1F",
              std::string(1, '\0'),
              "\x80",
              "\xC1\x80",
              "\xC3",
              "\xC3z",
              "\xE0\x9F\x80",
              "\xED\xA0\x80",
              "\xF0\x8F\x80\x80",
              "\xF4\x90\x80\x80",
              "\xF5\x80\x80\x80",
              "\xE2\x82",
              "\xFF",
              "\xFE"}));
}

TEST(Grammar, AnyJsonObjectIsAnObject) {
  expect_matches(any_json_object(), {"{}", R"({"a":[{}]})"}, {"[]", "1", "{", "{}{}"});
}

}  // namespace
}  // namespace pagewise::grammar
