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
#include "text/vocabulary_tokenizer.h"

namespace pagewise::text {

/// What a model file says about its tokenizer.
struct BpeVocabulary : Vocabulary {  // tokens in the byte alphabet, except special ones
  std::string pre_tokenizer = "default";
  std::vector<std::string_view> merges;  // "left right", in rank order
};

class BpeTokenizer final : public VocabularyTokenizer {
 public:
  /// The strings of `vocabulary` are copied. Errors: kUnsupported naming the pre-tokenizer;
  /// kMalformed naming the metadata key and the entry. Cost: 75 ms for 49,152 tokens (Xeon, 2.1
  /// GHz).
  static Result<std::unique_ptr<Tokenizer>> create(const BpeVocabulary& vocabulary);

  std::optional<TokenId> find(std::string_view spelling) const override;

 private:
  struct Buffers;

  BpeTokenizer() : merges_(0) {}
  Status load_tokens(const BpeVocabulary& vocabulary);
  Status load_merges(const BpeVocabulary& vocabulary);
  void load_words();
  void insert_word(TokenId token);
  std::optional<TokenId> find_word(std::string_view piece) const;
  void symbols_of(std::string_view piece, std::vector<BpeSymbol>& symbols) const;
  std::unique_ptr<Output> make_output() const override;
  void encode_ordinary(std::string_view text, uint32_t base, bool at_start,
                       Output& output) const override;

  std::unique_ptr<PreTokenizer> pre_;
  std::unordered_map<std::string_view, TokenId> by_bytes_;  // keys point into the token bytes
  int32_t byte_ids_[256] = {};  // -1: the vocabulary has no token for it
  BpeMerges merges_;
  // Tokens that a piece of exactly their bytes becomes: most words of a text, found in one look-up.
  // Open addressing; the hash is kept beside the id so that a miss seldom touches the bytes.
  struct Word {
    uint32_t hash = 0;
    int32_t id = -1;
  };
  std::vector<Word> words_;
  std::size_t word_bytes_max_ = 0;
};

}  // namespace pagewise::text
