// SPDX-License-Identifier: Apache-2.0
// The conversation of `pagewise chat`: what each line does to it and what is printed for it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/chat_engine.h"
#include "cli/chat_line.h"
#include "cli/interrupt.h"
#include "server/generation.h"

namespace pagewise::cli {

/// Thread: main.
class ChatSession {
 public:
  /// Both must outlive it. `terminal`: notes and figures go between the answers.
  ChatSession(ChatEngine& engine, Interrupts& interrupts, std::string system, bool terminal)
      : engine_(engine), interrupts_(interrupts), system_(std::move(system)), terminal_(terminal) {}

  /// Does what the line says; sets `leave` for /exit. Errors: one line for the person, with what to
  /// do; the conversation is then as it was before.
  Status take(std::string_view line, bool& leave);

 private:
  Status ask(std::string message);
  Status undo();
  void show_answer_note(const Answer& answer);
  void show_stats() const;
  /// A line about the conversation, not of it.
  void note(std::string_view text) const;

  ChatEngine& engine_;
  Interrupts& interrupts_;
  std::string system_;
  bool terminal_;
  std::vector<server::Turn> turns_;  // without the system message; a user's and its answer, in turn
  uint64_t context_tokens_ = 0;      // of the last prompt and its answer
  uint64_t prompt_tokens_ = 0, cached_tokens_ = 0, answer_tokens_ = 0;  // of all requests
};

/// `text` dimmed, where the terminal can and NO_COLOR does not forbid it.
std::string dimmed(std::string_view text);

}  // namespace pagewise::cli
