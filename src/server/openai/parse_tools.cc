// SPDX-License-Identifier: Apache-2.0
#include "server/openai/parse_tools.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <utility>

#include "server/cache_markers.h"
#include "server/tools/call_results.h"
#include "server/tools/tool_checks.h"

namespace pagewise::server::openai {
namespace {

/// {"type": "function", "function": {...}}, of a definition, a choice or a call: the inner object.
const json::object* function_of(Fields& fields, const json::value& value, const std::string& path) {
  const json::object* outer = value.if_object();
  if (outer == nullptr) {
    fields.wrong_type(path, "an object");
    return nullptr;
  }
  const auto type = fields.string(*outer, path, "type");
  if (!type) {
    fields.missing(fields.key(path, "type"));
  } else if (*type == "custom") {
    fields.unsupported(path, "a tool of type 'custom' is");
  } else if (*type != "function") {
    fields.invalid(fields.key(path, "type"), "must be 'function'");
  }
  const json::object* function = fields.object(*outer, path, "function");
  if (function == nullptr) fields.missing(fields.key(path, "function"));
  return fields.failed() ? nullptr : function;
}

std::string name_of(Fields& fields, const json::object& function, const std::string& path) {
  const auto name = fields.string(function, path, "name");
  if (!name) {
    fields.missing(fields.key(path, "name"));
    return "";
  }
  return std::string(*name);
}

Tool parse_tool(Fields& fields, const json::value& value, const std::string& path) {
  Tool tool;
  const json::object* function = function_of(fields, value, path);
  if (function == nullptr) return tool;
  const std::string here = fields.key(path, "function");
  tool.name = name_of(fields, *function, here);
  tools::check_name(fields, tool.name, fields.key(here, "name"));
  tool.description = fields.string(*function, here, "description").value_or("");
  tool.strict = fields.boolean(*function, here, "strict").value_or(false);
  tool.path = fields.key(here, "parameters");
  if (const json::object* parameters = fields.object(*function, here, "parameters")) {
    tools::check_schema(fields, *parameters, tool.path);
    tool.parameters = *parameters;
  }
  tool.marker = parse_cache_control(fields, value.get_object(), path);
  return tool;
}

/// `allowed_tools`: a mode and the tools that may be called.
void parse_allowed(Fields& fields, const json::object& choice, GenerationRequest& request) {
  const std::string path = "tool_choice.allowed_tools";
  const json::object* allowed = fields.object(choice, "tool_choice", "allowed_tools");
  if (allowed == nullptr) return fields.missing(path);
  const auto mode = fields.string(*allowed, path, "mode");
  if (!mode) return fields.missing(path + ".mode");
  if (*mode != "auto" && *mode != "required") {
    return fields.invalid(path + ".mode", "must be 'auto' or 'required'");
  }
  if (*mode == "required") request.tool_choice.use = ToolUse::kRequired;
  const json::array* listed = fields.array(*allowed, path, "tools");
  if (listed == nullptr) return fields.missing(path + ".tools");
  if (listed->empty()) return fields.invalid(path + ".tools", "must name a tool", "empty_array");
  for (std::size_t i = 0; i < listed->size() && !fields.failed(); ++i) {
    const std::string here = fields.item(path + ".tools", i);
    const json::object* function = function_of(fields, (*listed)[i], here);
    if (function == nullptr) return;
    const std::string name = name_of(fields, *function, fields.key(here, "function"));
    tools::check_known(fields, request.tools, name, "tool_choice");
    request.tool_choice.only.push_back(name);
  }
}

void parse_choice(Fields& fields, const json::object& body, GenerationRequest& request) {
  const json::value* choice = Fields::find(body, "tool_choice");
  if (choice == nullptr) return;
  if (request.tools.empty()) {
    return fields.refuse("tool_choice", "tool_choice: only allowed when tools are given");
  }
  if (const json::string* word = choice->if_string()) {
    if (*word == "none") {
      request.tool_choice.use = ToolUse::kNone;
    } else if (*word == "required") {
      request.tool_choice.use = ToolUse::kRequired;
    } else if (*word != "auto") {
      fields.invalid("tool_choice", "must be 'none', 'auto', 'required' or an object");
    }
    return;
  }
  const json::object* object = choice->if_object();
  if (object == nullptr) return fields.wrong_type("tool_choice", "a string or an object");
  const auto type = fields.string(*object, "tool_choice", "type");
  if (type && *type == "allowed_tools") return parse_allowed(fields, *object, request);
  const json::object* function = function_of(fields, *choice, "tool_choice");
  if (function == nullptr) return;
  const std::string name = name_of(fields, *function, "tool_choice.function");
  tools::check_known(fields, request.tools, name, "tool_choice");
  request.tool_choice.use = ToolUse::kRequired;
  request.tool_choice.only = {name};
}

}  // namespace

void parse_tools(Fields& fields, const json::object& body, GenerationRequest& request) {
  fields.not_offered(body, "", "functions", Fields::Shape::kArray,
                     "the older form of tools (use 'tools') is");
  fields.not_offered(body, "", "function_call", Fields::Shape::kStringOrObject,
                     "the older form of tools (use 'tool_choice') is");
  if (const json::array* array = fields.array(body, "", "tools")) {
    if (array->size() > tools::kToolsMax) {
      return fields.invalid("tools", fmt::format("must have at most {} tools", tools::kToolsMax),
                            "array_above_max_length");
    }
    std::vector<std::string> paths;
    for (std::size_t i = 0; i < array->size() && !fields.failed(); ++i) {
      request.tools.push_back(parse_tool(fields, (*array)[i], fields.item("tools", i)));
      paths.push_back(fields.item("tools", i) + ".function.name");
    }
    if (!fields.failed()) tools::check_names_differ(fields, request.tools, paths);
  }
  if (fields.failed()) return;
  parse_choice(fields, body, request);
  request.tool_choice.parallel = fields.boolean(body, "", "parallel_tool_calls").value_or(true);
}

void parse_tool_calls(Fields& fields, const json::object& message, const std::string& path,
                      Turn& turn) {
  const json::array* calls = fields.array(message, path, "tool_calls");
  if (calls == nullptr || calls->empty()) return;
  const std::string list = fields.key(path, "tool_calls");
  if (turn.role != "assistant") {
    return fields.invalid(list, "only an assistant message has tool calls");
  }
  for (std::size_t i = 0; i < calls->size() && !fields.failed(); ++i) {
    const std::string here = fields.item(list, i);
    const json::object* function = function_of(fields, (*calls)[i], here);
    if (function == nullptr) return;
    const auto id = fields.string((*calls)[i].get_object(), here, "id");
    if (!id || id->empty()) return fields.missing(fields.key(here, "id"));
    const std::string inside = fields.key(here, "function");
    const std::string name = name_of(fields, *function, inside);
    tools::check_name(fields, name, fields.key(inside, "name"));
    const std::string arguments_path = fields.key(inside, "arguments");
    const auto arguments = fields.string(*function, inside, "arguments");
    if (!arguments) return fields.missing(arguments_path);
    json::object given;
    // Some clients write nothing for a call without arguments.
    if (!arguments->empty()) {
      auto parsed = parse_json(*arguments);
      if (!parsed || !parsed->is_object()) {
        return fields.invalid(arguments_path, "must spell a JSON object");
      }
      given = std::move(parsed->get_object());
    }
    turn.blocks.push_back(tools::call_block(*id, name, given));
  }
}

void settle_results(Fields& fields, std::vector<Turn>& turns) {
  tools::ResultComplaints complaints;
  complaints.unanswered = [&](std::size_t turn, const std::string& ids) {
    const std::string path = fields.item("messages", turn);
    fields.refuse(path, fmt::format("{}: a message with tool_calls must be followed by a 'tool' "
                                    "message for each of them, and these have none: {}",
                                    path, ids));
  };
  complaints.unexpected = [&](std::size_t turn, std::string_view id) {
    const std::string path = fields.key(fields.item("messages", turn), "role");
    fields.refuse(path, fmt::format("{}: a 'tool' message must answer a call of the assistant "
                                    "message before it, and '{}' is none that is still open",
                                    path, id));
  };
  tools::settle_results(turns, 0, complaints);
}

}  // namespace pagewise::server::openai
