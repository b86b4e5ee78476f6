// SPDX-License-Identifier: Apache-2.0
// Answers in channels, as gpt-oss writes them (the harmony format): an answer is several messages,
// each with a header that says to whom and in which channel,
//
//   <|start|>assistant <|channel|>analysis <|message|>Hm. <|end|>
//   <|start|>assistant <|channel|>commentary to=functions.f <|constrain|>json <|message|>{}
//   <|call|>
//
// (without the white space around marks). What is said to `analysis` is thought, what is said to a
// tool is a call, and the rest is what the client reads. Source: the format's published description
// (OpenAI 2025, "OpenAI harmony response format").
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "engine/request.h"
#include "text/tokenizer.h"

namespace pagewise::server {

/// What a message to the client begins with, from behind <|start|>.
inline constexpr std::string_view kFinalHead = "assistant<|channel|>final<|message|>";

/// The format's marks that are control tokens of the model: their text must reach the splitter.
/// Those that end a turn are not among them.
std::vector<TokenId> channel_tokens(const text::Tokenizer& tokenizer);

/// Splits one answer as it is generated. What looks like a mark is held back until it is known, so
/// the pieces in which the text comes never show, but for where it is cut. Two thoughts, and two
/// texts, are an empty line apart. A call stays in the text, behind one form of its header
/// (tools/call_parser.h reads it).
class ChannelSplitter {
 public:
  /// `head`: what the prompt has of the answer's first message, from behind <|start|>.
  explicit ChannelSplitter(std::string_view head);

  /// Leaves the answer's own text and calls in `delta` and returns the thought that came with it.
  /// Tokens that bring neither have no log-probability in the answer.
  std::string take(engine::Delta& delta);

  /// Tokens of thoughts, their headers and ends included.
  uint32_t thought_tokens() const { return thought_tokens_; }

 private:
  enum class Kind : uint8_t { kThought, kText, kCall };

  bool step(std::string& thought, std::string& text);
  bool read_header(std::string& text);
  bool read_body(std::string& thought, std::string& text);
  void begin_body(std::string_view head, std::string& text);
  void say(std::string_view piece, std::string& thought, std::string& text);
  void finish(std::string& thought, std::string& text);
  bool thinks() const { return in_body_ && kind_ == Kind::kThought; }

  std::string pending_;    // of a header, or not yet known whether it is a mark
  std::size_t given_ = 0;  // bytes of pending_ that the prompt has
  bool in_body_ = false;
  bool headed_ = false;      // a header has been read
  Kind kind_ = Kind::kText;  // of the body
  bool apart_ = false;       // the body's first piece stands behind another of its kind
  bool thought_said_ = false;
  bool text_said_ = false;
  uint32_t tokens_ = 0;         // so far
  uint32_t header_tokens_ = 0;  // of the header at hand
  uint32_t thought_tokens_ = 0;
};

}  // namespace pagewise::server
