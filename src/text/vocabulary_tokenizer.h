// SPDX-License-Identifier: Apache-2.0
// What the tokenizers of all vocabularies share: what tokens stand for, control and added tokens by
// provenance, and where the text between them begins and ends. How that text becomes tokens is the
// derived class's.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/special_tokens.h"
#include "text/tokenizer.h"

namespace pagewise::text {

/// As numbered in `tokenizer.ggml.token_type`.
enum class TokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

/// What a model file says about any vocabulary.
struct Vocabulary {
  std::vector<std::string_view> tokens;
  std::vector<TokenType> types;  // one a token, or empty: all normal
  std::optional<TokenId> bos;
  std::optional<TokenId> eos;
  std::vector<TokenId> more_eog;  // eot, eom
  std::optional<bool> add_bos;
  /// White space behind a special token is dropped, as Phi 3 wants it.
  bool strips_behind_special = false;
};

/// Tokens that are recognised by their spelling only.
inline bool is_special(TokenType type) {
  return type == TokenType::kControl || type == TokenType::kUserDefined ||
         type == TokenType::kUnknown;
}

class VocabularyTokenizer : public Tokenizer {
 public:
  std::vector<TokenId> encode(std::string_view text, bool parse_special) const override;
  EncodedText encode(const ProvenancedText& text) const override;
  std::string_view token_bytes(TokenId token) const override;
  bool is_control(TokenId token) const override;
  bool is_eog(TokenId token) const override;
  std::span<const TokenId> eog_tokens() const override { return eog_; }
  uint32_t vocab_size() const override { return static_cast<uint32_t>(types_.size()); }
  std::optional<TokenId> bos() const override { return bos_; }
  std::optional<TokenId> eos() const override { return eos_; }
  bool add_bos() const override { return add_bos_ && bos_.has_value(); }

 protected:
  /// Collects tokens, and their ends where the caller wants them. A derived class adds the buffers
  /// that one encode call reuses.
  struct Output {
    virtual ~Output() = default;
    void add(TokenId token, uint32_t end) {
      tokens.push_back(token);
      if (ends != nullptr) ends->push_back(end);
    }

    std::vector<TokenId> tokens;
    std::vector<uint32_t>* ends = nullptr;
  };

  /// Checks the sizes and takes over the types. Errors: kMalformed naming the key.
  Status load_types(const Vocabulary& vocabulary);
  /// Appends what the next token stands for.
  void add_bytes(std::string_view bytes);
  /// Control and added tokens, BOS, EOS and kin. Requires: load_types(), add_bytes() for each
  /// token. Errors: kMalformed naming the key.
  Status load_special(const Vocabulary& vocabulary, bool add_bos_by_default);

  TokenType type_of(std::size_t token) const { return types_[token]; }

 private:
  virtual std::unique_ptr<Output> make_output() const = 0;
  /// Tokens of text that spells no special token. `base`: what to add to offsets. `at_start`: the
  /// text begins the input or follows a special token.
  virtual void encode_ordinary(std::string_view text, uint32_t base, bool at_start,
                               Output& out) const = 0;

  void strip(SpecialTokens::Match& match, std::string_view text) const;

  std::string bytes_;                    // what every token stands for, one behind the other
  std::vector<uint32_t> offsets_ = {0};  // vocab_size + 1
  std::vector<TokenType> types_;
  SpecialTokens special_;
  std::vector<bool> strips_;  // by token: takes the white space behind it; empty: none does
  std::vector<TokenId> eog_;  // ascending
  std::optional<TokenId> bos_;
  std::optional<TokenId> eos_;
  bool add_bos_ = false;
};

}  // namespace pagewise::text
