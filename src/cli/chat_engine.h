// SPDX-License-Identifier: Apache-2.0
// A model and an engine for one conversation in this process: turns in, an answer out piece by
// piece.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/interrupt.h"
#include "cli/model_argument.h"
#include "cli/shared_flags.h"
#include "engine/engine.h"
#include "sampling/params.h"
#include "server/generation.h"

namespace pagewise::cli {

struct ChatEngineOptions {
  NamedModel model;
  std::string chat_template;  // path; empty: the model file's own
  ComputeFlags compute;
  std::string kv_memory;     // as --kv-memory
  uint32_t max_context = 0;  // as --max-context
  bool prefix_cache = true;
  uint64_t max_tokens = 0;  // of an answer; 0: the room left
  sampling::Params sampling;
};

struct Answer {
  std::string text;
  engine::FinishReason finish = engine::FinishReason::kNone;
  engine::Admission admission;
  engine::Finished finished;

  /// Of the tokens behind the first, which belongs to the prompt's computation; 0: fewer than two.
  double tokens_per_second() const;
};

/// Thread: main.
class ChatEngine {
 public:
  /// Errors: what the readers say; kUnsupported for a file whose chat template is missing or cannot
  /// be used; kInvalidArgument when the memory does not suffice.
  static Result<std::unique_ptr<ChatEngine>> create(const ChatEngineOptions& options);
  ~ChatEngine();

  /// Answers the last turn. `show` gets the text as it comes, in whole characters. An interrupt
  /// ends the answer early (kCancelled); it is then what was
  /// shown. Errors: kContextTooLong with the numbers; kInvalidArgument with the template's own
  /// sentence.
  Result<Answer> answer(const std::vector<server::Turn>& turns, Interrupts& interrupts,
                        const std::function<void(std::string_view)>& show);

  const std::string& name() const;  // of the model
  uint32_t context_max() const;
  engine::Stats stats() const;

 private:
  struct Impl;
  explicit ChatEngine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pagewise::cli
