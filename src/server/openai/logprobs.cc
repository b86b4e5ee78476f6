// SPDX-License-Identifier: Apache-2.0
#include "server/openai/logprobs.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>

#include "server/json_text.h"

namespace pagewise::server::openai {
namespace {

constexpr double kImpossible = -9999.0;  // JSON has no infinity; the vendor's own sentinel

double finite_logprob(float logprob) {
  return std::isfinite(logprob) ? static_cast<double>(logprob) : kImpossible;
}

json::object chat_token(std::string_view bytes, float logprob) {
  json::array list;
  list.reserve(bytes.size());
  for (const char byte : bytes) list.push_back(static_cast<uint8_t>(byte));
  return {{"token", valid_utf8(bytes)},
          {"logprob", finite_logprob(logprob)},
          {"bytes", std::move(list)}};
}

/// A token's text; one that is no whole character is spelled "bytes:\xe2\x82", as the vendor does.
std::string completion_token(std::string_view bytes) {
  if (is_valid_utf8(bytes)) return std::string(bytes);
  std::string out = "bytes:";
  for (const char byte : bytes) out += fmt::format("\\x{:02x}", static_cast<uint8_t>(byte));
  return out;
}

}  // namespace

json::array chat_logprobs(const text::Tokenizer& tokenizer,
                          const std::vector<engine::TokenOutput>& tokens) {
  json::array content;
  for (const engine::TokenOutput& token : tokens) {
    json::object entry = chat_token(token.bytes, token.sampled.logprob);
    json::array top;
    for (const sampling::TokenLogprob& other : token.sampled.top) {
      top.push_back(chat_token(tokenizer.token_bytes(other.token), other.logprob));
    }
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  return content;
}

void CompletionLogprobs::add_prompt(const sampling::Sampled& token, std::string_view bytes,
                                    bool is_first) {
  add_entry(token, tokenizer_.token_bytes(token.token), bytes);
  if (!is_first) return;
  logprobs_.back() = nullptr;
  tops_.back() = nullptr;
}

void CompletionLogprobs::add(const engine::TokenOutput& token) {
  // Control tokens are listed, but are no part of an answer's text.
  const bool silent = tokenizer_.is_control(token.sampled.token);
  add_entry(token.sampled, token.bytes, silent ? std::string_view() : token.bytes);
}

void CompletionLogprobs::add_entry(const sampling::Sampled& token, std::string_view bytes,
                                   std::string_view text) {
  const std::string spelling = completion_token(bytes);
  // The likeliest, and the token itself where it is none of them: up to one more than were asked
  // for. Of two tokens with one spelling the likelier is listed.
  json::object top;
  for (const sampling::TokenLogprob& other : token.top) {
    top.emplace(completion_token(tokenizer_.token_bytes(other.token)),
                finite_logprob(other.logprob));
  }
  top.emplace(spelling, finite_logprob(token.logprob));
  tokens_.push_back(json::string(spelling));
  logprobs_.push_back(finite_logprob(token.logprob));
  tops_.push_back(std::move(top));
  offsets_.push_back(characters_);
  assembled_.clear();
  assembler_.push(text, assembled_);
  characters_ += count_characters(assembled_);
}

json::object CompletionLogprobs::take() {
  return {{"tokens", std::exchange(tokens_, {})},
          {"token_logprobs", std::exchange(logprobs_, {})},
          {"top_logprobs", std::exchange(tops_, {})},
          {"text_offset", std::exchange(offsets_, {})}};
}

}  // namespace pagewise::server::openai
