// SPDX-License-Identifier: Apache-2.0
// The SentencePiece tokenizer with scores and byte fallback (GGUF tokenizer model "llama").
//
// Characters are merged, best score first and of equal scores the leftmost, as long as two
// neighbours spell a token; a character without a token becomes its bytes' tokens, so any text can
// be encoded. A space is spelled U+2581 in the vocabulary, and U+2581 in a text reads as a space.
// Source: SentencePiece (Kudo and Richardson, 2018), its BPE model.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/vocabulary_tokenizer.h"

namespace pagewise::text {

struct SpmVocabulary : Vocabulary {
  std::vector<float> scores;  // one a token
  /// A space is put in front of text that begins the input or follows a special token.
  bool add_space_prefix = true;
};

class SpmTokenizer final : public VocabularyTokenizer {
 public:
  /// The strings of `vocabulary` are copied. Errors: kMalformed naming the metadata key and the
  /// entry. Cost: 70 to 97 ms for 262,144 tokens (Xeon, 2.1 GHz).
  static Result<std::unique_ptr<Tokenizer>> create(const SpmVocabulary& vocabulary);

  std::optional<TokenId> find(std::string_view spelling) const override;

 private:
  struct Buffers;
  /// A token that characters may become. The hash is kept beside the id so that a miss seldom
  /// touches the bytes.
  struct Slot {
    uint32_t hash = 0;
    int32_t id = -1;
  };

  Status load_tokens(const SpmVocabulary& vocabulary);
  Status load_scores(const SpmVocabulary& vocabulary);
  Status load_byte(std::string_view spelling, std::size_t token);
  void insert(TokenId token);
  int32_t find_piece(std::string_view bytes) const;  // -1: none
  std::unique_ptr<Output> make_output() const override;
  void encode_ordinary(std::string_view text, uint32_t base, bool at_start,
                       Output& output) const override;
  void encode_word(uint32_t& end, Buffers& buffers) const;
  void merge(Buffers& buffers) const;

  std::vector<Slot> pieces_;  // open addressing
  std::size_t piece_bytes_max_ = 0;
  std::vector<uint32_t> ranks_;  // by token: 0 the best score; equal scores share one
  int32_t byte_ids_[256] = {};
  std::unordered_map<std::string_view, TokenId> special_ids_;  // keys point into the token bytes
  bool add_space_prefix_ = true;
  /// No token holds a space behind another character, so no merge crosses the start of a word.
  bool words_apart_ = true;
};

}  // namespace pagewise::text
