// SPDX-License-Identifier: Apache-2.0
#include "server/channels.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/prng.h"
#include "server/splitting_for_tests.h"

namespace pagewise::server {
namespace {

Split split(std::string_view text, const std::vector<std::size_t>& cuts,
            std::string_view head = "assistant") {
  return split_in_pieces(ChannelSplitter(head), text, cuts, engine::FinishReason::kStop);
}

struct Case {
  std::string_view raw, thought, text;
  std::string_view head = "assistant";
};

constexpr Case kCases[] = {
    {"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>So.",
     "Hm.", "So."},
    {"<|channel|>final<|message|> So. ", "", " So. "},
    {"So <|end> it <|is", "", "So <|end> it <|is", kFinalHead},
    {"analysis goes on<|end|><|start|>assistant<|channel|>final<|message|>So.", "analysis goes on",
     "So.", "assistant<|channel|>analysis<|message|>"},
    // Words to the client in front of a call, and the call in the form that the parser knows.
    {"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>I "
     "look.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
     "<|constrain|>json<|message|>{\"a\": 1}",
     "Hm.", "I look.<|channel|>commentary to=functions.f<|message|>{\"a\": 1}"},
    {" to=functions.f<|channel|>commentary json<|message|>{}", "",
     "<|channel|>commentary to=functions.f<|message|>{}"},
    {"<|channel|>analysis to=functions.f<|message|>{}<|call|>", "",
     "<|channel|>commentary to=functions.f<|message|>{}"},
    // Two of a kind are an empty line apart; a mark too few does no harm.
    {"<|channel|>analysis<|message|>One.<|end|><|start|>assistant<|channel|>analysis<|message|>Two."
     "<|channel|>final<|message|>A.<|start|>assistant<|channel|>commentary<|message|>B.",
     "One.\n\nTwo.", "A.\n\nB."},
    {"<|channel|>analysis to=python<|message|>1 + 1<|end|>", "1 + 1", ""},
    {"<|channel|>commentary to=browser.open<|message|>{}", "",
     "<|channel|>commentary to=browser.open<|message|>{}"},
    // Cut in a header, in a thought, in a mark.
    {"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>fin", "Hm.", ""},
    {"<|channel|>analysis<|message|>Hm", "Hm", ""},
    {"<|channel|>analysis<|message|>Hm<|en", "Hm<|en", ""},
    {"<|channel|>analysis<|message|><|end|><|start|>assistant", "", ""},
    {"<|channel|>fi", "", ""},
    // A model that writes no header says words.
    {"Just words.", "", "Just words."},
    {"", "", ""},
    {"<|channel|>analysis<|message|>\xC3\xA9\xE4\xB8\xAD<|end|><|start|>assistant<|channel|>final"
     "<|message|>\xF0\x9F\x99\x82",
     "\xC3\xA9\xE4\xB8\xAD", "\xF0\x9F\x99\x82"},
};

TEST(Channels, AreTheSameHoweverTheTextWasCut) {
  for (const Case& one : kCases) {
    std::vector<std::size_t> every;
    for (std::size_t i = 1; i < one.raw.size(); ++i) every.push_back(i);
    std::vector<std::vector<std::size_t>> ways = {{}, every};
    for (std::size_t a = 0; a <= one.raw.size(); ++a) {
      for (std::size_t b = a; b <= one.raw.size(); b += 3) ways.push_back({a, b});
    }
    for (const std::vector<std::size_t>& cuts : ways) {
      const Split found = split(one.raw, cuts, one.head);
      ASSERT_EQ(found.thought, one.thought) << one.raw;
      ASSERT_EQ(found.text, one.text) << one.raw;
    }
  }
}

TEST(Channels, AreTheSameHoweverRandomTextWasCut) {
  const char* given = std::getenv("PAGEWISE_SEED");
  const uint64_t first = given == nullptr ? 1 : std::strtoull(given, nullptr, 10);
  const uint64_t runs = given == nullptr ? 5'000 : 1;
  const std::string filler(200, 'w');
  const std::string_view pieces[] = {
      "<|start|>", "<|end|>",  "<|message|>", "<|channel|>", "<|constrain|>",
      "<|call|>",  "analysis", "commentary",  "final",       " to=functions.f",
      "assistant", "words ",   "{}",          "\n",          "<|",
      filler};
  for (uint64_t seed = first; seed < first + runs; ++seed) {
    SCOPED_TRACE(testing::Message() << "PAGEWISE_SEED=" << seed);
    Prng prng(seed);
    std::string text;
    for (uint64_t n = prng.below(14); n > 0; --n) {
      std::string_view piece = pieces[prng.below(std::size(pieces))];
      if (prng.below(8) == 0) piece = piece.substr(0, prng.below(piece.size()) + 1);
      text += piece;
    }
    const std::string_view head = prng.below(2) == 0 ? "assistant" : kFinalHead;
    std::vector<std::size_t> cuts;
    for (std::size_t at = 1; at < text.size(); ++at) {
      if (prng.below(4) == 0) cuts.push_back(at);
    }
    const Split whole = split(text, {}, head), cut = split(text, cuts, head);
    ASSERT_EQ(cut.thought, whole.thought) << text;
    ASSERT_EQ(cut.text, whole.text) << text;
  }
}

TEST(Channels, WordsWithoutAHeaderComeOutBeforeTheEnd) {
  ChannelSplitter splitter("assistant");
  const std::string words(600, 'w');
  engine::Delta delta;
  delta.text = words;
  EXPECT_EQ(splitter.take(delta), "");
  EXPECT_EQ(delta.text, words);
}

TEST(Channels, TokensOfThoughtsAreCountedWithTheirHeadersAndEnds) {
  // <|channel|> analysis <|message|> a b <|end|> | <|start|> assistant <|channel|> final
  // <|message|> c, and the end
  const std::vector<std::string_view> tokens = {
      "<|channel|>", "analysis",  "<|message|>", "a",     "b",           "<|end|>",
      "<|start|>",   "assistant", "<|channel|>", "final", "<|message|>", "c"};
  std::string text;
  std::vector<std::size_t> cuts;
  for (const std::string_view token : tokens) {
    text += token;
    cuts.push_back(text.size());
  }
  EXPECT_EQ(split(text, cuts).tokens, 6U);
  EXPECT_EQ(split("<|channel|>final<|message|>c", {11, 16, 27}).tokens, 0U);
  EXPECT_EQ(split("ab", {1}, "assistant<|channel|>analysis<|message|>").tokens, 2U);
}

TEST(Channels, OnlyWordsAndCallsHaveLogProbabilities) {
  ChannelSplitter splitter("assistant");
  const auto kept = [&](std::string_view piece) {
    engine::Delta delta;
    delta.text = piece;
    delta.tokens.resize(1);
    splitter.take(delta);
    return delta.tokens.size() == 1;
  };
  EXPECT_FALSE(kept("<|channel|>"));
  EXPECT_FALSE(kept("analysis"));
  EXPECT_FALSE(kept("<|message|>"));
  EXPECT_FALSE(kept("Hm."));
  EXPECT_FALSE(kept("<|end|><|start|>assistant<|channel|>final<|message|>"));
  EXPECT_TRUE(kept("So."));
}

}  // namespace
}  // namespace pagewise::server
