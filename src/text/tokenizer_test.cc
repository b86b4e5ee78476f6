// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/json.h"
#include "base/prng.h"
#include "text/test_vocabulary.h"

namespace pagewise::text {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

const gguf::File& model_file() {
  static const auto file = [] {
    auto opened = gguf::File::open(
        std::string(PAGEWISE_SOURCE_DIR) + "/models/SmolLM2-135M-Instruct.Q4_1.gguf",
        {.header_only = true});
    if (!opened) ADD_FAILURE() << opened.error().message;
    return std::move(opened).value();
  }();
  return *file;
}

const Tokenizer& smollm2() {
  static const auto tokenizer = [] {
    auto created = Tokenizer::from_gguf(model_file());
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

TEST(Tokenizer, GivesTheReferenceIdsOfEveryGoldenTextAndDecodesThemBack) {
  auto golden = parse_json(
      read_file(std::string(PAGEWISE_SOURCE_DIR) + "/tests/golden/smollm2-135m-q4_1.json"));
  ASSERT_TRUE(golden) << golden.error().message;
  const json::array& cases = golden->at("tokenize").as_array();
  ASSERT_GE(cases.size(), 100u);
  for (const json::value& c : cases) {
    const std::string text(c.at("text").as_string());
    const auto plain = smollm2().encode(text, false);
    EXPECT_EQ(numbers(plain), numbers(c.at("ids_plain"))) << text;
    EXPECT_EQ(smollm2().decode(plain, true), text);
    const auto special = smollm2().encode(text, true);
    EXPECT_EQ(numbers(special), numbers(c.at("ids_special"))) << text;
    EXPECT_EQ(smollm2().decode(special, true), text);
  }
}

using testing::spelled;
using testing::TestVocabulary;

std::unique_ptr<Tokenizer> create(const BpeVocabulary& vocabulary) {
  auto created = BpeTokenizer::create(vocabulary);
  EXPECT_TRUE(created) << created.error().message;
  return std::move(created).value();
}

ProvenancedText provenanced(const std::vector<std::pair<std::string, int32_t>>& parts) {
  ProvenancedText out;
  for (const auto& [text, origin] : parts) {
    const auto begin = static_cast<uint32_t>(out.text.size());
    out.text += text;
    out.spans.push_back({begin, static_cast<uint32_t>(out.text.size()), origin});
  }
  return out;
}

std::size_t controls(const Tokenizer& tokenizer, const std::vector<TokenId>& tokens) {
  return static_cast<std::size_t>(std::count_if(
      tokens.begin(), tokens.end(), [&](TokenId token) { return tokenizer.is_control(token); }));
}

/// Ends are ascending, and each token's bytes are what stands there.
void expect_ends_fit(const Tokenizer& tokenizer, std::string_view text,
                     const EncodedText& encoded) {
  ASSERT_EQ(encoded.tokens.size(), encoded.ends.size());
  std::size_t at = 0;
  for (std::size_t i = 0; i < encoded.tokens.size(); ++i) {
    const std::string_view bytes = tokenizer.token_bytes(encoded.tokens[i]);
    ASSERT_EQ(encoded.ends[i], at + bytes.size()) << "token " << i;
    ASSERT_EQ(text.substr(at, bytes.size()), bytes) << "token " << i;
    at = encoded.ends[i];
  }
  EXPECT_EQ(at, text.size());
}

// ---- the model's own tokenizer
// --------------------------------------------------------------------

TEST(Tokenizer, ReadsTheModelsSpecialTokens) {
  EXPECT_EQ(smollm2().vocab_size(), 49152u);
  EXPECT_EQ(smollm2().bos(), TokenId(1));
  EXPECT_EQ(smollm2().eos(), TokenId(2));
  EXPECT_FALSE(smollm2().add_bos());
  EXPECT_EQ(smollm2().find("<|im_end|>"), TokenId(2));
  EXPECT_EQ(smollm2().find(" the"), smollm2().encode(" the", false)[0]);
  EXPECT_FALSE(smollm2().find("no such token at all"));
  EXPECT_TRUE(smollm2().is_control(TokenId(2)));
  EXPECT_FALSE(smollm2().is_control(*smollm2().find(" the")));
  // <|endoftext|> ends generation too, although the file's only EOS is <|im_end|>.
  const auto eog = smollm2().eog_tokens();
  EXPECT_EQ(numbers(std::vector<TokenId>(eog.begin(), eog.end())), (std::vector<int64_t>{0, 2}));
  EXPECT_TRUE(smollm2().is_eog(TokenId(0)));
  EXPECT_FALSE(smollm2().is_eog(TokenId(1)));
}

TEST(Tokenizer, DecodesControlTokensOnlyWhereAsked) {
  const auto tokens = smollm2().encode("<|im_start|>user\nhi<|im_end|>", true);
  EXPECT_EQ(smollm2().decode(tokens, true), "<|im_start|>user\nhi<|im_end|>");
  EXPECT_EQ(smollm2().decode(tokens, false), "user\nhi");
}

TEST(Tokenizer, GivesNothingForIdsOutsideTheVocabulary) {
  for (const int32_t id : {-1, 49152, INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(smollm2().token_bytes(TokenId(id)), "");
    EXPECT_FALSE(smollm2().is_control(TokenId(id)));
    EXPECT_FALSE(smollm2().is_eog(TokenId(id)));
  }
}

TEST(Tokenizer, LeavesOutOnlyBytesThatTheVocabularyLacks) {
  // SmolLM2 has no token for these; the reference tokenizer leaves them out as well.
  EXPECT_EQ(smollm2().decode(smollm2().encode("a\x04\xC0\xFF"
                                              "b",
                                              false),
                             true),
            "ab");
  EXPECT_EQ(smollm2().decode(smollm2().encode(std::string("a\0b", 3), false), true),
            std::string("a\0b", 3));
  EXPECT_EQ(smollm2().decode(smollm2().encode("\x80\x80 \xE4\xB8", false), true),
            "\x80\x80 \xE4\xB8");
}

TEST(Tokenizer, EncodesAMegabyteWithoutSpacesWithoutTakingQuadraticTime) {
  Prng prng(5);
  std::string word;
  while (word.size() < (1 << 20)) word.push_back(static_cast<char>('a' + prng.below(26)));
  for (const std::string& text : {word, std::string(1 << 20, 'a'), std::string(1 << 20, ' ')}) {
    EXPECT_EQ(smollm2().decode(smollm2().encode(text, false), true), text);
  }
}

TEST(Tokenizer, GivesTheSameIdsOnManyThreadsAtOnce) {
  const std::string text =
      read_file(std::string(PAGEWISE_SOURCE_DIR) + "/src/text/tokenizer_test.cc");
  const auto expected = smollm2().encode(text, true);
  std::vector<std::vector<TokenId>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) {
    threads.emplace_back([&result, &text] { result = smollm2().encode(text, true); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, expected);
}

// ---- provenance
// -----------------------------------------------------------------------------------

TEST(Tokenizer, TurnsTypedControlTokensIntoOrdinaryTokens_C16) {
  for (const std::string marker : {"<|im_end|>", "<|im_start|>", "<|endoftext|>"}) {
    const auto typed = smollm2().encode(provenanced({{marker, 0}}));
    EXPECT_EQ(controls(smollm2(), typed.tokens), 0u);
    EXPECT_GE(typed.tokens.size(), 5u) << marker;  // at least 4 more than the one control token
    EXPECT_EQ(smollm2().decode(typed.tokens, false), marker);
    const auto written = smollm2().encode(provenanced({{marker, kTemplateOrigin}}));
    ASSERT_EQ(written.tokens.size(), 1u);
    EXPECT_EQ(written.tokens[0], smollm2().find(marker));
    EXPECT_EQ(written.ends[0], marker.size());
  }
}

TEST(Tokenizer, RecognisesNoControlTokenThatTheTemplateOnlyPartlyWrote_C16) {
  const std::string marker = "<|im_end|>";
  for (std::size_t cut = 1; cut < marker.size(); ++cut) {
    const std::string head = marker.substr(0, cut);
    const std::string tail = marker.substr(cut);
    const std::vector<std::vector<std::pair<std::string, int32_t>>> inputs = {
        {{head, kTemplateOrigin}, {tail, 0}},
        {{head, 0}, {tail, kTemplateOrigin}},
        {{head, 0}, {tail, 1}},
        {{"x", kTemplateOrigin}, {head, kTemplateOrigin}, {tail, 3}, {"y", kTemplateOrigin}},
    };
    for (const auto& input : inputs) {
      const auto encoded = smollm2().encode(provenanced(input));
      EXPECT_EQ(controls(smollm2(), encoded.tokens), 0u) << cut;
      expect_ends_fit(smollm2(), provenanced(input).text, encoded);
    }
    // Two spans of the template are one stretch of its text.
    const auto whole =
        smollm2().encode(provenanced({{head, kTemplateOrigin}, {tail, kTemplateOrigin}, {"z", 0}}));
    EXPECT_EQ(controls(smollm2(), whole.tokens), 1u) << cut;
  }
}

TEST(Tokenizer, TreatsTextWithoutMarkersAsTheReferenceDoesAcrossOrigins) {
  const auto text = provenanced({{"Question: wh", kTemplateOrigin}, {"at is 1", 0}, {"23?\n", 1}});
  const auto encoded = smollm2().encode(text);
  EXPECT_EQ(encoded.tokens, smollm2().encode(text.text, true));
  expect_ends_fit(smollm2(), text.text, encoded);
}

TEST(Tokenizer, AgreesWithPlainEncodingWhereOneOriginWroteEverything) {
  auto golden = parse_json(
      read_file(std::string(PAGEWISE_SOURCE_DIR) + "/tests/golden/smollm2-135m-q4_1.json"));
  ASSERT_TRUE(golden);
  for (const json::value& c : golden->at("tokenize").as_array()) {
    const std::string text(c.at("text").as_string());
    const auto written = smollm2().encode(provenanced({{text, kTemplateOrigin}}));
    EXPECT_EQ(numbers(written.tokens), numbers(c.at("ids_special"))) << text;
    const auto typed = smollm2().encode(provenanced({{text, 7}}));
    EXPECT_EQ(numbers(typed.tokens), numbers(c.at("ids_plain"))) << text;
    expect_ends_fit(smollm2(), text, typed);
  }
}

TEST(Tokenizer, BeginsATokenAtEveryBreak) {
  ProvenancedText text = provenanced({{"one\n", 0}, {"\n", kTemplateOrigin}, {"\ntwo", 1}});
  text.breaks = {4};
  const auto encoded = smollm2().encode(text);
  EXPECT_NE(std::find(encoded.ends.begin(), encoded.ends.end(), 4u), encoded.ends.end());
  expect_ends_fit(smollm2(), text.text, encoded);
  text.breaks.clear();
  const auto joined = smollm2().encode(text);
  EXPECT_EQ(std::find(joined.ends.begin(), joined.ends.end(), 4u), joined.ends.end());
}

TEST(Tokenizer, KeepsTheTokensOfABlockWhateverFollowsItsEnd) {
  const uint64_t seed = testing::test_seed();
  SCOPED_TRACE(::testing::Message() << "PAGEWISE_SEED=" << seed);
  Prng prng(seed);
  constexpr std::string_view kUnits[] = {"a", "the",        " ", "\n", "1",
                                         "é", "<|im_end|>", "!", "中", "\t"};
  const auto random_text = [&](uint64_t units) {
    std::string text;
    for (; units > 0; --units) text += kUnits[prng.below(std::size(kUnits))];
    return text;
  };
  for (int round = 0; round < 1000; ++round) {
    const std::string head = "<|im_start|>user\n";
    const std::string first = random_text(1 + prng.below(10));
    const auto stop = static_cast<uint32_t>(head.size() + first.size());
    ProvenancedText by_block = provenanced({{head, kTemplateOrigin},
                                            {first, 0},
                                            {"\n", kTemplateOrigin},
                                            {random_text(1 + prng.below(6)), 1}});
    by_block.breaks = {stop};
    const ProvenancedText by_control =
        provenanced({{head, kTemplateOrigin}, {first, 0}, {"<|im_end|>\n", kTemplateOrigin}});
    const auto a = smollm2().encode(by_block);
    const auto b = smollm2().encode(by_control);
    const auto a_end = std::find(a.ends.begin(), a.ends.end(), stop);
    const auto b_end = std::find(b.ends.begin(), b.ends.end(), stop);
    ASSERT_NE(a_end, a.ends.end()) << "round " << round;
    ASSERT_NE(b_end, b.ends.end()) << "round " << round;
    const std::vector<TokenId> a_tokens(a.tokens.begin(),
                                        a.tokens.begin() + (a_end - a.ends.begin()));
    const std::vector<TokenId> b_tokens(b.tokens.begin(),
                                        b.tokens.begin() + (b_end - b.ends.begin()));
    ASSERT_EQ(a_tokens, b_tokens) << "round " << round << ": " << first;
    expect_ends_fit(smollm2(), by_block.text, a);
  }
}

// ---- vocabularies of our own
// ----------------------------------------------------------------------

TEST(Tokenizer, LosesNoByteOfAnyTextWithAFullByteAlphabet) {
  const uint64_t seed = testing::test_seed();
  SCOPED_TRACE(::testing::Message() << "PAGEWISE_SEED=" << seed);
  Prng prng(seed);
  TestVocabulary test;
  test.merge("a", "b")
      .merge("ab", "ab")
      .merge(" ", "a")
      .merge("\xC3", "\xA9")
      .merge("\xFF", "\xFF");
  for (const char* name : {"gpt-2", "smollm", "llama-bpe", "gpt-4o", "default"}) {
    test.pre_tokenizer = name;
    const auto tokenizer = create(test.vocabulary());
    for (int round = 0; round < 200; ++round) {
      std::string text;
      for (uint64_t n = prng.below(80); n > 0; --n) {
        text.push_back(prng.below(2) == 0 ? "ab \xC3\xA9\xFF"[prng.below(6)]
                                          : static_cast<char>(prng.below(256)));
      }
      ASSERT_EQ(tokenizer->decode(tokenizer->encode(text, true), true), text)
          << name << " round " << round;
      expect_ends_fit(*tokenizer, text, tokenizer->encode(provenanced({{text, 0}})));
    }
  }
}

TEST(Tokenizer, ComposesCharactersOnlyWhereTheFamilyDoesAndTellsTheTextsOwnPlaces) {
  TestVocabulary test;
  test.merge("\xC3", "\xA9");  // é
  const std::string text = "e\u0301a\u212B";
  test.pre_tokenizer = "gpt-2";
  EXPECT_EQ(create(test.vocabulary())->decode(create(test.vocabulary())->encode(text, false), true),
            text);
  test.pre_tokenizer = "qwen2";
  const auto tokenizer = create(test.vocabulary());
  const EncodedText encoded = tokenizer->encode(provenanced({{text, 0}}));
  EXPECT_EQ(tokenizer->decode(encoded.tokens, true), "\u00E9a\u00C5");
  EXPECT_EQ(encoded.ends, (std::vector<uint32_t>{3, 4, 7, 7}));
  EXPECT_EQ(encoded.tokens, tokenizer->encode("\u00E9a\u00C5", true));
  // Where a block ends, nothing is joined.
  ProvenancedText broken = provenanced({{"e", 0}, {"\u0301", 1}});
  broken.breaks = {1};
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(broken).tokens, true), "e\u0301");
}

TEST(Tokenizer, MergesInTheOrderOfTheFile) {
  TestVocabulary test;
  test.merge("b", "c").merge("a", "b").merge("a", "bc");
  const auto tokenizer = create(test.vocabulary());
  const auto tokens = tokenizer->encode("abc abx", false);
  ASSERT_EQ(tokens.size(), 4u);
  EXPECT_EQ(tokenizer->token_bytes(tokens[0]), "abc");
  EXPECT_EQ(tokenizer->token_bytes(tokens[2]), "ab");
}

TEST(Tokenizer, PrefersAWholeTokenToMergesOnlyWhereThePreTokenizerSaysSo) {
  TestVocabulary test;
  test.merge("a", "b");
  const int32_t whole = test.add(spelled("cab"));  // no merge leads to it
  test.pre_tokenizer = "llama-bpe";
  EXPECT_EQ(numbers(create(test.vocabulary())->encode("cab", false)),
            (std::vector<int64_t>{whole}));
  EXPECT_TRUE(create(test.vocabulary())->encode("", false).empty());
  test.pre_tokenizer = "gpt-2";
  EXPECT_EQ(create(test.vocabulary())->encode("cab", false).size(), 2u);
}

TEST(Tokenizer, RecognisesAddedTokensAsTheReferenceDoesButNotInContent_C16) {
  TestVocabulary test;
  const int32_t think = test.add("<think>", TokenType::kUserDefined);
  const int32_t indent = test.add("    ", TokenType::kUserDefined);
  const int32_t end = test.add("<|end|>", TokenType::kControl);
  const auto tokenizer = create(test.vocabulary());
  const std::string text = "<think>    <|end|>";
  EXPECT_EQ(numbers(tokenizer->encode(text, true)), (std::vector<int64_t>{think, indent, end}));
  const auto plain = tokenizer->encode(text, false);
  EXPECT_EQ(plain[0], TokenId(think));
  EXPECT_EQ(plain[1], TokenId(indent));
  EXPECT_EQ(plain.size(), 2 + 7u);
  const auto content = tokenizer->encode(provenanced({{text, 0}})).tokens;
  EXPECT_EQ(content.size(), 7 + 1 + 7u);
  EXPECT_EQ(content[7], TokenId(indent));
  // An added token is text that an answer may contain; a control token is not.
  EXPECT_FALSE(tokenizer->is_control(TokenId(think)));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, true), false), "<think>    ");
  EXPECT_TRUE(tokenizer->is_eog(TokenId(end)));
}

