// SPDX-License-Identifier: Apache-2.0
// What the grammar's tests share: reading whole texts, a vocabulary that cuts JSON in all the wrong
// places, and the seed.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/prng.h"
#include "grammar/grammar.h"
#include "grammar/matcher.h"
#include "grammar/vocabulary.h"

namespace pagewise::grammar {

using GrammarPtr = std::shared_ptr<const Grammar>;

inline uint64_t test_seed() {
  const char* text = std::getenv("PAGEWISE_TEST_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 20261130;
}

inline GrammarPtr built(Builder& builder, NodeId root) {
  Result<GrammarPtr> grammar = builder.build(root);
  EXPECT_TRUE(grammar.has_value()) << grammar.status().error().message;
  return grammar ? *grammar : nullptr;
}

inline json::value parsed(std::string_view text) {
  Result<json::value> value = parse_json(text);
  EXPECT_TRUE(value.has_value()) << text;
  return value ? *value : json::value();
}

inline GrammarPtr schema_grammar(std::string_view schema) {
  Result<GrammarPtr> grammar = grammar_of_schema(parsed(schema), "schema");
  EXPECT_TRUE(grammar.has_value()) << schema << ": " << grammar.status().error().message;
  return grammar ? *grammar : nullptr;
}

/// Whether `text` is the whole of an output; byte by byte and at once must agree.
inline bool matches(const GrammarPtr& grammar, std::string_view text) {
  Matcher whole(grammar);
  Matcher bytewise(grammar);
  const bool accepted = whole.accept(text);
  bool accepted_bytewise = true;
  for (const char c : text) {
    accepted_bytewise = accepted_bytewise && bytewise.accept(std::string_view(&c, 1));
  }
  EXPECT_EQ(accepted, accepted_bytewise) << text;
  if (accepted) {
    EXPECT_EQ(whole.may_end(), bytewise.may_end()) << text;
  }
  return accepted && whole.may_end();
}

inline void expect_matches(const GrammarPtr& grammar, const std::vector<std::string>& good,
                           const std::vector<std::string>& bad) {
  for (const std::string& text : good) EXPECT_TRUE(matches(grammar, text)) << text;
  for (const std::string& text : bad) EXPECT_FALSE(matches(grammar, text)) << text;
}

/// Every byte; pieces of JSON across its seams, of escapes and of characters; some twice; controls.
inline std::vector<std::string> awkward_tokens() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  const std::vector<std::string> pieces = {
      "{\"",
      "\":",
      "\": ",
      "\": \"",
      "\",\"",
      "\", \"",
      "\"}",
      "\"}]",
      "\"]",
      "}}",
      "}]",
      "]]",
      "[[",
      "[{\"",
      "[\"",
      "],",
      "},{\"",
      "}, {\"",
      ":{\"",
      ": {",
      ":[",
      "null",
      "null,",
      "nul",
      "true",
      "true}",
      "false",
      "alse",
      "12",
      "123",
      "00",
      ".5",
      "1.",
      "e1",
      "E+",
      "-1",
      "0,",
      "0]",
      "9999999",
      "\\n",
      "\\\"",
      "\\\\\"",
      "\\u",
      "\\ud8",
      "\\uD83D",
      "d83d\\u",
      "00e9",
      "\\ude00",
      "\xC3\xA9",
      "\xF0\x9F",
      "\x98\x80",
      "\xE2\x82",
      "\xAC\"",
      "\xAC",
      "\xED\xA0",
      "\xE0\x80",
      "ab",
      "abc",
      "abcdefghijklmnopqrstuvwxyz",
      "aaaaaaaaaaaaaaaaaa\"",
      "name",
      "\"name\":",
      "a\":",
      "b\":1",
      "\"a\"",
      "\"b\":",
      "a\",\"b\":",
      "  ",
      "\n",
      " \"",
      " {",
      "red",
      "green\"",
      "<call>",
      "<ca",
      "ll>{",
      "\xFF",
      "a\xFE",
      "null",
      "\"}",
      "",
  };
  tokens.insert(tokens.end(), pieces.begin(), pieces.end());
  return tokens;
}

/// `controls` further tokens are control tokens.
inline Vocabulary vocabulary_of(const std::vector<std::string>& tokens, std::size_t controls = 0) {
  std::vector<TokenText> texts;
  for (const std::string& token : tokens) texts.push_back({token, false});
  for (std::size_t i = 0; i < controls; ++i) texts.push_back({"<|control|>", true});
  return Vocabulary(texts);
}

inline std::vector<TokenId> allowed_tokens(const Matcher& matcher, const Vocabulary& vocabulary) {
  std::vector<uint64_t> mask(vocabulary.mask_words());
  allowed(matcher, vocabulary, mask);
  std::vector<TokenId> tokens;
  for (uint32_t i = 0; i < vocabulary.size(); ++i) {
    if ((mask[i / 64] >> (i % 64) & 1) != 0) tokens.push_back(TokenId(static_cast<int32_t>(i)));
  }
  return tokens;
}

}  // namespace pagewise::grammar
