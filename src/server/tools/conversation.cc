// SPDX-License-Identifier: Apache-2.0
#include "server/tools/conversation.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "base/hash.h"
#include "server/tools/tool_checks.h"

namespace pagewise::server::tools {
namespace {

constexpr std::string_view kIntroduction =
    "You can call tools. Each line between <tools> and </tools> describes one, its parameters as a "
    "JSON schema.\n<tools>";
constexpr std::string_view kInstruction =
    "</tools>\nTo call a tool, write this, with the tool's name and an object of arguments:\n"
    "<tool_call>\n{\"name\": \"NAME\", \"arguments\": {}}\n</tool_call>\n"
    "You may write several calls. What a tool answers comes back between <tool_response> and "
    "</tool_response>.";

/// One turn with the origin of its first block.
struct Numbered {
  const Turn* turn = nullptr;
  int32_t origin = 0;
};

bool has_calls(const Turn& turn) {
  return std::any_of(turn.blocks.begin(), turn.blocks.end(),
                     [](const ContentBlock& block) { return !block.call.empty(); });
}

std::string_view result_id(const Turn& turn) {
  return std::string_view(turn.fields.at("tool_call_id").as_string());
}

class Builder {
 public:
  Builder(const GenerationRequest& request, const ToolFormat& format)
      : request_(request), format_(format) {}

  Conversation build() {
    number();
    for (std::size_t i = 0; i < turns_.size();) i += format_.writes_calls ? told(i) : written(i);
    // Content too, but of no block: a marker's place is where its block ends.
    for (text::ChatMessage& message : out_.messages) message.fields.origin = out_.origins;
    if (!request_.tools.empty()) describe();
    return std::move(out_);
  }

 private:
  void number() {
    int32_t origin = 0;
    const auto place = [&](const auto& marked, bool joined) {
      if (marked.marker) {
        out_.markers.push_back({static_cast<uint32_t>(origin), *marked.marker});
      }
      out_.joined.push_back(joined);
      ++origin;
    };
    for (const Tool& tool : request_.tools) place(tool, false);
    const Turn* before = nullptr;
    for (const Turn& turn : request_.turns) {
      turns_.push_back({&turn, origin});
      const bool in_results = turn.role == "tool" && before != nullptr && before->role == "tool";
      bool in_calls = false;
      for (std::size_t b = 0; b < turn.blocks.size(); ++b) {
        const bool call = !turn.blocks[b].call.empty();
        place(turn.blocks[b], (call && in_calls) || in_results || (turn.role == "tool" && b > 0));
        in_calls = call;
      }
      before = &turn;
    }
    out_.origins = origin;
  }

  /// A turn in the form that the template reads. The number of turns that were written.
  std::size_t told(std::size_t index) {
    const Turn& turn = *turns_[index].turn;
    std::vector<std::size_t> calls;
    for (std::size_t b = 0; b < turn.blocks.size(); ++b) {
      if (!turn.blocks[b].call.empty()) calls.push_back(b);
    }
    if (calls.size() < 2 || !format_.one_call) {
      out_.messages.push_back(message_of(turns_[index], calls));
      return 1;
    }
    // One call a message, and behind each its result.
    std::size_t results = 0;
    while (index + 1 + results < turns_.size() && turns_[index + 1 + results].turn->role == "tool")
      ++results;
    for (std::size_t c = 0; c < calls.size(); ++c) {
      text::ChatMessage message = message_of(turns_[index], {calls[c]});
      if (c > 0) {
        message.parts.clear();
        message.fields.value = json::object{{"content", no_content()}};
      }
      out_.messages.push_back(std::move(message));
      for (std::size_t r = 0; r < results; ++r) {
        const Numbered& result = turns_[index + 1 + r];
        if (result_id(*result.turn) == call_id(turn.blocks[calls[c]]))
          out_.messages.push_back(message_of(result, {}));
      }
    }
    return 1 + results;
  }

  json::value no_content() const {
    return format_.empty_content ? json::value("") : json::value(nullptr);
  }

  text::ChatMessage message_of(const Numbered& numbered,
                               const std::vector<std::size_t>& calls) const {
    const Turn& turn = *numbered.turn;
    text::ChatMessage message{turn.role, {}, {turn.fields, 0}, {}};
    json::object& fields = message.fields.value.get_object();
    for (std::size_t b = 0; b < turn.blocks.size(); ++b) {
      if (turn.blocks[b].call.empty())
        message.parts.push_back({turn.blocks[b].text, numbered.origin + static_cast<int32_t>(b)});
    }
    for (const std::size_t b : calls) {
      json::object call = turn.blocks[b].call;
      if (format_.short_ids) call["id"] = short_id(call_id(turn.blocks[b]));
      message.tool_calls.push_back({std::move(call), numbered.origin + static_cast<int32_t>(b)});
    }
    if (!calls.empty() && message.parts.empty()) {
      fields["content"] = no_content();
      // gpt-oss's template has this name for it, and takes it beside calls alone.
      const json::value* thought = fields.if_contains("reasoning_content");
      if (format_.family == Family::kChannels && thought != nullptr) {
        fields["thinking"] = json::value(*thought);
      }
    }
    if (turn.role == "tool" && format_.short_ids)
      fields["tool_call_id"] = short_id(result_id(turn));
    if (fields.empty()) message.fields.value = nullptr;
    return message;
  }

