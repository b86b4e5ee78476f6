// SPDX-License-Identifier: Apache-2.0
#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include "base/prng.h"
#include "text/test_vocabulary.h"
#include "text/utf8.h"

namespace pagewise::text {
namespace {

constexpr int kRounds = 4000;

/// Cuts `bytes` at random places, also into empty pieces.
std::vector<std::string> split(std::string_view bytes, Prng& prng) {
  std::vector<std::string> pieces;
  const uint64_t longest = 1 + prng.below(6);
  while (!bytes.empty()) {
    const std::size_t length = std::min<std::size_t>(prng.below(longest + 1), bytes.size());
    pieces.emplace_back(bytes.substr(0, length));
    bytes.remove_prefix(length);
  }
  return pieces;
}

std::string assemble(const std::vector<std::string>& pieces) {
  Utf8Assembler assembler;
  std::string text;
  for (const std::string& piece : pieces) {
    std::string delta;
    assembler.push(piece, delta);
    EXPECT_EQ(utf8_valid_prefix(delta), delta.size()) << "a delta that is no UTF-8 by itself";
    text += delta;
  }
  assembler.finish();
  EXPECT_TRUE(assembler.empty());
  return text;
}

TEST(Utf8Assembler, HoldsBackHalfACharacterUntilItIsWhole_C12) {
  Utf8Assembler assembler;
  std::string out;
  assembler.push("a\xF0\x9F", out);
  EXPECT_EQ(out, "a");
  EXPECT_FALSE(assembler.empty());
  assembler.push("\x98", out);
  EXPECT_EQ(out, "a");
  assembler.push("\x80z", out);
  EXPECT_EQ(out, "a\xF0\x9F\x98\x80z");
  EXPECT_TRUE(assembler.empty());
}

TEST(Utf8Assembler, DropsAnIncompleteTail_C12) {
  EXPECT_EQ(assemble({"x\xF0\x9F\x98"}), "x");
  EXPECT_EQ(assemble({"x\xF0", "\x9F", "\x98"}), "x");
  EXPECT_EQ(assemble({"whole"}), "whole");
}

TEST(Utf8Assembler, ReplacesEachMaximalIllFormedSubpartOnce) {
  // The example of Unicode 15, table 3-8, and what stands in tables 3-9 to 3-11.
  EXPECT_EQ(assemble({"\xF0\x80\x80\x41"}), "\uFFFD\uFFFD\uFFFD\x41");
  EXPECT_EQ(assemble({"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"}),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\x41");
  EXPECT_EQ(assemble({"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"}),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\x41");
  EXPECT_EQ(assemble({"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"}),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\x41\uFFFD\uFFFD\x42");
  EXPECT_EQ(assemble({"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"}), "\uFFFD\uFFFD\uFFFD\uFFFD\x41");
}

TEST(Utf8Assembler, KeepsAReplacementCharacterThatTheModelWroteItself) {
  EXPECT_EQ(assemble({"a\xEF", "\xBF\xBD", "b"}), "a\uFFFDb");
}

TEST(Utf8Assembler, GivesTheSameTextForEverySplitOfTheBytes_C12) {
  const uint64_t seed = testing::test_seed();
  SCOPED_TRACE(::testing::Message() << "PAGEWISE_SEED=" << seed);
  Prng prng(seed);
  // Bytes that start, continue and break characters, in about equal shares, and whole characters.
  constexpr std::string_view kUnits[] = {"a",
                                         "\n",
                                         "\xC3\xA9",
                                         "\xE4\xB8\xAD",
                                         "\xF0\x9F\x99\x82",
                                         "\xE2\x80\x8D",
                                         "\xF0",
                                         "\x9F",
                                         "\xE4",
                                         "\x80",
                                         "\xBF",
                                         "\xC0",
                                         "\xED",
                                         "\xA0",
                                         "\xFF",
                                         "\xF4",
                                         "\x90",
                                         std::string_view("\0", 1)};
  for (int round = 0; round < kRounds; ++round) {
    std::string bytes;
    for (uint64_t n = prng.below(24); n > 0; --n) bytes += kUnits[prng.below(std::size(kUnits))];
    const std::string whole = assemble({bytes});
    ASSERT_EQ(utf8_valid_prefix(whole), whole.size());
    if (utf8_valid_prefix(bytes) == bytes.size()) {
      ASSERT_EQ(whole, bytes);
    }
    ASSERT_EQ(assemble(split(bytes, prng)), whole) << "round " << round;
    std::vector<std::string> single;
    for (const char byte : bytes) single.emplace_back(1, byte);
    ASSERT_EQ(assemble(single), whole) << "round " << round;
  }
}

struct Found {
  std::string text;
  std::optional<std::size_t> stop;
  bool operator==(const Found&) const = default;
};

void PrintTo(const Found& found, std::ostream* out) {
  *out << '"' << found.text << "\" stop " << (found.stop ? static_cast<int>(*found.stop) : -1);
}

Found match(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopMatcher matcher(stops);
  Found found;
  for (const std::string& piece : pieces) {
    found.stop = matcher.push(piece, found.text);
    if (found.stop) return found;
  }
  matcher.finish(found.text);
  return found;
}

/// The plain definition, on the whole text: the occurrence that ends first, of those the longest,
/// of equal strings the first.
Found find_earliest(const std::vector<std::string>& stops, const std::string& text) {
  Found best{text, std::nullopt};
  std::size_t best_end = std::string::npos;
  for (std::size_t s = 0; s < stops.size(); ++s) {
    const std::size_t begin = text.find(stops[s]);
    if (begin == std::string::npos) continue;
    const std::size_t end = begin + stops[s].size();
    if (end < best_end || (end == best_end && begin < best.text.size())) {
      best_end = end;
      best = {text.substr(0, begin), s};
    }
  }
  return best;
}

TEST(StopMatcher, SendsNothingOfAStopThatComesInPieces_C13a) {
  EXPECT_EQ(match({" 8, 9"}, {" 6,", " 7,", " 8", ",", " 9", "never"}), (Found{" 6, 7,", 0}));
}

TEST(StopMatcher, LosesNothingWhenAStopNeverCompletes_C13b) {
  EXPECT_EQ(match({" 8, 7"}, {" 6, 7,", " 8", ",", " 9,", " 8"}),
            (Found{" 6, 7, 8, 9, 8", std::nullopt}));
}

TEST(StopMatcher, LetsTheShorterOfTwoWithOneStartWin_C13c) {
  EXPECT_EQ(match({"END OF", "END"}, {"the E", "ND OF it"}), (Found{"the ", 1}));
  EXPECT_EQ(match({"END", "END OF"}, {"the END OF it"}), (Found{"the ", 0}));
}

TEST(StopMatcher, MatchesAcrossTheBytesOfACharacter_C13d) {
  EXPECT_EQ(match({"é中"}, {"x\xC3", "\xA9\xE4", "\xB8", "\xAD", "y"}), (Found{"x", 0}));
}

TEST(StopMatcher, HoldsBackOnlyWhatCanStillBecomeAStop_C13c) {
  StopMatcher matcher({"abc", "bx"});
  std::string out;
  EXPECT_FALSE(matcher.push("zab", out));
  EXPECT_EQ(out, "z");
  EXPECT_FALSE(matcher.push("d", out));
  EXPECT_EQ(out, "zabd");
  EXPECT_FALSE(matcher.push("b", out));
  EXPECT_EQ(out, "zabd");
  EXPECT_FALSE(matcher.push("b", out));
  EXPECT_EQ(out, "zabdb");
  matcher.finish(out);
  EXPECT_EQ(out, "zabdbb");
}

TEST(StopMatcher, StopsAtTheStringThatIsCompleteFirst) {
  EXPECT_EQ(match({"abcdef", "cd"}, {"xabcdef"}), (Found{"xab", 1}));
  EXPECT_EQ(match({"cd", "abcd"}, {"xabc", "d"}), (Found{"x", 1}));  // both end here: the longer
}

TEST(StopMatcher, FindsAStopThatOverlapsItsOwnFailedStart) {
  EXPECT_EQ(match({"aab"}, {"aa", "a", "ab"}), (Found{"aa", 0}));
  EXPECT_EQ(match({"\n\n\nX"}, {"\n\n", "\n\n", "X"}), (Found{"\n", 0}));
}

TEST(StopMatcher, PassesEverythingAtOnceWithoutStops) {
  EXPECT_EQ(match({}, {"a", "b"}), (Found{"ab", std::nullopt}));
}

TEST(StopMatcher, EqualsASearchOfTheWholeTextForEverySplit_C13) {
  const uint64_t seed = testing::test_seed();
  SCOPED_TRACE(::testing::Message() << "PAGEWISE_SEED=" << seed);
  Prng prng(seed);
  // Few different units, so that stops overlap themselves and each other.
  constexpr std::string_view kUnits[] = {"a", "b", "é", "中", "\n"};
  const auto random_text = [&](uint64_t units, uint64_t kinds) {
    std::string text;
    for (; units > 0; --units) text += kUnits[prng.below(kinds)];
    return text;
  };
  int matched = 0;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t kinds = 1 + prng.below(std::size(kUnits));
    std::vector<std::string> stops;
    for (uint64_t n = 1 + prng.below(4); n > 0; --n) {
      stops.push_back(random_text(1 + prng.below(5), kinds));
    }
    const std::string text = random_text(prng.below(30), kinds);
    const Found expected = find_earliest(stops, text);
    matched += expected.stop.has_value() ? 1 : 0;
    ASSERT_EQ(match(stops, {text}), expected) << "round " << round << " text " << text;
    ASSERT_EQ(match(stops, split(text, prng)), expected) << "round " << round << " text " << text;
  }
  EXPECT_GT(matched, kRounds / 10);
  EXPECT_LT(matched, kRounds);
}

}  // namespace
}  // namespace pagewise::text
