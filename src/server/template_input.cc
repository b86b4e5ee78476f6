// SPDX-License-Identifier: Apache-2.0
#include "server/template_input.h"

#include <string>

#include "base/contains.h"

namespace pagewise::server {
namespace {

/// What the conversation itself says to a template; a switch of this name would be lost.
constexpr std::string_view kGiven[] = {
    "messages",  "tools",     "documents",    "add_generation_prompt", "continue_final_message",
    "bos_token", "eos_token", "strftime_now", "raise_exception",       "chat_template"};

/// Fields of a message that say nothing to a template. Calls of tools are refused where they are
/// not empty.
constexpr std::string_view kNotForTemplates[] = {"role",          "content", "tool_calls",
                                                 "function_call", "audio",   "cache_control"};

/// Unless the request names the variable itself.
void set_default(TemplateInput& chat, std::string_view variable, json::value value) {
  if (!chat.variables.contains(variable)) chat.variables.emplace(variable, std::move(value));
}

}  // namespace

TemplateInput parse_template_input(Fields& fields, const json::object& body) {
  TemplateInput chat;
  fields.not_offered(body, "", "chat_template", Fields::Shape::kString,
                     "a template in a request (the server's flag is --chat-template) is");
  if (const json::object* given = fields.object(body, "", "chat_template_kwargs")) {
    for (const auto& [name, value] : *given) {
      const std::string_view key(name.data(), name.size());
      if (contains(kGiven, key)) {
        fields.invalid(fields.key("chat_template_kwargs", key),
                       "the conversation itself gives this to the template");
        return chat;
      }
      chat.variables.emplace(name, value);
    }
    // Whoever knows the switch by one template's name for it means the others', too.
    for (const std::string_view name : kThinkingSwitches) {
      const json::value* think = chat.variables.if_contains(name);
      if (think != nullptr && think->is_bool()) {
        set_thinking(chat, think->get_bool());
        break;
      }
    }
  }
  if (const json::array* documents = fields.array(body, "", "documents")) {
    for (std::size_t i = 0; i < documents->size(); ++i) {
      if (!(*documents)[i].is_object()) {
        fields.wrong_type(fields.item("documents", i), "an object");
        return chat;
      }
    }
    chat.documents = *documents;
  }
  return chat;
}

void set_thinking(TemplateInput& chat, bool think) {
  for (const std::string_view name : kThinkingSwitches) set_default(chat, name, think);
}

void set_reasoning_effort(TemplateInput& chat, std::string_view effort) {
  set_default(chat, "reasoning_effort", json::string(effort));
  if (effort == "none") set_thinking(chat, false);
}

json::object message_fields(Fields& fields, const json::object& message, std::string_view path) {
  for (const std::string_view name : {"name", "reasoning_content", "reasoning"}) {
    fields.string(message, path, name);  // complains about another type
  }
  json::object out;
  for (const auto& [name, value] : message) {
    if (!value.is_null() && !contains(kNotForTemplates, std::string_view(name.data(), name.size())))
      out.emplace(name, value);
  }
  const json::value* older = out.if_contains("reasoning_content");
  const json::value* newer = out.if_contains("reasoning");
  if (older == nullptr && newer != nullptr) {
    out.emplace("reasoning_content", json::value(*newer));
  } else if (newer == nullptr && older != nullptr) {
    out.emplace("reasoning", json::value(*older));
  }
  return out;
}

}  // namespace pagewise::server
