// SPDX-License-Identifier: Apache-2.0
// Chat templates: an interpreter for the template language of model files that keeps each
// character's provenance. What it does not implement is refused by name when the template is
// compiled.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/provenance.h"

namespace pagewise::text {

struct ContentPart {
  std::string text;
  int32_t origin = 0;  // the caller's number for this content block, >= 0; comes back in OriginSpan
};

struct ChatMessage {
  std::string role;  // "system", "user", "assistant", "tool"
  /// Rendered as one string, parts joined by a newline of the template's origin.
  std::vector<ContentPart> parts;
};

struct ChatInput {
  std::vector<ChatMessage> messages;
  bool add_generation_prompt = true;
  /// The last message is an assistant's and is continued: rendered without its end-of-turn text.
  bool continue_last = false;
  std::string bos_token;
  std::string eos_token;
};

/// Thread: immutable after compile; any thread.
class ChatTemplate {
 public:
  /// Errors: kUnsupported ("chat template: filter 'x' at line N is not supported"); kMalformed for
  /// syntax.
  static Result<std::unique_ptr<ChatTemplate>> compile(std::string_view source);
  ~ChatTemplate();

  /// Errors: kInvalidArgument with the template's own sentence when it raises (C15), or when a
  /// bound on time, depth or output is exceeded.
  Result<ProvenancedText> render(const ChatInput& input) const;

 private:
  ChatTemplate();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pagewise::text
