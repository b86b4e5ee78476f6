// SPDX-License-Identifier: Apache-2.0
#include "server/openai/respond.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/json_text.h"

namespace pagewise::server::openai {
namespace {

using engine::Admission;
using engine::Delta;
using engine::Finished;
using engine::FinishReason;
using engine::TokenOutput;

constexpr double kImpossible = -9999.0;  // JSON has no infinity; the vendor's own sentinel

double finite_logprob(float logprob) {
  return std::isfinite(logprob) ? static_cast<double>(logprob) : kImpossible;
}

std::string_view finish_reason(FinishReason reason) {
  return reason == FinishReason::kLength || reason == FinishReason::kContext ? "length" : "stop";
}

json::object usage(const Admission& admission, uint32_t completion_tokens) {
  const uint64_t total = uint64_t{admission.prompt_tokens} + completion_tokens;
  const uint32_t written = admission.cache_created_5m_tokens + admission.cache_created_1h_tokens;
  return {{"prompt_tokens", admission.prompt_tokens},
          {"completion_tokens", completion_tokens},
          {"total_tokens", total},
          {"prompt_tokens_details", json::object{{"cached_tokens", admission.cached_tokens},
                                                 {"cache_write_tokens", written},
                                                 {"audio_tokens", 0}}},
          {"completion_tokens_details", json::object{{"reasoning_tokens", 0},
                                                     {"audio_tokens", 0},
                                                     {"accepted_prediction_tokens", 0},
                                                     {"rejected_prediction_tokens", 0}}}};
}

json::object envelope(const ResponseContext& context, std::string_view object) {
  json::object out{{"id", context.id},
                   {"object", object},
                   {"created", context.created_unix_s},
                   {"model", context.model},
                   {"system_fingerprint", "fp_pagewise"}};
  if (context.format == Format::kChat) out["service_tier"] = "default";
  return out;
}

// Log-probabilities, chat form: a list of tokens with their bytes.

json::object chat_token(std::string_view bytes, float logprob) {
  json::array list;
  list.reserve(bytes.size());
  for (const char byte : bytes) list.push_back(static_cast<uint8_t>(byte));
  return {{"token", valid_utf8(bytes)},
          {"logprob", finite_logprob(logprob)},
          {"bytes", std::move(list)}};
}

json::array chat_logprobs(const ResponseContext& context, const std::vector<TokenOutput>& tokens) {
  json::array content;
  for (const TokenOutput& token : tokens) {
    json::object entry = chat_token(token.bytes, token.sampled.logprob);
    json::array top;
    for (const sampling::TokenLogprob& other : token.sampled.top) {
      top.push_back(chat_token(context.tokenizer->token_bytes(other.token), other.logprob));
    }
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  return content;
}

// Log-probabilities, completions form: parallel lists.

/// A token's text; one that is no whole character is spelled "bytes:\xe2\x82", as the vendor does.
std::string completion_token(std::string_view bytes) {
  if (is_valid_utf8(bytes)) return std::string(bytes);
  std::string out = "bytes:";
  for (const char byte : bytes) out += fmt::format("\\x{:02x}", static_cast<uint8_t>(byte));
  return out;
}

/// `offset`: characters of the choice's text before these tokens; moves on.
json::object completion_logprobs(const ResponseContext& context,
                                 const std::vector<TokenOutput>& tokens, std::size_t& offset) {
  json::array spelled, logprobs, tops, offsets;
  for (const TokenOutput& token : tokens) {
    spelled.push_back(json::string(completion_token(token.bytes)));
    logprobs.push_back(finite_logprob(token.sampled.logprob));
    json::object top;
    for (const sampling::TokenLogprob& other : token.sampled.top) {
      top[completion_token(context.tokenizer->token_bytes(other.token))] =
          finite_logprob(other.logprob);
    }
    tops.push_back(std::move(top));
    offsets.push_back(offset);
    offset += count_characters(token.bytes);
  }
  return {{"tokens", std::move(spelled)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

/// Chunks of both routes; they differ in the object's name and in the shape of a choice.
class ChunkStream final : public StreamWriter {
 public:
  explicit ChunkStream(ResponseContext context)
      : context_(std::move(context)), offsets_(context_.choices, 0) {}

  void admitted(const Admission& admission, std::string& out) override {
    admission_ = admission;
    if (context_.format != Format::kChat) return;
    for (uint32_t i = 0; i < context_.choices; ++i) {
      json::object choice{
          {"index", i},
          {"delta", json::object{{"role", "assistant"}, {"content", ""}, {"refusal", nullptr}}},
          {"logprobs", nullptr},
          {"finish_reason", nullptr}};
      append_chunk(std::move(choice), out);
    }
  }

  void delta(const Delta& delta, std::string& out) override {
    const bool has_logprobs = context_.logprobs && !delta.tokens.empty();
    const bool has_finish = delta.finish != FinishReason::kNone;
    if (!delta.text.empty() || has_logprobs) append_chunk(text_choice(delta, has_logprobs), out);
    if (has_finish) append_chunk(last_choice(delta), out);
  }

  void finished(const Finished& finished, std::string& out) override {
    if (context_.include_usage) {
      json::object chunk = envelope(context_, object_name());
      chunk["choices"] = json::array();
      chunk["usage"] = usage(admission_, finished.completion_tokens);
      append_event(out, "", chunk);
    }
    out += "data: [DONE]\n\n";
  }

  void failed(const ApiError& error, std::string& out) override {
    append_event(out, "", error_body(error, Surface::kOpenAi, context_.request_id));
  }

  void keep_alive(std::string& out) override { out += ": working\n\n"; }

 private:
  std::string_view object_name() const {
    return context_.format == Format::kChat ? "chat.completion.chunk" : "text_completion";
  }

  json::object text_choice(const Delta& delta, bool has_logprobs) {
    json::object choice{{"index", delta.choice}};
    json::value logprobs = nullptr;
    if (context_.format == Format::kChat) {
      choice["delta"] = json::object{{"content", delta.text}};
      if (has_logprobs) {
        logprobs =
            json::object{{"content", chat_logprobs(context_, delta.tokens)}, {"refusal", nullptr}};
      }
    } else {
      choice["text"] = delta.text;
      if (has_logprobs) {
        logprobs = completion_logprobs(context_, delta.tokens, offsets_[delta.choice]);
      }
    }
    choice["logprobs"] = std::move(logprobs);
    choice["finish_reason"] = nullptr;
    return choice;
  }

  json::object last_choice(const Delta& delta) const {
    json::object choice{{"index", delta.choice}};
    if (context_.format == Format::kChat) {
      choice["delta"] = json::object();
    } else {
      choice["text"] = "";
    }
    choice["logprobs"] = nullptr;
    choice["finish_reason"] = finish_reason(delta.finish);
    return choice;
  }

  void append_chunk(json::object choice, std::string& out) const {
    json::object chunk = envelope(context_, object_name());
    chunk["choices"] = json::array{std::move(choice)};
    // With include_usage all chunks but the last carry a null; without it the key does not appear
    // (C14).
    if (context_.include_usage) chunk["usage"] = nullptr;
    append_event(out, "", chunk);
  }

  const ResponseContext context_;
  Admission admission_;
  std::vector<std::size_t> offsets_;  // characters written, per choice
};

class WholeAnswer final : public WholeWriter {
 public:
  explicit WholeAnswer(ResponseContext context)
      : context_(std::move(context)), choices_(context_.choices) {}

  void admitted(const Admission& admission) override { admission_ = admission; }

  void delta(Delta&& delta) override {
    Choice& choice = choices_[delta.choice];
    choice.text += delta.text;
    if (context_.logprobs) {
      std::move(delta.tokens.begin(), delta.tokens.end(), std::back_inserter(choice.tokens));
    }
    if (delta.finish != FinishReason::kNone) choice.finish = delta.finish;
  }

  json::object finished(const Finished& finished) override {
    json::array list;
    for (uint32_t i = 0; i < context_.choices; ++i) list.push_back(write_choice(i));
    json::object out = envelope(
        context_, context_.format == Format::kChat ? "chat.completion" : "text_completion");
    out["choices"] = std::move(list);
    out["usage"] = usage(admission_, finished.completion_tokens);
    return out;
  }

 private:
  struct Choice {
    std::string text;
    std::vector<TokenOutput> tokens;
    FinishReason finish = FinishReason::kNone;
  };

  json::object write_choice(uint32_t index) const {
    const Choice& choice = choices_[index];
    json::object out{{"index", index}};
    json::value logprobs = nullptr;
    if (context_.format == Format::kChat) {
      out["message"] = json::object{{"role", "assistant"},
                                    {"content", choice.text},
                                    {"refusal", nullptr},
                                    {"annotations", json::array()}};
      if (context_.logprobs) {
        logprobs =
            json::object{{"content", chat_logprobs(context_, choice.tokens)}, {"refusal", nullptr}};
      }
    } else {
      out["text"] = choice.text;
      std::size_t offset = 0;
      if (context_.logprobs) logprobs = completion_logprobs(context_, choice.tokens, offset);
    }
    out["logprobs"] = std::move(logprobs);
    out["finish_reason"] = finish_reason(choice.finish);
    return out;
  }

  const ResponseContext context_;
  Admission admission_;
  std::vector<Choice> choices_;
};

}  // namespace

std::unique_ptr<StreamWriter> make_stream_writer(ResponseContext context) {
  return std::make_unique<ChunkStream>(std::move(context));
}

std::unique_ptr<WholeWriter> make_whole_writer(ResponseContext context) {
  return std::make_unique<WholeAnswer>(std::move(context));
}

}  // namespace pagewise::server::openai
