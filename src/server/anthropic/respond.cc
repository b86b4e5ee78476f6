// SPDX-License-Identifier: Apache-2.0
#include "server/anthropic/respond.h"

#include <string>
#include <string_view>
#include <utility>

namespace pagewise::server::anthropic {
namespace {

using engine::Admission;
using engine::Delta;
using engine::Finished;
using engine::FinishReason;

/// All counters, always: clients keep those of the last event (api-reference, section 0.3).
json::object usage(const Admission& admission, uint32_t output_tokens, uint32_t thinking_tokens) {
  const uint32_t created = admission.cache_created_5m_tokens + admission.cache_created_1h_tokens;
  return {{"input_tokens", admission.input_tokens},
          {"cache_creation_input_tokens", created},
          {"cache_read_input_tokens", admission.cache_read_tokens},
          {"cache_creation",
           json::object{{"ephemeral_5m_input_tokens", admission.cache_created_5m_tokens},
                        {"ephemeral_1h_input_tokens", admission.cache_created_1h_tokens}}},
          {"output_tokens", output_tokens},
          {"output_tokens_details", json::object{{"thinking_tokens", thinking_tokens}}},
          {"service_tier", "standard"}};
}

struct Ending {
  std::string_view reason;
  json::value stop_sequence;
};

Ending ending(FinishReason reason, uint32_t stop_index, const ResponseContext& context) {
  switch (reason) {
    case FinishReason::kStopString:
      if (stop_index < context.stops.size())
        return {"stop_sequence", json::string(context.stops[stop_index])};
      return {"stop_sequence", nullptr};
    case FinishReason::kNone:  // a pre-warm generates nothing and so never ends (B12)
    case FinishReason::kLength:
      return {"max_tokens", nullptr};
    case FinishReason::kContext:
      return {"model_context_window_exceeded", nullptr};
    default:
      return {"end_turn", nullptr};
  }
}

json::object message(const ResponseContext& context) {
  json::object out{{"id", context.id},         {"type", "message"},        {"role", "assistant"},
                   {"model", context.model},   {"content", json::array()}, {"stop_reason", nullptr},
                   {"stop_sequence", nullptr}, {"stop_details", nullptr},  {"container", nullptr}};
  if (context.diagnostics_asked) out["diagnostics"] = context.diagnostics;
  return out;
}

json::object no_edits() { return {{"applied_edits", json::array()}}; }

/// Clients send it back as it is and want a signature in it, which nobody checks here: the
/// message's id will do.
json::object thinking_block(std::string_view thought, std::string_view signature) {
  return {{"type", "thinking"}, {"thinking", thought}, {"signature", signature}};
}

class MessageStream final : public StreamWriter {
 public:
  explicit MessageStream(ResponseContext context) : context_(std::move(context)) {}

  void admitted(uint32_t, const Admission& admission, std::string& out) override {
    admission_ = admission;
    json::object start = message(context_);
    start["usage"] = usage(admission, 0, 0);
    append_event(out, "message_start",
                 json::object{{"type", "message_start"}, {"message", std::move(start)}});
    append_event(out, "ping", json::object{{"type", "ping"}});
  }

  void thought(uint32_t, std::string_view text, uint32_t tokens, std::string& out) override {
    thinking_tokens_ = tokens;
    if (text.empty()) return;
    open_block(Block::kThinking, out);
    if (context_.thoughts_omitted) return;
    append_delta({{"type", "thinking_delta"}, {"thinking", text}}, out);
  }

  void delta(const Delta& delta, std::string& out) override {
    if (!delta.text.empty()) {
      open_block(Block::kText, out);
      append_delta({{"type", "text_delta"}, {"text", delta.text}}, out);
    }
    if (delta.finish != FinishReason::kNone) {
      finish_ = delta.finish;
      stop_index_ = delta.stop_index;
    }
  }

