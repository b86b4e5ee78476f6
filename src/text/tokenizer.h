// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back, as the model file's vocabulary and pre-tokenizer define it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "gguf/gguf.h"
#include "text/provenance.h"

namespace pagewise::text {

struct EncodedText {
  std::vector<TokenId> tokens;
  std::vector<uint32_t> ends;  // ends[i]: byte offset just behind token i's text; ascending
};

/// Thread: immutable after construction; encode and decode may run on any number of threads at
/// once.
class Tokenizer {
 public:
  /// Errors: kUnsupported naming the tokenizer model or pre-tokenizer; kMalformed naming the key.
  static Result<std::unique_ptr<Tokenizer>> from_gguf(const gguf::File& file);
  virtual ~Tokenizer() = default;

  /// Ids of `text`, without BOS or EOS. parse_special: control tokens spelled in the text become
  /// ids; without it, added tokens that are not control tokens (<think>) still do, as in the
  /// reference tokenizers. Invalid UTF-8 is encoded byte by byte; all that can be lost are bytes
  /// for which the vocabulary has no token. A pure function of the text. Requires: under 4 GiB.
  virtual std::vector<TokenId> encode(std::string_view text, bool parse_special) const = 0;
  /// Control tokens and added tokens are recognised only where every character of their spelling is
  /// the template's (C16); only added tokens of nothing but white space are recognised in content
  /// too. A token begins at each of `text.breaks`.
  virtual EncodedText encode(const ProvenancedText& text) const = 0;

  /// The bytes that a token stands for (may be part of a character). Control tokens give their
  /// spelling.
  virtual std::string_view token_bytes(TokenId token) const = 0;
  virtual bool is_control(TokenId token) const = 0;
  /// End of generation: EOS, EOT, <|im_end|> and kin.
  virtual bool is_eog(TokenId token) const = 0;
  virtual std::span<const TokenId> eog_tokens() const = 0;

  virtual uint32_t vocab_size() const = 0;
  virtual std::optional<TokenId> bos() const = 0;
  virtual std::optional<TokenId> eos() const = 0;
  virtual bool add_bos() const = 0;
  virtual std::optional<TokenId> find(std::string_view spelling) const = 0;

  /// Concatenated bytes of `tokens`; control tokens only when `with_control`. May not be valid
  /// UTF-8.
  std::string decode(std::span<const TokenId> tokens, bool with_control) const;
};

}  // namespace pagewise::text
