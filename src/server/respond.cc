// SPDX-License-Identifier: Apache-2.0
#include "server/respond.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/hash.h"
#include "server/anthropic/respond.h"
#include "server/openai/respond.h"

namespace pagewise::server {

void append_event(std::string& out, std::string_view name, const json::value& data) {
  if (!name.empty()) {
    out += "event: ";
    out += name;
    out += '\n';
  }
  out += "data: ";
  out += json::serialize(data);
  out += "\n\n";
}

AnswerText::AnswerText(const ResponseContext& context) {
  if (!context.calls) return;
  parser_.emplace(tools::syntax_of(context.calls->family), context.calls->names,
                  context.calls->certain);
}

void AnswerText::push(const engine::Delta& delta, Events& events) {
  using Kind = tools::CallEvent::Kind;
  const std::size_t before = events.size();
  if (!parser_) {
    if (!delta.text.empty()) events.push_back({Kind::kText, delta.text});
    return;
  }
  if (!delta.text.empty()) parser_->push(delta.text, events);
  if (delta.finish != engine::FinishReason::kNone) {
    parser_->finish(delta.finish != engine::FinishReason::kStop, events);
  }
  calls_ += static_cast<uint32_t>(
      std::count_if(events.begin() + static_cast<std::ptrdiff_t>(before), events.end(),
                    [](const tools::CallEvent& event) { return event.kind == Kind::kStart; }));
}

IdSource call_ids(const ResponseContext& context) {
  return IdSource(xxh3(std::as_bytes(std::span(context.id.data(), context.id.size())), 0));
}

std::unique_ptr<StreamWriter> make_stream_writer(ResponseContext context) {
  return context.format == Format::kMessages ? anthropic::make_stream_writer(std::move(context))
                                             : openai::make_stream_writer(std::move(context));
}

std::unique_ptr<WholeWriter> make_whole_writer(ResponseContext context) {
  return context.format == Format::kMessages ? anthropic::make_whole_writer(std::move(context))
                                             : openai::make_whole_writer(std::move(context));
}

}  // namespace pagewise::server
