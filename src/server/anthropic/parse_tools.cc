// SPDX-License-Identifier: Apache-2.0
#include "server/anthropic/parse_tools.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "server/cache_markers.h"
#include "server/tools/call_results.h"
#include "server/tools/tool_checks.h"

namespace pagewise::server::anthropic {
namespace {

Tool parse_tool(Fields& fields, const json::value& value, const std::string& path) {
  Tool tool;
  const json::object* given = value.if_object();
  if (given == nullptr) {
    fields.wrong_type(path, "an object");
    return tool;
  }
  if (const auto type = fields.string(*given, path, "type"); type && *type != "custom") {
    // The vendor's tools bring no schema, and most of them run on the vendor's machines.
    fields.unsupported(path, fmt::format("a tool of type '{}' is", type->substr(0, 64)));
    return tool;
  }
  const auto name = fields.string(*given, path, "name");
  if (!name) {
    fields.missing(fields.key(path, "name"));
    return tool;
  }
  tool.name = *name;
  tools::check_name(fields, tool.name, fields.key(path, "name"));
  tool.description = fields.string(*given, path, "description").value_or("");
  tool.strict = fields.boolean(*given, path, "strict").value_or(false);
  tool.path = fields.key(path, "input_schema");
  if (const json::object* schema = fields.object(*given, path, "input_schema")) {
    tools::check_schema(fields, *schema, tool.path);
    tool.parameters = *schema;
  } else {
    fields.missing(tool.path);
  }
  tool.marker = parse_cache_control(fields, *given, path);
  return tool;
}

void parse_choice(Fields& fields, const json::object& body, GenerationRequest& request) {
  const json::object* choice = fields.object(body, "", "tool_choice");
  if (choice == nullptr) return;
  if (request.tools.empty()) {
    return fields.refuse("tool_choice", "tool_choice: only allowed when tools are given");
  }
  const auto type = fields.string(*choice, "tool_choice", "type");
  if (!type) return fields.missing("tool_choice.type");
  if (*type == "none") {
    request.tool_choice.use = ToolUse::kNone;
  } else if (*type == "any") {
    request.tool_choice.use = ToolUse::kRequired;
  } else if (*type == "tool") {
    const auto name = fields.string(*choice, "tool_choice", "name");
    if (!name) return fields.missing("tool_choice.name");
    tools::check_known(fields, request.tools, *name, "tool_choice.name");
    request.tool_choice.use = ToolUse::kRequired;
    request.tool_choice.only = {std::string(*name)};
  } else if (*type != "auto") {
    fields.invalid("tool_choice.type", "must be 'auto', 'any', 'tool' or 'none'");
  }
  request.tool_choice.parallel =
      !fields.boolean(*choice, "tool_choice", "disable_parallel_tool_use").value_or(false);
}

}  // namespace

void parse_tools(Fields& fields, const json::object& body, GenerationRequest& request) {
  if (const json::array* array = fields.array(body, "", "tools")) {
    if (array->size() > tools::kToolsMax) {
      return fields.invalid("tools", fmt::format("at most {} tools are allowed", tools::kToolsMax));
    }
    std::vector<std::string> paths;
    for (std::size_t i = 0; i < array->size() && !fields.failed(); ++i) {
      const std::string path = fields.item("tools", i);
      request.tools.push_back(parse_tool(fields, (*array)[i], path));
      paths.push_back(fields.key(path, "name"));
    }
    if (!fields.failed()) tools::check_names_differ(fields, request.tools, paths);
  }
  if (!fields.failed()) parse_choice(fields, body, request);
}

ContentBlock parse_tool_use(Fields& fields, const json::object& block, const std::string& path) {
  ContentBlock out;
  const auto id = fields.string(block, path, "id");
  const auto name = fields.string(block, path, "name");
  const json::object* input = fields.object(block, path, "input");
  if (!id || id->empty()) {
    fields.missing(fields.key(path, "id"));
  } else if (!name) {
    fields.missing(fields.key(path, "name"));
  } else if (input == nullptr) {
    fields.missing(fields.key(path, "input"));
  } else {
    tools::check_name(fields, *name, fields.key(path, "name"));
    out = tools::call_block(*id, *name, *input);
  }
  out.marker = parse_cache_control(fields, block, path);
  return out;
}

void settle_results(Fields& fields, std::vector<Turn>& turns, std::size_t first,
                    const std::vector<std::size_t>& message_of_turn) {
  const auto path_of = [&](std::size_t turn) {
    return fields.item("messages", message_of_turn[turn - first]);
  };
  tools::ResultComplaints complaints;
  complaints.unanswered = [&](std::size_t turn, const std::string& ids) {
    const std::string path = path_of(turn);
    fields.refuse(path, fmt::format("{}: `tool_use` ids were found without `tool_result` blocks "
                                    "immediately after: {}. Each `tool_use` block must have its "
                                    "`tool_result` block in the next message",
                                    path, ids));
  };
  complaints.unexpected = [&](std::size_t turn, std::string_view id) {
    const std::string path = fields.item(fields.key(path_of(turn), "content"),
                                         static_cast<std::size_t>(turns[turn].blocks[0].index));
    fields.refuse(path, fmt::format("{}: unexpected `tool_use_id` found in `tool_result` blocks: "
                                    "{}. Each `tool_result` block must have a `tool_use` block in "
                                    "the message before it",
                                    path, id));
  };
  tools::settle_results(turns, first, complaints);
}

}  // namespace pagewise::server::anthropic
