// SPDX-License-Identifier: Apache-2.0
// Each family of tokenizers against the packages that its models were trained with: 300 texts of
// every script, emoji, code, numbers, white space, typed control tokens, and bytes at random.
// tests/tools/make_tokenizer_goldens.py made the files of tests/golden/tokenizers.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/tokenizer.h"

namespace pagewise::text {
namespace {

constexpr const char* kFamilies[] = {"gpt-2",  "llama-bpe", "qwen2",    "smollm",    "falcon",
                                     "tekken", "gpt-4o",    "dbrx",     "command-r", "olmo",
                                     "refact", "llama-spm", "phi3-spm", "gemma-spm"};
constexpr std::size_t kTexts = 300;

std::string read(const std::string& name) {
  std::ifstream in(PAGEWISE_SOURCE_DIR "/tests/golden/tokenizers/" + name, std::ios::binary);
  EXPECT_TRUE(in) << name;
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::string> read_texts() {
  const auto parsed = parse_json(read("texts.json"));
  if (!parsed) {
    ADD_FAILURE() << parsed.error().message;
    return {};
  }
  std::vector<std::string> out;
  for (const json::value& text : parsed->as_array()) out.emplace_back(text.as_string());
  return out;
}

using Ids = std::vector<TokenId>;

/// Numbers in groups of seven bits, low ones first.
class Numbers {
 public:
  explicit Numbers(std::string_view bytes) : bytes_(bytes) {}

  int32_t next() {
    int32_t value = 0;
    for (int shift = 0; at_ < bytes_.size() && shift < 28; shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      value |= (byte & 127) << shift;
      if (byte < 128) return value;
    }
    ADD_FAILURE() << "the numbers end in the middle";
    return 0;
  }

  Ids next_ids() {
    Ids out(static_cast<std::size_t>(next()));
    for (TokenId& id : out) id = TokenId(next());
    return out;
  }

  bool at_end() const { return at_ == bytes_.size(); }

 private:
  std::string_view bytes_;
  std::size_t at_ = 0;
};

struct Reference {
  std::vector<Ids> plain, special;  // by text
};

Reference read_reference(const std::string& family) {
  const std::string bytes = read(family + ".ids");
  Numbers numbers(bytes);
  Reference out;
  for (std::size_t i = 0; i < kTexts; ++i) out.plain.push_back(numbers.next_ids());
  for (std::size_t i = 0; i < kTexts; ++i) {
    Ids ids = numbers.next_ids();
    out.special.push_back(ids.empty() ? out.plain[i] : std::move(ids));
  }
  EXPECT_TRUE(numbers.at_end());
  return out;
}

std::unique_ptr<Tokenizer> load(const std::string& family) {
  auto file = gguf::File::open(PAGEWISE_SOURCE_DIR "/tests/golden/tokenizers/" + family + ".gguf",
                               {.header_only = true});
  if (!file) {
    ADD_FAILURE() << file.error().message;
    return nullptr;
  }
  auto tokenizer = Tokenizer::from_gguf(**file);
  if (!tokenizer) ADD_FAILURE() << tokenizer.error().message;
  return tokenizer ? std::move(*tokenizer) : nullptr;
}

/// The whole text as one stretch of one origin.
EncodedText encode(const Tokenizer& tokenizer, const std::string& text, int32_t origin) {
  return tokenizer.encode(
      ProvenancedText{text, {{0, static_cast<uint32_t>(text.size()), origin}}, {}});
}

class ReferenceIds : public ::testing::TestWithParam<const char*> {};

TEST_P(ReferenceIds, AreGivenForEveryTextWithAndWithoutControlTokens) {
  const auto tokenizer = load(GetParam());
  ASSERT_NE(tokenizer, nullptr);
  const std::vector<std::string> texts = read_texts();
  ASSERT_EQ(texts.size(), kTexts);
  const Reference reference = read_reference(GetParam());
  std::size_t with_control = 0;
  for (std::size_t i = 0; i < kTexts; ++i) {
    SCOPED_TRACE(texts[i]);
    EXPECT_EQ(tokenizer->encode(texts[i], false), reference.plain[i]);
    EXPECT_EQ(tokenizer->encode(texts[i], true), reference.special[i]);
    with_control += reference.plain[i] != reference.special[i] ? 1 : 0;
  }
  EXPECT_GE(with_control, 20U);
}

TEST_P(ReferenceIds, ComeWithTheirPlacesWhoeverWroteTheText) {
  const auto tokenizer = load(GetParam());
  ASSERT_NE(tokenizer, nullptr);
  const std::vector<std::string> texts = read_texts();
  const Reference reference = read_reference(GetParam());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    SCOPED_TRACE(texts[i]);
    const EncodedText written = encode(*tokenizer, texts[i], kTemplateOrigin);
    EXPECT_EQ(written.tokens, reference.special[i]);
    const EncodedText typed = encode(*tokenizer, texts[i], 0);
    for (const EncodedText* encoded : {&written, &typed}) {
      ASSERT_EQ(encoded->ends.size(), encoded->tokens.size());
      EXPECT_TRUE(std::is_sorted(encoded->ends.begin(), encoded->ends.end()));
      EXPECT_EQ(encoded->ends.empty() ? 0 : encoded->ends.back(), texts[i].size());
    }
    // C16: what a user types is no control token.
    for (const TokenId token : typed.tokens) EXPECT_FALSE(tokenizer->is_control(token));
  }
}

INSTANTIATE_TEST_SUITE_P(OfEveryFamily, ReferenceIds, ::testing::ValuesIn(kFamilies),
                         [](const auto& family) {
                           std::string name = family.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace pagewise::text
