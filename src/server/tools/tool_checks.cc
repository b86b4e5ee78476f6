// SPDX-License-Identifier: Apache-2.0
#include "server/tools/tool_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace pagewise::server::tools {
namespace {

constexpr std::size_t kNameBytesMax = 128;

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kNameBytesMax &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-';
         });
}

void append_spaced(const json::value& value, std::string& out) {
  if (const json::array* array = value.if_array()) {
    out += '[';
    for (const json::value& item : *array) {
      if (&item != &array->front()) out += ", ";
      append_spaced(item, out);
    }
    out += ']';
  } else if (const json::object* object = value.if_object()) {
    out += '{';
    bool first = true;
    for (const auto& [key, item] : *object) {
      if (!std::exchange(first, false)) out += ", ";
      out += json::serialize(json::value(key));
      out += ": ";
      append_spaced(item, out);
    }
    out += '}';
  } else if (value.is_double()) {
    const std::string number = fmt::format("{}", value.get_double());
    out += number;
    if (number.find_first_not_of("-0123456789") == std::string::npos) out += ".0";
  } else {
    out += json::serialize(value);
  }
}

}  // namespace

void check_name(Fields& fields, std::string_view name, const std::string& path) {
  if (is_name(name)) return;
  fields.invalid(path, fmt::format("must be 1 to {} letters, digits, '_' or '-' "
                                   "(^[a-zA-Z0-9_-]{{1,{}}}$)",
                                   kNameBytesMax, kNameBytesMax));
}

void check_names_differ(Fields& fields, const std::vector<Tool>& tools,
                        const std::vector<std::string>& paths) {
  std::set<std::string_view> seen;
  for (std::size_t i = 0; i < tools.size(); ++i) {
    if (seen.insert(tools[i].name).second) continue;
    return fields.refuse(paths[i], fmt::format("{}: tool names must be unique, and '{}' is there "
                                               "twice",
                                               paths[i], tools[i].name));
  }
}

void check_schema(Fields& fields, const json::object& schema, const std::string& path) {
  const json::value* type = schema.if_contains("type");
  if (type != nullptr && type->is_string() && type->get_string() == "object") return;
  // No schema at all is a tool without parameters.
  if (schema.empty() && fields.surface() == Surface::kOpenAi) return;
  fields.invalid(path, "must be a JSON schema with \"type\": \"object\"",
                 "invalid_function_parameters");
}

void check_known(Fields& fields, const std::vector<Tool>& tools, std::string_view name,
                 const std::string& path) {
  const bool known =
      std::any_of(tools.begin(), tools.end(), [&](const Tool& tool) { return tool.name == name; });
  if (known) return;
  constexpr std::size_t kShown = 128;
  fields.refuse(
      path, fmt::format("{}: no tool of this request is named '{}'", path, name.substr(0, kShown)));
}

void check_forced(Fields& fields, const GenerationRequest& request) {
  if (request.tool_choice.use != ToolUse::kRequired) return;
  if (request.max_tokens == 0) {
    return fields.refuse("max_tokens",
                         "max_tokens: 0 is not allowed with a tool_choice that forces "
                         "a call");
  }
  if (request.continue_last) {
    fields.refuse("tool_choice",
                  "tool_choice: a call cannot be forced where the answer has already "
                  "begun: the last message is an assistant's");
  }
}

ContentBlock call_block(std::string_view id, std::string_view name, const json::object& arguments) {
  ContentBlock block;
  block.call = {{"id", id},
                {"type", "function"},
                {"function", json::object{{"name", name}, {"arguments", arguments}}}};
  block.text = spaced_json(block.call.at("function"));
  return block;
}

std::string_view call_id(const ContentBlock& block) {
  return std::string_view(block.call.at("id").as_string());
}

std::string_view call_name(const ContentBlock& block) {
  return std::string_view(block.call.at("function").as_object().at("name").as_string());
}

json::object definition(const Tool& tool) {
  json::object parameters = tool.parameters;
  // Templates walk through the properties without asking whether there are any.
  if (!parameters.contains("type")) parameters.emplace("type", "object");
  if (!parameters.contains("properties")) parameters.emplace("properties", json::object());
  return {{"type", "function"},
          {"function", json::object{{"name", tool.name},
                                    {"description", tool.description},
                                    {"parameters", std::move(parameters)}}}};
}

std::string spaced_json(const json::value& value) {
  std::string out;
  append_spaced(value, out);
  return out;
}

}  // namespace pagewise::server::tools
