// SPDX-License-Identifier: Apache-2.0
#include "server/respond.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "base/hash.h"
#include "server/anthropic/respond.h"
#include "server/openai/respond.h"

namespace pagewise::server {

namespace {

/// `text`, JSON, with the characters beyond ASCII that Unicode counts as line ends written as
/// escapes: U+0085, U+2028 and U+2029. Line readers of widely used HTTP clients split there.
void append_one_line(std::string& out, std::string_view text) {
  static constexpr std::pair<std::string_view, std::string_view> kLineEnds[] = {
      {"\xC2\x85", "\\u0085"}, {"\xE2\x80\xA8", "\\u2028"}, {"\xE2\x80\xA9", "\\u2029"}};
  while (!text.empty()) {
    const std::size_t at = std::min(text.find_first_of("\xC2\xE2"), text.size());
    out += text.substr(0, at);
    text.remove_prefix(at);
    if (text.empty()) return;
    std::size_t taken = 1;
    std::string_view written = text.substr(0, 1);
    for (const auto& [bytes, escape] : kLineEnds) {
      if (!text.starts_with(bytes)) continue;
      taken = bytes.size();
      written = escape;
    }
    out += written;
    text.remove_prefix(taken);
  }
}

}  // namespace

void append_event(std::string& out, std::string_view name, const json::value& data) {
  append_event_text(out, name, json::serialize(data));
}

void append_event_text(std::string& out, std::string_view name, std::string_view text) {
  if (!name.empty()) {
    out += "event: ";
    out += name;
    out += '\n';
  }
  out += "data: ";
  append_one_line(out, text);
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
    if (!delta.text.empty()) tools::append(Kind::kText, delta.text, events);
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
