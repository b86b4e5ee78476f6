// SPDX-License-Identifier: Apache-2.0
#include "text/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/text_file.h"
#include "text/jinja/eval.h"
#include "text/jinja/parser.h"
#include "text/utf8.h"

namespace pagewise::text {

namespace {

using jinja::Rope;
using jinja::Value;

/// While rendering, every part and every joint between two parts of a message has a number of its
/// own, an index into this table; the template's own text keeps kTemplateOrigin.
struct Source {
  int32_t origin = kTemplateOrigin;  // what the caller is told
  std::size_t message = 0;
  bool is_joint =
      false;  // the newline between two parts: the template's, and a break in front of it
};

/// Roles are written by the template beside control tokens and count as its text, so only plain
/// words.
bool is_plain_word(std::string_view role) {
  return !role.empty() && role.size() <= 64 && std::all_of(role.begin(), role.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
}

/// The parts as one text, or, for a template that reads nothing else, as a list of
/// {"type": "text", "text": ...}.
Result<Value> content_of(const ChatMessage& message, std::size_t index, bool as_list,
                         std::vector<Source>& sources) {
  Rope content;
  std::vector<Value> items;
  for (std::size_t part = 0; part < message.parts.size(); ++part) {
    if (part > 0 && !as_list) {
      content.append("\n", static_cast<int32_t>(sources.size()));
      sources.push_back({kTemplateOrigin, index, true});
    }
    const Rope text(message.parts[part].text, static_cast<int32_t>(sources.size()));
    sources.push_back({message.parts[part].origin, index, false});
    if (!as_list) {
      content.append(text);
      continue;
    }
    PW_ASSIGN_OR_RETURN(Value item,
                        jinja::make_dict({{jinja::make_text("type"), jinja::make_text("text")},
                                          {jinja::make_text("text"), Value(text)}}));
    items.push_back(std::move(item));
  }
  if (!as_list) return Value(std::move(content));
  return jinja::make_list(std::move(items));
}

constexpr std::size_t kNoMessage = SIZE_MAX;

/// A request's JSON as a value whose texts, keys too, are content.
Result<Value> to_value(const json::value& value, int32_t source, uint32_t depth = 1) {
  if (depth > jinja::kValueDepthMax) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("JSON for the chat template nests deeper than {}", jinja::kValueDepthMax)};
  }
  switch (value.kind()) {
    case json::kind::null:
      return Value(jinja::None{});
    case json::kind::bool_:
      return Value(value.get_bool());
    case json::kind::int64:
      return Value(int64_t{value.get_int64()});
    case json::kind::uint64:
      return Value(static_cast<double>(value.get_uint64()));
    case json::kind::double_:
      return Value(value.get_double());
    case json::kind::string:
      return Value(Rope(std::string_view(value.get_string()), source));
    case json::kind::array: {
      std::vector<Value> items;
      for (const json::value& item : value.get_array()) {
        PW_ASSIGN_OR_RETURN(Value converted, to_value(item, source, depth + 1));
        items.push_back(std::move(converted));
      }
      return jinja::make_list(std::move(items));
    }
    case json::kind::object:
      break;
  }
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [key, item] : value.get_object()) {
    PW_ASSIGN_OR_RETURN(Value converted, to_value(item, source, depth + 1));
    entries.emplace_back(Rope(std::string_view(key), source), std::move(converted));
  }
  return jinja::make_dict(std::move(entries));
}

/// The byte behind the last one that came from `message`.
std::optional<std::size_t> end_of_message(const Rope& text, const std::vector<Source>& sources,
                                          std::size_t message) {
  for (std::size_t run = text.runs().size(); run-- > 0;) {
    const int32_t source = text.runs()[run].origin;
    if (source == kTemplateOrigin) continue;
    if (sources[static_cast<std::size_t>(source)].message == message) return text.runs()[run].end;
  }
  return std::nullopt;
}

ProvenancedText to_provenanced(const Rope& rope, std::size_t end,
                               const std::vector<Source>& sources, bool parts_apart) {
  ProvenancedText result;
  result.text = rope.bytes().substr(0, end);
  uint32_t begin = 0;
  for (const Rope::Run& run : rope.runs()) {
    const uint32_t stop = std::min(run.end, static_cast<uint32_t>(end));
    if (begin >= stop) break;
    const Source source =
        run.origin == kTemplateOrigin ? Source{} : sources[static_cast<std::size_t>(run.origin)];
    const bool behind_content =
        !result.spans.empty() && result.spans.back().origin != kTemplateOrigin;
    const bool next_part = parts_apart && source.origin != kTemplateOrigin && behind_content &&
                           source.origin != result.spans.back().origin;
    if (behind_content && (source.is_joint || next_part)) result.breaks.push_back(begin);
    if (!result.spans.empty() && result.spans.back().origin == source.origin) {
      result.spans.back().end = stop;
    } else {
      result.spans.push_back({begin, stop, source.origin});
    }
    begin = stop;
  }
  return result;
}

}  // namespace