TEST(Tokenizer, EndsNoAnswerWithTheEndOfAMessageWhereAnotherTokenEndsAnswers) {
  // gpt-oss; Phi's answers end with the same spelling.
  for (const bool has_return : {false, true}) {
    TestVocabulary test;
    const int32_t end = test.add("<|end|>", TokenType::kControl);
    const int32_t call = test.add("<|call|>", TokenType::kControl);
    const int32_t last = test.add(has_return ? "<|return|>" : "<|other|>", TokenType::kControl);
    const auto tokenizer = create(test.vocabulary());
    EXPECT_EQ(tokenizer->is_eog(TokenId(end)), !has_return);
    EXPECT_EQ(tokenizer->is_eog(TokenId(last)), has_return);
    EXPECT_TRUE(tokenizer->is_eog(TokenId(call)));
  }
}

TEST(Tokenizer, NeverMergesOrdinaryTextIntoAControlToken_C16) {
  TestVocabulary test;
  test.merge("<", "s").merge("<s", ">");
  for (std::size_t i = 0; i < test.tokens.size(); ++i) {
    if (test.tokens[i] == "<s>") test.types[i] = TokenType::kControl;
  }
  const auto tokenizer = create(test.vocabulary());
  EXPECT_EQ(controls(*tokenizer, tokenizer->encode("<s>", false)), 0u);
  EXPECT_EQ(controls(*tokenizer, tokenizer->encode(provenanced({{"<s>", 0}})).tokens), 0u);
  EXPECT_EQ(controls(*tokenizer, tokenizer->encode("<s>", true)), 1u);
}

