// SPDX-License-Identifier: Apache-2.0
// Tools through the templates of every family (tests/templates/families): which form is found, and
// that what a template writes of a call is what the parser reads as that call.
#include "server/tools/tool_format.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "server/anthropic/parse.h"
#include "server/byte_tokenizer_for_tests.h"
#include "server/openai/parse.h"
#include "server/prompt.h"
#include "server/tools/call_parser.h"
#include "server/tools/conversation.h"

namespace pagewise::server::tools {
namespace {

std::unique_ptr<text::ChatTemplate> family_template(const std::string& name) {
  const std::string path =
      std::string(PAGEWISE_SOURCE_DIR) + "/tests/templates/families/" + name + ".jinja";
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  auto compiled = text::ChatTemplate::compile(std::string(std::istreambuf_iterator<char>(in), {}));
  EXPECT_TRUE(compiled) << compiled.error().message;
  return compiled ? std::move(*compiled) : nullptr;
}

struct Expected {
  const char* name;
  const char* syntax;
  bool writes_tools, writes_calls, one_call, short_ids, needs_system;
};

const Expected kFamilies[] = {
    {"cohere2", "command-r", true, true, false, false, false},
    {"command_r", "command-r", true, true, false, false, false},
    {"deepseek", "deepseek", true, true, false, false, false},
    {"falcon", "hermes", false, false, false, false, false},
    {"gemma", "hermes", false, false, false, false, false},
    {"gpt_oss", "channels", true, true, true, false, false},
    {"granite", "piped tags", true, true, false, false, false},
    {"llama3", "llama3", true, true, true, false, false},
    {"mistral", "mistral", true, true, false, true, false},
    {"olmo", "hermes", false, false, false, false, false},
    {"phi", "piped tags", true, true, false, false, true},
    {"qwen2_5", "hermes", true, true, false, false, false},
    {"qwen3", "hermes", true, true, false, false, false},
    {"smollm3", "hermes", true, false, false, false, false},
};

TEST(ToolFormat, IsFoundForEveryFamilyByWhatItsTemplateWrites) {
  for (const Expected& family : kFamilies) {
    SCOPED_TRACE(family.name);
    const ToolFormat format = detect_tool_format(*family_template(family.name));
    EXPECT_EQ(format.syntax().name, family.syntax);
    EXPECT_EQ(format.writes_tools, family.writes_tools);
    EXPECT_EQ(format.writes_calls, family.writes_calls);
    EXPECT_EQ(format.one_call, family.one_call);
    EXPECT_EQ(format.short_ids, family.short_ids);
    EXPECT_EQ(format.needs_system, family.needs_system);
    EXPECT_TRUE(format.takes_system);
  }
}

TEST(ToolFormat, DescribesToolsItselfWhereATemplateWritesCallsInAFormThatIsNotRead) {
  const auto chat = text::ChatTemplate::compile(
      "{% for t in tools or [] %}{{ t|tojson }}{% endfor %}{% for m in messages %}"
      "{% for c in m.tool_calls or [] %}<tool_call><function={{ c.function.name }}>"
      "{{ c.function.arguments|tojson }}</function></tool_call>{% endfor %}"
      "{{ m.content }}{% endfor %}");
  ASSERT_TRUE(chat);
  const ToolFormat format = detect_tool_format(**chat);
  EXPECT_FALSE(format.writes_tools);
  EXPECT_FALSE(format.writes_calls);
  EXPECT_TRUE(format.foreign_calls);
  EXPECT_EQ(format.family, Family::kHermes);
}

constexpr std::string_view kChat = R"({"model":"m","messages":[
  {"role":"system","content":"S"},
  {"role":"user","content":"Q1"},
  {"role":"assistant","content":null,"tool_calls":[
    {"id":"call_1","type":"function","function":{"name":"f","arguments":"{\"zeta\": 1, \"alpha\": [\"x\", null]}"}},
    {"id":"call_2","type":"function","function":{"name":"g","arguments":""}}]},
  {"role":"tool","tool_call_id":"call_1","content":"R1"},
  {"role":"tool","tool_call_id":"call_2","content":"R2"}],
  "tools":[
  {"type":"function","function":{"name":"f","description":"opens","strict":true,"parameters":{"type":"object","properties":{"zeta":{"type":"integer"},"alpha":{"type":"array"}},"required":["zeta"]}}},
  {"type":"function","function":{"name":"g"}}]})";

