// SPDX-License-Identifier: Apache-2.0
// Bodies of /v1/completions. Source: api-reference C6.
#include <fmt/format.h>

#include <limits>
#include <string>
#include <utility>

#include "server/openai/parse_common.h"
#include "server/output_format.h"

namespace pagewise::server::openai {
namespace {

constexpr int64_t kLogprobsMax = 5;
constexpr uint64_t kTokensDefault = 16;

bool is_list(const json::value& value) { return value.is_string() || value.is_array(); }

/// One prompt: a text, or an array of token ids.
PromptInput parse_prompt(Fields& fields, const json::value& value, const std::string& path,
                         const ParseLimits& limits) {
  if (const json::string* text = value.if_string()) {
    return std::string(text->data(), text->size());
  }
  const json::array* ids = value.if_array();
  if (ids == nullptr) {
    fields.wrong_type(path, "a string or an array of token ids");
    return {};
  }
  if (ids->empty()) {
    fields.invalid(path, "must not be an empty array", "empty_array");
    return {};
  }
  return parse_token_ids(fields, *ids, path, limits.vocab_size);
}

void parse_prompts(Fields& fields, const json::object& body, const ParseLimits& limits,
                   GenerationRequest& request) {
  const json::value* prompt = Fields::find(body, "prompt");
  if (prompt == nullptr) return;  // the beginning of a document
  const json::array* list = prompt->if_array();
  if (list == nullptr || list->empty() || !is_list(list->front())) {
    if (!is_list(*prompt)) {
      return fields.wrong_type("prompt", "a string, an array of token ids, or an array of either");
    }
    request.prompts = {parse_prompt(fields, *prompt, "prompt", limits)};
    return;
  }
  if (list->size() > limits.prompts_max) {
    return fields.invalid("prompt",
                          fmt::format("must have at most {} prompts, as many as this server takes "
                                      "in one call",
                                      limits.prompts_max),
                          "array_above_max_length");
  }
  request.prompts.clear();
  for (std::size_t i = 0; i < list->size() && !fields.failed(); ++i) {
    request.prompts.push_back(parse_prompt(fields, (*list)[i], fields.item("prompt", i), limits));
  }
}

void parse_best_of(Fields& fields, const json::object& body, const ParseLimits& limits,
                   GenerationRequest& request) {
  request.candidates = request.choices;
  const auto best_of = parse_choices(fields, body, "best_of", limits);
  if (!best_of) return;
  if (*best_of < request.choices) {
    return fields.refuse("best_of",
                         fmt::format("best_of: must be at least n, which is {}", request.choices));
  }
  if (*best_of > request.choices && request.stream) {
    return fields.refuse("best_of",
                         "best_of: which answers are the best is only known at the end; not "
                         "allowed with 'stream' unless it equals n");
  }
  request.candidates = *best_of;
}

}  // namespace

std::vector<TokenId> parse_token_ids(Fields& fields, const json::array& array,
                                     std::string_view path, uint32_t vocab_size) {
  std::vector<TokenId> tokens;
  tokens.reserve(array.size());
  for (std::size_t i = 0; i < array.size(); ++i) {
    const json::value& value = array[i];
    if (!value.is_int64() || value.get_int64() < 0 || value.get_int64() >= vocab_size) {
      fields.invalid(fields.item(path, i),
                     fmt::format("must be a token id from 0 to {}", vocab_size - 1));
      return {};
    }
    tokens.emplace_back(static_cast<int32_t>(value.get_int64()));
  }
  return tokens;
}

ApiResult<GenerationRequest> parse_completion(const json::object& body, const ParseLimits& limits) {
  Fields fields(Surface::kOpenAi);
  GenerationRequest request;
  request.format = Format::kCompletion;
  parse_common(fields, body, limits, request);
  refuse_tools(fields, body);
  parse_prompts(fields, body, limits, request);
  request.echo = fields.boolean(body, "", "echo").value_or(false);
  // Without an answer there is only the prompt to show.
  const auto max_tokens = fields.integer(body, "", "max_tokens", request.echo ? 0 : 1, kIntegerMax);
  request.max_tokens = max_tokens ? static_cast<uint64_t>(*max_tokens) : kTokensDefault;
  if (const auto top = fields.integer(body, "", "logprobs", 0, kLogprobsMax)) {
    request.logprobs = true;
    request.sampling.logprobs = static_cast<int32_t>(*top);
  }
  if (Fields::find(body, "prompt_logprobs") != nullptr) {
    fields.refuse("prompt_logprobs",
                  "prompt_logprobs: not supported by this server; 'echo' with 'logprobs' gives the "
                  "log-probabilities of the prompt");
  }
  request.grammar = parse_response_format(fields, body);
  fields.not_offered(body, "", "suffix", Fields::Shape::kString, "text behind the answer is");
  parse_best_of(fields, body, limits, request);
  if (fields.failed()) return fields.error();
  return request;
}

}  // namespace pagewise::server::openai