TEST(Tokenizer, KnowsWhenABosIsPrepended_C15) {
  TestVocabulary test;
  const TokenId bos(test.add("<s>", TokenType::kControl));
  BpeVocabulary vocabulary = test.vocabulary();
  EXPECT_FALSE(create(vocabulary)->add_bos());
  vocabulary.add_bos = true;
  EXPECT_FALSE(create(vocabulary)->add_bos());  // there is none
  vocabulary.bos = bos;
  EXPECT_TRUE(create(vocabulary)->add_bos());
  vocabulary.add_bos.reset();
  EXPECT_FALSE(create(vocabulary)->add_bos());
  vocabulary.pre_tokenizer = "llama-bpe";
  EXPECT_TRUE(create(vocabulary)->add_bos());
  // Encoding itself never adds one.
  EXPECT_EQ(create(vocabulary)->encode("a", true).size(), 1u);
}

// ---- files
// ----------------------------------------------------------------------------------------

Result<std::unique_ptr<Tokenizer>> load(const gguf::testing::Writer& writer) {
  const gguf::testing::TempFile temp(writer.header());
  auto file = gguf::File::open(temp.path(), {.header_only = true});
  if (!file) return file.error();
  return Tokenizer::from_gguf(**file);
}

void expect_refused(const gguf::testing::Writer& writer, ErrorCode code, std::string_view part) {
  const auto loaded = load(writer);
  ASSERT_FALSE(loaded) << part;
  EXPECT_EQ(loaded.error().code, code) << loaded.error().message;
  EXPECT_NE(loaded.error().message.find(part), std::string::npos) << loaded.error().message;
}