constexpr std::string_view kMessages = R"({"model":"m","max_tokens":9,"system":"S","messages":[
  {"role":"user","content":"Q1"},
  {"role":"assistant","content":[
    {"type":"tool_use","id":"call_1","name":"f","input":{"zeta": 1, "alpha": ["x", null]}},
    {"type":"tool_use","id":"call_2","name":"g","input":{}}]},
  {"role":"user","content":[
    {"type":"tool_result","tool_use_id":"call_1","content":[{"type":"text","text":"R1"}]},
    {"type":"tool_result","tool_use_id":"call_2","content":"R2"}]}],
  "tools":[
  {"name":"f","description":"opens","input_schema":{"type":"object","properties":{"zeta":{"type":"integer"},"alpha":{"type":"array"}},"required":["zeta"]}},
  {"name":"g","input_schema":{"type":"object"}}]})";

struct Served {
  std::unique_ptr<text::ChatTemplate> chat;
  ServedModel model;
};

Served serve(const std::string& family) {
  Served out;
  out.chat = family_template(family);
  out.model.tokenizer = &byte_tokenizer();
  out.model.chat_template = out.chat.get();
  out.model.tool_format = detect_tool_format(*out.chat);
  out.model.context_max = 20'000;
  return out;
}

GenerationRequest chat_request(std::string_view body = kChat) {
  auto request = openai::parse_chat(parse_json(body)->as_object(), {.vocab_size = 258});
  EXPECT_TRUE(request) << request.error().message;
  return *request;
}

std::string text_of(const Prompt& prompt, uint32_t tokens = UINT32_MAX) {
  std::string out;
  for (std::size_t i = 0; i < prompt.tokens.size() && i < tokens; ++i) {
    out += byte_tokenizer().token_bytes(prompt.tokens[i]);
  }
  return out;
}

Prompt prompt_of(const GenerationRequest& request, const ServedModel& model) {
  auto prompt = build_prompt(request, model);
  EXPECT_TRUE(prompt) << prompt.error().message;
  return prompt ? *prompt : Prompt();
}

TEST(ToolPrompt, IsTheSameFromBothApisForEveryFamily_C05) {
  for (const Expected& family : kFamilies) {
    SCOPED_TRACE(family.name);
    const Served served = serve(family.name);
    auto messages = anthropic::parse_messages_request(parse_json(kMessages)->as_object());
    ASSERT_TRUE(messages) << messages.error().message;
    const std::string chat = text_of(prompt_of(chat_request(), served.model));
    EXPECT_EQ(text_of(prompt_of(*messages, served.model)), chat);
    // Nothing of the conversation is lost, and the client's order is kept.
    for (const char* said : {"Q1", "R1", "R2", "zeta"}) {
      EXPECT_NE(chat.find(said), std::string::npos) << said << "\n" << chat;
    }
    const std::size_t call = chat.find("Q1");
    // This template sorts the keys of a call itself.
    if (std::string_view(family.name) == "granite") continue;
    EXPECT_LT(chat.find("zeta", call), chat.find("alpha", call)) << chat;
    EXPECT_LT(chat.find("R1"), chat.find("R2"));
  }
}

TEST(ToolPrompt, WritesCallsThatItsParserReadsBack) {
  for (const Expected& family : kFamilies) {
    SCOPED_TRACE(family.name);
    const Served served = serve(family.name);
    GenerationRequest request = chat_request();
    const std::string later = text_of(prompt_of(request, served.model));
    request.turns.resize(2);
    const std::string before = text_of(prompt_of(request, served.model));
    // What the template wrote where the model would have.
    std::size_t at = 0;
    while (at < before.size() && before[at] == later[at]) ++at;
    while (at > 0 && before[at - 1] == '<') --at;
    CallParser parser(served.model.tool_format.syntax(), {"f", "g"}, false);
    std::vector<CallEvent> events;
    parser.push(std::string_view(later).substr(at), events);
    parser.finish(false, events);
    std::vector<std::pair<std::string, json::value>> calls;
    std::string arguments;
    for (const CallEvent& event : events) {
      if (event.kind == CallEvent::Kind::kStart) calls.push_back({event.text, nullptr});
      if (event.kind == CallEvent::Kind::kStart) arguments.clear();
      if (event.kind == CallEvent::Kind::kArguments) arguments += event.text;
      if (event.kind == CallEvent::Kind::kEnd) calls.back().second = *parse_json(arguments);
    }
    // A model that takes one call a message has the second one in the next.
    ASSERT_GE(calls.size(), family.one_call ? 1U : 2U) << later.substr(at);
    EXPECT_EQ(calls[0].first, "f");
    EXPECT_EQ(json::serialize(calls[0].second).size(),
              json::serialize(*parse_json(R"({"zeta":1,"alpha":["x",null]})")).size());
    EXPECT_EQ(calls[0].second.at("zeta").as_int64(), 1);
    if (!family.one_call) {
      EXPECT_EQ(calls[1].first, "g");
      EXPECT_TRUE(calls[1].second.as_object().empty());
    }
  }
}

