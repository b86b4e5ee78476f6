// SPDX-License-Identifier: Apache-2.0
// The model that this server answers with, and the names it answers to.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/reasoning.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace pagewise::server {

/// The served context in tokens, prompt and answer together. It follows the KV pool, so copies
/// share one number. Thread: any.
class ServedContext {
 public:
  ServedContext& operator=(uint32_t tokens) {
    *tokens_ = tokens;
    return *this;
  }
  operator uint32_t() const { return *tokens_; }  // NOLINT: implicit by design

 private:
  std::shared_ptr<std::atomic<uint32_t>> tokens_ = std::make_shared<std::atomic<uint32_t>>(0);
};

/// Everything behind the references outlives the server. Thread: immutable, any thread.
struct ServedModel {
  std::string name;                  // its real name: header x-model, /v1/models
  std::vector<std::string> aliases;  // globs: '*' any run of characters, '?' one
  const text::Tokenizer* tokenizer = nullptr;
  const text::ChatTemplate* chat_template = nullptr;  // nullptr: the chat routes say why not
  ReasoningSyntax reasoning;                          // of that template
  std::string no_template_reason = "this model file has no chat template";
  std::string bos_token;  // spellings, for the template
  std::string eos_token;
  ServedContext context_max;
  uint32_t token_bytes_max = 0;  // of the longest token; 0: not known
  uint32_t choices_max = 1;      // `n` is bounded by the sequences that may run
  uint32_t prompts_max = 1;      // of one call to /v1/completions
  int64_t created_unix_s = 0;
  /// Seconds since 1970 in local time: only asked for templates that write the date.
  std::function<int64_t()> local_time_s = [] { return int64_t{0}; };

  bool answers_to(std::string_view asked) const;
  /// The real name, then those aliases that are plain names.
  std::vector<std::string> listed_names() const;
};

/// Whole-string match of `text` with '*' and '?'. Cost: O(pattern * text).
bool glob_match(std::string_view pattern, std::string_view text);

}  // namespace pagewise::server
