// SPDX-License-Identifier: Apache-2.0
// Cuts text into the pieces inside which byte-pair merges happen.
//
// A model's vocabulary was trained on pieces cut by one particular set of regular expressions; the
// file names it (`tokenizer.ggml.pre`). Each expression cuts every piece of the one before it: its
// matches and what lies between them become pieces of their own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pagewise::text {

/// Thread: immutable after creation; split() from any number of threads at once.
class PreTokenizer {
 public:
  /// Errors: kUnsupported naming `name` and listing what is offered.
  static Result<std::unique_ptr<PreTokenizer>> create(std::string_view name);
  ~PreTokenizer();

  /// Replaces `ends` by the end offset of each piece, ascending; the pieces cover `text`. A byte
  /// that is no part of well-formed UTF-8 is a piece by itself. Requires: text.size() < 2^32. Cost:
  /// linear in text.size().
  void split(std::string_view text, std::vector<uint32_t>& ends) const;

  /// Text is composed (nfc.h) before it is cut, as these families' own tokenizers do.
  bool composes() const;
  /// The vocabulary wins over the merges: a piece that is a token becomes that token (Llama 3).
  bool ignore_merges() const;
  /// Whether a BOS is prepended when the file does not say.
  bool add_bos_by_default() const;

 private:
  PreTokenizer();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pagewise::text