struct ChatTemplate::Impl {
  jinja::Parsed parsed;
  bool content_as_list = false;

  static Result<Value> convert(const ChatValue& given, std::size_t message,
                               std::vector<Source>& sources) {
    if (given.origin < 0) {
      return Error{ErrorCode::kInternal, "JSON for the chat template without an origin"};
    }
    const auto source = static_cast<int32_t>(sources.size());
    sources.push_back({given.origin, message, false});
    return to_value(given.value, source);
  }

  /// A list of which every item has an origin of its own.
  static Result<Value> convert_list(const std::vector<ChatValue>& given, std::size_t message,
                                    std::vector<Source>& sources) {
    std::vector<Value> items;
    items.reserve(given.size());
    for (const ChatValue& item : given) {
      PW_ASSIGN_OR_RETURN(Value converted, convert(item, message, sources));
      items.push_back(std::move(converted));
    }
    return jinja::make_list(std::move(items));
  }

  static Result<Value> make_message(const ChatMessage& message, const Value& content,
                                    std::size_t index, std::vector<Source>& sources) {
    std::vector<std::pair<Value, Value>> entries;
    entries.emplace_back(jinja::make_text("role"), jinja::make_text(message.role));
    const json::object* fields = message.fields.value.if_object();
    if (fields == nullptr || !fields->contains("content")) {
      entries.emplace_back(jinja::make_text("content"), content);
    }
    if (fields != nullptr) {
      PW_ASSIGN_OR_RETURN(const Value converted, convert(message.fields, index, sources));
      for (const auto& [key, value] : converted.dict()->entries) {
        const std::string_view name = key.text()->bytes();
        if (name == "role" || (name == "tool_calls" && !message.tool_calls.empty())) continue;
        entries.emplace_back(key, value);
      }
    }
    if (!message.tool_calls.empty()) {
      PW_ASSIGN_OR_RETURN(Value calls, convert_list(message.tool_calls, index, sources));
      entries.emplace_back(jinja::make_text("tool_calls"), std::move(calls));
    }
    return jinja::make_dict(std::move(entries));
  }

  Result<Rope> render(const ChatInput& input, const std::vector<Value>& contents,
                      std::vector<Source>& sources) const {
    std::vector<Value> messages;
    messages.reserve(contents.size());
    for (std::size_t i = 0; i < contents.size(); ++i) {
      PW_ASSIGN_OR_RETURN(Value message, make_message(input.messages[i], contents[i], i, sources));
      messages.push_back(std::move(message));
    }
    PW_ASSIGN_OR_RETURN(Value list, jinja::make_list(std::move(messages)));
    jinja::Variables variables;
    variables.emplace_back("messages", std::move(list));
    variables.emplace_back("add_generation_prompt",
                           input.add_generation_prompt && !input.continue_last);
    variables.emplace_back("bos_token", jinja::make_text(input.bos_token));
    variables.emplace_back("eos_token", jinja::make_text(input.eos_token));
    // Templates may rely on these two being there, and none when nothing was given.
    Value tools = jinja::None{}, documents = jinja::None{};
    if (!input.tools.empty()) {
      PW_ASSIGN_OR_RETURN(tools, convert_list(input.tools, kNoMessage, sources));
    }
    if (input.documents) {
      PW_ASSIGN_OR_RETURN(documents, convert(*input.documents, kNoMessage, sources));
    }
    variables.emplace_back("tools", std::move(tools));
    variables.emplace_back("documents", std::move(documents));
    if (input.now) {
      jinja::Callable function;
      function.builtin = &jinja::strftime_function();
      variables.emplace_back("strftime_now", function);
    }
    if (input.variables.value.is_object()) {
      PW_ASSIGN_OR_RETURN(const Value own, convert(input.variables, kNoMessage, sources));
      for (const auto& [key, value] : own.dict()->entries) {
        const std::string name(key.text()->bytes());
        const auto same = [&](const auto& variable) { return variable.first == name; };
        // A request does not replace what the conversation says.
        if (std::any_of(variables.begin(), variables.end(), same)) continue;
        variables.emplace_back(name, value);
      }
    }
    return jinja::render(parsed.body, std::move(variables), input.now);
  }
};

