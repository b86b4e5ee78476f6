// SPDX-License-Identifier: Apache-2.0
#include "text/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "base/json.h"
#include "base/prng.h"
#include "text/test_vocabulary.h"

namespace pagewise::text {
namespace {

std::unique_ptr<PreTokenizer> create(std::string_view name) {
  auto created = PreTokenizer::create(name);
  EXPECT_TRUE(created) << created.error().message;
  return std::move(created).value();
}

std::vector<std::string> split(const PreTokenizer& pre, std::string_view text) {
  std::vector<uint32_t> ends;
  pre.split(text, ends);
  std::vector<std::string> pieces;
  uint32_t begin = 0;
  for (const uint32_t end : ends) {
    pieces.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return pieces;
}

using Pieces = std::vector<std::string>;

/// A name of each set of expressions; the others are second names.
constexpr const char* kExpressions[] = {"gpt-2",        "smollm",      "llama-bpe",     "qwen2",
                                        "default",      "falcon",      "tekken",        "gpt-4o",
                                        "deepseek-llm", "deepseek-v3", "deepseek-coder"};

TEST(PreTokenizer, CutsAsThePublishedExpressionsDoInAnotherEngine) {
  std::ifstream in(std::string(PAGEWISE_SOURCE_DIR) + "/tests/data/pieces.json");
  const auto expected = parse_json(std::string(std::istreambuf_iterator<char>(in), {}));
  ASSERT_TRUE(expected) << expected.error().message;
  ASSERT_EQ(expected->as_array().size(), std::size(kExpressions));
  for (const json::value& definition : expected->as_array()) {
    const auto pre = create(std::string_view(definition.at("name").as_string()));
    ASSERT_GE(definition.at("cases").as_array().size(), 200u);
    for (const json::value& c : definition.at("cases").as_array()) {
      Pieces pieces;
      std::string text;
      for (const json::value& piece : c.as_array()) {
        pieces.emplace_back(piece.as_string());
        text += pieces.back();
      }
      EXPECT_EQ(split(*pre, text), pieces) << definition.at("name") << ": " << text;
    }
  }
}

TEST(PreTokenizer, GroupsDigitsAsEachDefinitionSays) {
  EXPECT_EQ(split(*create("gpt-2"), "in 12345"), (Pieces{"in", " 12345"}));
  EXPECT_EQ(split(*create("smollm"), "in 123"), (Pieces{"in", " ", "1", "2", "3"}));
  EXPECT_EQ(split(*create("llama-bpe"), "in 12345"), (Pieces{"in", " ", "123", "45"}));
  EXPECT_EQ(split(*create("qwen2"), "in 123"), (Pieces{"in", " ", "1", "2", "3"}));
  EXPECT_EQ(split(*create("default"), "in 12345"), (Pieces{"in", " ", "123", "45"}));
}

TEST(PreTokenizer, CutsWordsByTheirCaseWhereTheDefinitionSaysSo) {
  EXPECT_EQ(split(*create("tekken"), "HTTPServer isn't 12"),
            (Pieces{"HTTPServer", " isn", "'t", " ", "1", "2"}));
  EXPECT_EQ(split(*create("gpt-4o"), "camelCase isn't/\n 1234"),
            (Pieces{"camel", "Case", " isn't", "/\n", " ", "123", "4"}));
  EXPECT_EQ(split(*create("falcon"), "a `b` 12345"),
            (Pieces{"a", " ", "`", "b", "`", " ", "123", "45"}));
}

TEST(PreTokenizer, CutsAsTheGenerationsOfDeepSeekDo) {
  EXPECT_EQ(split(*create("deepseek-llm"), "Hi\n x1  "), (Pieces{"Hi", "\n", " x", "1", "  "}));
  // Signs take in ASCII's letters: a word with others is cut a second time.
  EXPECT_EQ(split(*create("deepseek-llm"), "na\xC3\xAFve"), (Pieces{"na", "\xC3\xAF", "ve"}));
  EXPECT_EQ(split(*create("deepseek-v3"), "a.len(12345)!?\n"),
            (Pieces{"a", ".len", "(", "123", "45", ")!?\n"}));
  EXPECT_EQ(split(*create("deepseek-coder"), "x, y 10"), (Pieces{"x", ",", " y", " ", "1", "0"}));
}

TEST(PreTokenizer, KnowsWhoseNamesMeanABosWholeWordsOrComposedCharacters) {
  for (const char* name : {"llama-bpe", "llama3", "llama-v3", "falcon3", "tekken"}) {
    EXPECT_TRUE(create(name)->ignore_merges() && create(name)->add_bos_by_default()) << name;
  }
  EXPECT_TRUE(create("smaug-bpe")->ignore_merges());
  for (const char* name : {"dbrx", "smaug-bpe", "qwen2", "refact", "gpt-4o"}) {
    EXPECT_FALSE(create(name)->add_bos_by_default()) << name;
  }
  for (const char* name : {"qwen2", "deepseek-r1-qwen", "olmo", "command-r"}) {
    EXPECT_TRUE(create(name)->composes()) << name;
  }
  for (const char* name : {"llama-bpe", "gpt-2", "smollm", "dbrx", "refact", "tekken"}) {
    EXPECT_FALSE(create(name)->composes()) << name;
  }
}

TEST(PreTokenizer, GivesEveryIllFormedByteAPieceOfItsOwn) {
  for (const char* name : kExpressions) {
    EXPECT_EQ(split(*create(name), "ab\xFF\xFE cd\xE4\xB8"),
              (Pieces{"ab", "\xFF", "\xFE", " cd", "\xE4", "\xB8"}))
        << name;
    EXPECT_EQ(split(*create(name), "\xED\xA0\x80"), (Pieces{"\xED", "\xA0", "\x80"})) << name;
  }
}

TEST(PreTokenizer, CoversAnyBytesWithPiecesInOrder) {
  const uint64_t seed = testing::test_seed();
  SCOPED_TRACE(::testing::Message() << "PAGEWISE_SEED=" << seed);
  Prng prng(seed);
  for (const char* name : kExpressions) {
    const auto pre = create(name);
    for (int round = 0; round < 300; ++round) {
      std::string text;
      for (uint64_t n = prng.below(60); n > 0; --n) {
        const uint64_t kind = prng.below(3);
        text.push_back(static_cast<char>(kind == 0 ? prng.below(256) : 0x20 + prng.below(0x60)));
      }
      std::vector<uint32_t> ends;
      pre->split(text, ends);
      uint32_t at = 0;
      for (const uint32_t end : ends) {
        ASSERT_LT(at, end) << name << " round " << round;
        at = end;
      }
      ASSERT_EQ(at, text.size()) << name << " round " << round;
    }
  }
}

// Each of these would take hours with an expression that backtracks over a run more than once.
TEST(PreTokenizer, TakesLinearTimeOnRunsOfOneKind) {
  constexpr std::size_t kBytes = 1 << 20;
  for (const char* name : kExpressions) {
    const auto pre = create(name);
    for (const std::string unit :
         {"a", " ", "\n", " \t", "1", "!", "\xC3\xA9", "\xFF", "a ", " \n", "'"}) {
      std::string text;
      while (text.size() < kBytes) text += unit;
      text += "x";
      std::vector<uint32_t> ends;
      pre->split(text, ends);
      EXPECT_EQ(ends.back(), text.size()) << name;
    }
  }
}

TEST(PreTokenizer, RefusesAnUnknownNameWithTheListOfThoseOffered) {
  const auto created = PreTokenizer::create("viking");
  ASSERT_FALSE(created);
  EXPECT_EQ(created.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(created.error().message,
            "tokenizer.ggml.pre: pre-tokenizer 'viking' is not supported; supported are smollm, "
            "gpt-2, llama-bpe, qwen2, default, falcon, tekken, gpt-4o, dbrx, smaug-bpe, llama3, "
            "llama-v3, falcon3, deepseek-r1-qwen, olmo, command-r, refact, starcoder, "
            "deepseek-llm, deepseek-v3, deepseek-coder");
}

}  // namespace
}  // namespace pagewise::text
