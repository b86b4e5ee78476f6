// SPDX-License-Identifier: Apache-2.0
// Changes a request's body as JSON rather than as bytes: most byte changes only break the syntax,
// which one parser sees, and the rules about fields stand behind it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/prng.h"
#include "fuzz/fuzz.h"

namespace pagewise::fuzz {

inline constexpr std::string_view kOddValues[] = {
    "null",
    "true",
    "false",
    "0",
    "1",
    "-1",
    "2",
    "1.5",
    "0.1",
    "1e308",
    "-0.0",
    "9007199254740993",
    "9223372036854775808",
    "\"\"",
    "\"x\"",
    "\"text\"",
    "\"user\"",
    "\"assistant\"",
    "\"system\"",
    "\"tool\"",
    "\"ephemeral\"",
    "\"5m\"",
    "\"1h\"",
    "\"30m\"",
    "\"explicit\"",
    "\"implicit\"",
    "\"\\u0000\\ud83d\\ude00\"",
    "[]",
    "{}",
    "[null]",
    "[[]]",
    "[{}]",
    "[1,2,3]",
    "[\"a\",\"b\"]",
    R"({"type":"ephemeral"})",
    R"({"type":"ephemeral","ttl":"1h"})",
    R"({"type":"text","text":"t","cache_control":{"type":"ephemeral"}})",
    R"([{"type":"text","text":"t"},{"type":"text","text":"u","cache_control":{"type":"ephemeral"}}])",
    R"({"role":"user","content":"u"})",
    R"({"role":"assistant","content":"a"})",
    R"([{"role":"user","content":[{"type":"text","text":"t"}]}])",
    R"({"10":-100,"11":1.5})",
    R"({"type":"json_object"})",
    R"({"type":"enabled","budget_tokens":1024})"};

inline constexpr std::string_view kKnownKeys[] = {"model",
                                                  "messages",
                                                  "prompt",
                                                  "content",
                                                  "role",
                                                  "type",
                                                  "text",
                                                  "system",
                                                  "max_tokens",
                                                  "max_completion_tokens",
                                                  "temperature",
                                                  "top_p",
                                                  "top_k",
                                                  "min_p",
                                                  "n",
                                                  "best_of",
                                                  "stop",
                                                  "stop_sequences",
                                                  "stream",
                                                  "stream_options",
                                                  "include_usage",
                                                  "logprobs",
                                                  "top_logprobs",
                                                  "echo",
                                                  "suffix",
                                                  "seed",
                                                  "logit_bias",
                                                  "frequency_penalty",
                                                  "presence_penalty",
                                                  "repetition_penalty",
                                                  "cache_control",
                                                  "ttl",
                                                  "cache_salt",
                                                  "cache_prompt",
                                                  "prompt_cache_key",
                                                  "prompt_cache_options",
                                                  "prompt_cache_breakpoint",
                                                  "prompt_cache_retention",
                                                  "mode",
                                                  "diagnostics",
                                                  "previous_message_id",
                                                  "tools",
                                                  "tool_choice",
                                                  "thinking",
                                                  "budget_tokens",
                                                  "output_config",
                                                  "response_format",
                                                  "metadata",
                                                  "continue_final_message",
                                                  "add_generation_prompt",
                                                  "ignore_eos",
                                                  "tokens",
                                                  "with_pieces",
                                                  "add_special",
                                                  "add_special_tokens",
                                                  "parse_special",
                                                  "source",
                                                  "data",
                                                  "media_type",
                                                  "title",
                                                  "context",
                                                  "name",
                                                  "tool_calls",
                                                  "tool_call_id",
                                                  "chat_template_kwargs",
                                                  "memory"};

class JsonMutator {
 public:
  explicit JsonMutator(uint64_t seed) : prng_(seed) {}

  /// One change somewhere in `root`.
  void change(json::value& root) {
    std::vector<json::value*> all;
    collect(root, all);
    json::value& target = *all[prng_.below(all.size())];
    switch (prng_.below(7)) {
      case 0:
        target = odd();
        break;
      case 1: {  // a piece of the same body at another place
        const json::value copy = *all[prng_.below(all.size())];
        target = copy;
        break;
      }
      case 2:
        if (auto* object = target.if_object()) (*object)[key()] = odd();
        if (auto* array = target.if_array()) array->insert(array->begin(), odd());
        if (auto* text = target.if_string()) change_text(*text);
        break;
      case 3:
        if (auto* object = target.if_object(); object != nullptr && !object->empty()) {
          object->erase(object->begin() + static_cast<std::ptrdiff_t>(prng_.below(object->size())));
        }
        if (auto* array = target.if_array(); array != nullptr && !array->empty()) {
          array->erase(array->begin() + static_cast<std::ptrdiff_t>(prng_.below(array->size())));
        }
        break;
      case 4:
        if (auto* array = target.if_array(); array != nullptr && !array->empty()) {
          const json::value copy = (*array)[prng_.below(array->size())];
          array->push_back(copy);
        }
        if (auto* text = target.if_string()) change_text(*text);
        break;
      case 5:
        if (auto* number = target.if_int64()) *number += static_cast<int64_t>(prng_.below(5)) - 2;
        if (auto* text = target.if_string()) change_text(*text);
        break;
      default:
        if (root.is_object()) root.get_object()[key()] = odd();
        break;
    }
  }

  Prng& prng() { return prng_; }

 private:
  static void collect(json::value& value, std::vector<json::value*>& all) {
    all.push_back(&value);
    if (auto* object = value.if_object()) {
      for (auto& member : *object) collect(member.value(), all);
    }
    if (auto* array = value.if_array()) {
      for (json::value& element : *array) collect(element, all);
    }
  }
  json::value odd() { return *parse_json(kOddValues[prng_.below(std::size(kOddValues))]); }
  std::string_view key() { return kKnownKeys[prng_.below(std::size(kKnownKeys))]; }
  void change_text(json::string& text) {
    constexpr std::string_view kPieces[] = {
        "a", "<s>", "\n", " ", "\xc3\xa9", "\xf0\x9f\x98\x80", "0123456789", "claude-", "gpt-x"};
    const std::string_view piece = kPieces[prng_.below(std::size(kPieces))];
    if (prng_.below(4) == 0) {
      text = piece;
    } else {
      text.append(piece);
    }
  }

  Prng prng_;
};

}  // namespace pagewise::fuzz
