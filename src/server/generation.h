// SPDX-License-Identifier: Apache-2.0
// A request for generated text, whichever API asked for it: what openai/parse.h and
// anthropic/parse.h produce and prompt.h turns into tokens.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "engine/request.h"
#include "sampling/params.h"
#include "server/api_error.h"

namespace pagewise::server {

/// One block of a message: the unit that a cache marker can stand on and that look-back counts.
struct ContentBlock {
  std::string text;
  std::optional<engine::LeaseClass> marker;
  // Where the client put it: the message (-1: the `system` field) and the place in its content.
  int32_t message = -1;
  int32_t index = 0;
};

struct Turn {
  std::string role;  // "system", "user", "assistant"
  std::vector<ContentBlock> blocks;
  json::object fields = {};  // what else the message says to a template that reads it: name, ...
};

/// What a request says to the chat template beside its messages.
struct TemplateInput {
  json::object variables;   // the template's own switches: enable_thinking
  json::array documents;    // objects; empty: none
  bool open_answer = true;  // the prompt ends where an answer begins
};

enum class Format : uint8_t { kChat, kCompletion, kMessages };

/// Where a model's thoughts (reasoning.h) go.
enum class Thoughts : uint8_t {
  kApart,    // beside the answer, in the place that the API has for them
  kOmitted,  // nowhere
  kInText,   // they stay in the answer's text, as the model wrote them
};

/// `diagnostics` of the Messages API (reference B13), when it was asked for.
struct DiagnosticsRequest {
  std::string previous_message_id;  // empty: the first turn
  std::string speed;                // empty: standard
  std::string tools;                // as sent; empty: none
  // What else belongs to the prompt there: tool_choice, thinking, effort, format; defaults left
  // out.
  std::string parameters;
};

/// Text, or token ids.
using PromptInput = std::variant<std::string, std::vector<TokenId>>;

struct GenerationRequest {
  Format format = Format::kChat;
  std::string model;  // as asked; the answer echoes it

  // The prompt: turns for kChat and kMessages, else one of `prompts` for each answer.
  std::vector<Turn> turns;
  TemplateInput chat;
  bool continue_last = false;  // the last turn is the beginning of the answer
  std::vector<PromptInput> prompts = {std::string()};
  bool echo = false;  // the answer begins with its prompt

  /// Clamped to the room left by the engine.
  uint64_t max_tokens = std::numeric_limits<uint64_t>::max();
  uint32_t choices = 1;
  uint32_t candidates = 1;  // generated, of which the best `choices` are shown; at least as many
  sampling::Params sampling;
  bool seed_given = false;
  std::vector<std::string> stops;
  bool ignore_eos = false;
  Thoughts thoughts = Thoughts::kApart;

  bool stream = false;
  bool include_usage = false;  // OpenAI streams: one more chunk
  bool logprobs = false;       // sampling.logprobs of them

  bool use_cache = true;
  std::string cache_salt;
  std::optional<DiagnosticsRequest> diagnostics;
  bool context_management = false;  // asked for: the answer says which edits were applied, none
};

}  // namespace pagewise::server
