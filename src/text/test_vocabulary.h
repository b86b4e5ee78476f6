// SPDX-License-Identifier: Apache-2.0
// A small byte-level vocabulary for tests: 256 byte tokens (ids 0 to 255), tokens by merging, and
// special tokens.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/test_writer.h"
#include "text/bpe_tokenizer.h"
#include "text/utf8.h"

namespace pagewise::text::testing {

/// A fresh seed a run, or the one in PAGEWISE_SEED; printed once, so that a failure can be
/// replayed.
inline uint64_t test_seed() {
  static const uint64_t seed = [] {
    const char* given = std::getenv("PAGEWISE_SEED");
    const uint64_t value =
        given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
    std::printf("PAGEWISE_SEED=%llu\n", static_cast<unsigned long long>(value));
    return value;
  }();
  return seed;
}

/// `bytes` as vocabularies spell them: printable Latin-1 as itself, the others from U+0100 on.
inline std::string spelled(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    uint32_t others = 0;
    const auto printable = [](uint32_t b) {
      return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    };
    for (uint32_t b = 0; b < byte; ++b) others += printable(b) ? 0 : 1;
    utf8_append(printable(byte) ? byte : 0x100 + others, out);
  }
  return out;
}

class TestVocabulary {
 public:
  TestVocabulary() {
    for (int byte = 0; byte < 256; ++byte) add(spelled(std::string(1, static_cast<char>(byte))));
  }

  int32_t add(std::string spelling, TokenType type = TokenType::kNormal) {
    tokens.push_back(std::move(spelling));
    types.push_back(type);
    return static_cast<int32_t>(tokens.size()) - 1;
  }
  /// Adds the merge of two byte strings and, if new, its token.
  TestVocabulary& merge(std::string_view left, std::string_view right) {
    const std::string result = spelled(std::string(left) + std::string(right));
    bool known = false;
    for (const std::string& token : tokens) known = known || token == result;
    if (!known) add(result);
    merges.push_back(spelled(left) + " " + spelled(right));
    return *this;
  }

  BpeVocabulary vocabulary() const {
    BpeVocabulary out;
    out.pre_tokenizer = pre_tokenizer;
    out.tokens.assign(tokens.begin(), tokens.end());
    out.types = types;
    out.merges.assign(merges.begin(), merges.end());
    return out;
  }

  /// The keys of a GGUF file with this vocabulary.
  gguf::testing::Writer writer() const {
    std::vector<int32_t> numbers;
    for (const TokenType type : types) numbers.push_back(static_cast<int32_t>(type));
    gguf::testing::Writer out;
    out.string("tokenizer.ggml.model", "gpt2")
        .string("tokenizer.ggml.pre", pre_tokenizer)
        .strings("tokenizer.ggml.tokens", tokens)
        .array("tokenizer.ggml.token_type", gguf::testing::Writer::kI32, numbers)
        .strings("tokenizer.ggml.merges", merges);
    return out;
  }

  std::string pre_tokenizer = "gpt-2";
  std::vector<std::string> tokens;
  std::vector<TokenType> types;
  std::vector<std::string> merges;
};

}  // namespace pagewise::text::testing
