// SPDX-License-Identifier: Apache-2.0
#include "server/reasoning.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <utility>

namespace pagewise::server {
namespace {

// Most families; Magistral.
constexpr ReasoningSyntax kSyntaxes[] = {{"<think>", "</think>"}, {"[THINK]", "[/THINK]"}};
// gpt-oss.
constexpr ReasoningSyntax kChannels = {"<|channel|>analysis<|message|>", "<|end|>", true};

constexpr std::string_view kWhite = " \t\r\n";

std::string_view without_front(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kWhite);
  return first == std::string_view::npos ? std::string_view() : text.substr(first);
}

std::string_view without_back(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kWhite) + 1);
}

/// How many bytes at the end of `text` may be the beginning of `mark`.
std::size_t begun_mark(std::string_view text, std::string_view mark) {
  for (std::size_t size = std::min(text.size(), mark.size() - 1); size > 0; --size) {
    if (text.ends_with(mark.substr(0, size))) return size;
  }
  return 0;
}

text::ChatMessage said(std::string_view role, std::string_view what) {
  return {std::string(role), {{std::string(what), 0}}, {}};
}

std::optional<std::string> rendered(const text::ChatTemplate& chat,
                                    std::initializer_list<text::ChatMessage> messages,
                                    json::value variables = nullptr) {
  text::ChatInput input;
  input.messages = messages;
  input.variables = {std::move(variables), 0};
  if (chat.needs_time()) input.now = 0;
  auto out = chat.render(input);
  if (!out) return std::nullopt;
  return std::move(out->text);
}

bool writes(const text::ChatTemplate& chat, const ReasoningSyntax& syntax) {
  constexpr std::string_view kThought = "a thought of old", kAnswer = "an answer of old";
  const text::ChatMessage question = said("user", "Why?");
  const auto has_mark = [&](const std::optional<std::string>& text) {
    return text && (text->find(syntax.open) != std::string::npos ||
                    text->find(syntax.close) != std::string::npos);
  };
  // Into the beginning of an answer.
  if (has_mark(rendered(chat, {question}))) return true;
  for (const bool think : {true, false}) {
    if (has_mark(rendered(chat, {question}, json::object{{"enable_thinking", think}}))) return true;
  }
  // Around the thought of an earlier answer.
  text::ChatMessage answer = said("assistant", kAnswer);
  answer.fields = {json::object{{"reasoning_content", kThought}}, 0};
  if (has_mark(rendered(chat, {question, answer}))) return true;
  if (has_mark(rendered(chat, {question, answer, question}))) return true;
  // Or it knows them in an earlier answer's text, and takes them out.
  const std::string marked = std::string(syntax.open) + "\n" + std::string(kThought) + "\n" +
                             std::string(syntax.close) + "\n\n" + std::string(kAnswer);
  const auto stripped = rendered(chat, {question, said("assistant", marked), question});
  return stripped && stripped->find(kAnswer) != std::string::npos &&
         stripped->find(kThought) == std::string::npos;
}

/// Whether the template writes an earlier answer into a channel.
bool writes_channels(const text::ChatTemplate& chat) {
  const auto text = rendered(chat, {said("user", "Why?"), said("assistant", "So.")});
  return text && text->find("<|channel|>") != std::string::npos;
}

}  // namespace

ReasoningSyntax detect_reasoning(const text::ChatTemplate& chat) {
  if (writes_channels(chat)) return kChannels;
  for (const ReasoningSyntax& syntax : kSyntaxes) {
    if (writes(chat, syntax)) return syntax;
  }
  return {};
}

bool leaves_thought_open(std::string_view text, const ReasoningSyntax& syntax) {
  if (!syntax) return false;
  const std::size_t open = text.rfind(syntax.open);
  if (open == std::string_view::npos) return false;
  return text.find(syntax.close, open) == std::string_view::npos;
}

/// Looks at what is pending from one place; true when it may be looked at again from the next.
bool ReasoningSplitter::step(std::string& thought, std::string& text) {
  switch (place_) {
    case Place::kStart: {
      const std::string_view rest = without_front(pending_);
      if (rest.size() < syntax_.open.size() && syntax_.open.starts_with(rest)) return false;
      if (rest.starts_with(syntax_.open)) {
        pending_ = std::string(rest.substr(syntax_.open.size()));
        place_ = Place::kThought;
        thinks_ = true;
      } else {
        place_ = Place::kAnswer;
      }
      return true;
    }
    case Place::kThought: {
      const std::size_t end = pending_.find(syntax_.close);
      const bool ends = end != std::string::npos;
      std::string_view piece(pending_);
      piece = piece.substr(0, ends ? end : pending_.size() - begun_mark(piece, syntax_.close));
      // White space at its end is only the thought's when more of it follows.
      std::string_view own = without_back(piece);
      const std::size_t taken = ends ? end + syntax_.close.size() : own.size();
      if (!thought_said_) own = without_front(own);
      thought_said_ = thought_said_ || !own.empty();
      thought += own;
      pending_.erase(0, taken);
      if (ends) place_ = Place::kBehind;
      return ends;
    }
    case Place::kBehind: {
      const std::string_view rest = without_front(pending_);
      pending_.erase(0, pending_.size() - rest.size());
      if (pending_.empty()) return false;
      place_ = Place::kAnswer;
      return true;
    }
    case Place::kAnswer:
      text += pending_;
      pending_.clear();
      return false;
  }
  return false;
}

std::string ReasoningSplitter::take(engine::Delta& delta) {
  if (place_ == Place::kAnswer && pending_.empty()) return {};
  const bool inside = place_ == Place::kThought;
  pending_ += delta.text;
  std::string thought, text;
  while (step(thought, text)) {
  }
  if (thinks_ && (inside || place_ == Place::kThought || !thought.empty())) {
    thought_tokens_ = delta.completion_tokens;
    delta.tokens.clear();
  }
  if (delta.finish != engine::FinishReason::kNone) {
    if (place_ == Place::kStart) text += pending_;
    if (place_ == Place::kThought) {
      std::string_view rest = without_back(pending_);
      if (!thought_said_) rest = without_front(rest);
      thought += rest;
    }
    pending_.clear();
  }
  delta.text = std::move(text);
  return thought;
}

}  // namespace pagewise::server