  /// A turn whose calls and results are text. The number of turns that were written.
  std::size_t written(std::size_t index) {
    const Turn& turn = *turns_[index].turn;
    if (turn.role != "tool") {
      text::ChatMessage message = message_of(turns_[index], {});
      if (has_calls(turn)) write_calls(turns_[index], message);
      out_.messages.push_back(std::move(message));
      return 1;
    }
    // Results, and what the user says with them, are one turn of the user's.
    text::ChatMessage message{"user", {}, {nullptr, 0}, {}};
    std::size_t taken = 0;
    for (; index + taken < turns_.size() && turns_[index + taken].turn->role == "tool"; ++taken) {
      const Numbered& result = turns_[index + taken];
      for (std::size_t b = 0; b < result.turn->blocks.size(); ++b) {
        const bool first = b == 0, last = b + 1 == result.turn->blocks.size();
        std::string text = (first ? "<tool_response>\n" : "") + result.turn->blocks[b].text +
                           (last ? "\n</tool_response>" : "");
        message.parts.push_back({std::move(text), result.origin + static_cast<int32_t>(b)});
      }
    }
    if (index + taken < turns_.size() && turns_[index + taken].turn->role == "user") {
      text::ChatMessage said = message_of(turns_[index + taken++], {});
      std::move(said.parts.begin(), said.parts.end(), std::back_inserter(message.parts));
      message.fields = std::move(said.fields);
    }
    out_.messages.push_back(std::move(message));
    return taken;
  }

  static void write_calls(const Numbered& numbered, text::ChatMessage& message) {
    const std::vector<ContentBlock>& blocks = numbered.turn->blocks;
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      if (blocks[b].call.empty()) continue;
      // A call's text is its spaced JSON: what the instruction shows.
      message.parts.push_back({"<tool_call>\n" + blocks[b].text + "\n</tool_call>",
                               numbered.origin + static_cast<int32_t>(b)});
    }
    std::sort(message.parts.begin(), message.parts.end(),
              [](const auto& a, const auto& b) { return a.origin < b.origin; });
  }

  void describe() {
    if (format_.writes_tools) {
      const bool has_system = !out_.messages.empty() && out_.messages.front().role == "system";
      if (format_.needs_system && !has_system) {
        out_.messages.insert(out_.messages.begin(), {"system", {}, {nullptr, out_.origins}, {}});
      }
      for (std::size_t i = 0; i < request_.tools.size(); ++i) {
        out_.tools.push_back({definition(request_.tools[i]), static_cast<int32_t>(i)});
      }
      return;
    }
    std::vector<text::ContentPart> parts{{std::string(kIntroduction), 0}};
    int32_t origin = 0;
    for (const Tool& tool : request_.tools) {
      parts.push_back({spaced_json(definition(tool)), origin++});
    }
    parts.push_back({std::string(kInstruction), origin - 1});
    // In front of what is there: tools come before the system text.
    const std::string_view role = format_.takes_system ? "system" : "user";
    auto at = std::find_if(out_.messages.begin(), out_.messages.end(),
                           [&](const text::ChatMessage& message) { return message.role == role; });
    if (at == out_.messages.end() || (format_.takes_system && at != out_.messages.begin())) {
      at = out_.messages.insert(out_.messages.begin(),
                                {std::string(role), {}, {nullptr, out_.origins}, {}});
    }
    parts.insert(parts.end(), std::make_move_iterator(at->parts.begin()),
                 std::make_move_iterator(at->parts.end()));
    at->parts = std::move(parts);
  }

  const GenerationRequest& request_;
  const ToolFormat& format_;
  std::vector<Numbered> turns_;
  Conversation out_;
};

}  // namespace

std::string short_id(std::string_view id) {
  constexpr std::size_t kLength = 9;
  const bool fits =
      id.size() == kLength && std::all_of(id.begin(), id.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
      });
  if (fits) return std::string(id);
  constexpr std::string_view kAlphabet =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  uint64_t bits = xxh3(std::as_bytes(std::span(id.data(), id.size())), 0);
  std::string out;
  for (std::size_t i = 0; i < kLength; ++i, bits /= kAlphabet.size())
    out += kAlphabet[bits % kAlphabet.size()];
  return out;
}

Conversation make_conversation(const GenerationRequest& request, const ToolFormat& format) {
  return Builder(request, format).build();
}

}  // namespace pagewise::server::tools
