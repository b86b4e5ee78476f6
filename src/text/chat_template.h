// SPDX-License-Identifier: Apache-2.0
// Chat templates: an interpreter for the template language of model files that keeps each
// character's provenance. What it does not implement is refused by name when the template is
// compiled.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
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

/// JSON from a request that a template may print: every text in it counts as content of `origin`.
struct ChatValue {
  json::value value;
  int32_t origin = 0;  // >= 0, as ContentPart::origin
};

struct ChatMessage {
  std::string role;  // "system", "user", "assistant", "tool"
  /// Rendered as one string, parts joined by a newline of the template's origin; a template that
  /// prints nothing of a string gets a list of {"type": "text", "text": ...}.
  std::vector<ContentPart> parts;
  /// What else the message has for the template, an object or null: tool_calls, tool_call_id, name,
  /// reasoning_content. `content` here takes the place of `parts` (null beside tool calls).
  ChatValue fields = {};
  /// An assistant's calls of tools, as templates read them: objects {"id", "type": "function",
  /// "function": {"name", "arguments": OBJECT}}. Not empty: the message has them as `tool_calls`,
  /// in place of any in `fields`.
  std::vector<ChatValue> tool_calls = {};
};

struct ChatInput {
  std::vector<ChatMessage> messages;
  bool add_generation_prompt = true;
  /// The last message is an assistant's and is continued: rendered without its end-of-turn text.
  bool continue_last = false;
  std::string bos_token;
  std::string eos_token;
  /// Objects {"type": "function", "function": {"name", "description", "parameters"}}; none when
  /// empty.
  std::vector<ChatValue> tools = {};
  std::optional<ChatValue> documents = std::nullopt;  // a list of objects
  /// An object or null: variables of the template's own (enable_thinking).
  ChatValue variables = {};
  /// Seconds since 1970 in local time, for templates that write the date: strftime_now exists only
  /// with it. Without it rendering depends on nothing but the conversation.
  std::optional<int64_t> now = std::nullopt;
};

/// Thread: immutable after compile; any thread.
class ChatTemplate {
 public:
  /// Errors: kUnsupported ("chat template: filter 'x' at line N is not supported"); kMalformed for
  /// syntax.
  static Result<std::unique_ptr<ChatTemplate>> compile(std::string_view source);
  /// Errors: those, and kIo or kInvalidArgument for what is no readable text file, all with the
  /// file's name. A newline at the file's end is the editor's and not part of the template.
  static Result<std::unique_ptr<ChatTemplate>> from_file(const std::string& path);
  ~ChatTemplate();

  /// The template writes the date and does not ask whether it can: it needs ChatInput::now. For any
  /// other, a prompt that changes every day would only make yesterday's prefixes useless.
  bool needs_time() const;
  /// Whether the template reads a variable of this name anywhere. What it never reads cannot reach
  /// the prompt.
  bool reads(std::string_view variable) const;

  /// Errors: kInvalidArgument with the template's own sentence when it raises (C15), or when a
  /// bound on time, depth or output is exceeded.
  Result<ProvenancedText> render(const ChatInput& input) const;

 private:
  ChatTemplate();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pagewise::text
