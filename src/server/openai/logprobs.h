// SPDX-License-Identifier: Apache-2.0
// Log-probabilities in the two forms of the OpenAI routes. Source: api-reference C5, C6.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "engine/request.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace pagewise::server::openai {

/// Chat: a list of tokens with their bytes.
json::array chat_logprobs(const text::Tokenizer& tokenizer,
                          const std::vector<engine::TokenOutput>& tokens);

/// Completions: parallel lists, for one choice. Tokens are added in the order of the text; what is
/// taken goes into one chunk, or all of it into one answer.
class CompletionLogprobs {
 public:
  /// `tokenizer` must outlive this.
  explicit CompletionLogprobs(const text::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  /// A token of a repeated prompt, and what of the prompt's bytes is its own. The first token of
  /// all has no numbers.
  void add_prompt(const sampling::Sampled& token, std::string_view bytes, bool is_first);
  void add(const engine::TokenOutput& token);

  /// What was added since the last call.
  json::object take();

 private:
  /// `bytes`: what the token stands for; `text`: what of the text is its own.
  void add_entry(const sampling::Sampled& token, std::string_view bytes, std::string_view text);

  const text::Tokenizer& tokenizer_;
  text::Utf8Assembler assembler_;  // a token may begin inside a character
  std::string assembled_;          // scratch
  std::size_t characters_ = 0;     // of the text so far
  json::array tokens_, logprobs_, tops_, offsets_;
};

}  // namespace pagewise::server::openai
