// SPDX-License-Identifier: Apache-2.0
// Tools in request bodies of both APIs: what is accepted, and the 400s of api-reference table E
// (rows by number).
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "server/anthropic/parse.h"
#include "server/openai/parse.h"
#include "server/tools/tool_checks.h"

namespace pagewise::server {
namespace {

using engine::LeaseClass;

json::object parse(std::string_view text) {
  auto value = parse_json(text);
  EXPECT_TRUE(value.has_value()) << text;
  return value.has_value() && value->is_object() ? value->get_object() : json::object();
}

ApiResult<GenerationRequest> chat(std::string_view text) {
  return openai::parse_chat(parse(text), {.choices_max = 64, .vocab_size = 1000});
}
ApiResult<GenerationRequest> messages(std::string_view text) {
  return anthropic::parse_messages_request(parse(text));
}

const std::string kTools =
    R"("tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"z":{},"a":{}}},"strict":true},"cache_control":{"type":"ephemeral","ttl":"1h"}},
        {"type":"function","function":{"name":"g"}}])";
const std::string kClaudeTools =
    R"("tools":[{"name":"f","description":"d","input_schema":{"type":"object","properties":{"z":{},"a":{}}},"strict":true,"cache_control":{"type":"ephemeral","ttl":"1h"},"defer_loading":false,"input_examples":[{}]},
        {"type":"custom","name":"g","input_schema":{"type":"object"}}])";

std::string chat_with(std::string_view more) {
  return R"({"model":"m","messages":[{"role":"user","content":"hi"}],)" + std::string(more) + "}";
}
std::string messages_with(std::string_view more) {
  return R"({"model":"m","max_tokens":5,"messages":[{"role":"user","content":"hi"}],)" +
         std::string(more) + "}";
}
std::string chat_tool(std::string_view function) {
  return chat_with(R"("tools":[{"type":"function","function":)" + std::string(function) + "}]");
}
std::string claude_tool(std::string_view tool) {
  return messages_with(R"("tools":[)" + std::string(tool) + "]");
}
std::string chat_turns(std::string_view turns) {
  return R"({"model":"m","messages":[{"role":"user","content":"q"},)" + std::string(turns) + "]}";
}
std::string claude_turns(std::string_view turns) {
  return R"({"model":"m","max_tokens":5,"messages":[{"role":"user","content":"q"},)" +
         std::string(turns) + "]}";
}

struct Row {
  std::string body, in_message, code = {};
};

void expect_refused(const std::vector<Row>& rows,
                    ApiResult<GenerationRequest> (*parser)(std::string_view)) {
  for (const Row& row : rows) {
    const auto result = parser(row.body);
    ASSERT_FALSE(result.has_value()) << row.body;
    EXPECT_EQ(http_status(result.error(), Surface::kOpenAi), 400) << row.body;
    EXPECT_NE(result.error().message.find(row.in_message), std::string::npos)
        << row.body << "\n"
        << result.error().message;
    if (!row.code.empty()) {
      EXPECT_EQ(result.error().code, row.code) << row.body;
    }
    EXPECT_FALSE(result.error().param.empty()) << row.body;
  }
}

TEST(ParseTools, ReadsDefinitionsOfBothApisIntoOneForm) {
  const auto openai = chat(chat_with(kTools));
  const auto claude = messages(messages_with(kClaudeTools));
  ASSERT_TRUE(openai) << openai.error().message;
  ASSERT_TRUE(claude) << claude.error().message;
  for (const auto* request : {&*openai, &*claude}) {
    ASSERT_EQ(request->tools.size(), 2U);
    const Tool& first = request->tools[0];
    EXPECT_EQ(first.name, "f");
    EXPECT_TRUE(first.strict);
    EXPECT_EQ(first.marker, LeaseClass::k1h);
    EXPECT_EQ(
        json::serialize(tools::definition(first)),
        R"({"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"z":{},"a":{}}}}})");
    EXPECT_FALSE(request->tools[1].strict);
    EXPECT_EQ(
        json::serialize(tools::definition(request->tools[1])),
        R"({"type":"function","function":{"name":"g","description":"","parameters":{"type":"object","properties":{}}}})");
    EXPECT_EQ(request->tool_choice.use, ToolUse::kAuto);
    EXPECT_TRUE(request->tool_choice.parallel);
  }
}

