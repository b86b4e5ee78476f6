// SPDX-License-Identifier: Apache-2.0
#include "cli/chat_line.h"

#include <fmt/format.h>

#include <array>

#include "base/trimmed.h"
#include "cli/terminal_text.h"

namespace pagewise::cli {
namespace {

constexpr std::string_view kWhiteSpace = " \t\r\n\v\f";

struct Command {
  std::string_view name;
  ChatAction action;
  bool takes_text = false;
};

constexpr std::array kCommands = {
    Command{"/help", ChatAction::kHelp},   Command{"/?", ChatAction::kHelp},
    Command{"/reset", ChatAction::kReset}, Command{"/undo", ChatAction::kUndo},
    Command{"/stats", ChatAction::kStats}, Command{"/system", ChatAction::kShowSystem, true},
    Command{"/exit", ChatAction::kExit},   Command{"/quit", ChatAction::kExit},
};

}  // namespace

Result<ChatLine> parse_chat_line(std::string_view line) {
  const std::string_view text = trimmed(line, kWhiteSpace);
  if (text.empty()) return ChatLine{};
  if (!text.starts_with('/')) return ChatLine{ChatAction::kMessage, well_formed(text)};
  if (text.starts_with("//")) {
    return ChatLine{ChatAction::kMessage, well_formed(text.substr(1))};
  }
  const std::string_view name = text.substr(0, text.find_first_of(kWhiteSpace));
  const std::string_view rest = trimmed(text.substr(name.size()), kWhiteSpace);
  for (const Command& command : kCommands) {
    if (command.name != name) continue;
    if (rest.empty()) return ChatLine{command.action, ""};
    if (!command.takes_text) {
      return Error{ErrorCode::kInvalidArgument, fmt::format("{} takes no text behind it", name)};
    }
    return ChatLine{ChatAction::kSetSystem, rest == "\"\"" ? "" : well_formed(rest)};
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("no command {}; /help lists them, and // begins a message with a slash",
                           well_formed(name.substr(0, 40)))};
}

std::string_view chat_help() {
  return "/system TEXT  set the system message (\"\" for none); without TEXT, show it\n"
         "/undo         take back the last message and its answer\n"
         "/reset        forget the conversation; the system message stays\n"
         "/stats        tokens of the conversation, KV blocks, what the cache did\n"
         "/exit         leave; so does Ctrl-D\n"
         "Ctrl-C stops an answer; what was said of it stays in the conversation.\n"
         "Alt-Enter begins a new line, pasted lines stay one message, // begins a message with a "
         "slash.\n";
}

}  // namespace pagewise::cli
