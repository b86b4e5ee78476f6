// SPDX-License-Identifier: Apache-2.0
// The byte-level BPE tokenizer (GGUF tokenizer model "gpt2").
//
// Every byte is a symbol of its own before merging, so any text can be encoded. Some vocabularies
// lack the tokens of bytes that hardly occur (SmolLM2: six control characters and lead bytes of
// unassigned planes); those bytes separate merges and are then left out, as in the reference
// tokenizers. The file's unknown token is no substitute: in SmolLM2 it is a control token, and text
// may not spell one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/bpe_merges.h"
#include "text/pre_tokenizer.h"
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

/// What a model file says about its tokenizer.
struct BpeVocabulary {
  std::string pre_tokenizer = "default";
  std::vector<std::string_view> tokens;  // spelled in the byte alphabet, except special ones
  std::vector<TokenType> types;          // one a token, or empty: all normal
  std::vector<std::string_view> merges;  // "left right", in rank order
  std::optional<TokenId> bos;
  std::optional<TokenId> eos;
  std::vector<TokenId> more_eog;  // eot, eom
  std::optional<bool> add_bos;
};

class BpeTokenizer final : public Tokenizer {
 public:
  /// The strings of `vocabulary` are copied. Errors: kUnsupported naming the pre-tokenizer;
  /// kMalformed naming the metadata key and the entry. Cost: about 50 ms for 50,000 tokens.
  static Result<std::unique_ptr<Tokenizer>> create(const BpeVocabulary& vocabulary);

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
  std::optional<TokenId> find(std::string_view spelling) const override;

 private:
  struct Output;

  BpeTokenizer() : merges_(0) {}
  Status load_tokens(const BpeVocabulary& vocabulary);
  Status load_merges(const BpeVocabulary& vocabulary);
  Status load_special(const BpeVocabulary& vocabulary);
  void load_words();
  void insert_word(TokenId token);
  std::optional<TokenId> find_word(std::string_view piece) const;
  void symbols_of(std::string_view piece, std::vector<BpeSymbol>& symbols) const;
  void encode_ordinary(std::string_view text, uint32_t base, Output& out) const;
  void encode_trusted(std::string_view text, uint32_t base, Trust trust, Output& out) const;

  std::unique_ptr<PreTokenizer> pre_;
  std::string bytes_;              // what every token stands for, one behind the other
  std::vector<uint32_t> offsets_;  // vocab_size + 1
  std::vector<TokenType> types_;
  std::unordered_map<std::string_view, TokenId> by_bytes_;  // keys point into bytes_
  int32_t byte_ids_[256] = {};  // -1: the vocabulary has no token for it
  BpeMerges merges_;
  SpecialTokens special_;
  // Tokens that a piece of exactly their bytes becomes: most words of a text, found in one look-up.
  // Open addressing; the hash is kept beside the id so that a miss seldom touches the bytes.
  struct Word {
    uint32_t hash = 0;
    int32_t id = -1;
  };
  std::vector<Word> words_;
  std::size_t word_bytes_max_ = 0;
  std::vector<TokenId> eog_;  // ascending
  std::optional<TokenId> bos_;
  std::optional<TokenId> eos_;
  bool add_bos_ = false;
};

}  // namespace pagewise::text
