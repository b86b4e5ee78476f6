// SPDX-License-Identifier: Apache-2.0
// A tokenizer whose tokens are single bytes, for tests: positions can be counted by hand. Ids 256
// and 257 are the control tokens <s> and </s>.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace pagewise::server {

class ByteTokenizer : public text::Tokenizer {
 public:
  explicit ByteTokenizer(bool add_bos = false) : add_bos_(add_bos) {
    for (int i = 0; i < 256; ++i) bytes_.push_back(std::string(1, static_cast<char>(i)));
    bytes_.emplace_back("<s>");
    bytes_.emplace_back("</s>");
  }

  std::vector<TokenId> encode(std::string_view text, bool parse_special) const override {
    std::vector<TokenId> out;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (parse_special && text.substr(i).starts_with("<s>")) {
        out.emplace_back(256);
        i += 2;
      } else {
        out.emplace_back(static_cast<unsigned char>(text[i]));
      }
    }
    return out;
  }
  text::EncodedText encode(const text::ProvenancedText& text) const override {
    text::EncodedText out;
    for (std::size_t i = 0; i < text.text.size(); ++i) {
      out.tokens.emplace_back(static_cast<unsigned char>(text.text[i]));
      out.ends.push_back(static_cast<uint32_t>(i + 1));
    }
    return out;
  }
  std::string_view token_bytes(TokenId token) const override {
    return bytes_[static_cast<std::size_t>(token.value)];
  }
  bool is_control(TokenId token) const override { return token.value >= 256; }
  bool is_eog(TokenId token) const override { return token.value == 257; }
  std::span<const TokenId> eog_tokens() const override { return eog_; }
  uint32_t vocab_size() const override { return 258; }
  std::optional<TokenId> bos() const override { return TokenId(256); }
  std::optional<TokenId> eos() const override { return TokenId(257); }
  bool add_bos() const override { return add_bos_; }
  std::optional<TokenId> find(std::string_view spelling) const override {
    if (spelling == "<s>") return TokenId(256);
    if (spelling == "</s>") return TokenId(257);
    return std::nullopt;
  }

 private:
  const bool add_bos_;
  std::vector<std::string> bytes_;
  std::array<TokenId, 1> eog_{TokenId(257)};
};

inline const ByteTokenizer& byte_tokenizer() {
  static const ByteTokenizer tokenizer;
  return tokenizer;
}

}  // namespace pagewise::server
