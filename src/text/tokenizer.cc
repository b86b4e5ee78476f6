// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.h"

#include <fmt/format.h>

#include "text/bpe_tokenizer.h"

namespace pagewise::text {

namespace {

Result<std::optional<TokenId>> find_token_id(const gguf::File& file, std::string_view key) {
  PW_ASSIGN_OR_RETURN(const auto id, file.find_uint(key));
  if (!id) return std::optional<TokenId>();
  if (*id > INT32_MAX) {
    return Error{ErrorCode::kMalformed, fmt::format("{}: {} is no token id", key, *id)};
  }
  return std::optional(TokenId(static_cast<int32_t>(*id)));
}

Result<std::vector<TokenType>> token_types(const gguf::File& file) {
  constexpr std::string_view kKey = "tokenizer.ggml.token_type";
  std::vector<TokenType> types;
  if (file.find(kKey) == nullptr) return types;
  PW_ASSIGN_OR_RETURN(const std::vector<int64_t> numbers, file.int_array(kKey));
  types.reserve(numbers.size());
  for (const int64_t number : numbers) {
    if (number < 1 || number > 6) {
      return Error{ErrorCode::kMalformed,
                   fmt::format("{}: entry {} is {}, not 1 to 6", kKey, types.size(), number)};
    }
    types.push_back(static_cast<TokenType>(number));
  }
  return types;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::from_gguf(const gguf::File& file) {
  PW_ASSIGN_OR_RETURN(const std::string model, file.require_string("tokenizer.ggml.model"));
  if (model != "gpt2") {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("tokenizer.ggml.model: tokenizer '{}' is not supported; supported is "
                             "gpt2 (byte-level BPE)",
                             gguf::printable(model))};
  }
  for (const char* key : {"tokenizer.ggml.tokens", "tokenizer.ggml.merges"}) {
    if (file.find(key) == nullptr) {
      return Error{ErrorCode::kMalformed, fmt::format("{}: missing", key)};
    }
  }
  BpeVocabulary vocabulary;
  PW_ASSIGN_OR_RETURN(const auto pre, file.find_string("tokenizer.ggml.pre"));
  if (pre) vocabulary.pre_tokenizer = *pre;
  PW_ASSIGN_OR_RETURN(const auto tokens, file.string_array("tokenizer.ggml.tokens"));
  vocabulary.tokens.assign(tokens.begin(), tokens.end());
  PW_ASSIGN_OR_RETURN(vocabulary.types, token_types(file));
  PW_ASSIGN_OR_RETURN(const auto merges, file.string_array("tokenizer.ggml.merges"));
  vocabulary.merges.assign(merges.begin(), merges.end());
  PW_ASSIGN_OR_RETURN(vocabulary.bos, find_token_id(file, "tokenizer.ggml.bos_token_id"));
  PW_ASSIGN_OR_RETURN(vocabulary.eos, find_token_id(file, "tokenizer.ggml.eos_token_id"));
  for (const char* key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    PW_ASSIGN_OR_RETURN(const auto token, find_token_id(file, key));
    if (token) vocabulary.more_eog.push_back(*token);
  }
  PW_ASSIGN_OR_RETURN(vocabulary.add_bos, file.find_bool("tokenizer.ggml.add_bos_token"));
  return BpeTokenizer::create(vocabulary);
}

std::string Tokenizer::decode(std::span<const TokenId> tokens, bool with_control) const {
  std::string text;
  for (const TokenId token : tokens) {
    if (with_control || !is_control(token)) text += token_bytes(token);
  }
  return text;
}

}  // namespace pagewise::text