TEST(ParseTools, ReadsWhoChoosesTheTool) {
  struct Choice {
    std::string chat, claude;
    ToolUse use;
    std::vector<std::string> only;
    bool parallel = true;
  };
  for (const Choice& row : std::vector<Choice>{
           {R"("tool_choice":"auto")", R"("tool_choice":{"type":"auto"})", ToolUse::kAuto, {}},
           {R"("tool_choice":null)", R"("tool_choice":null)", ToolUse::kAuto, {}},
           {R"("tool_choice":"none")", R"("tool_choice":{"type":"none"})", ToolUse::kNone, {}},
           {R"("tool_choice":"required")",
            R"("tool_choice":{"type":"any"})",
            ToolUse::kRequired,
            {}},
           {R"("tool_choice":{"type":"function","function":{"name":"g"}})",
            R"("tool_choice":{"type":"tool","name":"g"})",
            ToolUse::kRequired,
            {"g"}},
           {R"("parallel_tool_calls":false)",
            R"("tool_choice":{"type":"auto","disable_parallel_tool_use":true})",
            ToolUse::kAuto,
            {},
            false},
       }) {
    const auto openai = chat(chat_with(kTools + "," + row.chat));
    const auto claude = messages(messages_with(kClaudeTools + "," + row.claude));
    ASSERT_TRUE(openai) << openai.error().message;
    ASSERT_TRUE(claude) << claude.error().message;
    for (const auto* request : {&*openai, &*claude}) {
      EXPECT_EQ(request->tool_choice.use, row.use) << row.chat;
      EXPECT_EQ(request->tool_choice.only, row.only) << row.chat;
      EXPECT_EQ(request->tool_choice.parallel, row.parallel) << row.chat;
    }
  }
  const std::string allowed =
      R"("tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"MODE","tools":[{"type":"function","function":{"name":"g"}}]}})";
  for (const auto& [mode, use] :
       {std::pair{"auto", ToolUse::kAuto}, {"required", ToolUse::kRequired}}) {
    std::string body = allowed;
    body.replace(body.find("MODE"), 4, mode);
    const auto request = chat(chat_with(kTools + "," + body));
    ASSERT_TRUE(request) << request.error().message;
    EXPECT_EQ(request->tool_choice.use, use);
    EXPECT_EQ(request->tool_choice.only, std::vector<std::string>{"g"});
  }
}

