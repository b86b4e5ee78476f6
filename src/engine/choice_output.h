// SPDX-License-Identifier: Apache-2.0
// Sampled tokens of one choice to what its client may see: whole characters, nothing of a stop
// string, and each token together with the text that it completed.
//
//   tokens ──▶ bytes ──▶ Utf8Assembler ──▶ StopMatcher ──▶ text
//     └────────────── held until their last character came out ──▶ TokenOutput
//
// Thread: engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "engine/request.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace pagewise::engine {

class ChoiceOutput {
 public:
  /// `tokenizer` must outlive this. Control tokens give text only when `want_control_text`, or when
  /// they are in `control_text`. `text_before`: the beginning of a character that the first tokens
  /// may complete.
  ChoiceOutput(const text::Tokenizer& tokenizer, const std::vector<std::string>& stops,
               bool want_control_text, std::string_view text_before = {},
               std::vector<TokenId> control_text = {});

  /// Adds a token. The index of the stop string that it completed, if any: then only the text
  /// before the match will come out, and the only call left is take().
  std::optional<std::size_t> push(sampling::Sampled&& sampled);

  /// No more tokens will come: an incomplete character is dropped (its tokens come out, with their
  /// bytes), held-back text is released.
  void finish();

  /// Moves what is final into `delta` (text and tokens). False when there was nothing.
  bool take(Delta& delta);

 private:
  struct Held {
    TokenOutput output;
    uint64_t begin = 0;  // its text in the assembled text: bytes [begin, end)
    uint64_t end = 0;
  };
  std::optional<std::size_t> match(std::string_view text);
  bool gives_text(TokenId token) const;

  const text::Tokenizer& tokenizer_;
  const bool want_control_text_;
  const std::vector<TokenId> control_text_;
  text::Utf8Assembler assembler_;
  std::optional<text::StopMatcher> matcher_;
  std::deque<Held> held_;
  std::string assembled_;        // scratch
  std::string text_;             // final, not yet taken
  uint64_t assembled_size_ = 0;  // bytes that left the assembler
  uint64_t released_size_ = 0;   // bytes that left the matcher
  bool stopped_ = false;
  bool finished_ = false;
};

}  // namespace pagewise::engine
