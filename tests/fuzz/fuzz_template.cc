// SPDX-License-Identifier: Apache-2.0
// Any text as a chat template, over a conversation that the input makes up.
//
// An input is template source; behind a line "#conversation" stand bytes that choose the messages.
// Without them it is a short one with every role, so a template file is an input as it is.
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "fuzz/fuzz.h"
#include "text/chat_template.h"

namespace pagewise::fuzz {
namespace {

using text::ChatInput;
using text::ChatMessage;
using text::ProvenancedText;

constexpr std::string_view kSeparator = "\n#conversation\n";
/// In every text of the conversation, and in nothing that a template can write by itself.
constexpr std::string_view kSentinel = "\xe9\xbe\x99";
/// What a rendering may cost, instrumented: its bounds are made for a second or two without.
constexpr double kCpuSecondsMax = 30;

std::string content(std::string_view text) { return std::string(kSentinel).append(text); }

json::value json_of(Input& in) {
  constexpr std::string_view kFixed[] = {
      R"([{"type":"function","function":{"name":"f龙","description":"龙","parameters":{"type":"object",
          "properties":{"a龙":{"type":"string","enum":["龙"]}},"required":["a龙"]}}}])",
      R"({"tool_calls":[{"id":"龙","type":"function","function":{"name":"f","arguments":{"x":1.5}}}],
          "content":null})",
      R"([[[[[[{"a":[null,true,-1,18446744073709551615,1e300]}]]]]]])",
      R"({"role":"system","content":"龙","name":"龙"})",
      R"([])",
  };
  if (in.flag()) return *parse_json(in.pick(kFixed));
  const std::string_view drawn = in.text(80);
  if (auto parsed = parse_json(drawn)) return *parsed;
  return json::value(content(std::string_view("x")));
}

ChatInput conversation_of(std::string_view bytes) {
  ChatInput out;
  out.bos_token = "<s>";
  out.eos_token = "</s>";
  if (bytes.empty()) {
    for (const char* role : {"system", "user", "assistant", "user"}) {
      out.messages.push_back({role, {{content(role), static_cast<int32_t>(out.messages.size())}}});
    }
    return out;
  }
  Input in(bytes);
  out.add_generation_prompt = in.flag();
  out.continue_last = in.byte() % 4 == 3;
  if (in.flag()) out.now = static_cast<int64_t>(in.number(4));
  int32_t origin = 0;
  if (in.flag()) {
    for (uint64_t tools = in.below(4); tools > 0; --tools) {
      out.tools.push_back({json_of(in), origin++});
    }
  }
  if (in.flag()) out.documents = text::ChatValue{json_of(in), origin++};
  if (in.flag()) out.variables = {json_of(in), origin++};
  for (uint64_t messages = in.below(9); messages > 0; --messages) {
    constexpr std::string_view kRoles[] = {"user", "assistant", "system",    "tool",
                                           "user", "assistant", "developer", "not one word"};
    ChatMessage message;
    message.role = in.pick(kRoles);
    for (uint64_t parts = in.below(4); parts > 0; --parts) {
      message.parts.push_back({content(in.text(40)), origin++});
    }
    const uint8_t extras = in.byte();
    if (extras % 3 == 2) message.fields = {json_of(in), origin++};
    if (extras % 7 == 6) message.tool_calls.push_back({json_of(in), origin++});
    out.messages.push_back(std::move(message));
  }
  return out;
}

int32_t origins_of(const ChatInput& input) {
  int32_t last = -1;
  for (const ChatMessage& message : input.messages) {
    for (const text::ContentPart& part : message.parts) last = std::max(last, part.origin);
    last = std::max(last, message.fields.origin);
    for (const text::ChatValue& call : message.tool_calls) last = std::max(last, call.origin);
  }
  for (const text::ChatValue& tool : input.tools) last = std::max(last, tool.origin);
  if (input.documents) last = std::max(last, input.documents->origin);
  return std::max(last, input.variables.origin);
}

void check_provenance(const ProvenancedText& out, const ChatInput& input, std::string_view source) {
  uint32_t at = 0;
  for (const text::OriginSpan& span : out.spans) {
    FUZZ_CHECK(span.begin == at && span.end > span.begin, "a span from {} to {} behind {}",
               span.begin, span.end, at);
    FUZZ_CHECK(span.origin >= text::kTemplateOrigin && span.origin <= origins_of(input),
               "origin {}", span.origin);
    at = span.end;
  }
  FUZZ_CHECK(at == out.text.size(), "spans end at {} of {}", at, out.text.size());
  uint32_t before = 0;
  // Where a line end joined two blocks, however the template then wrote it (as itself, as \n of
  // JSON, as %0A).
  for (const uint32_t place : out.breaks) {
    FUZZ_CHECK(place >= before && place < out.text.size() && (out.text[place] & 0xc0) != 0x80,
               "a break at {} of {}", place, out.text.size());
    before = place + 1;
  }
  // C16: nothing that a request wrote may pass for the template's text. A template that can spell
  // the sentinel itself proves nothing.
  if (source.find('\\') != std::string_view::npos ||
      source.find('\xe9') != std::string_view::npos) {
    return;
  }
  for (const text::OriginSpan& span : out.spans) {
    if (span.origin != text::kTemplateOrigin) continue;
    const std::string_view written(out.text.data() + span.begin, span.end - span.begin);
    FUZZ_CHECK(written.find('\xe9') == std::string_view::npos,
               "text of a request counts as the template's: {}", written);
  }
}

bool same(const ProvenancedText& a, const ProvenancedText& b) {
  const auto equal = [](const text::OriginSpan& x, const text::OriginSpan& y) {
    return x.begin == y.begin && x.end == y.end && x.origin == y.origin;
  };
  return a.text == b.text && a.breaks == b.breaks &&
         std::equal(a.spans.begin(), a.spans.end(), b.spans.begin(), b.spans.end(), equal);
}

}  // namespace
}  // namespace pagewise::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  using namespace pagewise;
  using namespace pagewise::fuzz;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::size_t separator = bytes.find(kSeparator);
  const std::string_view source = bytes.substr(0, separator);
  const std::string_view conversation =
      separator == std::string_view::npos ? "" : bytes.substr(separator + kSeparator.size());
  const CpuBound bound(kCpuSecondsMax);
  const auto compiled = text::ChatTemplate::compile(source);
  if (!compiled) {
    const Error& error = compiled.error();
    FUZZ_CHECK(error.code == ErrorCode::kMalformed || error.code == ErrorCode::kUnsupported, "{}",
               error.message);
    FUZZ_CHECK(is_one_line(error.message), "{}", error.message);
    return 0;
  }
  const ChatInput input = conversation_of(conversation);
  const auto rendered = (*compiled)->render(input);
  bound.check();
  if (!rendered) {
    // kInternal would be a bug: whatever a template or a request does has words of its own.
    FUZZ_CHECK(rendered.error().code == ErrorCode::kInvalidArgument, "{}",
               rendered.error().message);
  } else {
    check_provenance(*rendered, input, source);
  }
  if (bound.seconds() > 0.1) return 0;
  const auto again = (*compiled)->render(input);
  FUZZ_CHECK(again.has_value() == rendered.has_value(), "the second rendering ends otherwise");
  if (again) FUZZ_CHECK(same(*again, *rendered), "the second rendering is another");
  return 0;
}
