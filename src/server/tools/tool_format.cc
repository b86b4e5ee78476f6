// SPDX-License-Identifier: Apache-2.0
#include "server/tools/tool_format.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "server/tools/json_scanner.h"

namespace pagewise::server::tools {
namespace {

const CallSyntax kSyntaxes[] = {
    {Family::kHermes, "hermes", {"<tool_call>"}, false, false, {"</tool_call>"}, {}},
    {Family::kLlama3, "llama3", {"<|python_tag|>"}, true, false, {}, {";"}},
    {Family::kMistral, "mistral", {"[TOOL_CALLS]"}, false, false, {}, {}},
    {Family::kDeepSeek,
     "deepseek",
     {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"},
     false,
     true,
     {"```", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"},
     {"<｜tool▁call▁begin｜>"}},
    {Family::kCommandR,
     "command-r",
     {"Action: ```json", "Action:```json", "<|START_ACTION|>"},
     false,
     false,
     {"```", "<|END_ACTION|>"},
     {}},
    {Family::kPipedTags,
     "piped tags",
     {"<|tool_call|>", "<tool_call>"},
     false,
     false,
     {"<|/tool_call|>", "</tool_call>"},
     {";"}},
    {Family::kChannels,
     "channels",
     {kRoleRecipient, kChannelRecipient},
     false,
     true,
     {"<|call|>"},
     {}},
};

// Words that no template writes by itself.
constexpr std::string_view kTool = "sesame_tool";
constexpr std::string_view kFirstCall = "sesame_call";
constexpr std::string_view kOtherCall = "sesame_other";
constexpr std::string_view kKey = "sesame_key";
constexpr std::string_view kQuestion = "sesame_question";
constexpr std::string_view kResult = "sesame_result";
constexpr std::string_view kSystem = "sesame_system";

struct Probe {
  bool system = false;
  bool tools = false;
  uint32_t calls = 0;
  bool empty_content = false;
  std::string_view id_end = "00";  // ids are "sesame0" and this
};

text::ChatValue probe_call(std::string_view name, const std::string& id) {
  return {json::object{
              {"id", id},
              {"type", "function"},
              {"function", json::object{{"name", name}, {"arguments", json::object{{kKey, "x"}}}}}},
          0};
}

std::optional<std::string> render(const text::ChatTemplate& chat, const Probe& probe) {
  text::ChatInput input;
  input.now = 0;
  if (probe.system) input.messages.push_back({"system", {{std::string(kSystem), 0}}});
  input.messages.push_back({"user", {{std::string(kQuestion), 0}}});
  if (probe.tools) {
    input.tools.push_back(
        {json::object{
             {"type", "function"},
             {"function",
              json::object{{"name", kTool},
                           {"description", "opens"},
                           {"parameters",
                            json::object{{"type", "object"},
                                         {"properties",
                                          json::object{{kKey, json::object{{"type", "string"}}}}},
                                         {"required", json::array{kKey}}}}}}},
         0});
  }
  if (probe.calls > 0) {
    text::ChatMessage message{"assistant", {}, {json::object{{"content", nullptr}}, 0}, {}};
    if (probe.empty_content) message.fields.value.get_object()["content"] = "";
    for (uint32_t i = 0; i < probe.calls; ++i) {
      const std::string id = "sesame" + std::to_string(i) + std::string(probe.id_end);
      message.tool_calls.push_back(probe_call(i == 0 ? kFirstCall : kOtherCall, id));
    }
    input.messages.push_back(std::move(message));
    for (uint32_t i = 0; i < probe.calls; ++i) {
      const std::string id = "sesame" + std::to_string(i) + std::string(probe.id_end);
      input.messages.push_back(
          {"tool",
           {{std::string(kResult), 0}},
           {json::object{{"tool_call_id", id}, {"name", i == 0 ? kFirstCall : kOtherCall}}, 0},
           {}});
    }
  }
  auto rendered = chat.render(input);
  if (!rendered) return std::nullopt;
  return std::move(rendered->text);
}

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// What stands behind `word` and white space.
std::string_view behind(std::string_view text, std::string_view word) {
  const std::size_t at = text.find(word);
  if (at == std::string_view::npos) return {};
  const std::size_t next = text.find_first_not_of(" \n\r\t", at + word.size());
  return next == std::string_view::npos ? std::string_view() : text.substr(next);
}

bool begins_json(std::string_view text) { return text.starts_with('{') || text.starts_with('['); }

/// The form of the call in what a template wrote of one, or nothing.
std::optional<Family> family_of(std::string_view text) {
  if (has(text, "<｜tool▁call▁begin｜>")) return Family::kDeepSeek;
  if (has(text, "[TOOL_CALLS]")) return Family::kMistral;
  if (has(text, "<|channel|>") && has(text, kRoleRecipient)) return Family::kChannels;
  if (begins_json(behind(text, "<|tool_call|>"))) return Family::kPipedTags;
  if (begins_json(behind(text, "<tool_call>"))) return Family::kHermes;
  if (begins_json(behind(text, "Action: ```json")) || begins_json(behind(text, "<|START_ACTION|>")))
    return Family::kCommandR;
  if (has(text, "{\"name\": \"") && has(text, "\"parameters\": {")) return Family::kLlama3;
  return std::nullopt;
}

std::size_t white_space_from(std::string_view text, std::size_t at) {
  return std::min(text.find_first_not_of(" \n\r\t", at), text.size());
}

/// Reads off `text`, in which a template wrote one call, how it writes them.
CallForm form_of(std::string_view text, const CallSyntax& syntax) {
  CallForm form;
  form.name_key = has(text, "\"tool_name\"") ? "tool_name" : "name";
  form.arguments_key = has(text, "\"parameters\"") ? "parameters" : "arguments";
  form.fenced = has(text, "```json");
  form.tagged = has(text, "[ARGS]");
  form.open = form.gap = form.close = "";
  std::size_t at = text.find(syntax.bare ? "{" : "");
  for (const std::string_view open : syntax.opens) {
    const std::size_t found = text.find(open);
    if (found == std::string_view::npos || !form.open.empty()) continue;
    form.open = open;
    at = found + open.size();
  }
  const std::size_t body = white_space_from(text, at);
  form.gap = text.substr(at, body - at);
  form.list = body < text.size() && text[body] == '[' && !form.tagged;
  JsonScanner scanner;
  std::size_t end = body;
  while (end < text.size() && scanner.push(text[end]) == JsonScanner::State::kMore) ++end;
  if (scanner.state() != JsonScanner::State::kEnd) return form;
  const std::size_t behind = white_space_from(text, ++end);
  for (const std::string_view close : syntax.closes) {
    if (!text.substr(behind).starts_with(close)) continue;
    form.close = text.substr(end, behind - end + close.size());
    break;
  }
  return form;
}

}  // namespace

const CallSyntax& syntax_of(Family family) {
  return *std::find_if(std::begin(kSyntaxes), std::end(kSyntaxes),
                       [&](const CallSyntax& syntax) { return syntax.family == family; });
}

ToolFormat detect_tool_format(const text::ChatTemplate& chat) {
  ToolFormat format;
  const auto with_system = render(chat, {true, false, 0});
  format.takes_system = with_system && has(*with_system, kSystem);
  const Probe shown{format.takes_system, true, 0};
  const auto described = render(chat, shown);
  format.writes_tools = described && has(*described, kTool);
  if (!format.writes_tools) return format;
  const auto alone = render(chat, {false, true, 0});
  format.needs_system = !alone || !has(*alone, kTool);

  Probe probe{format.takes_system, true, 1};
  auto once = render(chat, probe);
  // One that looks into the content refuses what is no text (gpt-oss).
  if (!once) {
    probe.empty_content = format.empty_content = true;
    once = render(chat, probe);
  }
  const auto called = [](const std::optional<std::string>& text) {
    return text && has(*text, kFirstCall) && has(*text, kKey) && has(*text, kResult);
  };
  // What insists on nine characters refuses more.
  probe.id_end = "0000000000";
  format.short_ids = called(once) && !called(render(chat, probe));
  probe.id_end = "00";
  if (called(once)) {
    const std::size_t begin = once->find(kQuestion) + kQuestion.size();
    const std::size_t call = once->find(kFirstCall, begin);
    const std::size_t end = once->find(kResult, begin);
    const std::string_view written =
        call < end ? std::string_view(*once).substr(begin, end - begin) : std::string_view();
    const auto family = family_of(written);
    if (!family) {
      // Calls in a form that is not read here would come out as text.
      format.writes_tools = format.short_ids = false;
      format.foreign_calls = true;
      return format;
    }
    format.family = *family;
    format.form = form_of(written, format.syntax());
    format.writes_calls = true;
    probe.calls = 2;
    const auto twice = render(chat, probe);
    format.one_call = !called(twice) || !has(*twice, kOtherCall);
    return format;
  }
  // It shows the tools and leaves their calls to the text: in the form that it tells, or in ours.
  if (const auto family = family_of(*described)) format.family = *family;
  if (format.family != Family::kHermes && format.family != Family::kPipedTags) {
    format.writes_tools = false;
    format.family = Family::kHermes;
  }
  return format;
}

std::vector<TokenId> control_tokens(const CallSyntax& syntax, const text::Tokenizer& tokenizer) {
  std::vector<TokenId> out;
  const auto add = [&](std::string_view spelling) {
    const auto token = tokenizer.find(spelling);
    if (token && tokenizer.is_control(*token)) out.push_back(*token);
  };
  for (const auto* words : {&syntax.opens, &syntax.closes, &syntax.again}) {
    for (const std::string_view word : *words) add(word);
  }
  if (syntax.family == Family::kDeepSeek) add("<｜tool▁sep｜>");
  if (syntax.family == Family::kChannels) {
    for (const std::string_view word :
         {"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>"})
      add(word);
  }
  if (syntax.family == Family::kMistral) {
    for (const std::string_view word : {"[ARGS]", "[CALL_ID]"}) add(word);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace pagewise::server::tools
