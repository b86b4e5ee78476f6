// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.h"

#include <fmt/format.h>

#include <initializer_list>

#include "text/bpe_tokenizer.h"
#include "text/spm_tokenizer.h"

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

/// What both kinds of vocabulary have.
Status read_vocabulary(const gguf::File& file, Vocabulary& vocabulary) {
  PW_ASSIGN_OR_RETURN(const auto tokens, file.string_array("tokenizer.ggml.tokens"));
  vocabulary.tokens.assign(tokens.begin(), tokens.end());
  PW_ASSIGN_OR_RETURN(vocabulary.types, token_types(file));
  PW_ASSIGN_OR_RETURN(vocabulary.bos, find_token_id(file, "tokenizer.ggml.bos_token_id"));
  PW_ASSIGN_OR_RETURN(vocabulary.eos, find_token_id(file, "tokenizer.ggml.eos_token_id"));
  for (const char* key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    PW_ASSIGN_OR_RETURN(const auto token, find_token_id(file, key));
    if (token) vocabulary.more_eog.push_back(*token);
  }
  PW_ASSIGN_OR_RETURN(vocabulary.add_bos, file.find_bool("tokenizer.ggml.add_bos_token"));
  return Status::ok();
}

Status require(const gguf::File& file, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (file.find(key) == nullptr) {
      return {ErrorCode::kMalformed, fmt::format("{}: missing", key)};
    }
  }
  return Status::ok();
}

Result<std::unique_ptr<Tokenizer>> read_bpe(const gguf::File& file) {
  PW_RETURN_IF_ERROR(require(file, {"tokenizer.ggml.tokens", "tokenizer.ggml.merges"}));
  BpeVocabulary vocabulary;
  PW_RETURN_IF_ERROR(read_vocabulary(file, vocabulary));
  PW_ASSIGN_OR_RETURN(const auto pre, file.find_string("tokenizer.ggml.pre"));
  if (pre) vocabulary.pre_tokenizer = *pre;
  PW_ASSIGN_OR_RETURN(const auto merges, file.string_array("tokenizer.ggml.merges"));
  vocabulary.merges.assign(merges.begin(), merges.end());
  return BpeTokenizer::create(vocabulary);
}

Result<std::unique_ptr<Tokenizer>> read_spm(const gguf::File& file) {
  PW_RETURN_IF_ERROR(require(
      file, {"tokenizer.ggml.tokens", "tokenizer.ggml.scores", "tokenizer.ggml.token_type"}));
  SpmVocabulary vocabulary;
  PW_RETURN_IF_ERROR(read_vocabulary(file, vocabulary));
  PW_ASSIGN_OR_RETURN(const std::vector<double> scores, file.float_array("tokenizer.ggml.scores"));
  vocabulary.scores.assign(scores.begin(), scores.end());
  PW_ASSIGN_OR_RETURN(const auto prefix, file.find_bool("tokenizer.ggml.add_space_prefix"));
  if (prefix) vocabulary.add_space_prefix = *prefix;
  // No key of a file says it; of the served families with such a vocabulary only Phi 3 has it so.
  PW_ASSIGN_OR_RETURN(const auto architecture, file.find_string("general.architecture"));
  vocabulary.strips_behind_special = architecture && *architecture == "phi3";
  return SpmTokenizer::create(vocabulary);
}

/// What a name of a tokenizer that is not offered stands for.
std::string_view kind_of(std::string_view model) {
  if (model == "bert") return " (WordPiece)";
  if (model == "t5") return " (Unigram)";
  return "";
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::from_gguf(const gguf::File& file) {
  PW_ASSIGN_OR_RETURN(const std::string model, file.require_string("tokenizer.ggml.model"));
  if (model == "gpt2") return read_bpe(file);
  if (model == "llama") return read_spm(file);
  return Error{ErrorCode::kUnsupported,
               fmt::format("tokenizer.ggml.model: tokenizer '{}'{} is not supported; supported are "
                           "gpt2 (byte-level BPE) and llama (SentencePiece)",
                           gguf::printable(model), kind_of(model))};
}

std::string Tokenizer::decode(std::span<const TokenId> tokens, bool with_control) const {
  std::string text;
  for (const TokenId token : tokens) {
    if (with_control || !is_control(token)) text += token_bytes(token);
  }
  return text;
}

}  // namespace pagewise::text