TEST(ParseTools, ReadsCallsAndResultsOfBothApisIntoTheSameTurns) {
  const auto openai = chat(chat_turns(
      R"({"role":"assistant","content":"I look.","tool_calls":[
           {"id":"c1","type":"function","function":{"name":"f","arguments":"{\"b\": 1, \"a\": 2}"}},
           {"id":"c2","type":"function","function":{"name":"g","arguments":""}}]},
         {"role":"tool","tool_call_id":"c2","content":"two"},
         {"role":"tool","tool_call_id":"c1","content":[{"type":"text","text":"one"}]},
         {"role":"user","content":"go on"})"));
  const auto claude = messages(claude_turns(
      R"({"role":"assistant","content":[{"type":"text","text":"I look."},
           {"type":"tool_use","id":"c1","name":"f","input":{"b": 1, "a": 2}},
           {"type":"tool_use","id":"c2","name":"g","input":{}}]},
         {"role":"user","content":[
           {"type":"tool_result","tool_use_id":"c2","content":[{"type":"text","text":"two"}]},
           {"type":"tool_result","tool_use_id":"c1","content":"one"},
           {"type":"text","text":"go on"}]})"));
  ASSERT_TRUE(openai) << openai.error().message;
  ASSERT_TRUE(claude) << claude.error().message;
  for (const auto* request : {&*openai, &*claude}) {
    ASSERT_EQ(request->turns.size(), 5U);
    const Turn& calls = request->turns[1];
    ASSERT_EQ(calls.blocks.size(), 3U);
    EXPECT_EQ(calls.blocks[0].text, "I look.");
    EXPECT_EQ(json::serialize(calls.blocks[1].call),
              R"({"id":"c1","type":"function","function":{"name":"f","arguments":{"b":1,"a":2}}})");
    EXPECT_EQ(tools::call_name(calls.blocks[2]), "g");
    EXPECT_EQ(request->turns[2].role, "tool");
    EXPECT_EQ(request->turns[2].blocks[0].text, "two");
    EXPECT_EQ(json::serialize(request->turns[2].fields), R"({"tool_call_id":"c2","name":"g"})");
    EXPECT_EQ(request->turns[3].blocks[0].text, "one");
    EXPECT_EQ(request->turns[4].role, "user");
  }
  // Where they stand in the request, for who explains.
  EXPECT_EQ(claude->turns[3].blocks[0].message, 2);
  EXPECT_EQ(claude->turns[3].blocks[0].index, 1);
  EXPECT_EQ(openai->turns[3].blocks[0].message, 3);
}

TEST(ParseTools, TellsTheModelOfAnErrorAndTakesAnEmptyResult) {
  const auto claude = messages(claude_turns(
      R"({"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"f","input":{}},
           {"type":"tool_use","id":"c2","name":"f","input":{}},
           {"type":"tool_use","id":"c3","name":"f","input":{}}]},
         {"role":"user","content":[
           {"type":"tool_result","tool_use_id":"c1","content":"no such file","is_error":true},
           {"type":"tool_result","tool_use_id":"c2"},
           {"type":"tool_result","tool_use_id":"c3","content":[{"type":"text","text":"a"},
             {"type":"document","source":{"type":"text","media_type":"text/plain","data":"b"},"cache_control":{"type":"ephemeral"}}]}]})"));
  ASSERT_TRUE(claude) << claude.error().message;
  EXPECT_EQ(claude->turns[2].blocks[0].text, "Error: no such file");
  EXPECT_EQ(claude->turns[3].blocks[0].text, "");
  EXPECT_EQ(claude->turns[4].blocks[0].text, "a\nb");
  EXPECT_EQ(claude->turns[4].blocks[0].marker, LeaseClass::k5m) << "moved to the result (B2)";
}

TEST(ParseTools, RefusesAMarkerOnAnEmptyTextInsideAResultOrADocument_C10) {
  const auto refused = [](const std::string& block) {
    const auto parsed = messages(claude_turns(
        R"({"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"f","input":{}}]},
           {"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":[)" +
        block + "]}]}"));
    return parsed ? std::string() : parsed.error().message;
  };
  const std::string marker = R"("cache_control":{"type":"ephemeral"})";
  const std::string empty = R"({"type":"text","text":"")";
  EXPECT_EQ(refused(empty + "}"), "");
  EXPECT_EQ(
      refused(empty + "," + marker + "}"),
      "messages.2.content.0.content.0.text: cache_control cannot be set for empty text blocks");
  EXPECT_NE(refused(R"({"type":"document","source":{"type":"content","content":[)" + empty + "," +
                    marker + "}]}}")
                .find("cache_control cannot be set for empty text blocks"),
            std::string::npos);
}

