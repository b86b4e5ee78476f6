// SPDX-License-Identifier: Apache-2.0
// A line that was typed into `pagewise chat`: a message, or a command.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pagewise::cli {

enum class ChatAction : uint8_t {
  kNothing,  // an empty line
  kMessage,
  kHelp,
  kReset,
  kUndo,
  kShowSystem,
  kSetSystem,  // `text` is the new one; empty: none
  kStats,
  kExit,
};

struct ChatLine {
  ChatAction action = ChatAction::kNothing;
  std::string text;

  bool operator==(const ChatLine&) const = default;
};

/// A slash and a word are a command, two slashes a message that begins with one; everything else is
/// a message, kept as it is but for white space at its ends. Bytes that are no UTF-8 become U+FFFD.
/// Errors: kInvalidArgument for a command that does not exist or takes no text.
Result<ChatLine> parse_chat_line(std::string_view line);

/// What /help prints.
std::string_view chat_help();

}  // namespace pagewise::cli
