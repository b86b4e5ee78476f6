// SPDX-License-Identifier: Apache-2.0
#include "server/reasoning.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <utility>

#include "server/template_input.h"

namespace pagewise::server {
namespace {

// Most families; Magistral; Command A and R7B; Granite 3.2.
constexpr ReasoningSyntax kSyntaxes[] = {{"<think>", "</think>"},
                                         {"[THINK]", "[/THINK]"},
                                         {"<|START_THINKING|>", "<|END_THINKING|>"},
                                         {"Here is my thought process:", "Here is my response:"}};
// gpt-oss.
constexpr ReasoningSyntax kChannels = {
    .open = "<|channel|>analysis<|message|>", .close = "<|end|>", .channels = true};
// Granite 3.3, behind its thoughts.
constexpr std::string_view kAnswerOpen = "<response>", kAnswerClose = "</response>";

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

/// What the template writes when it is told to think, and when it is told not to.
std::optional<std::string> rendered_thinking(const text::ChatTemplate& chat, bool think) {
  json::object switches;
  for (const std::string_view name : kThinkingSwitches) switches.emplace(name, think);
  return rendered(chat, {said("user", "Why?")}, std::move(switches));
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
    if (has_mark(rendered_thinking(chat, think))) return true;
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
  for (ReasoningSyntax syntax : kSyntaxes) {
    if (!writes(chat, syntax)) continue;
    const auto told = rendered_thinking(chat, true);
    if (told && told->find(kAnswerOpen) != std::string::npos) {
      syntax.answer_open = kAnswerOpen;
      syntax.answer_close = kAnswerClose;
    }
    return syntax;
  }
  return {};
}

std::vector<TokenId> control_tokens(const ReasoningSyntax& syntax,
                                    const text::Tokenizer& tokenizer) {
  std::vector<TokenId> out;
  for (const std::string_view mark :
       {syntax.open, syntax.close, syntax.answer_open, syntax.answer_close}) {
    if (mark.empty()) continue;
    const auto token = tokenizer.find(mark);
    if (token && tokenizer.is_control(*token)) out.push_back(*token);
  }
  return out;
}

bool leaves_thought_open(std::string_view text, const ReasoningSyntax& syntax) {
  if (!syntax) return false;
  const std::size_t open = text.rfind(syntax.open);
  if (open == std::string_view::npos) return false;
  return text.find(syntax.close, open) == std::string_view::npos;
}

/// Takes from what is pending all that cannot be the beginning of `mark` or white space in front of
/// it; where the mark is `found`, it is taken too and what stands in front of it given.
std::string ReasoningSplitter::until(std::string_view mark, bool& found) {
  const std::size_t end = pending_.find(mark);
  found = end != std::string::npos;
  std::string_view piece(pending_);
  piece = piece.substr(0, found ? end : pending_.size() - begun_mark(piece, mark));
  // White space at its end only counts when more of it follows.
  std::string own(without_back(piece));
  pending_.erase(0, found ? end + mark.size() : own.size());
  return own;
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
      bool ends = false;
      const std::string piece = until(syntax_.close, ends);
      const std::string_view own = thought_said_ ? std::string_view(piece) : without_front(piece);
      thought_said_ = thought_said_ || !own.empty();
      thought += own;
      if (ends) place_ = Place::kBehind;
      return ends;
    }
    case Place::kBehind: {
      const std::string_view rest = without_front(pending_);
      pending_.erase(0, pending_.size() - rest.size());
      if (pending_.empty()) return false;
      const std::string_view mark = marked_ ? std::string_view() : syntax_.answer_open;
      if (pending_.size() < mark.size() && mark.starts_with(pending_)) return false;
      if (!mark.empty() && pending_.starts_with(mark)) {
        pending_.erase(0, mark.size());
        marked_ = true;
      } else {
        place_ = Place::kAnswer;
      }
      return true;
    }
    case Place::kAnswer:
      if (marked_) {
        bool ends = false;
        text += until(syntax_.answer_close, ends);
        marked_ = !ends;
        return ends;
      }
      text += pending_;
      pending_.clear();
      return false;
  }
  return false;
}

std::string ReasoningSplitter::take(engine::Delta& delta) {
  if (place_ == Place::kAnswer && pending_.empty() && !marked_) return {};
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
    if (place_ != Place::kThought) text += pending_;
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