TEST(ParseTools, RefusesTheRowsOfTableEOnTheChatRoute) {
  const std::string call =
      R"({"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]})";
  expect_refused(
      {
          {chat_turns(call), "c1"},                                                   // 32
          {chat_turns(call + R"(,{"role":"user","content":"x"})"), "messages[1]: "},  // 32
          {chat_turns(R"({"role":"tool","tool_call_id":"c1","content":"x"})"),
           "messages[1].role: "},  // 33
          {chat_turns(call + R"(,{"role":"tool","tool_call_id":"c9","content":"x"})"), "'c9'"},
          {chat_turns(call + R"(,{"role":"tool","content":"x"})"), "messages[2].tool_call_id",
           "missing_required_parameter"},
          {chat_turns(
               call +
               R"(,{"role":"tool","tool_call_id":"c1","content":"x"},{"role":"tool","tool_call_id":"c1","content":"x"})"),
           "messages[3].role: "},
          {chat_with(
               R"("tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"f"}}])"),
           "tools[1].function.name: "},                                                 // 34
          {chat_tool(R"({"name":"a b"})"), "tools[0].function.name", "invalid_value"},  // 35
          {chat_tool(R"({"name":""})"), "tools[0].function.name", "invalid_value"},
          {chat_tool(R"({"description":"d"})"), "tools[0].function.name",
           "missing_required_parameter"},
          {chat_tool(R"({"name":"f","parameters":{"type":"string"}})"),
           "tools[0].function.parameters", "invalid_function_parameters"},  // 36
          {chat_tool(R"({"name":"f","parameters":[]})"), "tools[0].function.parameters",
           "invalid_type"},
          {chat_with(kTools + R"(,"tool_choice":{"type":"function","function":{"name":"x"}})"),
           "tool_choice: no tool"},                                               // 37
          {chat_with(R"("tool_choice":"required")"), "only allowed when tools"},  // 38
          {chat_with(kTools + R"(,"tool_choice":"often")"), "tool_choice", "invalid_value"},
          {chat_with(kTools + R"(,"tool_choice":7)"), "tool_choice", "invalid_type"},
          {chat_with(
               kTools +
               R"(,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}})"),
           "tool_choice.allowed_tools.tools", "empty_array"},
          {chat_turns(
               R"({"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{a"}}]},{"role":"tool","tool_call_id":"c1","content":"x"})"),
           "messages[1].tool_calls[0].function.arguments", "invalid_value"},
          {chat_turns(
               R"({"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"[]"}}]},{"role":"tool","tool_call_id":"c1","content":"x"})"),
           "messages[1].tool_calls[0].function.arguments", "invalid_value"},
          {chat_turns(
               R"({"role":"user","content":"x","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]})"),
           "messages[1].tool_calls"},
          {chat_turns(R"({"role":"assistant","content":null})"), "messages[1].content",
           "missing_required_parameter"},
          {chat_turns(R"({"role":"function","name":"f","content":"x"})"), "messages[1].role",
           "unsupported_parameter"},
          {chat_turns(
               R"({"role":"assistant","content":"x","function_call":{"name":"f","arguments":"{}"}})"),
           "messages[1].function_call", "unsupported_parameter"},
      },
      chat);
}

