// SPDX-License-Identifier: Apache-2.0
#include "server/openai/parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "server/cache_markers.h"
#include "server/openai/parse_common.h"
#include "server/template_input.h"

namespace pagewise::server::openai {
namespace {

using engine::LeaseClass;

constexpr int64_t kTopLogprobsMax = 20;

/// `prompt_cache_breakpoint` of a part: a marker of at least 30 minutes, so of the long class.
std::optional<LeaseClass> parse_breakpoint(Fields& fields, const json::object& part,
                                           std::string_view path) {
  const json::object* breakpoint = fields.object(part, path, "prompt_cache_breakpoint");
  if (breakpoint == nullptr) return std::nullopt;
  const std::string here = fields.key(path, "prompt_cache_breakpoint");
  if (fields.string(*breakpoint, here, "mode").value_or("explicit") != "explicit") {
    fields.invalid(fields.key(here, "mode"), "must be 'explicit'");
  }
  const std::string_view ttl = fields.string(*breakpoint, here, "ttl").value_or("30m");
  if (ttl == "12h") {
    fields.unsupported(fields.key(here, "ttl"), "'12h' is");
  } else if (ttl != "30m") {
    fields.invalid(fields.key(here, "ttl"), "must be '30m'");
  }
  return LeaseClass::k1h;
}

ContentBlock parse_part(Fields& fields, const json::value& value, const std::string& path,
                        bool& is_breakpoint) {
  ContentBlock block;
  const json::object* part = value.if_object();
  if (part == nullptr) {
    fields.wrong_type(path, "an object");
    return block;
  }
  const auto type = fields.string(*part, path, "type");
  if (!type) {
    fields.missing(fields.key(path, "type"));
    return block;
  }
  if (*type == "text" || *type == "refusal") {
    if (const auto text = fields.string(*part, path, *type)) {
      block.text = *text;
    } else {
      fields.missing(fields.key(path, *type));
    }
  } else if (*type == "image_url" || *type == "input_audio" || *type == "file") {
    fields.refuse(path, fmt::format("{}: this model does not accept '{}' content", path, *type));
  } else {
    fields.invalid(fields.key(path, "type"), "must be 'text'");
  }
  block.marker = parse_cache_control(fields, *part, path);
  if (const auto breakpoint = parse_breakpoint(fields, *part, path)) {
    is_breakpoint = !block.marker;
    if (!block.marker) block.marker = breakpoint;
  }
  return block;
}

std::string parse_role(Fields& fields, const json::object& message, const std::string& path) {
  const auto role = fields.string(message, path, "role");
  if (!role) {
    fields.missing(fields.key(path, "role"));
    return "";
  }
  if (*role == "developer") return "system";
  if (*role == "system" || *role == "user" || *role == "assistant") return std::string(*role);
  if (*role == "tool" || *role == "function") {
    fields.refuse(
        fields.key(path, "role"),
        fmt::format("{}: a '{}' message must answer a preceding tool call, and tool calls are not "
                    "supported by this server",
                    fields.key(path, "role"), *role));
  } else {
    fields.invalid(fields.key(path, "role"),
                   "must be 'system', 'developer', 'user' or 'assistant'");
  }
  return "";
}

/// `breakpoints` gets one entry a block.
std::vector<Turn> parse_turns(Fields& fields, const json::object& body,
                              std::vector<bool>& breakpoints) {
  std::vector<Turn> turns;
  const json::array* messages = fields.array(body, "", "messages");
  if (fields.failed()) return turns;
  if (messages == nullptr) {
    fields.missing("messages");
    return turns;
  }
  if (messages->empty()) {
    fields.invalid("messages", "must have at least one message", "empty_array");
    return turns;
  }
  turns.reserve(messages->size());
  for (std::size_t i = 0; i < messages->size() && !fields.failed(); ++i) {
    const std::string path = fields.item("messages", i);
    const json::object* message = (*messages)[i].if_object();
    if (message == nullptr) {
      fields.wrong_type(path, "an object");
      break;
    }
    Turn turn;
    turn.role = parse_role(fields, *message, path);
    fields.not_offered(*message, path, "tool_calls", Fields::Shape::kArray, "this is");
    fields.not_offered(*message, path, "function_call", Fields::Shape::kObject, "this is");
    fields.not_offered(*message, path, "audio", Fields::Shape::kObject, "this is");
    const json::value* content = Fields::find(*message, "content");
    const std::string content_path = fields.key(path, "content");
    if (content == nullptr) {
      fields.missing(content_path);
    } else if (const json::string* text = content->if_string()) {
      turn.blocks.push_back({std::string(text->data(), text->size()), std::nullopt});
      breakpoints.push_back(false);
    } else if (const json::array* parts = content->if_array()) {
      if (parts->empty())
        fields.invalid(content_path, "must have at least one part", "empty_array");
      for (std::size_t j = 0; j < parts->size() && !fields.failed(); ++j) {
        bool is_breakpoint = false;
        turn.blocks.push_back(
            parse_part(fields, (*parts)[j], fields.item(content_path, j), is_breakpoint));
        breakpoints.push_back(is_breakpoint);
      }
    } else {
      fields.wrong_type(content_path, "a string or an array of parts");
    }
    for (std::size_t j = 0; j < turn.blocks.size(); ++j) {
      turn.blocks[j].message = static_cast<int32_t>(i);
      turn.blocks[j].index = static_cast<int32_t>(j);
    }
    turn.fields = message_fields(fields, *message, path);
    turns.push_back(std::move(turn));
  }
  return turns;
}

/// Markers of the two kinds together: at most four `cache_control`; of breakpoints the last ones
/// that still fit count, as the vendor has it (C7).
void settle_markers(Fields& fields, const std::vector<bool>& breakpoints,
                    GenerationRequest& request) {
  std::vector<MarkerSite> sites;
  std::size_t index = 0;
  std::vector<ContentBlock*> soft;
  for (std::size_t i = 0; i < request.turns.size(); ++i) {
    const std::string content = fields.key(fields.item("messages", i), "content");
    for (std::size_t j = 0; j < request.turns[i].blocks.size(); ++j, ++index) {
      ContentBlock& block = request.turns[i].blocks[j];
      if (breakpoints[index]) {
        soft.push_back(&block);
      } else {
        sites.push_back({&block, fields.item(content, j)});
      }
    }
  }
  check_markers(fields, sites, std::nullopt);
  const auto hard = static_cast<std::size_t>(std::count_if(
      sites.begin(), sites.end(), [](const MarkerSite& s) { return s.block->marker.has_value(); }));
  const std::size_t room = kMarkersMax - std::min(kMarkersMax, hard);
  for (std::size_t i = 0; i + room < soft.size(); ++i) soft[i]->marker.reset();
}

void parse_cache_options(Fields& fields, const json::object& body, GenerationRequest& request) {
  const json::object* options = fields.object(body, "", "prompt_cache_options");
  if (options == nullptr) return;
  if (const auto ttl = fields.string(*options, "prompt_cache_options", "ttl");
      ttl && *ttl != "30m") {
    fields.invalid("prompt_cache_options.ttl", "must be '30m'");
  }
  const std::string_view mode =
      fields.string(*options, "prompt_cache_options", "mode").value_or("implicit");
  if (mode != "implicit" && mode != "explicit") {
    fields.invalid("prompt_cache_options.mode", "must be 'implicit' or 'explicit'");
  }
  if (mode == "explicit") {
    const bool any = std::any_of(request.turns.begin(), request.turns.end(), [](const Turn& turn) {
      return std::any_of(turn.blocks.begin(), turn.blocks.end(),
                         [](const ContentBlock& block) { return block.marker.has_value(); });
    });
    if (!any) request.use_cache = false;
  }
}

/// What a prompt is made from, markers aside.
void parse_conversation(Fields& fields, const json::object& body, std::vector<bool>& breakpoints,
                        GenerationRequest& request) {
  refuse_tools(fields, body);
  request.turns = parse_turns(fields, body, breakpoints);
  request.chat = parse_template_input(fields, body);
  request.chat.open_answer = fields.boolean(body, "", "add_generation_prompt").value_or(true);
  if (const auto effort = fields.string(body, "", "reasoning_effort")) {
    set_reasoning_effort(request.chat, *effort);
  }
  if (fields.boolean(body, "", "continue_final_message").value_or(false)) {
    request.continue_last = !request.turns.empty() && request.turns.back().role == "assistant";
    if (!request.continue_last) {
      fields.refuse("continue_final_message",
                    "continue_final_message: the last message must be an assistant's");
    }
  }
}

/// Names that other servers have for it.
void parse_thoughts(Fields& fields, const json::object& body, GenerationRequest& request) {
  if (!fields.boolean(body, "", "include_reasoning").value_or(true)) {
    request.thoughts = Thoughts::kOmitted;
  }
  if (const auto format = fields.string(body, "", "reasoning_format")) {
    if (*format == "none") {
      request.thoughts = Thoughts::kInText;
    } else if (*format != "auto" && *format != "deepseek") {
      fields.invalid("reasoning_format", "must be 'auto', 'deepseek' or 'none'");
    }
  }
}

void refuse_unoffered_chat(Fields& fields, const json::object& body) {
  if (const json::object* format = fields.object(body, "", "response_format")) {
    const auto type = fields.string(*format, "response_format", "type");
    if (!type) {
      fields.missing("response_format.type");
    } else if (*type == "json_object" || *type == "json_schema") {
      fields.unsupported("response_format", fmt::format("'{}' is", *type));
    } else if (*type != "text") {
      fields.invalid("response_format.type", "must be 'text'");
    }
  }
  if (const json::array* modalities = fields.array(body, "", "modalities")) {
    for (const json::value& entry : *modalities) {
      if (entry != "text") fields.unsupported("modalities", "anything but 'text' is");
    }
  }
  fields.not_offered(body, "", "audio", Fields::Shape::kObject, "audio output is");
  if (Fields::find(body, "web_search_options") != nullptr)
    fields.unsupported("web_search_options", "web search is");
}

}  // namespace

void refuse_tools(Fields& fields, const json::object& body) {
  fields.not_offered(body, "", "tools", Fields::Shape::kArray, "tool use is");
  fields.not_offered(body, "", "functions", Fields::Shape::kArray, "tool use is");
  if (Fields::find(body, "tool_choice") != nullptr) {
    fields.refuse("tool_choice",
                  "tool_choice: only allowed with tools, which are not supported by this server");
  }
  fields.not_offered(body, "", "function_call", Fields::Shape::kStringOrObject, "tool use is");
}

ApiResult<GenerationRequest> parse_prompt_only(const json::object& body) {
  Fields fields(Surface::kOpenAi);
  GenerationRequest request;
  std::vector<bool> breakpoints;
  parse_conversation(fields, body, breakpoints, request);
  if (fields.failed()) return fields.error();
  return request;
}

ApiResult<GenerationRequest> parse_chat(const json::object& body, const ParseLimits& limits) {
  Fields fields(Surface::kOpenAi);
  GenerationRequest request;
  request.format = Format::kChat;
  parse_common(fields, body, limits, request);
  request.candidates = request.choices;
  refuse_unoffered_chat(fields, body);

  std::vector<bool> breakpoints;
  parse_conversation(fields, body, breakpoints, request);
  if (!fields.failed()) settle_markers(fields, breakpoints, request);
  parse_cache_options(fields, body, request);

  parse_thoughts(fields, body, request);

  const auto newer = fields.integer(body, "", "max_completion_tokens", 1, kIntegerMax);
  const auto older = fields.integer(body, "", "max_tokens", 1, kIntegerMax);
  if (newer || older) request.max_tokens = static_cast<uint64_t>(newer ? *newer : *older);

  request.logprobs = fields.boolean(body, "", "logprobs").value_or(false);
  const auto top = fields.integer(body, "", "top_logprobs", 0, kTopLogprobsMax);
  if (top && !request.logprobs) {
    fields.refuse("top_logprobs", "top_logprobs: only allowed when 'logprobs' is true");
  }
  if (request.logprobs) request.sampling.logprobs = static_cast<int32_t>(top.value_or(0));
  if (fields.failed()) return fields.error();
  return request;
}

}  // namespace pagewise::server::openai
