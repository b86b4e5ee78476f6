// SPDX-License-Identifier: Apache-2.0
// Bodies of the OpenAI routes. Pure functions: JSON in, a request or the 400 out. Source:
// api-reference C.
#pragma once

#include <cstdint>
#include <vector>

#include "base/json.h"
#include "server/api_error.h"
#include "server/fields.h"
#include "server/generation.h"

namespace pagewise::server::openai {

struct ParseLimits {
  uint32_t choices_max = 128;
  uint32_t prompts_max = 128;
  uint32_t vocab_size = 0;
};

ApiResult<GenerationRequest> parse_chat(const json::object& body, const ParseLimits& limits);
ApiResult<GenerationRequest> parse_completion(const json::object& body, const ParseLimits& limits);

/// What a chat request's prompt is made from, and nothing else of it: for /tokenize.
ApiResult<GenerationRequest> parse_prompt_only(const json::object& body);
/// Token ids of `array`, each below vocab_size.
std::vector<TokenId> parse_token_ids(Fields& fields, const json::array& array,
                                     std::string_view path, uint32_t vocab_size);

}  // namespace pagewise::server::openai
