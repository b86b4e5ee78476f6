// SPDX-License-Identifier: Apache-2.0
#include "cli/chat_session.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "cli/process.h"
#include "cli/terminal_text.h"

namespace pagewise::cli {
namespace {

server::Turn turn(std::string role, std::string text) {
  server::Turn out;
  out.role = std::move(role);
  out.blocks.push_back({std::move(text), std::nullopt});
  return out;
}

}  // namespace

std::string dimmed(std::string_view text) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  const bool plain = (no_color != nullptr && *no_color != '\0') || terminal == nullptr ||
                     std::string_view(terminal) == "dumb";
  return plain ? std::string(text) : fmt::format("\x1b[2m{}\x1b[22m", text);
}

void ChatSession::note(std::string_view text) const {
  if (terminal_) fmt::print("{}\n", dimmed(text));
}

Status ChatSession::take(std::string_view line, bool& leave) {
  PW_ASSIGN_OR_RETURN(ChatLine parsed, parse_chat_line(line));
  switch (parsed.action) {
    case ChatAction::kNothing:
      break;
    case ChatAction::kMessage:
      return ask(std::move(parsed.text));
    case ChatAction::kHelp:
      fmt::print("{}", chat_help());
      break;
    case ChatAction::kReset:
      turns_.clear();
      context_tokens_ = 0;
      note("(the conversation is forgotten)");
      break;
    case ChatAction::kUndo:
      return undo();
    case ChatAction::kShowSystem:
      fmt::print("{}\n", system_.empty() ? "(no system message)" : terminal_safe(system_));
      break;
    case ChatAction::kSetSystem:
      system_ = std::move(parsed.text);
      note(system_.empty() ? "(no system message from now on)" : "(system message set)");
      break;
    case ChatAction::kStats:
      show_stats();
      break;
    case ChatAction::kExit:
      leave = true;
      break;
  }
  return Status::ok();
}

Status ChatSession::undo() {
  if (turns_.empty()) return {ErrorCode::kInvalidArgument, "there is no message to take back"};
  turns_.resize(turns_.size() - 2);
  note("(the last message and its answer are taken back)");
  return Status::ok();
}

Status ChatSession::ask(std::string message) {
  std::vector<server::Turn> conversation;
  if (!system_.empty()) conversation.push_back(turn("system", system_));
  conversation.insert(conversation.end(), turns_.begin(), turns_.end());
  conversation.push_back(turn("user", message));
  const Result<Answer> answer = engine_.answer(conversation, interrupts_, print_generated);
  if (!answer.has_value()) {
    if (answer.error().code != ErrorCode::kContextTooLong) {
      // A template's own sentence may be anything.
      return {answer.error().code, one_line(answer.error().message, 1000)};
    }
    return {ErrorCode::kContextTooLong,
            fmt::format("{}; {}, or start with a larger --max-context", answer.error().message,
                        turns_.empty() ? "shorten the message"
                                       : "/undo takes back a message, /reset begins anew")};
  }
  std::fputc('\n', stdout);
  if (answer->text.empty() && answer->finish != engine::FinishReason::kStop) {
    note("(stopped before the first word: your message is taken back)");
    return flush_output();
  }
  turns_.push_back(turn("user", std::move(message)));
  turns_.push_back(turn("assistant", answer->text));
  prompt_tokens_ += answer->admission.prompt_tokens;
  cached_tokens_ += answer->admission.cached_tokens;
  answer_tokens_ += answer->finished.completion_tokens;
  context_tokens_ = answer->admission.prompt_tokens + answer->finished.completion_tokens;
  show_answer_note(*answer);
  return flush_output();
}

void ChatSession::show_answer_note(const Answer& answer) {
  std::string text = fmt::format("[{}; {} of {} prompt tokens cached; first after {:.0f} ms",
                                 counted(answer.finished.completion_tokens, "token"),
                                 answer.admission.cached_tokens, answer.admission.prompt_tokens,
                                 static_cast<double>(answer.finished.first_ns) / 1e6);
  if (const double speed = answer.tokens_per_second(); speed > 0) {
    text += fmt::format("; {:.0f} tok/s", speed);
  }
  switch (answer.finish) {
    case engine::FinishReason::kCancelled:
      text += "; stopped";
      break;
    case engine::FinishReason::kLength:
      text += "; cut at --max-tokens";
      break;
    default:
      break;
  }
  note(text + "]");
  if (answer.finish == engine::FinishReason::kContext) {
    const std::string full = fmt::format(
        "the answer is cut: the context of {} tokens is full; /undo takes back a message, /reset "
        "begins anew, or start with a larger --max-context",
        engine_.context_max());
    if (terminal_) {
      note(fmt::format("({})", full));
    } else {
      fmt::print(stderr, "pagewise chat: {}\n", full);
    }
  }
}

void ChatSession::show_stats() const {
  const engine::Stats stats = engine_.stats();
  fmt::print("conversation  {}, {} of {} tokens of context\n",
             counted(turns_.size() / 2, "message"), context_tokens_, engine_.context_max());
  fmt::print("so far        {} prompt tokens, of these {} read from the cache; {} answer tokens\n",
             prompt_tokens_, cached_tokens_, answer_tokens_);
  fmt::print("KV blocks     {} live, {} cached, {} free, {} in all\n", stats.blocks_live,
             stats.blocks_cached, stats.blocks_free, stats.blocks_pool);
}

}  // namespace pagewise::cli