  void finished(const Finished& finished, std::string& out) override {
    close_block(out);
    const Ending end = ending(finish_, stop_index_, context_);
    json::object body{{"type", "message_delta"},
                      {"delta", json::object{{"stop_reason", end.reason},
                                             {"stop_sequence", end.stop_sequence},
                                             {"stop_details", nullptr}}},
                      {"usage", usage(admission_, finished.completion_tokens, thinking_tokens_)}};
    if (context_.context_management) body["context_management"] = no_edits();
    append_event(out, "message_delta", body);
    append_event(out, "message_stop", json::object{{"type", "message_stop"}});
  }

  void failed(const ApiError& error, std::string& out) override {
    append_event(out, "error", error_body(error, Surface::kAnthropic, context_.request_id));
  }

  void keep_alive(std::string& out) override {
    append_event(out, "ping", json::object{{"type", "ping"}});
  }

 private:
  enum class Block : uint8_t { kNone, kThinking, kText };

  void open_block(Block block, std::string& out) {
    if (open_ == block) return;
    close_block(out);
    open_ = block;
    append_event(
        out, "content_block_start",
        json::object{{"type", "content_block_start"},
                     {"index", index_},
                     {"content_block", block == Block::kThinking
                                           ? thinking_block("", "")
                                           : json::object{{"type", "text"}, {"text", ""}}}});
  }

  void close_block(std::string& out) {
    if (open_ == Block::kNone) return;
    if (open_ == Block::kThinking) {
      append_delta({{"type", "signature_delta"}, {"signature", context_.id}}, out);
    }
    append_event(out, "content_block_stop",
                 json::object{{"type", "content_block_stop"}, {"index", index_++}});
    open_ = Block::kNone;
  }

  void append_delta(json::object delta, std::string& out) const {
    append_event(
        out, "content_block_delta",
        json::object{
            {"type", "content_block_delta"}, {"index", index_}, {"delta", std::move(delta)}});
  }

  const ResponseContext context_;
  Admission admission_;
  FinishReason finish_ = FinishReason::kNone;
  uint32_t stop_index_ = 0;
  Block open_ = Block::kNone;
  uint32_t index_ = 0;  // of the block that is open, or comes next
  uint32_t thinking_tokens_ = 0;
};

class WholeMessage final : public WholeWriter {
 public:
  explicit WholeMessage(ResponseContext context) : context_(std::move(context)) {}

  void admitted(uint32_t, const Admission& admission) override { admission_ = admission; }

  void thought(uint32_t, std::string_view text, uint32_t tokens) override {
    thinking_tokens_ = tokens;
    thought_ += text;
  }

  void delta(Delta&& delta) override {
    text_ += delta.text;
    if (delta.finish != FinishReason::kNone) {
      finish_ = delta.finish;
      stop_index_ = delta.stop_index;
    }
  }

  json::object finished(const Finished& finished) override {
    json::object out = message(context_);
    json::array& content = out["content"].get_array();
    if (!thought_.empty()) {
      content.push_back(
          thinking_block(context_.thoughts_omitted ? std::string_view() : thought_, context_.id));
    }
    if (!text_.empty()) {
      content.push_back(json::object{{"type", "text"}, {"text", text_}, {"citations", nullptr}});
    }
    const Ending end = ending(finish_, stop_index_, context_);
    if (context_.context_management) out["context_management"] = no_edits();
    out["stop_reason"] = end.reason;
    out["stop_sequence"] = end.stop_sequence;
    out["usage"] = usage(admission_, finished.completion_tokens, thinking_tokens_);
    return out;
  }

 private:
  const ResponseContext context_;
  Admission admission_;
  std::string thought_, text_;
  uint32_t thinking_tokens_ = 0;
  FinishReason finish_ = FinishReason::kNone;
  uint32_t stop_index_ = 0;
};

}  // namespace

std::unique_ptr<StreamWriter> make_stream_writer(ResponseContext context) {
  return std::make_unique<MessageStream>(std::move(context));
}

std::unique_ptr<WholeWriter> make_whole_writer(ResponseContext context) {
  return std::make_unique<WholeMessage>(std::move(context));
}

}  // namespace pagewise::server::anthropic
