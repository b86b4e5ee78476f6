// SPDX-License-Identifier: Apache-2.0
// A model's text to what a client sees of it: words, and calls of tools. Text that may be the
// beginning of a call is held back until it is known, as stop strings are, so no part of a call is
// ever text; and what only looked like a call comes out as the text that it is, whole.
//
//   text ──▶ words ──────────────────────────────────────────▶ kText
//              │ an opening                       ▲
//              ▼                                  │ no call after all: from its opening on
//            opening, object or list, closing ────┤
//                                                 └──────────▶ kStart, kArguments, kEnd
//
// How the text was cut into pieces never shows in the events, but for where texts and arguments are
// cut. White space around calls belongs to them: templates write their own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/tools/call_object.h"
#include "server/tools/json_scanner.h"
#include "server/tools/tool_format.h"

namespace pagewise::server::tools {

struct CallEvent {
  enum class Kind : uint8_t {
    kText,
    kStart,      // text: the tool's name
    kArguments,  // text: a piece of the arguments' JSON
    kEnd,        // the call is complete: its pieces are one JSON object
  };
  Kind kind = Kind::kText;
  std::string text;
  bool operator==(const CallEvent&) const = default;
};

/// Adds a piece of a kind that comes in pieces (text, arguments): to the last event where that is
/// of this kind.
void append(CallEvent::Kind kind, std::string_view text, std::vector<CallEvent>& events);

class CallParser {
 public:
  /// `names`: of the tools that may be called; anything else is no call. `certain`: whatever begins
  /// a call is known to become one (the sampler sees to it), so its arguments come out as they are
  /// written; else a call comes out when it is complete.
  CallParser(const CallSyntax& syntax, std::vector<std::string> names, bool certain);

  void push(std::string_view text, std::vector<CallEvent>& out);
  /// No more text will come. `cut`: it was ended by a limit and not by the model; a call that was
  /// begun then stays without its kEnd, and an opening without a name is left out.
  void finish(bool cut, std::vector<CallEvent>& out);

 private:
  enum class Mode : uint8_t {
    kWords,
    kOpened,      // behind an opening: a list, an object, or a name
    kItem,        // in a list, in front of an object
    kObject,      // in an object
    kBehindItem,  // in a list, behind an object
    kHeader,      // in front of named arguments
    kArguments,   // in named arguments
    kClosing,     // behind a complete call
  };
  using Events = std::vector<CallEvent>;

  void run(Events& out);
  bool words(Events& out);
  bool closing();
  void byte(char c, Events& out);
  void object_byte(char c, Events& out);
  void header_byte(char c, Events& out);
  void arguments_byte(char c, Events& out);
  bool read_header();
  void open(std::size_t opening);
  void broken(Events& out);
  void leave(Events& out);
  void tell(std::string_view name, std::string_view arguments, bool whole, Events& out);
  void flush(Events& out);
  void say(std::string_view text, Events& out);
  bool known(std::string_view name) const;
  bool undecided() const;

  const CallSyntax& syntax_;
  const std::vector<std::string> names_;
  const bool certain_;

  Mode mode_ = Mode::kWords;
  std::string buffer_;        // not told yet; of a call from its opening on
  std::size_t at_ = 0;        // bytes of it that were read as a call's
  std::size_t opening_ = 0;   // bytes of the opening; 0: the object's brace is one
  std::string space_;         // white space in front of the opening
  bool said_ = false;         // there were words before
  bool behind_call_ = false;  // only white space since a call
  bool closed_ = false;       // the last call was closed

  CallObject object_;
  JsonScanner scanner_;
  std::string header_;
  std::string name_;  // of named arguments
  std::size_t arguments_at_ = 0;
  bool list_ = false;
  bool started_ = false;  // kStart of the current call is out
  std::size_t told_ = 0;  // bytes of its arguments that are out
  Events held_;           // of a list that is not complete
};

}  // namespace pagewise::server::tools
