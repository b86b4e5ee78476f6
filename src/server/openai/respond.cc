// SPDX-License-Identifier: Apache-2.0
#include "server/openai/respond.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/ledger.h"
#include "server/openai/logprobs.h"
#include "text/detokenizer.h"

namespace pagewise::server::openai {
namespace {

using engine::Admission;
using engine::Delta;
using engine::Finished;
using engine::FinishReason;
using engine::PromptLogprobs;
using engine::TokenOutput;

using tools::CallEvent;

std::string_view finish_reason(FinishReason reason, uint32_t calls) {
  if (reason == FinishReason::kLength || reason == FinishReason::kContext) return "length";
  return calls > 0 ? "tool_calls" : "stop";
}

json::object usage(const Admission& admission, uint32_t completion_tokens,
                   uint32_t reasoning_tokens) {
  const uint64_t total = uint64_t{admission.prompt_tokens} + completion_tokens;
  // What was reused was not written: the two and the rest are the prompt.
  const kv::CacheUsage usage = engine::reported_usage(admission, engine::BillRule::kReuse);
  const uint32_t written = usage.created_5m_tokens + usage.created_1h_tokens;
  return {{"prompt_tokens", admission.prompt_tokens},
          {"completion_tokens", completion_tokens},
          {"total_tokens", total},
          {"prompt_tokens_details", json::object{{"cached_tokens", admission.cached_tokens},
                                                 {"cache_write_tokens", written},
                                                 {"audio_tokens", 0}}},
          {"completion_tokens_details", json::object{{"reasoning_tokens", reasoning_tokens},
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

std::string_view token_slice(const EchoText& echo, std::size_t token) {
  const uint32_t begin = token == 0 ? 0 : echo.token_ends[token - 1];
  return std::string_view(echo.bytes).substr(begin, echo.token_ends[token] - begin);
}

/// How many tokens the thoughts of all choices have.
class ThoughtTokens {
 public:
  void set(uint32_t choice, uint32_t tokens) {
    if (choice >= of_choice_.size()) of_choice_.resize(choice + 1);
    of_choice_[choice] = tokens;
  }
  uint32_t tokens() const { return std::accumulate(of_choice_.begin(), of_choice_.end(), 0U); }

 private:
  std::vector<uint32_t> of_choice_;
};

/// What all chunks of an answer begin with, up to their choices.
std::string chunk_head(const ResponseContext& context, std::string_view object) {
  std::string out = json::serialize(envelope(context, object));
  out.pop_back();
  return out + ",\"choices\":[";
}

/// Chunks of both routes; they differ in the object's name and in the shape of a choice. There is
/// one a token, and most are plain text: what does not change is written once, and nothing is built
/// for them but their bytes.
class ChunkStream final : public StreamWriter {
 public:
  explicit ChunkStream(ResponseContext context)
      : context_(std::move(context)),
        logprobs_(std::size_t{context_.prompts} * context_.choices,
                  CompletionLogprobs(*context_.tokenizer)),
        echo_assemblers_(context_.echo.size()),
        texts_(std::size_t{context_.prompts} * context_.choices, AnswerText(context_)),
        ids_(call_ids(context_)),
        head_(chunk_head(context_, object_name())) {}

  void admitted(uint32_t prompt, const Admission& total, std::string& out) override {
    admission_ = total;
    if (context_.format == Format::kChat) {
      for (uint32_t i = 0; i < context_.choices; ++i) {
        json::object choice{
            {"index", i},
            {"delta", json::object{{"role", "assistant"}, {"content", ""}, {"refusal", nullptr}}},
            {"logprobs", nullptr},
            {"finish_reason", nullptr}};
        append_chunk(choice, out);
      }
    } else if (!context_.echo.empty() && !context_.logprobs) {
      const std::string text = whole_characters(context_.echo[prompt]);
      if (text.empty()) return;
      for (uint32_t i = 0; i < context_.choices; ++i) {
        append_chunk(completion_choice(prompt * context_.choices + i, text, nullptr), out);
      }
    }
  }

  void scored(uint32_t prompt, const PromptLogprobs& piece, std::string& out) override {
    const EchoText& echo = context_.echo[prompt];
    std::string text;
    for (std::size_t t = 0; t < piece.tokens.size(); ++t) {
      echo_assemblers_[prompt].push(token_slice(echo, piece.position + t), text);
    }
    for (uint32_t i = 0; i < context_.choices; ++i) {
      const uint32_t index = prompt * context_.choices + i;
      CompletionLogprobs& lists = logprobs_[index];
      for (std::size_t t = 0; t < piece.tokens.size(); ++t) {
        const std::size_t at = piece.position + t;
        lists.add_prompt(piece.tokens[t], token_slice(echo, at), at == 0);
      }
      append_chunk(completion_choice(index, text, lists.take()), out);
    }
  }

  void thought(uint32_t choice, std::string_view text, uint32_t tokens, std::string& out) override {
    thoughts_.set(choice, tokens);
    if (text.empty() || context_.thoughts_omitted) return;
    append_chunk({{"index", choice},
                  {"delta", json::object{{"reasoning_content", text}}},
                  {"logprobs", nullptr},
                  {"finish_reason", nullptr}},
                 out);
  }

  void delta(const Delta& delta, std::string& out) override {
    const bool has_logprobs = context_.logprobs && !delta.tokens.empty();
    const bool has_finish = delta.finish != FinishReason::kNone;
    AnswerText& text = texts_[delta.choice];
    uint32_t calls = text.calls();  // those before this delta
    AnswerText::Events events;
    text.push(delta, events);
    // Tokens are told with the first thing that they bring, or with nothing.
    bool untold = has_logprobs;
    if (events.empty() && untold) events.push_back({CallEvent::Kind::kText, ""});
    for (const CallEvent& event : events) {
      if (event.kind == CallEvent::Kind::kEnd) continue;
      if (event.kind == CallEvent::Kind::kStart) ++calls;
      if (event.kind == CallEvent::Kind::kText && !untold) {
        append_text(delta.choice, event.text, out);
        continue;
      }
      json::object choice = event.kind == CallEvent::Kind::kText
                                ? text_choice(delta, event.text, untold)
                                : call_choice(delta, event, calls - 1, untold);
      untold = false;
      append_chunk(choice, out);
    }
    if (has_finish) append_chunk(last_choice(delta), out);
  }

  void finished(const Finished& finished, std::string& out) override {
    if (context_.include_usage) {
      json::object chunk = envelope(context_, object_name());
      chunk["choices"] = json::array();
      chunk["usage"] = usage(admission_, finished.completion_tokens, thoughts_.tokens());
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

  static json::object completion_choice(uint32_t index, std::string_view text,
                                        json::value logprobs) {
    return {{"index", index},
            {"text", text},
            {"logprobs", std::move(logprobs)},
            {"finish_reason", nullptr}};
  }

  json::object text_choice(const Delta& delta, std::string_view text, bool has_logprobs) {
    if (context_.format == Format::kCompletion) {
      if (!has_logprobs) return completion_choice(delta.choice, text, nullptr);
      CompletionLogprobs& lists = logprobs_[delta.choice];
      for (const TokenOutput& token : delta.tokens) lists.add(token);
      return completion_choice(delta.choice, text, lists.take());
    }
    return chat_choice(delta, json::object{{"content", text}}, has_logprobs);
  }

  /// A call's first piece has its id and name; the others only more of its arguments.
  json::object call_choice(const Delta& delta, const CallEvent& event, uint32_t index,
                           bool has_logprobs) {
    json::object call{{"index", index}};
    if (event.kind == CallEvent::Kind::kStart) {
      call["id"] = ids_.id("call_");
      call["type"] = "function";
      call["function"] = json::object{{"name", event.text}, {"arguments", ""}};
    } else {
      call["function"] = json::object{{"arguments", event.text}};
    }
    return chat_choice(delta, json::object{{"tool_calls", json::array{std::move(call)}}},
                       has_logprobs);
  }

  json::object chat_choice(const Delta& delta, json::object content, bool has_logprobs) const {
    json::object choice{{"index", delta.choice}, {"delta", std::move(content)}};
    choice["logprobs"] = nullptr;
    if (has_logprobs) {
      choice["logprobs"] = json::object{
          {"content", chat_logprobs(*context_.tokenizer, delta.tokens)}, {"refusal", nullptr}};
    }
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
    choice["finish_reason"] = finish_reason(delta.finish, texts_[delta.choice].calls());
    return choice;
  }

  /// completion_choice() or chat_choice() of nothing but text.
  void append_text(uint32_t index, std::string_view text, std::string& out) const {
    const bool chat = context_.format == Format::kChat;
    std::string choice = "{\"index\":" + std::to_string(index);
    choice += chat ? ",\"delta\":{\"content\":" : ",\"text\":";
    choice += json::serialize(json::string_view(text.data(), text.size()));
    choice += chat ? "}" : "";
    choice += ",\"logprobs\":null,\"finish_reason\":null}";
    append_chunk_text(choice, out);
  }

  void append_chunk(const json::object& choice, std::string& out) const {
    append_chunk_text(json::serialize(choice), out);
  }

  void append_chunk_text(std::string_view choice, std::string& out) const {
    std::string chunk;
    chunk.reserve(head_.size() + choice.size() + 32);
    chunk += head_;
    chunk += choice;
    // With include_usage all chunks but the last carry a null; without it the key does not appear
    // (C14).
    chunk += context_.include_usage ? "],\"usage\":null}" : "]}";
    append_event_text(out, "", chunk);
  }

  const ResponseContext context_;
  Admission admission_;
  std::vector<CompletionLogprobs> logprobs_;          // by index
  std::vector<text::Utf8Assembler> echo_assemblers_;  // by prompt
  ThoughtTokens thoughts_;
  std::vector<AnswerText> texts_;  // by index
  IdSource ids_;
  const std::string head_;
};

class WholeAnswer final : public WholeWriter {
 public:
  explicit WholeAnswer(ResponseContext context)
      : context_(std::move(context)),
        choices_(std::size_t{context_.prompts} * context_.generated(), Choice(context_)),
        scores_(context_.prompts),
        ids_(call_ids(context_)) {}

  void admitted(uint32_t, const Admission& total) override { admission_ = total; }

  void scored(uint32_t prompt, PromptLogprobs&& piece) override {
    std::move(piece.tokens.begin(), piece.tokens.end(), std::back_inserter(scores_[prompt]));
  }

  void thought(uint32_t choice, std::string_view text, uint32_t tokens) override {
    thoughts_.set(choice, tokens);
    if (!context_.thoughts_omitted) choices_[choice].thought += text;
  }

  void delta(Delta&& delta) override {
    Choice& choice = choices_[delta.choice];
    AnswerText::Events events;
    choice.reader.push(delta, events);
    for (const CallEvent& event : events) add(event, choice);
    choice.logprob_sum = delta.logprob_sum;
    choice.completion_tokens = delta.completion_tokens;
    if (context_.logprobs) {
      std::move(delta.tokens.begin(), delta.tokens.end(), std::back_inserter(choice.tokens));
    }
    if (delta.finish != FinishReason::kNone) choice.finish = delta.finish;
  }

  json::object finished(const Finished& finished) override {
    json::array list;
    for (uint32_t prompt = 0; prompt < context_.prompts; ++prompt) {
      for (const Choice* choice : shown(prompt)) {
        list.push_back(write_choice(prompt, static_cast<uint32_t>(list.size()), *choice));
      }
    }
    json::object out = envelope(
        context_, context_.format == Format::kChat ? "chat.completion" : "text_completion");
    out["choices"] = std::move(list);
    out["usage"] = usage(admission_, finished.completion_tokens, thoughts_.tokens());
    return out;
  }

 private:
  struct Call {
    std::string name, arguments;
  };
  struct Choice {
    explicit Choice(const ResponseContext& context) : reader(context) {}

    AnswerText reader;
    std::string text;
    std::string thought;
    std::vector<Call> calls;
    std::vector<TokenOutput> tokens;
    FinishReason finish = FinishReason::kNone;
    double logprob_sum = 0;
    uint32_t completion_tokens = 0;

    double logprob_mean() const { return logprob_sum / std::max(completion_tokens, 1U); }
  };

  static void add(const CallEvent& event, Choice& choice) {
    switch (event.kind) {
      case CallEvent::Kind::kText:
        choice.text += event.text;
        break;
      case CallEvent::Kind::kStart:
        choice.calls.push_back({event.text, ""});
        break;
      case CallEvent::Kind::kArguments:
        choice.calls.back().arguments += event.text;
        break;
      case CallEvent::Kind::kEnd:
        break;
    }
  }

  /// The choices of a prompt; of more candidates those with the highest log-probability a token,
  /// the best first.
  std::vector<const Choice*> shown(uint32_t prompt) const {
    std::vector<const Choice*> list;
    const uint32_t generated = context_.generated();
    for (uint32_t i = 0; i < generated; ++i) list.push_back(&choices_[prompt * generated + i]);
    if (generated > context_.choices) {
      std::stable_sort(list.begin(), list.end(), [](const Choice* a, const Choice* b) {
        return a->logprob_mean() > b->logprob_mean();
      });
      list.resize(context_.choices);
    }
    return list;
  }

  json::object write_choice(uint32_t prompt, uint32_t index, const Choice& choice) {
    json::object out{{"index", index}};
    json::value logprobs = nullptr;
    if (context_.format == Format::kChat) {
      out["message"] = json::object{{"role", "assistant"},
                                    {"content", choice.text},
                                    {"refusal", nullptr},
                                    {"annotations", json::array()}};
      if (!choice.thought.empty()) {
        out["message"].get_object()["reasoning_content"] = choice.thought;
      }
      if (!choice.calls.empty()) write_calls(choice, out.at("message").get_object());
      if (context_.logprobs) {
        logprobs = json::object{{"content", chat_logprobs(*context_.tokenizer, choice.tokens)},
                                {"refusal", nullptr}};
      }
    } else {
      out["text"] = context_.echo.empty() ? choice.text
                                          : whole_characters(context_.echo[prompt]) + choice.text;
      if (context_.logprobs) logprobs = completion_logprobs(prompt, choice);
    }
    out["logprobs"] = std::move(logprobs);
    out["finish_reason"] = finish_reason(choice.finish, static_cast<uint32_t>(choice.calls.size()));
    return out;
  }

  void write_calls(const Choice& choice, json::object& message) {
    if (choice.text.empty()) message["content"] = nullptr;
    json::array calls;
    for (const Call& call : choice.calls) {
      calls.push_back(json::object{
          {"id", ids_.id("call_")},
          {"type", "function"},
          {"function", json::object{{"name", call.name}, {"arguments", call.arguments}}}});
    }
    message["tool_calls"] = std::move(calls);
  }

  json::object completion_logprobs(uint32_t prompt, const Choice& choice) const {
    CompletionLogprobs lists(*context_.tokenizer);
    const std::vector<sampling::Sampled>& scores = scores_[prompt];
    for (std::size_t t = 0; t < scores.size(); ++t) {
      lists.add_prompt(scores[t], token_slice(context_.echo[prompt], t), t == 0);
    }
    for (const TokenOutput& token : choice.tokens) lists.add(token);
    return lists.take();
  }

  const ResponseContext context_;
  Admission admission_;
  std::vector<Choice> choices_;                         // by prompt, then candidate
  std::vector<std::vector<sampling::Sampled>> scores_;  // of each prompt that is repeated
  ThoughtTokens thoughts_;
  IdSource ids_;
};

}  // namespace

std::unique_ptr<StreamWriter> make_stream_writer(ResponseContext context) {
  return std::make_unique<ChunkStream>(std::move(context));
}

std::unique_ptr<WholeWriter> make_whole_writer(ResponseContext context) {
  return std::make_unique<WholeAnswer>(std::move(context));
}

}  // namespace pagewise::server::openai
