// SPDX-License-Identifier: Apache-2.0
#include "text/nfc.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/prng.h"
#include "text/test_vocabulary.h"
#include "text/utf8.h"

namespace pagewise::text {
namespace {

std::string composed(std::string_view text) {
  ComposedText out;
  compose(text, out);
  return out.text;
}

TEST(Nfc, JoinsWhatHasOneCharacterAndOrdersTheRest) {
  EXPECT_EQ(composed("e\u0301"), "\u00E9");
  EXPECT_EQ(composed("s\u0307\u0323"), "\u1E69");
  EXPECT_EQ(composed("q\u0307\u0323"), "q\u0323\u0307");  // no such character: ordered by class
  EXPECT_EQ(composed("\u1112\u1161\u11AB"), "\uD55C");    // Hangul
  EXPECT_EQ(composed("\uAC00\u11A8"), "\uAC01");
  EXPECT_EQ(composed("\u212B"), "\u00C5");        // another by itself
  EXPECT_EQ(composed("\u0958"), "\u0915\u093C");  // excluded from composition
  EXPECT_EQ(composed("\u0301x"), "\u0301x");
  EXPECT_EQ(composed(""), "");
}

TEST(Nfc, LeavesBytesThatAreNoTextWhereTheyAre) {
  EXPECT_EQ(composed("\xFF\u0301"), "\xFF\u0301");
  EXPECT_EQ(composed("e\xCC"), "e\xCC");
  EXPECT_EQ(composed("e\xCC\x81\xCC"), "\u00E9\xCC");
  EXPECT_FALSE(may_compose("caf\u00E9 \u02FF"));
  EXPECT_TRUE(may_compose("e\u0301"));
}

TEST(Nfc, KnowsTheWayBack) {
  ComposedText out;
  compose("ae\u0301b\u212Bc", out);
  ASSERT_EQ(out.text, "a\u00E9b\u00C5c");
  SourceOffsets source(out.changes);
  EXPECT_EQ(source.of(0), 0U);
  EXPECT_EQ(source.of(1), 1U);
  EXPECT_EQ(source.of(2), 4U);  // inside: the end of what was joined
  EXPECT_EQ(source.of(3), 4U);
  EXPECT_EQ(source.of(4), 5U);
  EXPECT_EQ(source.of(6), 8U);
  EXPECT_EQ(source.of(7), 9U);
}

/// As in scripts/make_nfc_data.py, which asked Python's own normalisation for the same texts.
struct Texts {
  uint64_t state;

  uint32_t below(uint32_t bound) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return static_cast<uint32_t>((state >> 33) % bound);
  }

  std::string next(const json::array& ranges) {
    std::string out;
    for (uint32_t n = 1 + below(8); n > 0; --n) {
      const json::array& range =
          ranges[below(2) == 0 ? 0 : below(static_cast<uint32_t>(ranges.size()))].as_array();
      const auto first = range[0].to_number<uint32_t>(), last = range[1].to_number<uint32_t>();
      utf8_append(first + below(last - first + 1), out);
    }
    return out;
  }
};

TEST(Nfc, GivesWhatPythonGivesForManyTexts) {
  std::ifstream in(PAGEWISE_SOURCE_DIR "/tests/data/nfc.json", std::ios::binary);
  const auto golden = parse_json(std::string(std::istreambuf_iterator<char>(in), {}));
  ASSERT_TRUE(golden) << golden.error().message;
  const json::array& sums = golden->at("sums").as_array();
  ASSERT_GE(sums.size(), 50U);
  for (std::size_t batch = 0; batch < sums.size(); ++batch) {
    Texts texts{batch};
    uint64_t sum = 0xCBF29CE484222325U;  // FNV-1a
    for (int i = 0; i < 1000; ++i) {
      for (const char c : composed(texts.next(golden->at("ranges").as_array())) + "\n") {
        sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
      }
    }
    EXPECT_EQ(fmt::format("{:016x}", sum), std::string_view(sums[batch].as_string()))
        << "batch " << batch;
  }
}

TEST(Nfc, IsTheSameAgainAndKeepsPlacesInOrderForAnyBytes) {
  const uint64_t seed = testing::test_seed();
  SCOPED_TRACE(::testing::Message() << "PAGEWISE_SEED=" << seed);
  Prng prng(seed);
  const std::vector<std::string> units = {"e",      "\u0301", "\u0323", "\u1100",
                                          "\u1161", "\u11A8", "\u212B", "\u0915",
                                          "\u093C", "\xFF",   "\xCC",   " "};
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (uint64_t n = prng.below(16); n > 0; --n) text += units[prng.below(units.size())];
    ComposedText out;
    compose(text, out);
    ASSERT_EQ(composed(out.text), out.text) << round;
    SourceOffsets source(out.changes);
    uint32_t last = 0;
    for (uint32_t at = 0; at <= out.text.size(); ++at) {
      const uint32_t place = source.of(at);
      ASSERT_LE(last, place) << round;
      last = place;
    }
    ASSERT_EQ(last, text.size()) << round;
  }
}

TEST(Nfc, TakesNoQuadraticTimeOnARunOfMarks) {
  std::string text = "e";
  while (text.size() < (1 << 20)) text += text.size() % 4 == 1 ? "\u0323" : "\u0301";
  EXPECT_FALSE(composed(text).empty());
}

}  // namespace
}  // namespace pagewise::text