TEST(ParseTools, RefusesTheRowsOfTableEOnTheMessagesRoute) {
  const std::string call =
      R"({"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"f","input":{}}]})";
  const std::string schema = R"("input_schema":{"type":"object"})";
  const auto result = [](std::string_view inside) {
    return R"(,{"role":"user","content":[{"type":"tool_result",)" + std::string(inside) + "}]}";
  };
  expect_refused(
      {
          {claude_turns(call),
           "messages.1: `tool_use` ids were found without `tool_result`"},  // 32
          {claude_turns(call + R"(,{"role":"user","content":"x"})"),
           "immediately after: c1"},  // 32
          {claude_turns(call + result(R"("tool_use_id":"c9")")),
           "messages.2.content.0: unexpected `tool_use_id` found in `tool_result` blocks: c9"},
          {claude_turns(call + result(R"("content":"x")")),
           "messages.2.content.0.tool_use_id: Field required"},
          {claude_turns(
               call +
               R"(,{"role":"user","content":[{"type":"text","text":"x"},{"type":"tool_result","tool_use_id":"c1"}]})"),
           "messages.2.content.1: `tool_result` blocks must come first"},
          {claude_turns(
               call +
               result(
                   R"("tool_use_id":"c1","content":[{"type":"image","source":{"type":"base64"}}])")),
           "messages.2.content.0.content.0: this model does not accept images"},
          {claude_turns(
               call +
               result(
                   R"("tool_use_id":"c1","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},{"type":"text","text":"b"}])")),
           "messages.2.content.0.content.0.cache_control: only the last"},  // 46
          {claude_turns(call + result(R"("tool_use_id":"c1","content":7)")),
           "messages.2.content.0.content: must be"},
          {claude_turns(
               R"({"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"f"}]})"),
           "messages.1.content.0.input: Field required"},
          {messages_with(R"("tools":[{"name":"f",)" + schema + R"(},{"name":"f",)" + schema + "}]"),
           "tools.1.name: tool names must be unique"},                               // 34
          {claude_tool(R"({"name":"a b",)" + schema + "}"), "tools.0.name: "},       // 35
          {claude_tool(R"({"name":"f"})"), "tools.0.input_schema: Field required"},  // 36
          {claude_tool(R"({"name":"f","input_schema":{"type":"array"}})"),
           "tools.0.input_schema: must be a JSON schema"},  // 36
          {claude_tool(R"({"type":"bash_20250124","name":"bash"})"),
           "tools.0: a tool of type 'bash_20250124' is not supported"},
          {claude_tool(R"({"type":"web_search_20250305","name":"web_search"})"),
           "'web_search_20250305'"},
          {messages_with(kClaudeTools + R"(,"tool_choice":{"type":"tool","name":"x"})"),
           "tool_choice.name: no tool"},                                                  // 37
          {messages_with(R"("tool_choice":{"type":"any"})"), "only allowed when tools"},  // 38
          {messages_with(kClaudeTools + R"(,"tool_choice":{"type":"often"})"),
           "tool_choice.type: "},
          {R"({"model":"m","max_tokens":0,"tool_choice":{"type":"any"},"messages":[{"role":"user","content":"x"}],)" +
               kClaudeTools + "}",
           "max_tokens: 0 is not allowed"},  // 17
          {R"({"model":"m","max_tokens":9,"tool_choice":{"type":"any"},"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"So"}],)" +
               kClaudeTools + "}",
           "tool_choice: a call cannot be forced"},
      },
      messages);
}

TEST(ParseTools, CountsMarkersOnToolsFirst_C10) {
  const std::string marker = R"("cache_control":{"type":"ephemeral"})";
  const auto body = [&](int in_messages, bool hour_last) {
    std::string blocks;
    for (int i = 0; i < in_messages; ++i) {
      blocks +=
          (i > 0 ? "," : "") + std::string(R"({"type":"text","text":"x",)") +
          (hour_last && i + 1 == in_messages ? R"("cache_control":{"type":"ephemeral","ttl":"1h"})"
                                             : marker) +
          "}";
    }
    return R"({"model":"m","max_tokens":5,"tools":[{"name":"f","input_schema":{"type":"object"},)" +
           marker + R"(}],"system":[{"type":"text","text":"s",)" + marker +
           R"(}],"messages":[{"role":"user","content":[)" + blocks + "]}]}";
  };
  EXPECT_TRUE(messages(body(2, false)));
  const auto fifth = messages(body(3, false));
  ASSERT_FALSE(fifth);
  EXPECT_EQ(fifth.error().message,
            "A maximum of 4 blocks with cache_control may be provided. Found 5.");
  const auto late_hour = messages(body(1, true));
  ASSERT_FALSE(late_hour);
  EXPECT_NE(late_hour.error().message.find("messages.0.content.0.cache_control.ttl"),
            std::string::npos);
}

}  // namespace
}  // namespace pagewise::server