TEST(ToolPrompt, TellsOfToolsInTextOfOursWhereTheTemplateKnowsNone) {
  const Served served = serve("gemma");
  const std::string text = text_of(prompt_of(chat_request(), served.model));
  EXPECT_EQ(
      text,
      "<start_of_turn>user\n"
      "You can call tools. Each line between <tools> and </tools> describes one, its parameters as "
      "a JSON schema.\n"
      "<tools>\n"
      R"({"type": "function", "function": {"name": "f", "description": "opens", "parameters": {"type": "object", "properties": {"zeta": {"type": "integer"}, "alpha": {"type": "array"}}, "required": ["zeta"]}}})"
      "\n"
      R"({"type": "function", "function": {"name": "g", "description": "", "parameters": {"type": "object", "properties": {}}}})"
      "\n</tools>\n"
      "To call a tool, write this, with the tool's name and an object of arguments:\n"
      "<tool_call>\n{\"name\": \"NAME\", \"arguments\": {}}\n</tool_call>\n"
      "You may write several calls. What a tool answers comes back between <tool_response> and "
      "</tool_response>.\n"
      "S\n\nQ1<end_of_turn>\n<start_of_turn>model\n"
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"zeta\": 1, \"alpha\": [\"x\", null]}}\n"
      "</tool_call>\n"
      "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call><end_of_turn>\n"
      "<start_of_turn>user\n"
      "<tool_response>\nR1\n</tool_response>\n<tool_response>\nR2\n</tool_response><end_of_turn>\n"
      "<start_of_turn>model\n");
}

TEST(ToolPrompt, GrowsWithTheConversationWithoutAChangeInFront) {
  // What the first request's prompt was is the beginning of the second's: the cache reads it all.
  // Not so where a template writes the tools into the last user turn (mistral), or a thought that
  // it takes away later (deepseek).
  for (const Expected& family : kFamilies) {
    const std::string_view name = family.name;
    if (name == "mistral" || name == "deepseek") continue;
    SCOPED_TRACE(family.name);
    const Served served = serve(family.name);
    GenerationRequest request = chat_request();
    const std::string later = text_of(prompt_of(request, served.model));
    request.turns.resize(2);
    const std::string before = text_of(prompt_of(request, served.model));
    EXPECT_TRUE(later.starts_with(before)) << before << "\n----\n" << later;
  }
}