TEST(Tokenizer, ReadsAFileWrittenForIt) {
  TestVocabulary test;
  test.merge("h", "i");
  const auto bos = static_cast<uint32_t>(test.add("<s>", TokenType::kControl));
  const auto eos = static_cast<uint32_t>(test.add("</s>", TokenType::kControl));
  const auto eot = static_cast<uint32_t>(test.add("<turn>", TokenType::kControl));
  auto loaded = load(test.writer()
                         .u32("tokenizer.ggml.bos_token_id", bos)
                         .u32("tokenizer.ggml.eos_token_id", eos)
                         .u32("tokenizer.ggml.eot_token_id", eot)
                         .boolean("tokenizer.ggml.add_bos_token", true));
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ((*loaded)->encode("hi<turn>", true).size(), 2u);
  EXPECT_TRUE((*loaded)->add_bos());
  EXPECT_EQ((*loaded)->eog_tokens().size(), 2u);
  EXPECT_TRUE((*loaded)->is_eog(TokenId(static_cast<int32_t>(eot))));
}

TEST(Tokenizer, RefusesAFileThatItCannotReadRightNamingTheKey_C17) {
  using gguf::testing::Writer;
  const TestVocabulary test;
  expect_refused(Writer(), ErrorCode::kMalformed, "tokenizer.ggml.model");
  expect_refused(Writer().string("tokenizer.ggml.model", "t5"), ErrorCode::kUnsupported,
                 "tokenizer 't5' (Unigram) is not supported");
  expect_refused(Writer().string("tokenizer.ggml.model", "bert"), ErrorCode::kUnsupported,
                 "tokenizer 'bert' (WordPiece) is not supported");
  expect_refused(Writer().string("tokenizer.ggml.model", "rwkv"), ErrorCode::kUnsupported,
                 "tokenizer 'rwkv' is not supported");
  expect_refused(Writer().string("tokenizer.ggml.model", "gpt2"), ErrorCode::kMalformed,
                 "tokenizer.ggml.tokens");
  {
    TestVocabulary other;
    other.pre_tokenizer = "chameleon";
    expect_refused(other.writer(), ErrorCode::kUnsupported, "'chameleon' is not supported");
  }
  expect_refused(
      Writer().string("tokenizer.ggml.model", "gpt2").strings("tokenizer.ggml.tokens", {"a"}),
      ErrorCode::kMalformed, "tokenizer.ggml.merges: missing");
  {
    TestVocabulary other;
    other.tokens['Q'] = "something else";
    expect_refused(other.writer(), ErrorCode::kMalformed,
                   "tokenizer.ggml.tokens: no token for the byte 0x51");
  }
  for (const std::string merge : {"a", "a ", " a", "", "a zz", "zz a", "a b"}) {
    TestVocabulary other;
    other.merges.push_back(merge);
    expect_refused(other.writer(), ErrorCode::kMalformed, "tokenizer.ggml.merges: entry 0");
  }
  {
    TestVocabulary other;
    other.types.pop_back();
    expect_refused(other.writer(), ErrorCode::kMalformed, "tokenizer.ggml.token_type");
  }
  for (const int type : {0, 7}) {
    TestVocabulary other;
    other.types[3] = static_cast<TokenType>(type);
    expect_refused(other.writer(), ErrorCode::kMalformed, "tokenizer.ggml.token_type: entry 3");
  }
  expect_refused(test.writer().u32("tokenizer.ggml.bos_token_id", 256), ErrorCode::kMalformed,
                 "tokenizer.ggml.bos_token_id: 256");
  expect_refused(test.writer().u32("tokenizer.ggml.eos_token_id", UINT32_MAX),
                 ErrorCode::kMalformed, "tokenizer.ggml.eos_token_id");
  expect_refused(test.writer().u32("tokenizer.ggml.eot_token_id", 1000), ErrorCode::kMalformed,
                 "eot_token_id");
  expect_refused(test.writer().string("tokenizer.ggml.bos_token_id", "1"), ErrorCode::kMalformed,
                 "tokenizer.ggml.bos_token_id");
}

}  // namespace
}  // namespace pagewise::text
