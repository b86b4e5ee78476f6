// SPDX-License-Identifier: Apache-2.0
// Thoughts of models that think before they answer: "<think>...</think>" in front of the answer's
// text is split off, so that clients get it in the place that their API has for it. Where a model
// also puts marks around the answer behind it ("<response>"), those are left out. Answers in
// channels have a splitter of their own (channels.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "engine/request.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace pagewise::server {

/// How a model writes its thoughts; both empty: it has no form for them.
struct ReasoningSyntax {
  std::string_view open, close;
  std::string_view answer_open = {}, answer_close = {};  // around what follows; may be empty
  bool channels = false;  // an answer is several messages, each in a channel; the marks are one's

  explicit operator bool() const { return !close.empty(); }
};

/// Which form a model's chat template writes, or takes out of earlier answers: found out by
/// rendering small conversations. Cost: a few renderings of a few lines.
ReasoningSyntax detect_reasoning(const text::ChatTemplate& chat);

/// Marks that are control tokens of the model: their text must reach the splitter.
std::vector<TokenId> control_tokens(const ReasoningSyntax& syntax,
                                    const text::Tokenizer& tokenizer);

/// Whether text that ends a prompt leaves a thought open, so that the answer begins inside it:
/// templates that make a model think end so, and so may an answer's given beginning.
bool leaves_thought_open(std::string_view text, const ReasoningSyntax& syntax);

/// Splits one answer as it is generated. A thought stands at its very beginning; the marks and the
/// white space around it are nobody's. What looks like a mark is held back until it is known, so
/// the pieces in which the text comes never show in what is split, but for where it is cut.
class ReasoningSplitter {
 public:
  /// `begun`: the prompt has left a thought open.
  ReasoningSplitter(const ReasoningSyntax& syntax, bool begun)
      : syntax_(syntax), place_(begun ? Place::kThought : Place::kStart), thinks_(begun) {}

  /// Leaves the answer's own text in `delta` and returns the thought that came with it. A token of
  /// the thought has no log-probability in the answer.
  std::string take(engine::Delta& delta);

  /// Tokens up to the thought's end, its marks included.
  uint32_t thought_tokens() const { return thought_tokens_; }

 private:
  enum class Place : uint8_t {
    kStart,    // nothing but white space so far
    kThought,  // inside
    kBehind,   // behind the closing mark, in front of the answer's first character
    kAnswer,
  };

  bool step(std::string& thought, std::string& text);
  std::string until(std::string_view mark, bool& found);

  ReasoningSyntax syntax_;
  Place place_;
  bool thinks_;                // a thought has begun
  bool thought_said_ = false;  // some of it was more than white space
  bool marked_ = false;        // the answer stands between marks, and the last one is to come
  std::string pending_;        // not yet known what it is
  uint32_t thought_tokens_ = 0;
};

}  // namespace pagewise::server
