// SPDX-License-Identifier: Apache-2.0
// Lines typed at a terminal, with history and the usual keys. An adapter of libedit: everything of
// the library stays in line_editor.cc.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "cli/interrupt.h"

namespace pagewise::cli {

enum class LineEnd { kLine, kInterrupt, kEnd };

/// Standard input and output must be terminals. Thread: main.
class LineEditor {
 public:
  /// `interrupts` must outlive it. Errors: kInternal when the library gives no editor.
  static Result<std::unique_ptr<LineEditor>> create(std::string_view prompt,
                                                    Interrupts& interrupts);
  ~LineEditor();

  /// One line, UTF-8, without its newline; lines within it come from pasting or Alt-Enter. kEnd:
  /// Ctrl-D on an empty line, a closed terminal, or a signal to leave. kInterrupt: Ctrl-C; `line`
  /// is what had been typed. Lines that are not empty enter the history.
  LineEnd read(std::string& line);

 private:
  struct Impl;
  explicit LineEditor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pagewise::cli
