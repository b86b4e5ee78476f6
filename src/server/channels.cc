// SPDX-License-Identifier: Apache-2.0
#include "server/channels.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace pagewise::server {
namespace {

constexpr std::string_view kStart = "<|start|>", kChannel = "<|channel|>", kMessage = "<|message|>";
/// Either of these is behind a message; the last two begin the next.
constexpr std::string_view kEnds[] = {"<|end|>", "<|return|>", "<|call|>", kStart, kChannel};
constexpr std::string_view kApart = "\n\n";
/// A longer header is none: the model writes without them.
constexpr std::size_t kHeaderBytesMax = 512;

/// What stands behind `mark`, up to white space or another mark; empty without the mark.
std::string_view word_behind(std::string_view head, std::string_view mark) {
  const std::size_t at = head.rfind(mark);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = head.substr(at + mark.size());
  return rest.substr(0, rest.find_first_of(" \t\r\n<"));
}

/// How many bytes at the end of `text` may be the beginning of something that ends a message.
std::size_t begun_end(std::string_view text) {
  std::size_t most = 0;
  for (const std::string_view mark : kEnds) {
    for (std::size_t size = std::min(text.size(), mark.size() - 1); size > most; --size) {
      if (text.ends_with(mark.substr(0, size))) most = size;
    }
  }
  return most;
}

}  // namespace

std::vector<TokenId> channel_tokens(const text::Tokenizer& tokenizer) {
  std::vector<TokenId> out;
  for (const std::string_view mark :
       {kStart, kChannel, kMessage, std::string_view("<|constrain|>"), kEnds[0]}) {
    const auto token = tokenizer.find(mark);
    if (token && tokenizer.is_control(*token)) out.push_back(*token);
  }
  return out;
}

ChannelSplitter::ChannelSplitter(std::string_view head) : pending_(head), given_(head.size()) {
  std::string thought, text;
  while (step(thought, text)) {
  }
  // What is in the prompt is not said again.
  if (in_body_) pending_.clear();
  thought_said_ = text_said_ = apart_ = false;
}

/// Looks at what is pending; true when it may be looked at again.
bool ChannelSplitter::step(std::string& thought, std::string& text) {
  return in_body_ ? read_body(thought, text) : read_header(text);
}

bool ChannelSplitter::read_header(std::string& text) {
  const std::size_t end = pending_.find(kMessage);
  if (end == std::string::npos && pending_.size() < kHeaderBytesMax + kMessage.size()) return false;
  if (end > kHeaderBytesMax) {
    const std::string words = pending_.substr(given_, kHeaderBytesMax - given_);
    pending_.erase(0, kHeaderBytesMax);  // whatever marks it has: each step must get on
    begin_body({}, text);
    say(words, text, text);
    return true;
  }
  const std::string head = pending_.substr(0, end);
  pending_.erase(0, end + kMessage.size());
  const std::size_t start = head.rfind(kStart);
  begin_body(std::string_view(head).substr(start == std::string::npos ? 0 : start), text);
  return true;
}

void ChannelSplitter::begin_body(std::string_view head, std::string& text) {
  constexpr std::string_view kFunctions = "functions.";
  const std::string_view channel = word_behind(head, kChannel);
  const std::string_view recipient = word_behind(head, "to=");
  in_body_ = headed_ = true;
  given_ = 0;
  if (recipient.starts_with(kFunctions) || (!recipient.empty() && channel != "analysis")) {
    kind_ = Kind::kCall;
    text += kChannel;
    text += "commentary to=";
    text += recipient;
    text += kMessage;
  } else {
    kind_ = channel == "analysis" ? Kind::kThought : Kind::kText;
  }
  apart_ = kind_ == Kind::kThought ? thought_said_ : kind_ == Kind::kText && text_said_;
}

bool ChannelSplitter::read_body(std::string& thought, std::string& text) {
  std::size_t end = std::string::npos, length = 0;
  for (const std::string_view mark : kEnds) {
    const std::size_t at = pending_.find(mark);
    if (at >= end) continue;
    end = at;
    length = mark == kChannel ? 0 : mark.size();
  }
  if (end == std::string::npos) {
    const std::size_t known = pending_.size() - begun_end(pending_);
    say(std::string_view(pending_).substr(0, known), thought, text);
    pending_.erase(0, known);
    return false;
  }
  say(std::string_view(pending_).substr(0, end), thought, text);
  pending_.erase(0, end + length);
  in_body_ = false;
  return true;
}

void ChannelSplitter::say(std::string_view piece, std::string& thought, std::string& text) {
  if (piece.empty()) return;
  std::string& to = kind_ == Kind::kThought ? thought : text;
  if (apart_) to += kApart;
  apart_ = false;
  to += piece;
  (kind_ == Kind::kThought ? thought_said_ : text_said_) = true;
}

/// No more text will come. Of a header only words without a mark are said: the model wrote none.
void ChannelSplitter::finish(std::string& thought, std::string& text) {
  if (!in_body_) {
    pending_.erase(0, given_);
    if (headed_ || pending_.find("<|") != std::string::npos) pending_.clear();
    kind_ = Kind::kText;
    apart_ = false;
  }
  say(pending_, thought, text);
  pending_.clear();
  given_ = 0;
}

std::string ChannelSplitter::take(engine::Delta& delta) {
  const uint32_t fresh = delta.completion_tokens - std::min(tokens_, delta.completion_tokens);
  tokens_ += fresh;
  const bool thought_before = thinks();
  pending_ += delta.text;
  std::string thought, text;
  while (step(thought, text)) {
  }
  if (thought_before || thinks() || !thought.empty()) {
    thought_tokens_ += header_tokens_ + fresh;
    header_tokens_ = 0;
  } else {
    header_tokens_ = in_body_ ? 0 : header_tokens_ + fresh;
  }
  if (delta.finish != engine::FinishReason::kNone) finish(thought, text);
  if (text.empty()) delta.tokens.clear();
  delta.text = std::move(text);
  return thought;
}

}  // namespace pagewise::server
