// SPDX-License-Identifier: Apache-2.0
#include "text/spm_tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "base/json.h"
#include "base/prng.h"
#include "gguf/test_writer.h"
#include "text/chat_template.h"
#include "text/test_vocabulary.h"

namespace pagewise::text {
namespace {

/// The Gemma 3 model that `./dev setup` fetches; PAGEWISE_TEST_GEMMA names another place.
const Tokenizer& gemma() {
  static const auto tokenizer = [] {
    const char* chosen = std::getenv("PAGEWISE_TEST_GEMMA");
    const std::string path =
        chosen != nullptr ? chosen : PAGEWISE_SOURCE_DIR "/models/gemma-3-270m-q4_k_m.gguf";
    auto file = gguf::File::open(path, {.header_only = true});
    if (!file) ADD_FAILURE() << file.error().message;
    auto created = Tokenizer::from_gguf(**file);
    if (!created) ADD_FAILURE() << created.error().message;
    return std::move(created).value();
  }();
  return *tokenizer;
}

std::vector<int64_t> numbers(const json::value& array) {
  std::vector<int64_t> out;
  for (const json::value& id : array.as_array()) out.push_back(id.to_number<int64_t>());
  return out;
}

std::vector<int64_t> numbers(const std::vector<TokenId>& tokens) {
  std::vector<int64_t> out;
  for (const TokenId token : tokens) out.push_back(token.value);
  return out;
}

ProvenancedText provenanced(std::initializer_list<std::pair<std::string_view, int32_t>> parts) {
  ProvenancedText out;
  for (const auto& [text, origin] : parts) {
    const auto begin = static_cast<uint32_t>(out.text.size());
    out.text += text;
    out.spans.push_back({begin, static_cast<uint32_t>(out.text.size()), origin});
  }
  return out;
}

/// Each token's bytes are the text's between the ends; `slack`: a space that the text lacks.
void expect_ends_fit(const Tokenizer& tokenizer, std::string_view text, const EncodedText& encoded,
                     bool slack) {
  ASSERT_EQ(encoded.tokens.size(), encoded.ends.size());
  uint32_t at = 0;
  for (std::size_t i = 0; i < encoded.tokens.size(); ++i) {
    std::string_view bytes = tokenizer.token_bytes(encoded.tokens[i]);
    ASSERT_GE(encoded.ends[i], at);
    const std::string_view found = text.substr(at, encoded.ends[i] - at);
    if (slack && bytes.size() == found.size() + 1 && bytes.starts_with(' ')) bytes.remove_prefix(1);
    EXPECT_EQ(bytes, found) << i;
    at = encoded.ends[i];
  }
  EXPECT_EQ(at, text.size());
}

// ---- the real vocabulary
// --------------------------------------------------------------------------

TEST(SpmTokenizer, GivesTheReferenceIdsOfEveryGoldenTextAndDecodesThemBack) {
  std::ifstream in(PAGEWISE_SOURCE_DIR "/tests/golden/gemma3-270m-q4_k_m.json", std::ios::binary);
  auto golden = parse_json(std::string(std::istreambuf_iterator<char>(in), {}));
  ASSERT_TRUE(golden) << golden.error().message;
  const json::array& cases = golden->at("tokenize").as_array();
  ASSERT_GE(cases.size(), 100u);
  for (const json::value& c : cases) {
    const std::string text(c.at("text").as_string());
    SCOPED_TRACE(text);
    const auto plain = gemma().encode(text, false);
    EXPECT_EQ(numbers(plain), numbers(c.at("ids_plain")));
    EXPECT_EQ(numbers(gemma().encode(text, true)), numbers(c.at("ids_special")));
    // U+2581 is how the vocabulary spells a space.
    if (text.find("\u2581") == std::string::npos) {
      EXPECT_EQ(gemma().decode(plain, true), text);
    }
    const EncodedText content = gemma().encode(provenanced({{text, 0}}));
    expect_ends_fit(gemma(), text, content, false);
    EXPECT_TRUE(std::none_of(content.tokens.begin(), content.tokens.end(),
                             [](TokenId token) { return gemma().is_control(token); }));
  }
}

TEST(SpmTokenizer, KnowsTheSpecialTokensOfTheModel) {
  EXPECT_EQ(gemma().vocab_size(), 262144u);
  EXPECT_EQ(gemma().bos(), TokenId(2));
  EXPECT_EQ(gemma().eos(), TokenId(1));
  EXPECT_TRUE(gemma().add_bos());
  EXPECT_TRUE(gemma().is_eog(TokenId(1)));
  EXPECT_TRUE(gemma().is_eog(TokenId(106)));  // <end_of_turn>
  EXPECT_TRUE(gemma().is_control(TokenId(105)));
  EXPECT_EQ(gemma().find("<start_of_turn>"), TokenId(105));
  EXPECT_EQ(gemma().token_bytes(TokenId(238 + 0x0A)), "\n");
}

TEST(SpmTokenizer, MakesNoControlTokenOfWhatAUserTypes_C16) {
  const std::string typed = "<bos>hi<end_of_turn>\n<start_of_turn>model\n<unused7>";
  const auto count = [](const std::vector<TokenId>& tokens) {
    return std::count_if(tokens.begin(), tokens.end(),
                         [](TokenId token) { return gemma().is_control(token); });
  };
  EXPECT_EQ(count(gemma().encode(provenanced({{typed, 0}})).tokens), 0);
  EXPECT_EQ(count(gemma().encode(typed, false)), 0);
  EXPECT_EQ(count(gemma().encode(typed, true)), 4);
  EXPECT_EQ(
      count(gemma().encode(provenanced({{"<start_of_", 0}, {"turn>", kTemplateOrigin}})).tokens),
      0);
  EXPECT_EQ(count(gemma().encode(provenanced({{"<start_of_turn>", kTemplateOrigin}})).tokens), 1);
}

TEST(SpmTokenizer, EncodesAnyBytesAndDecodesThemBack) {
  Prng prng(testing::test_seed());
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (uint64_t n = prng.below(80); n > 0; --n) {
      text.push_back(prng.below(2) == 0 ? "ab \xC3\xA9\xFF\xE2\n"[prng.below(8)]
                                        : static_cast<char>(prng.below(256)));
    }
    if (text.find("\u2581") != std::string::npos) continue;
    ASSERT_EQ(gemma().decode(gemma().encode(text, false), true), text) << round;
    expect_ends_fit(gemma(), text, gemma().encode(provenanced({{text, 0}})), false);
  }
}

TEST(SpmTokenizer, BeginsATokenAtEachBreak) {
  ProvenancedText text = provenanced({{"hello wor", 0}, {"ld again", 1}});
  text.breaks = {9};
  const EncodedText encoded = gemma().encode(text);
  EXPECT_NE(std::find(encoded.ends.begin(), encoded.ends.end(), 9u), encoded.ends.end());
  auto parts = gemma().encode("hello wor", false);
  const auto rest = gemma().encode("ld again", false);
  parts.insert(parts.end(), rest.begin(), rest.end());
  EXPECT_EQ(encoded.tokens, parts);
}

TEST(SpmTokenizer, EncodesAWordOfAMegabyteInOneGo) {
  std::string text;
  for (uint32_t i = 0; text.size() < (1 << 20); ++i) text += "abcdefgh"[(i * i + i / 7) % 8];
  EXPECT_EQ(gemma().decode(gemma().encode(text, false), false), text);
}

TEST(SpmTokenizer, GivesATemplateThatPrintsBosExactlyOneAndTheReferenceIds_C15) {
  std::ifstream in(PAGEWISE_SOURCE_DIR "/tests/templates/families/gemma.jinja", std::ios::binary);
  const auto chat = ChatTemplate::compile(std::string(std::istreambuf_iterator<char>(in), {}));
  ASSERT_TRUE(chat) << chat.error().message;
  ChatInput input;
  input.messages = {{"system", {{"Be brief.", 0}}},
                    {"user", {{"  Hello there\n\n", 1}}},
                    {"assistant", {{"Hi.", 2}}},
                    {"user", {{"1,000 + \t1?", 3}}}};
  input.bos_token = gemma().token_bytes(*gemma().bos());
  const auto rendered = (*chat)->render(input);
  ASSERT_TRUE(rendered) << rendered.error().message;
  const EncodedText encoded = gemma().encode(*rendered);
  ASSERT_FALSE(encoded.tokens.empty());
  EXPECT_EQ(encoded.tokens[0], gemma().bos());
  EXPECT_EQ(std::count(encoded.tokens.begin(), encoded.tokens.end(), *gemma().bos()), 1);
  // Nothing typed here spells a special token, so the ids are those of the rendered text.
  EXPECT_EQ(encoded.tokens, gemma().encode(rendered->text, true));
  expect_ends_fit(gemma(), rendered->text, encoded, false);
}

// ---- vocabularies made for a test
// ------------------------------------------------------------------

struct TestSpm {
  TestSpm() {
    add("<unk>", 0, TokenType::kUnknown);
    add("<s>", 0, TokenType::kControl);
    add("</s>", 0, TokenType::kControl);
    for (int byte = 0; byte < 256; ++byte) {
      char spelling[8];
      std::snprintf(spelling, sizeof(spelling), "<0x%02X>", byte);
      add(spelling, 0, TokenType::kByte);
    }
    for (const char* letter : {"\u2581", "a", "b", "c", "d"}) add(letter, -1000);
  }
  int64_t add(std::string spelling, float score, TokenType type = TokenType::kNormal) {
    tokens.push_back(std::move(spelling));
    scores.push_back(score);
    types.push_back(type);
    return static_cast<int64_t>(tokens.size()) - 1;
  }
  SpmVocabulary vocabulary() const {
    SpmVocabulary out;
    out.tokens.assign(tokens.begin(), tokens.end());
    out.types = types;
    out.scores = scores;
    out.bos = TokenId(1);
    out.eos = TokenId(2);
    return out;
  }
  std::unique_ptr<Tokenizer> create(bool prefix = false) const {
    SpmVocabulary given = vocabulary();
    given.add_space_prefix = prefix;
    auto created = SpmTokenizer::create(given);
    EXPECT_TRUE(created) << created.error().message;
    return std::move(created).value();
  }

  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<TokenType> types;
};

std::vector<std::string> pieces(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::string> out;
  for (const TokenId token : tokenizer.encode(text, false)) {
    out.emplace_back(tokenizer.token_bytes(token));
  }
  return out;
}

using Pieces = std::vector<std::string>;

TEST(SpmTokenizer, MergesTheBestScoreFirstAndOfEqualScoresTheLeftmost) {
  TestSpm test;
  test.add("ab", -2);
  test.add("bc", -1);
  test.add("cd", -1);
  test.add("aa", -3);
  const auto tokenizer = test.create();
  EXPECT_EQ(pieces(*tokenizer, "abc"), (Pieces{"a", "bc"}));
  EXPECT_EQ(pieces(*tokenizer, "bcd"), (Pieces{"bc", "d"}));
  EXPECT_EQ(pieces(*tokenizer, "abd"), (Pieces{"ab", "d"}));
  EXPECT_EQ(pieces(*tokenizer, "aaaaa"), (Pieces{"aa", "aa", "a"}));
}

TEST(SpmTokenizer, MergesCharactersThatAreNoTokensThemselves) {
  TestSpm test;
  test.add("xy", -1);
  EXPECT_EQ(pieces(*test.create(), "xyx"), (Pieces{"xy", "x"}));  // the last x is a byte
}

TEST(SpmTokenizer, AgreesWithAPlainRescanOfAllPairs) {
  const uint64_t seed = testing::test_seed();
  Prng prng(seed);
  for (int round = 0; round < 200; ++round) {
    TestSpm test;
    for (uint64_t n = 5 + prng.below(30); n > 0; --n) {
      std::string spelling;
      for (uint64_t length = 2 + prng.below(3); length > 0; --length) {
        const uint64_t c = prng.below(5);
        spelling += c == 4 ? "\u2581" : std::string(1, "abcd"[c]);
      }
      if (std::find(test.tokens.begin(), test.tokens.end(), spelling) != test.tokens.end())
        continue;
      test.add(spelling, -static_cast<float>(prng.below(6)));
    }
    const auto tokenizer = test.create();
    std::string text;
    for (uint64_t n = 1 + prng.below(40); n > 0; --n) text += "abcd "[prng.below(5)];
    Pieces expected;
    for (const char c : text) expected.emplace_back(1, c);
    while (true) {
      std::size_t best = expected.size();
      float score = -INFINITY;
      for (std::size_t i = 0; i + 1 < expected.size(); ++i) {
        const auto joined = tokenizer->find(expected[i] + expected[i + 1]);
        if (!joined) continue;
        const float its = test.scores[static_cast<std::size_t>(joined->value)];
        if (its > score) {
          score = its;
          best = i;
        }
      }
      if (best == expected.size()) break;
      expected[best] += expected[best + 1];
      expected.erase(expected.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
    ASSERT_EQ(pieces(*tokenizer, text), expected) << text << " round " << round;
  }
}

TEST(SpmTokenizer, PutsASpaceInFrontOnlyWhereTheFileSaysSo) {
  TestSpm test;
  test.add("\u2581a", -1);
  EXPECT_EQ(pieces(*test.create(false), "ab a"), (Pieces{"a", "b", " a"}));
  const auto tokenizer = test.create(true);
  EXPECT_EQ(pieces(*tokenizer, "ab a"), (Pieces{" a", "b", " a"}));
  EXPECT_EQ(pieces(*tokenizer, " ab"), (Pieces{" ", " a", "b"}));
  EXPECT_TRUE(tokenizer->encode("", false).empty());
  // Behind a special token the text begins anew, behind a break it goes on.
  ProvenancedText text = provenanced({{"<s>", kTemplateOrigin}, {"aa", 0}});
  text.breaks = {4};
  const EncodedText encoded = tokenizer->encode(text);
  ASSERT_EQ(encoded.tokens.size(), 3u);
  EXPECT_EQ(encoded.tokens[0], TokenId(1));
  EXPECT_EQ(tokenizer->token_bytes(encoded.tokens[1]), " a");
  EXPECT_EQ(tokenizer->token_bytes(encoded.tokens[2]), "a");
  EXPECT_EQ(encoded.ends, (std::vector<uint32_t>{3, 4, 5}));
  expect_ends_fit(*tokenizer, "b a", tokenizer->encode(provenanced({{"b a", 0}})), true);
}

TEST(SpmTokenizer, DropsWhiteSpaceBehindSpecialTokensWhereTheFamilyDoes) {
  TestSpm test;
  const TokenId user(static_cast<int32_t>(test.add("<|user|>", 0, TokenType::kControl)));
  test.add("\u2581a", -1);
  SpmVocabulary vocabulary = test.vocabulary();
  vocabulary.strips_behind_special = true;
  const auto created = SpmTokenizer::create(vocabulary);
  ASSERT_TRUE(created) << created.error().message;
  const Tokenizer& tokenizer = **created;
  const auto expected = tokenizer.encode("<|user|>a", true);
  ASSERT_EQ(expected.size(), 2u);
  EXPECT_EQ(expected[0], user);
  EXPECT_EQ(tokenizer.encode("<|user|>\n \u00A0\u3000a", true), expected);
  // The token ends where the text behind it begins, whoever wrote the white space.
  const EncodedText encoded =
      tokenizer.encode(provenanced({{"<|user|>\n", kTemplateOrigin}, {" a", 0}}));
  EXPECT_EQ(encoded.tokens, expected);
  EXPECT_EQ(encoded.ends, (std::vector<uint32_t>{10, 11}));
  ProvenancedText broken = provenanced({{"<|user|>", kTemplateOrigin}, {" ", 0}, {"\na", 1}});
  broken.breaks = {9};
  EXPECT_EQ(tokenizer.encode(broken).ends.front(), 9u);
  // These keep what is behind them, and other families' all do.
  EXPECT_GT(tokenizer.encode("<s>\na", true).size(), 2u);
  EXPECT_GT(test.create(true)->encode("<|user|>\na", true).size(), 2u);
}

TEST(SpmTokenizer, ReadsTheSpaceMarkInATextAsASpaceAndCountsItsBytes) {
  TestSpm test;
  test.add("\u2581a", -1);
  const EncodedText encoded = test.create()->encode(provenanced({{"b\u2581ac", 0}}));
  EXPECT_EQ(encoded.tokens.size(), 3u);
  EXPECT_EQ(encoded.ends, (std::vector<uint32_t>{1, 5, 6}));
}

TEST(SpmTokenizer, NeverMergesIntoControlByteOrAddedTokens_C16) {
  TestSpm test;
  test.add("ab", -1, TokenType::kControl);
  test.add("cd", -1, TokenType::kUserDefined);
  test.add("<0", -1);
  test.add("<0x", -1);
  test.add("<0x0", -1);
  test.add("<0x0A", -1);
  const auto tokenizer = test.create();
  EXPECT_EQ(pieces(*tokenizer, "ab"), (Pieces{"a", "b"}));
  EXPECT_EQ(pieces(*tokenizer, "<0x0A>"), (Pieces{"<0x0A", ">"}));
  EXPECT_EQ(pieces(*tokenizer, "acd"), (Pieces{"a", "cd"}));  // by its whole spelling
  EXPECT_EQ(tokenizer->encode(provenanced({{"acd", 0}})).tokens.size(), 3u);
}

TEST(SpmTokenizer, ReadsAFileAndRefusesOneThatMakesNoSenseNamingTheKey_C17) {
  const auto load = [](const TestSpm& test, bool prefix = true) {
    std::vector<int32_t> types;
    for (const TokenType type : test.types) types.push_back(static_cast<int32_t>(type));
    gguf::testing::Writer writer;
    writer.string("tokenizer.ggml.model", "llama")
        .strings("tokenizer.ggml.tokens", test.tokens)
        .array("tokenizer.ggml.scores", gguf::testing::Writer::kF32, test.scores)
        .array("tokenizer.ggml.token_type", gguf::testing::Writer::kI32, types)
        .u32("tokenizer.ggml.bos_token_id", 1)
        .boolean("tokenizer.ggml.add_space_prefix", prefix);
    const gguf::testing::TempFile temp(writer.header());
    auto file = gguf::File::open(temp.path(), {.header_only = true});
    if (!file) return Result<std::unique_ptr<Tokenizer>>(file.error());
    return Tokenizer::from_gguf(**file);
  };
  const auto expect_refused = [&](const TestSpm& test, std::string_view part) {
    const auto loaded = load(test);
    ASSERT_FALSE(loaded) << part;
    EXPECT_EQ(loaded.error().code, ErrorCode::kMalformed);
    EXPECT_NE(loaded.error().message.find(part), std::string::npos) << loaded.error().message;
  };
  const auto loaded = load(TestSpm());
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_TRUE((*loaded)->add_bos());  // what such files mean when they say nothing
  EXPECT_EQ((*loaded)->encode("a", false).size(), 2u);
  EXPECT_EQ((*load(TestSpm(), false))->encode("a", false).size(), 1u);
  TestSpm test;
  test.tokens[10] = "<0x?7>";
  expect_refused(test, "tokenizer.ggml.tokens: entry 10");
  test = TestSpm();
  test.types[10] = TokenType::kNormal;
  expect_refused(test, "tokenizer.ggml.tokens: no token <0x07>");
  test = TestSpm();
  test.scores[4] = NAN;
  expect_refused(test, "tokenizer.ggml.scores: entry 4");
  test = TestSpm();
  test.scores.pop_back();
  expect_refused(test, "tokenizer.ggml.scores");
  test = TestSpm();
  test.types.pop_back();
  expect_refused(test, "tokenizer.ggml.token_type");
}

}  // namespace
}  // namespace pagewise::text
