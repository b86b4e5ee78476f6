// SPDX-License-Identifier: Apache-2.0
#include "server/anthropic/parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/anthropic/parse_tools.h"
#include "server/cache_markers.h"
#include "server/fields.h"
#include "server/json_text.h"
#include "server/output_format.h"
#include "server/template_input.h"
#include "server/tools/tool_checks.h"

namespace pagewise::server::anthropic {
namespace {

constexpr std::size_t kMessagesMax = 100'000;
constexpr int64_t kThinkingBudgetMin = 1024;
/// Text that a coding agent puts in front of its system prompt and that changes with each call; it
/// means nothing to the model, and its vendor strips it too (D2, C04).
constexpr std::string_view kBillingHeader = "x-anthropic-billing-header:";

/// B2, also of a text inside another block, which may otherwise be empty.
void refuse_marker_on_nothing(Fields& fields, std::string_view text, const std::string& path) {
  if (!text.empty()) return;
  fields.refuse(path, fmt::format("{}: cache_control cannot be set for empty text blocks", path));
}

/// Text blocks must say something.
void check_text(Fields& fields, std::string_view text, bool marked, const std::string& path) {
  if (marked) refuse_marker_on_nothing(fields, text, path);
  if (text.empty()) {
    fields.refuse(path, fmt::format("{}: text content blocks must be non-empty", path));
  } else if (is_blank(text)) {
    fields.refuse(path,
                  fmt::format("{}: text content blocks must contain non-whitespace text", path));
  }
}

std::string_view require_string(Fields& fields, const json::object& in, const std::string& path,
                                std::string_view name) {
  const auto text = fields.string(in, path, name);
  if (!text) fields.missing(fields.key(path, name));
  return text.value_or("");
}

/// Joins the text blocks inside a document or search result. A marker on the last inner block moves
/// to the parent; on another one it is refused (B2).
std::string inner_text(Fields& fields, const json::array& blocks, const std::string& path,
                       std::optional<engine::LeaseClass>& moved) {
  std::string out;
  for (std::size_t i = 0; i < blocks.size() && !fields.failed(); ++i) {
    const std::string here = fields.item(path, i);
    const json::object* block = blocks[i].if_object();
    if (block == nullptr) {
      fields.wrong_type(here, "an object");
      break;
    }
    if (fields.string(*block, here, "type").value_or("") != "text") {
      fields.unsupported(here, "a block of this type is");
      break;
    }
    if (!out.empty()) out += '\n';
    const std::string_view text = require_string(fields, *block, here, "text");
    out += text;
    if (const auto marker = parse_cache_control(fields, *block, here)) {
      refuse_marker_on_nothing(fields, text, fields.key(here, "text"));
      if (i + 1 == blocks.size()) {
        moved = marker;
      } else {
        fields.refuse(fields.key(here, "cache_control"),
                      fmt::format("{}: only the last inner block may carry a marker",
                                  fields.key(here, "cache_control")));
      }
    }
  }
  return out;
}

std::string document_text(Fields& fields, const json::object& block, const std::string& path,
                          std::optional<engine::LeaseClass>& moved) {
  const json::object* source = fields.object(block, path, "source");
  const std::string here = fields.key(path, "source");
  if (source == nullptr) {
    fields.missing(here);
    return "";
  }
  const auto type = fields.string(*source, here, "type").value_or("");
  std::string out;
  for (const std::string_view name : {"title", "context"}) {
    if (const auto text = fields.string(block, path, name); text && !text->empty()) {
      out += *text;
      out += '\n';
    }
  }
  if (type == "text") {
    out += require_string(fields, *source, here, "data");
  } else if (type == "content") {
    if (const json::value* content = Fields::find(*source, "content"); content == nullptr) {
      fields.missing(fields.key(here, "content"));
    } else if (content->is_string()) {
      out += std::string_view(content->get_string());
    } else if (content->is_array()) {
      out += inner_text(fields, content->get_array(), fields.key(here, "content"), moved);
    } else {
      fields.wrong_type(fields.key(here, "content"), "a string or an array");
    }
  } else {
    fields.refuse(here,
                  fmt::format("{}: only plain text documents are supported by this server", here));
  }
  return out;
}

/// What a block that is no text by itself says, or the complaint that it cannot be read.
std::string block_text(Fields& fields, const json::object& block, std::string_view type,
                       const std::string& path, std::optional<engine::LeaseClass>& moved) {
  if (type == "document") return document_text(fields, block, path, moved);
  if (type == "search_result") {
    std::string out = fmt::format("{}\n{}\n", require_string(fields, block, path, "title"),
                                  require_string(fields, block, path, "source"));
    if (const json::array* content = fields.array(block, path, "content")) {
      out += inner_text(fields, *content, fields.key(path, "content"), moved);
    }
    return out;
  }
  if (type == "image") {
    fields.refuse(path, fmt::format("{}: this model does not accept images", path));
  } else if (type == "tool_result" || type == "tool_reference" || type == "server_tool_use" ||
             type == "container_upload" || type.starts_with("mcp_") ||
             type.ends_with("_tool_result")) {
    fields.unsupported(path, fmt::format("'{}' is", type));
  } else {
    fields.invalid(fields.key(path, "type"), fmt::format("'{}' is no known block type", type));
  }
  return "";
}

/// The text of a result's content. A marker on its last block moves to the result (B2).
std::string result_text(Fields& fields, const json::object& result, const std::string& path,
                        std::optional<engine::LeaseClass>& moved) {
  const json::value* content = Fields::find(result, "content");
  if (content == nullptr) return "";  // a tool that says nothing
  const std::string list = fields.key(path, "content");
  if (content->is_string()) return std::string(content->get_string());
  const json::array* blocks = content->if_array();
  std::string out;
  if (blocks == nullptr) fields.wrong_type(list, "a string or an array of blocks");
  for (std::size_t i = 0; blocks != nullptr && i < blocks->size() && !fields.failed(); ++i) {
    const std::string here = fields.item(list, i);
    const json::object* block = (*blocks)[i].if_object();
    if (block == nullptr) {
      fields.wrong_type(here, "an object");
      break;
    }
    const std::string_view type = require_string(fields, *block, here, "type");
    std::optional<engine::LeaseClass> inner;
    if (i > 0) out += '\n';
    const std::string text = type == "text"
                                 ? std::string(require_string(fields, *block, here, "text"))
                                 : block_text(fields, *block, type, here, inner);
    out += text;
    if (const auto marker = parse_cache_control(fields, *block, here)) {
      if (type == "text") refuse_marker_on_nothing(fields, text, fields.key(here, "text"));
      inner = marker;
    }
    if (inner && i + 1 < blocks->size()) {
      const std::string marker = fields.key(here, "cache_control");
      fields.refuse(marker,
                    fmt::format("{}: only the last inner block may carry a marker", marker));
    }
    moved = inner;
  }
  return out;
}

/// A `tool_result` block: a turn of its own, as templates have it.
Turn parse_tool_result(Fields& fields, const json::object& block, const std::string& path) {
  Turn turn{"tool", {}};
  const auto id = fields.string(block, path, "tool_use_id");
  if (!id || id->empty()) {
    fields.missing(fields.key(path, "tool_use_id"));
    return turn;
  }
  turn.fields["tool_call_id"] = *id;
  ContentBlock out;
  std::optional<engine::LeaseClass> moved;
  out.text = result_text(fields, block, path, moved);
  // No template has another way to tell the model.
  if (fields.boolean(block, path, "is_error").value_or(false)) out.text.insert(0, "Error: ");
  out.marker = parse_cache_control(fields, block, path);
  if (!out.marker) out.marker = moved;
  turn.blocks.push_back(std::move(out));
  return turn;
}

/// What an assistant thought is no content: templates that want it read it from its own field.
void add_thinking(Turn& turn, std::string_view thought) {
  if (thought.empty()) return;
  for (const std::string_view name : {"reasoning_content", "reasoning"}) {
    json::value& value = turn.fields[name];
    if (!value.is_string()) value = json::string();
    if (!value.get_string().empty()) value.get_string() += '\n';
    value.get_string() += thought;
  }
}

/// Adds one block to `turn`; a thinking block to its fields.
void parse_block(Fields& fields, const json::value& value, const std::string& path,
                 const ParseOptions& options, Turn& turn) {
  const json::object* block = value.if_object();
  if (block == nullptr) return fields.wrong_type(path, "an object");
  const auto type = fields.string(*block, path, "type");
  if (!type) return fields.missing(fields.key(path, "type"));
  ContentBlock out;
  std::optional<engine::LeaseClass> moved;
  if (*type == "text") {
    out.text = require_string(fields, *block, path, "text");
    out.marker = parse_cache_control(fields, *block, path);
    check_text(fields, out.text, out.marker.has_value(), fields.key(path, "text"));
    turn.blocks.push_back(std::move(out));
    return;
  }
  if (*type == "thinking" || *type == "redacted_thinking") {
    if (turn.role != "assistant") {
      fields.invalid(fields.key(path, "type"),
                     fmt::format("'{}' belongs into assistant messages", *type));
    }
    if (options.strict_markers && Fields::find(*block, "cache_control") != nullptr) {
      const std::string marker = fields.key(fields.key(path, *type), "cache_control");
      fields.refuse(marker, fmt::format("{}: Extra inputs are not permitted", marker));
    }
    return add_thinking(turn, fields.string(*block, path, "thinking").value_or(""));
  }
  if (turn.role == "system") return fields.invalid(fields.key(path, "type"), "must be 'text'");
  if (*type == "tool_use") {
    if (turn.role != "assistant") {
      return fields.invalid(fields.key(path, "type"), "'tool_use' belongs into assistant messages");
    }
    turn.blocks.push_back(parse_tool_use(fields, *block, path));
    return;
  }
  out.text = block_text(fields, *block, *type, path, moved);
  out.marker = parse_cache_control(fields, *block, path);
  if (!out.marker) out.marker = moved;
  turn.blocks.push_back(std::move(out));
}

void parse_system(Fields& fields, const json::object& body, const ParseOptions& options,
                  std::vector<Turn>& turns, std::vector<std::vector<std::string>>& paths) {
  const json::value* system = Fields::find(body, "system");
  if (system == nullptr) return;
  Turn turn{"system", {}};
  std::vector<std::string> block_paths;
  if (const json::string* text = system->if_string()) {
    const std::string_view view(text->data(), text->size());
    const bool billing =
        view.starts_with(kBillingHeader) && view.find('\n') == std::string_view::npos;
    if (!view.empty() && !billing) {
      turn.blocks.push_back({std::string(view), std::nullopt});
      block_paths.emplace_back("system");
    }
  } else if (const json::array* blocks = system->if_array()) {
    for (std::size_t i = 0; i < blocks->size() && !fields.failed(); ++i) {
      const std::string path = fields.item("system", i);
      parse_block(fields, (*blocks)[i], path, options, turn);
      if (!turn.blocks.empty()) turn.blocks.back().index = static_cast<int32_t>(i);
      if (i == 0 && !turn.blocks.empty() && turn.blocks[0].text.starts_with(kBillingHeader)) {
        turn.blocks.clear();
        continue;
      }
      block_paths.push_back(path);
    }
  } else {
    fields.wrong_type("system", "a string or an array of text blocks");
  }
  if (turn.blocks.empty()) return;
  turns.push_back(std::move(turn));
  paths.push_back(std::move(block_paths));
}

/// One message as turns: a user's results of tools in front of what else it says.
struct ParsedTurn {
  Turn turn;
  std::vector<std::string> block_paths;
};

bool is_tool_result(const json::value& block) {
  const json::object* object = block.if_object();
  const json::value* type = object == nullptr ? nullptr : object->if_contains("type");
  return type != nullptr && type->is_string() && type->get_string() == "tool_result";
}

void parse_blocks(Fields& fields, const json::array& blocks, const std::string& content_path,
                  const ParseOptions& options, ParsedTurn& said, std::vector<ParsedTurn>& out) {
  Turn& turn = said.turn;
  for (std::size_t i = 0; i < blocks.size() && !fields.failed(); ++i) {
    const std::size_t before = turn.blocks.size();
    const std::string block_path = fields.item(content_path, i);
    if (is_tool_result(blocks[i]) && turn.role == "user") {
      if (before > 0) {
        return fields.refuse(block_path,
                             fmt::format("{}: `tool_result` blocks must come first in a "
                                         "message's content",
                                         block_path));
      }
      ParsedTurn result{parse_tool_result(fields, blocks[i].get_object(), block_path),
                        {block_path}};
      for (ContentBlock& block : result.turn.blocks) block.index = static_cast<int32_t>(i);
      out.push_back(std::move(result));
      continue;
    }
    parse_block(fields, blocks[i], block_path, options, turn);
    if (turn.blocks.size() > before) {
      turn.blocks.back().index = static_cast<int32_t>(i);
      said.block_paths.push_back(block_path);
    }
  }
}

std::vector<ParsedTurn> parse_message(Fields& fields, const json::object& message,
                                      const std::string& path, bool last,
                                      const ParseOptions& options) {
  std::vector<ParsedTurn> out;
  ParsedTurn said;
  Turn& turn = said.turn;
  const auto role = fields.string(message, path, "role");
  if (!role) {
    fields.missing(fields.key(path, "role"));
  } else if (*role != "user" && *role != "assistant" && *role != "system") {
    fields.invalid(fields.key(path, "role"), "must be 'user', 'assistant' or 'system'");
  } else {
    turn.role = *role;
  }
  if (fields.failed()) return out;
  const json::value* content = Fields::find(message, "content");
  const std::string content_path = fields.key(path, "content");
  // Only an answer that has not begun yet may be empty.
  const bool may_be_empty = last && turn.role == "assistant";
  if (content == nullptr) {
    fields.missing(content_path);
  } else if (const json::string* text = content->if_string()) {
    if (!(may_be_empty && text->empty())) {
      check_text(fields, std::string_view(text->data(), text->size()), false, content_path);
      turn.blocks.push_back({std::string(text->data(), text->size()), std::nullopt});
      said.block_paths.push_back(content_path);
    }
  } else if (const json::array* blocks = content->if_array()) {
    if (blocks->empty() && !may_be_empty) fields.invalid(content_path, "must not be empty");
    parse_blocks(fields, *blocks, content_path, options, said, out);
  } else {
    fields.wrong_type(content_path, "a string or an array of blocks");
  }
  // Results may be all that a user says.
  if (out.empty() || !turn.blocks.empty()) out.push_back(std::move(said));
  return out;
}

/// A system message in the conversation follows a user's and is last or before an assistant's (A3).
void check_system_places(Fields& fields, const std::vector<Turn>& turns, std::size_t first,
                         const std::vector<std::size_t>& message_of_turn) {
  for (std::size_t i = first; i < turns.size(); ++i) {
    if (turns[i].role != "system") continue;
    const bool after_user =
        i > first && (turns[i - 1].role == "user" || turns[i - 1].role == "tool");
    const bool before_assistant = i + 1 == turns.size() || turns[i + 1].role == "assistant";
    if (!after_user || !before_assistant) {
      const std::string path =
          fields.key(fields.item("messages", message_of_turn[i - first]), "role");
      fields.refuse(
          path, fmt::format("{}: a 'system' message must follow a user message and be last or come "
                            "before an assistant message",
                            path));
      return;
    }
  }
}

/// system, messages and the markers on them.
void parse_prompt(Fields& fields, const json::object& body, const ParseOptions& options,
                  GenerationRequest& request) {
  std::vector<std::vector<std::string>> paths;  // of each turn's blocks
  parse_system(fields, body, options, request.turns, paths);
  const std::size_t first = request.turns.size();
  const json::array* messages = fields.array(body, "", "messages");
  if (fields.failed()) return;
  if (messages == nullptr) return fields.missing("messages");
  if (messages->empty()) return fields.invalid("messages", "at least one message is required");
  if (messages->size() > kMessagesMax) {
    return fields.invalid("messages", fmt::format("at most {} messages are allowed", kMessagesMax));
  }
  std::vector<std::size_t> message_of_turn;
  for (std::size_t i = 0; i < messages->size() && !fields.failed(); ++i) {
    const std::string path = fields.item("messages", i);
    const json::object* message = (*messages)[i].if_object();
    if (message == nullptr) return fields.wrong_type(path, "an object");
    for (ParsedTurn& parsed :
         parse_message(fields, *message, path, i + 1 == messages->size(), options)) {
      Turn& turn = parsed.turn;
      for (ContentBlock& block : turn.blocks) block.message = static_cast<int32_t>(i);
      // Consecutive messages of one role are one turn; each result of a tool is one.
      if (request.turns.size() > first && request.turns.back().role == turn.role &&
          turn.role != "tool") {
        std::move(turn.blocks.begin(), turn.blocks.end(),
                  std::back_inserter(request.turns.back().blocks));
        if (const json::value* thought = turn.fields.if_contains("reasoning")) {
          add_thinking(request.turns.back(), std::string_view(thought->get_string()));
        }
        std::move(parsed.block_paths.begin(), parsed.block_paths.end(),
                  std::back_inserter(paths.back()));
      } else {
        request.turns.push_back(std::move(turn));
        paths.push_back(std::move(parsed.block_paths));
        message_of_turn.push_back(i);
      }
    }
  }
  if (fields.failed()) return;
  check_system_places(fields, request.turns, first, message_of_turn);
  settle_results(fields, request.turns, first, message_of_turn);

  std::vector<MarkerSite> sites;
  for (std::size_t i = 0; i < request.tools.size(); ++i) {
    sites.push_back({&request.tools[i].marker, fields.item("tools", i)});
  }
  for (std::size_t t = 0; t < request.turns.size(); ++t) {
    for (std::size_t b = 0; b < request.turns[t].blocks.size(); ++b) {
      sites.push_back({&request.turns[t].blocks[b].marker, paths[t][b]});
    }
  }
  check_markers(fields, sites, parse_cache_control(fields, body, ""));

  // A conversation that ends with the assistant is continued; an empty beginning is none.
  if (request.turns.back().role == "assistant") {
    if (request.turns.back().blocks.empty()) {
      request.turns.pop_back();
    } else {
      request.continue_last = true;
    }
  }
  if (request.turns.empty())
    fields.invalid("messages", "at least one message with content is required");
  tools::check_forced(fields, request);
}

void parse_model(Fields& fields, const json::object& body, GenerationRequest& request) {
  if (const auto model = fields.string(body, "", "model")) {
    request.model = *model;
  } else {
    fields.missing("model");
  }
}

/// Whether to think, for templates with a switch for it; others ignore it, but it is checked.
void parse_thinking(Fields& fields, const json::object& body, bool counting,
                    GenerationRequest& request) {
  const json::object* thinking = fields.object(body, "", "thinking");
  if (thinking == nullptr) return;
  const auto type = fields.string(*thinking, "thinking", "type");
  if (!type) return fields.missing("thinking.type");
  if (const auto display = fields.string(*thinking, "thinking", "display")) {
    if (*display == "omitted") {
      request.thoughts = Thoughts::kOmitted;
    } else if (*display != "summarized") {
      fields.invalid("thinking.display", "must be 'summarized' or 'omitted'");
    }
  }
  if (*type == "enabled" || *type == "adaptive" || *type == "disabled") {
    set_thinking(request.chat, *type != "disabled");
  }
  if (*type == "enabled") {
    if (!counting && request.max_tokens == 0) {
      return fields.refuse("max_tokens", "max_tokens: 0 is not allowed when thinking is enabled");
    }
    const auto budget =
        fields.integer(*thinking, "thinking", "budget_tokens", kThinkingBudgetMin, kIntegerMax);
    if (!budget) return fields.missing("thinking.budget_tokens");
    if (!counting && static_cast<uint64_t>(*budget) >= request.max_tokens) {
      fields.refuse("thinking.budget_tokens",
                    "thinking.budget_tokens: must be less than max_tokens");
    }
  } else if (*type != "adaptive" && *type != "disabled" && *type != "between_tools") {
    fields.invalid("thinking.type", "must be 'enabled', 'adaptive', 'disabled' or 'between_tools'");
  }
}

void parse_chat_input(Fields& fields, const json::object& body, bool counting,
                      GenerationRequest& request) {
  request.chat = parse_template_input(fields, body);
  parse_thinking(fields, body, counting, request);
  if (const json::object* config = fields.object(body, "", "output_config")) {
    if (const auto effort = fields.string(*config, "output_config", "effort")) {
      set_reasoning_effort(request.chat, *effort);
    }
  }
}

void refuse_unoffered(Fields& fields, const json::object& body) {
  fields.not_offered(body, "", "container", Fields::Shape::kStringOrObject, "this is");
  fields.not_offered(body, "", "mcp_servers", Fields::Shape::kArray, "this is");
  fields.not_offered(body, "", "thread", Fields::Shape::kStringOrObject, "this is");
  fields.not_offered(body, "", "compaction", Fields::Shape::kObject, "this is");
}

/// `output_config.format`, and what it may not stand beside.
void parse_format(Fields& fields, const json::object& body, GenerationRequest& request) {
  request.grammar = parse_output_config_format(fields, body);
  if (request.grammar == nullptr) return;
  if (request.max_tokens == 0) {
    fields.refuse("max_tokens", "max_tokens: 0 is not allowed with output_config.format");
  }
  if (request.continue_last) {
    fields.refuse("output_config.format",
                  "output_config.format: not behind a last message of the assistant: the format is "
                  "one of the whole answer");
  }
}

void parse_sampling(Fields& fields, const json::object& body, GenerationRequest& request) {
  sampling::Params& params = request.sampling;
  if (const auto v = fields.number(body, "", "temperature", 0, 1))
    params.temperature = static_cast<float>(*v);
  if (const auto v = fields.number(body, "", "top_p", 0, 1)) params.top_p = static_cast<float>(*v);
  if (const auto v = fields.integer(body, "", "top_k", 0, std::numeric_limits<int32_t>::max())) {
    params.top_k = static_cast<uint32_t>(*v);
  }
  request.stops = fields.strings(body, "stop_sequences", false);
}

/// Written out when it is not what leaving it out means.
std::string prompt_parameters(const json::object& body) {
  std::string out;
  const auto says = [](const json::value& value, std::string_view word) {
    return value.is_string() && std::string_view(value.get_string()) == word;
  };
  const auto add = [&](std::string_view name, const json::value* value, std::string_view usual) {
    if (value == nullptr || value->is_null() || says(*value, usual)) return;
    const json::object* object = value->if_object();
    const json::value* type = object == nullptr ? nullptr : object->if_contains("type");
    if (type != nullptr && object->size() == 1 && says(*type, usual)) return;
    out += fmt::format("{}={};", name, json::serialize(*value));
  };
  add("tool_choice", Fields::find(body, "tool_choice"), "auto");
  add("thinking", Fields::find(body, "thinking"), "disabled");
  if (const json::value* config = Fields::find(body, "output_config");
      config != nullptr && config->is_object()) {
    add("effort", config->get_object().if_contains("effort"), "high");
    add("format", config->get_object().if_contains("format"), "");
  }
  return out;
}

void parse_diagnostics(Fields& fields, const json::object& body, GenerationRequest& request) {
  const json::object* diagnostics = fields.object(body, "", "diagnostics");
  if (diagnostics == nullptr) return;
  DiagnosticsRequest& asked = request.diagnostics.emplace();
  asked.previous_message_id =
      fields.string(*diagnostics, "diagnostics", "previous_message_id").value_or("");
  const json::value* speed = Fields::find(body, "speed");
  if (speed != nullptr && !speed->is_null() && *speed != "standard")
    asked.speed = json::serialize(*speed);
  asked.parameters = prompt_parameters(body);
}

}  // namespace

ApiResult<GenerationRequest> parse_messages_request(const json::object& body,
                                                    const ParseOptions& options) {
  Fields fields(Surface::kAnthropic);
  GenerationRequest request;
  request.format = Format::kMessages;
  parse_model(fields, body, request);
  if (const auto max_tokens = fields.integer(body, "", "max_tokens", 0, kIntegerMax)) {
    request.max_tokens = static_cast<uint64_t>(*max_tokens);
  } else {
    fields.missing("max_tokens");
  }
  request.stream = fields.boolean(body, "", "stream").value_or(false);
  if (request.max_tokens == 0 && request.stream) {
    fields.refuse("max_tokens", "max_tokens: 0 is not allowed with stream");
  }
  refuse_unoffered(fields, body);
  parse_sampling(fields, body, request);
  parse_chat_input(fields, body, false, request);
  parse_diagnostics(fields, body, request);
  request.context_management = fields.object(body, "", "context_management") != nullptr;
  request.use_cache = fields.boolean(body, "", "cache_prompt").value_or(true);
  request.cache_salt = fields.string(body, "", "cache_salt").value_or("");
  parse_tools(fields, body, request);
  parse_prompt(fields, body, options, request);
  parse_format(fields, body, request);
  if (fields.failed()) return fields.error();
  return request;
}

ApiResult<GenerationRequest> parse_count_tokens(const json::object& body,
                                                const ParseOptions& options) {
  Fields fields(Surface::kAnthropic);
  GenerationRequest request;
  request.format = Format::kMessages;
  parse_model(fields, body, request);
  refuse_unoffered(fields, body);
  parse_chat_input(fields, body, true, request);
  parse_tools(fields, body, request);
  parse_prompt(fields, body, options, request);
  parse_output_config_format(fields, body);  // no part of the prompt, but refused all the same
  if (fields.failed()) return fields.error();
  return request;
}

ApiResult<GenerationRequest> parse_explained(const json::object& body,
                                             const ParseOptions& options) {
  auto request = parse_count_tokens(body, options);
  if (!request) return request;
  Fields fields(Surface::kAnthropic);
  request->use_cache = fields.boolean(body, "", "cache_prompt").value_or(true);
  request->cache_salt = fields.string(body, "", "cache_salt").value_or("");
  if (fields.failed()) return fields.error();
  return request;
}

}  // namespace pagewise::server::anthropic