TEST(ToolPrompt, EndsMarkersOnToolsAndResultsWhereTheyEnd_C10) {
  const Served served = serve("qwen3");
  json::object body = parse_json(kMessages)->as_object();
  const json::object marker{{"type", "ephemeral"}};
  body["tools"].as_array()[1].as_object()["cache_control"] = marker;
  body["messages"].as_array()[2].at("content").as_array()[0].as_object()["cache_control"] = marker;
  auto request = anthropic::parse_messages_request(body);
  ASSERT_TRUE(request) << request.error().message;
  const Prompt prompt = prompt_of(*request, served.model);
  // tool, tool, system, Q1, call, call, R1, R2
  ASSERT_EQ(prompt.positions.size(), 8U);
  ASSERT_EQ(prompt.markers.size(), 2U);
  EXPECT_EQ(prompt.markers[0].position, 1U);
  EXPECT_EQ(prompt.markers[1].position, 6U);
  const auto up_to = [&](std::size_t position) {
    return text_of(prompt, prompt.positions[position].tokens);
  };
  EXPECT_TRUE(up_to(1).ends_with(R"("type": "object", "properties)")) << up_to(1);
  EXPECT_EQ(up_to(2), up_to(1)) << "the system text stands in front of the tools there";
  EXPECT_TRUE(up_to(3).ends_with("Q1"));
  EXPECT_TRUE(up_to(4).ends_with(R"("alpha": ["x)")) << up_to(4);
  EXPECT_TRUE(up_to(5).ends_with(R"({"name": "g)")) << up_to(5);
  EXPECT_TRUE(up_to(6).ends_with("R1"));
  EXPECT_TRUE(up_to(7).ends_with("R2"));
  std::vector<bool> joined;
  for (const auto& position : prompt.positions) joined.push_back(position.joined);
  EXPECT_EQ(joined, (std::vector<bool>{false, false, false, false, false, true, false, true}));
}

TEST(ToolPrompt, GivesTextWhereATemplateLooksIntoTheContentOfCalls) {
  // As gpt-oss's own template does, which has another name for thoughts, too.
  std::ifstream in(PAGEWISE_SOURCE_DIR "/tests/templates/families/gpt_oss.jinja");
  std::string source(std::istreambuf_iterator<char>(in), {});
  const auto replace_all = [&](std::string_view from, std::string_view to) {
    std::size_t count = 0;
    for (std::size_t at; (at = source.find(from)) != std::string::npos; ++count)
      source.replace(at, from.size(), to);
    EXPECT_GT(count, 0U) << from;
  };
  replace_all("message.content is string and ", "");
  replace_all("message.reasoning_content", "message.thinking");
  auto chat = text::ChatTemplate::compile(source);
  ASSERT_TRUE(chat) << chat.error().message;
  ServedModel model;
  model.tokenizer = &byte_tokenizer();
  model.chat_template = chat->get();
  model.tool_format = detect_tool_format(**chat);
  model.context_max = 20'000;
  EXPECT_EQ(model.tool_format.family, Family::kChannels);
  EXPECT_TRUE(model.tool_format.empty_content);
  EXPECT_FALSE(serve("gpt_oss").model.tool_format.empty_content);
  GenerationRequest request = chat_request();
  request.turns[2].fields["reasoning_content"] = "Hm.";
  const std::string text = text_of(prompt_of(request, model));
  EXPECT_NE(text.find("<|start|>assistant<|channel|>analysis<|message|>Hm.<|end|>"
                      "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("<|start|>assistant to=functions.g<|channel|>commentary json<|message|>{}"),
            std::string::npos)
      << text;
}

TEST(ToolPrompt, WritesOneCallAMessageWhereTheTemplateTakesNoMore) {
  const Served served = serve("llama3");
  const std::string text = text_of(prompt_of(chat_request(), served.model));
  const std::string header = "<|start_header_id|>assistant<|end_header_id|>\n\n";
  const std::string result = "<|start_header_id|>ipython<|end_header_id|>\n\n";
  EXPECT_TRUE(text.ends_with(
      header + R"({"name": "f", "parameters": {"zeta": 1, "alpha": ["x", null]}}<|eot_id|>)" +
      result + "R1<|eot_id|>" + header + R"({"name": "g", "parameters": {}}<|eot_id|>)" + result +
      "R2<|eot_id|>" + header))
      << text;
}

TEST(ToolPrompt, GivesIdsOfNineCharactersToATemplateThatAsksForThem) {
  const Served served = serve("mistral");
  const std::string text = text_of(prompt_of(chat_request(), served.model));
  const std::string id = short_id("call_1");
  EXPECT_EQ(id.size(), 9U);
  EXPECT_NE(id, short_id("call_2"));
  EXPECT_EQ(short_id("abcDEF123"), "abcDEF123");
  EXPECT_NE(text.find(R"("id": ")" + id + "\""), std::string::npos) << text;
  EXPECT_NE(text.find(R"("call_id": ")" + id + "\""), std::string::npos) << text;
}

TEST(ToolPrompt, KeepsControlTokensOutOfToolsCallsAndResults_C16) {
  for (const Expected& family : kFamilies) {
    SCOPED_TRACE(family.name);
    const Served served = serve(family.name);
    json::object body = parse_json(kMessages)->as_object();
    const std::string typed = "<|im_end|>";
    body["tools"].as_array()[0].as_object()["description"] = typed;
    json::array& messages = body["messages"].as_array();
    messages[1].at("content").as_array()[0].at("input").as_object()["alpha"] = typed;
    messages[2].at("content").as_array()[1].as_object()["content"] = typed;
    auto request = anthropic::parse_messages_request(body);
    ASSERT_TRUE(request) << request.error().message;
    Conversation conversation = make_conversation(*request, served.model.tool_format);
    text::ChatInput input;
    input.messages = std::move(conversation.messages);
    input.tools = std::move(conversation.tools);
    input.now = 0;
    const auto rendered = served.chat->render(input);
    ASSERT_TRUE(rendered) << rendered.error().message;
    std::size_t found = 0;
    for (const text::OriginSpan& span : rendered->spans) {
      const std::string_view part =
          std::string_view(rendered->text).substr(span.begin, span.end - span.begin);
      const bool trusted = span.origin == text::kTemplateOrigin;
      for (std::size_t at = 0; (at = part.find(typed, at)) != std::string_view::npos; ++at)
        found += trusted ? 0 : 1;
    }
    // deepseek's template here names tools only.
    EXPECT_EQ(found, std::string_view(family.name) == "deepseek" ? 2U : 3U) << rendered->text;
  }
}

}  // namespace
}  // namespace pagewise::server::tools
