// SPDX-License-Identifier: Apache-2.0
// A vocabulary for engine tests: letters, pieces of longer characters, and one end-of-generation
// token. Small, so that random logits meet every kind often.
//
//   id 0            "<end>", control, ends generation
//   id 1            "<mark>", control
//   ids 2..5        the four bytes of an emoji, one each (U+1F600)
//   ids 6..8        the three bytes of U+20AC
//   id 9            the byte FF, which never becomes a character
//   ids 10..        "a".."z", then "aa", "ab", ... by turns
//
// Thread: immutable after construction.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace pagewise::engine {

class FakeTokenizer final : public text::Tokenizer {
 public:
  explicit FakeTokenizer(uint32_t vocab_size) {
    spellings_ = {"<end>", "<mark>", "\xF0", "\x9F", "\x98",
                  "\x80",  "\xE2",   "\x82", "\xAC", "\xFF"};
    for (uint32_t i = 0; spellings_.size() < vocab_size; ++i) {
      std::string letters(1, static_cast<char>('a' + i % 26));
      if (i >= 26) letters.push_back(static_cast<char>('a' + i / 26 % 26));
      spellings_.push_back(letters);
    }
    spellings_.resize(vocab_size);
  }

  /// One token a byte: enough for tests, which mostly write token ids.
  std::vector<TokenId> encode(std::string_view text, bool) const override {
    std::vector<TokenId> tokens;
    for (const char c : text) {
      if (c >= 'a' && c <= 'z') tokens.push_back(TokenId(10 + (c - 'a')));
    }
    return tokens;
  }
  text::EncodedText encode(const text::ProvenancedText& text) const override {
    text::EncodedText encoded;
    encoded.tokens = encode(text.text, false);
    for (uint32_t i = 0; i < encoded.tokens.size(); ++i) encoded.ends.push_back(i + 1);
    return encoded;
  }
  std::string_view token_bytes(TokenId token) const override {
    return spellings_[static_cast<std::size_t>(token.value)];
  }
  bool is_control(TokenId token) const override { return token.value <= 1; }
  bool is_eog(TokenId token) const override { return token.value == 0; }
  std::span<const TokenId> eog_tokens() const override { return {&eog_, 1}; }
  uint32_t vocab_size() const override { return static_cast<uint32_t>(spellings_.size()); }
  std::optional<TokenId> bos() const override { return std::nullopt; }
  std::optional<TokenId> eos() const override { return eog_; }
  bool add_bos() const override { return false; }
  std::optional<TokenId> find(std::string_view spelling) const override {
    for (std::size_t i = 0; i < spellings_.size(); ++i) {
      if (spellings_[i] == spelling) return TokenId(static_cast<int32_t>(i));
    }
    return std::nullopt;
  }

 private:
  std::vector<std::string> spellings_;
  TokenId eog_ = TokenId(0);
};

}  // namespace pagewise::engine