namespace {

/// Templates of models that also see images often walk the parts of a message and would print
/// nothing of a text. Which kind this is, it shows itself: a word said by a user must come out.
bool reads_only_lists(ChatTemplate& chat, bool& content_as_list) {
  constexpr std::string_view kWord = "sesame";
  ChatInput input;
  input.messages.push_back({"user", {{std::string(kWord), 0}}, {}});
  input.now = 0;
  const auto comes_out = [&](bool as_list) {
    content_as_list = as_list;
    const auto rendered = chat.render(input);
    return rendered.has_value() && rendered->text.find(kWord) != std::string::npos;
  };
  return !comes_out(false) && comes_out(true);
}

}  // namespace

ChatTemplate::ChatTemplate() : impl_(std::make_unique<Impl>()) {}
ChatTemplate::~ChatTemplate() = default;

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::compile(std::string_view source) {
  // Its names and texts come back in errors and prompts, which are UTF-8.
  if (const std::size_t valid = utf8_valid_prefix(source); valid < source.size()) {
    return Error{ErrorCode::kMalformed, fmt::format("chat template: not UTF-8 at byte {}", valid)};
  }
  auto parsed = jinja::parse(source);
  if (!parsed) {
    return Error{parsed.error().code, fmt::format("chat template: {}", parsed.error().message)};
  }
  std::unique_ptr<ChatTemplate> result(new ChatTemplate());
  result->impl_->parsed = std::move(parsed).value();
  // Only a template that names a part's fields can be of that kind.
  if (source.find("type") != std::string_view::npos &&
      source.find("text") != std::string_view::npos) {
    result->impl_->content_as_list = reads_only_lists(*result, result->impl_->content_as_list);
  }
  return result;
}

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::from_file(const std::string& path) {
  // One byte more than a template may have tells an endless file from one that just fits.
  PW_ASSIGN_OR_RETURN(std::string source, read_text_file(path, "a file with a chat template",
                                                         jinja::kSourceBytesMax + 1));
  static constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (source.starts_with(kByteOrderMark)) source.erase(0, kByteOrderMark.size());
  if (source.find_first_not_of(" \t\r\n") == std::string::npos) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: no chat template in it", path)};
  }
  auto compiled = compile(source);
  if (compiled) return compiled;
  return Error{compiled.error().code, fmt::format("{}: {}", path, compiled.error().message)};
}

bool ChatTemplate::needs_time() const { return impl_->parsed.needs_time; }

bool ChatTemplate::reads(std::string_view variable) const {
  return impl_->parsed.names_read.contains(variable);
}

Result<ProvenancedText> ChatTemplate::render(const ChatInput& input) const {
  std::vector<Source> sources;
  const bool as_list = impl_->content_as_list;
  std::vector<Value> contents;
  for (std::size_t i = 0; i < input.messages.size(); ++i) {
    if (!is_plain_word(input.messages[i].role)) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("messages[{}]: a role is a word of at most 64 letters, digits, '_' "
                               "and '-'",
                               i)};
    }
    for (const ContentPart& part : input.messages[i].parts) {
      if (part.origin >= 0) continue;
      // A part that passed for the template's text could spell control tokens.
      return Error{ErrorCode::kInternal,
                   fmt::format("messages[{}]: a content part without an origin", i)};
    }
    PW_ASSIGN_OR_RETURN(Value content, content_of(input.messages[i], i, as_list, sources));
    contents.push_back(std::move(content));
  }
  if (!input.continue_last) {
    PW_ASSIGN_OR_RETURN(const Rope text, impl_->render(input, contents, sources));
    return to_provenanced(text, text.size(), sources, as_list);
  }
  if (input.messages.empty() || input.messages.back().role != "assistant") {
    return Error{ErrorCode::kInvalidArgument,
                 "only a last message of role assistant can be continued"};
  }
  const std::size_t last = input.messages.size() - 1;
  PW_ASSIGN_OR_RETURN(Rope text, impl_->render(input, contents, sources));
  std::optional<std::size_t> end = end_of_message(text, sources, last);
  if (!end) {
    // Nothing of it was rendered (it may be empty): a character that stands for it shows the place.
    const ChatMessage stand_in{"assistant", {{"x", 0}}, {}};
    PW_ASSIGN_OR_RETURN(contents.back(), content_of(stand_in, last, as_list, sources));
    sources.back().origin = kTemplateOrigin;
    PW_ASSIGN_OR_RETURN(text, impl_->render(input, contents, sources));
    end = end_of_message(text, sources, last);
    if (!end) {
      return Error{ErrorCode::kInvalidArgument,
                   "the model's chat template does not render the last message, so it cannot be "
                   "continued"};
    }
    --*end;
  }
  return to_provenanced(text, *end, sources, as_list);
}

}  // namespace pagewise::text
