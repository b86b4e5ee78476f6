// SPDX-License-Identifier: Apache-2.0
#include "server/token_routes.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/fields.h"
#include "server/json_text.h"
#include "server/openai/parse.h"
#include "server/prompt.h"

namespace pagewise::server {
namespace {

json::array id_array(const std::vector<TokenId>& tokens) {
  json::array out;
  out.reserve(tokens.size());
  for (const TokenId token : tokens) out.push_back(token.value);
  return out;
}

std::vector<TokenId> encode(const text::Tokenizer& tokenizer, std::string_view text,
                            bool add_special, bool parse_special) {
  std::vector<TokenId> tokens = tokenizer.encode(text, parse_special);
  if (add_special && tokenizer.add_bos() && tokenizer.bos())
    tokens.insert(tokens.begin(), *tokenizer.bos());
  return tokens;
}

/// Ids with their text, or their bytes where they are no text.
json::array pieces(const text::Tokenizer& tokenizer, const std::vector<TokenId>& tokens) {
  json::array out;
  for (const TokenId token : tokens) {
    const std::string_view bytes = tokenizer.token_bytes(token);
    json::value piece = json::string(bytes);
    if (!is_valid_utf8(bytes)) {
      json::array numbers;
      for (const char byte : bytes) numbers.push_back(static_cast<uint8_t>(byte));
      piece = std::move(numbers);
    }
    out.push_back(json::object{{"id", token.value}, {"piece", std::move(piece)}});
  }
  return out;
}

}  // namespace

ApiResult<json::object> tokenize(const ServedModel& model, const json::object& body) {
  const text::Tokenizer& tokenizer = *model.tokenizer;
  Fields fields(Surface::kOpenAi);
  if (const auto content = fields.string(body, "", "content")) {  // llama.cpp's form
    const bool add_special = fields.boolean(body, "", "add_special").value_or(false);
    const bool parse_special = fields.boolean(body, "", "parse_special").value_or(true);
    const bool with_pieces = fields.boolean(body, "", "with_pieces").value_or(false);
    if (fields.failed()) return fields.error();
    if (auto error = check_countable(content->size(), model, "content")) return *std::move(error);
    const auto tokens = encode(tokenizer, *content, add_special, parse_special);
    return json::object{{"tokens", with_pieces ? pieces(tokenizer, tokens) : id_array(tokens)}};
  }
  std::vector<TokenId> tokens;  // vLLM's forms
  if (const auto prompt = fields.string(body, "", "prompt")) {
    if (auto error = check_countable(prompt->size(), model, "prompt")) return *std::move(error);
    tokens = encode(tokenizer, *prompt,
                    fields.boolean(body, "", "add_special_tokens").value_or(true), true);
  } else if (Fields::find(body, "messages") != nullptr) {
    auto request = openai::parse_prompt_only(body);
    if (!request) return request.error();
    auto built = build_prompt_unchecked(*request, model);
    if (!built) return built.error();
    tokens = std::move(built->tokens);
  } else {
    fields.missing("content");
  }
  if (fields.failed()) return fields.error();
  return json::object{{"count", tokens.size()},
                      {"max_model_len", uint32_t{model.context_max}},
                      {"tokens", id_array(tokens)}};
}

ApiResult<json::object> detokenize(const ServedModel& model, const json::object& body) {
  Fields fields(Surface::kOpenAi);
  const json::array* array = fields.array(body, "", "tokens");
  if (array == nullptr) fields.missing("tokens");
  if (fields.failed()) return fields.error();
  const auto tokens =
      openai::parse_token_ids(fields, *array, "tokens", model.tokenizer->vocab_size());
  if (fields.failed()) return fields.error();
  const std::string text = valid_utf8(model.tokenizer->decode(tokens, true));
  return json::object{{"content", text}, {"prompt", text}};
}

}  // namespace pagewise::server
