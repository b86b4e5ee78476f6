// SPDX-License-Identifier: Apache-2.0
// What an answer with tools may be: the template's own form, and nothing that the parser would not
// read as calls.
#include "server/tools/call_grammar.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "base/prng.h"
#include "grammar/matcher.h"
#include "server/byte_tokenizer_for_tests.h"
#include "server/openai/parse.h"
#include "server/tools/call_parser.h"
#include "server/tools/conversation.h"

namespace pagewise::server::tools {
namespace {

struct Template {
  std::unique_ptr<text::ChatTemplate> chat;
  ToolFormat format;
};

Template family(const std::string& name) {
  const std::string path =
      std::string(PAGEWISE_SOURCE_DIR) + "/tests/templates/families/" + name + ".jinja";
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  auto compiled = text::ChatTemplate::compile(std::string(std::istreambuf_iterator<char>(in), {}));
  EXPECT_TRUE(compiled) << compiled.error().message;
  Template out{std::move(*compiled), {}};
  out.format = detect_tool_format(*out.chat);
  return out;
}

const char* const kFamilies[] = {"command_r", "deepseek", "gemma",   "gpt_oss", "granite", "llama3",
                                 "mistral",   "phi",      "qwen2_5", "qwen3",   "smollm3"};

constexpr std::string_view kBody = R"({"model":"m","messages":[
  {"role":"system","content":"S"},{"role":"user","content":"Q"},
  {"role":"assistant","tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{\"b\": \"x\", \"n\": 3}"}}]},
  {"role":"tool","tool_call_id":"call_1","content":"RESULT"}],
  "tools":[
  {"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object","properties":{"b":{"enum":["x","y z"]},"n":{"type":"integer"}},"required":["b","n"],"additionalProperties":false}}},
  {"type":"function","function":{"name":"g","parameters":{"type":"object","properties":{"s":{"type":"string"}},"required":["s"],"additionalProperties":false}}}]})";

GenerationRequest request_with(ToolUse use, std::vector<std::string> only = {},
                               bool parallel = true) {
  auto request = openai::parse_chat(parse_json(kBody)->as_object(), {.vocab_size = 258});
  EXPECT_TRUE(request) << request.error().message;
  request->tool_choice = {use, std::move(only), parallel};
  return *request;
}

CallGrammar grammar_for(const GenerationRequest& request, const ToolFormat& format) {
  auto made = call_grammar(request, format, byte_tokenizer());
  EXPECT_TRUE(made) << made.error().message;
  return made ? *made : CallGrammar{};
}

std::string render(const Template& chat, GenerationRequest request, std::size_t turns) {
  request.turns.resize(turns);
  Conversation conversation = make_conversation(request, chat.format);
  text::ChatInput input;
  input.messages = std::move(conversation.messages);
  input.tools = std::move(conversation.tools);
  input.now = 0;
  const auto rendered = chat.chat->render(input);
  EXPECT_TRUE(rendered) << rendered.error().message;
  return rendered ? rendered->text : "";
}

/// How much of `text` the grammar takes, up to the last place where the answer may end; 0: none.
std::size_t taken(const CallGrammar& grammar, std::string_view text) {
  grammar::Matcher matcher(grammar.grammar);
  std::size_t end = 0;
  for (std::size_t i = 0; i < text.size() && matcher.accept(text.substr(i, 1)); ++i) {
    if (matcher.may_end()) end = i + 1;
  }
  return end;
}

TEST(CallGrammar, IsTheFormInWhichTheTemplateWritesACall) {
  for (const std::string name : kFamilies) {
    // These two write more into a call, or sort its members: the parser reads it all the same.
    if (name == "mistral" || name == "granite") continue;
    SCOPED_TRACE(name);
    const Template chat = family(name);
    const GenerationRequest request = request_with(ToolUse::kRequired);
    const std::string before = render(chat, request, 2), later = render(chat, request, 4);
    std::size_t at = 0;
    while (at < before.size() && before[at] == later[at]) ++at;
    while (at > 0 && before[at - 1] == '<') --at;
    // A channel may stand in front of what is said.
    if (!chat.format.form.open.empty()) at = later.find(chat.format.form.open, at);
    ASSERT_NE(at, std::string::npos) << later;
    const std::string written = later.substr(at);
    const std::size_t end = taken(grammar_for(request, chat.format), written);
    EXPECT_GT(end, written.find("\"n\": 3}")) << written;
    EXPECT_LT(end, written.find("RESULT")) << written;
  }
}

TEST(CallGrammar, BeginsWithACallOfTheToolThatIsNamedAndEndsBehindIt) {
  const ToolFormat hermes = family("qwen3").format;
  const std::string f =
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"b\": \"x\", \"n\": 3}}\n</tool_call>";
  const std::string g =
      "<tool_call>\n{\"name\": \"g\", \"arguments\": {\"s\": \"\"}}\n</tool_call>";
  const CallGrammar any = grammar_for(request_with(ToolUse::kRequired), hermes);
  EXPECT_EQ(taken(any, f), f.size());
  EXPECT_EQ(taken(any, f + "\n" + g), f.size() + 1 + g.size());
  EXPECT_EQ(taken(any, "Well. " + f), 0U);
  EXPECT_EQ(taken(any, f + " Well."), f.size());
  const CallGrammar named = grammar_for(request_with(ToolUse::kRequired, {"g"}, false), hermes);
  EXPECT_EQ(taken(named, f), 0U);
  EXPECT_EQ(taken(named, g), g.size());
  EXPECT_EQ(taken(named, g + "\n" + g), g.size());
  const CallGrammar chosen = grammar_for(request_with(ToolUse::kAuto), hermes);
  EXPECT_EQ(taken(chosen, "Well."), 5U);
  EXPECT_EQ(taken(chosen, "Well. " + f + "\nAnd:" + g), 6 + f.size() + 5 + g.size());
  EXPECT_LT(taken(chosen, "<tool_call>\n{\"name\": \"h"), 12U);
  for (const CallGrammar& grammar : {any, named, chosen}) EXPECT_TRUE(grammar.certain);
  // What the schema does not have.
  std::string wrong = f;
  wrong.replace(wrong.find("\"x\""), 3, "\"q\"");
  EXPECT_EQ(taken(any, wrong), 0U);
  EXPECT_EQ(grammar_for(request_with(ToolUse::kNone), hermes).grammar, nullptr);
}

TEST(CallGrammar, RefusesAStrictSchemaThatItCannotKeepAndOffersTheToolWithoutThePromise) {
  GenerationRequest request = request_with(ToolUse::kAuto);
  request.tools[1].parameters =
      parse_json(
          R"({"type":"object","properties":{"s":{"type":"string","contentMediaType":"x","not":{}}}})")
          ->as_object();
  const ToolFormat format = family("qwen3").format;
  EXPECT_TRUE(call_grammar(request, format, byte_tokenizer()));
  request.tools[1].strict = true;
  const auto refused = call_grammar(request, format, byte_tokenizer());
  ASSERT_FALSE(refused);
  EXPECT_EQ(http_status(refused.error(), Surface::kOpenAi), 400);
  EXPECT_EQ(refused.error().param, "tools[1].function.parameters");
  EXPECT_NE(refused.error().message.find("tools[1].function.parameters"), std::string::npos)
      << refused.error().message;
}

// Each schema would fit alone, and both together do not.
TEST(CallGrammar, OffersAToolWithoutThePromiseWhoseSchemaIsTooLargeBesideTheOthers) {
  std::string values;
  for (int i = 0; i < 30'000; ++i) values += (i == 0 ? "" : ",") + std::string("[]");
  const json::object schema =
      parse_json(R"({"type":"object","properties":{"a":{"const":[)" + values + "]}}}")->as_object();
  GenerationRequest request = request_with(ToolUse::kRequired);
  request.tools.push_back(request.tools[0]);
  request.tools[2].name = "h";
  for (std::size_t i = 0; i < 2; ++i) {  // the one behind them keeps its promise
    request.tools[i].parameters = schema;
    request.tools[i].strict = false;
  }
  const CallGrammar grammar = grammar_for(request, family("qwen3").format);
  const auto call = [](const std::string& name, const std::string& arguments) {
    return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments +
           "}\n</tool_call>";
  };
  const std::string free = call("g", R"({"a": 1})");
  EXPECT_EQ(taken(grammar, free), free.size());
  EXPECT_EQ(taken(grammar, call("f", R"({"a": 1})")), 0U);
  const std::string strict = call("h", R"({"b": "x", "n": 3})");
  EXPECT_EQ(taken(grammar, strict), strict.size());
  EXPECT_EQ(taken(grammar, call("h", R"({"b": "q", "n": 3})")), 0U);
}

TEST(CallGrammar, LeavesWordsAloneThatHaveMarksOfTheModelsOwnUnlessAToolIsStrict) {
  GenerationRequest request = request_with(ToolUse::kAuto);
  request.tools[0].strict = false;
  const ToolFormat hermes = family("qwen3").format;
  EXPECT_NE(call_grammar(request, hermes, byte_tokenizer(), false)->grammar, nullptr);
  EXPECT_EQ(call_grammar(request, hermes, byte_tokenizer(), true)->grammar, nullptr);
  const ToolFormat bare = family("llama3").format;
  EXPECT_EQ(grammar_for(request, bare).grammar, nullptr);
  EXPECT_FALSE(grammar_for(request, bare).certain);
  request.tools[0].strict = true;
  EXPECT_NE(call_grammar(request, hermes, byte_tokenizer(), true)->grammar, nullptr);
  request.tools[0].strict = false;
  request.tool_choice.use = ToolUse::kRequired;
  EXPECT_NE(call_grammar(request, hermes, byte_tokenizer(), true)->grammar, nullptr);
}

TEST(CallGrammar, OfChannelsIsThoughtsAndWordsAndThenACallOrTheLastWords) {
  const ToolFormat format = family("gpt_oss").format;
  const std::string thought = "<|channel|>analysis<|message|>Hm < so.<|end|><|start|>assistant";
  const std::string words = "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant";
  const std::string last = "<|channel|>final<|message|>So.";
  const std::string call =
      "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"b\": \"x\", \"n\": 3}";
  const std::string by_role = " to=functions.g<|channel|>commentary json<|message|>{\"s\": \"\"}";
  // Marks are no hindrance: they are part of what is described.
  const auto made =
      call_grammar(request_with(ToolUse::kAuto), format, byte_tokenizer(), /*marked_words=*/true);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_TRUE(made->certain);
  for (const std::string& text : {last, thought + last, thought + words + thought + last, call,
                                  by_role, thought + call, thought + words + by_role}) {
    EXPECT_EQ(taken(*made, text), text.size()) << text;
  }
  for (const std::string& text :
       {std::string("So."), thought, words, call.substr(0, call.size() - 1),
        std::string("<|channel|>commentary to=functions.h <|constrain|>json<|message|>{}")}) {
    EXPECT_EQ(taken(*made, text), 0U) << text;
  }
  EXPECT_EQ(taken(*made, call + "<|end|>"), call.size()) << "one call an answer";
  const CallGrammar forced = grammar_for(request_with(ToolUse::kRequired, {"g"}), format);
  EXPECT_EQ(taken(forced, by_role), by_role.size());
  EXPECT_EQ(taken(forced, call), 0U);
  EXPECT_EQ(taken(forced, thought + by_role), 0U);
}

/// A random output of the grammar: bytes as they come, until it may end or `most` were drawn.
std::string drawn(const CallGrammar& grammar, Prng& prng, std::size_t most) {
  grammar::Matcher matcher(grammar.grammar);
  std::string out;
  while (out.size() < most) {
    if (matcher.must_end() || (matcher.may_end() && prng.below(6) == 0)) break;
    // Printable bytes and line ends, from a random one on.
    const uint64_t first = prng.below(97);
    std::size_t tried = 0;
    for (; tried < 97; ++tried) {
      const uint64_t drawn = (first + tried * 31) % 97;
      const std::string byte(1, drawn == 96   ? '\n'
                                : drawn == 95 ? '\t'
                                              : static_cast<char>(' ' + drawn));
      if (!matcher.accept(byte)) continue;
      out += byte;
      break;
    }
    // The next byte is of a character that is no ASCII: a tag of DeepSeek's.
    for (int byte = 0x80; tried == 97 && byte < 0x100; ++byte) {
      if (!matcher.accept(std::string(1, static_cast<char>(byte)))) continue;
      out += static_cast<char>(byte);
      tried = 0;
    }
    if (tried == 97) break;
  }
  return matcher.may_end() ? out : "";
}

TEST(CallGrammar, LetsThroughOnlyWhatItsParserReadsAsCalls) {
  const char* given = std::getenv("PAGEWISE_SEED");
  const uint64_t first = given == nullptr ? 1 : std::strtoull(given, nullptr, 10);
  const uint64_t runs = given == nullptr ? 40 : 1;
  for (const std::string name : kFamilies) {
    const ToolFormat format = family(name).format;
    const CallGrammar grammar = grammar_for(request_with(ToolUse::kRequired), format);
    std::size_t complete = 0;
    for (uint64_t seed = first; seed < first + runs; ++seed) {
      SCOPED_TRACE(testing::Message() << name << " PAGEWISE_SEED=" << seed);
      Prng prng(seed);
      const std::string text = drawn(grammar, prng, 4000);
      if (text.empty()) continue;
      ++complete;
      CallParser parser(format.syntax(), {"f", "g"}, true);
      std::vector<CallEvent> events;
      for (const char c : text) parser.push(std::string(1, c), events);
      parser.finish(false, events);
      std::string arguments;
      std::size_t calls = 0, ends = 0;
      for (const CallEvent& event : events) {
        ASSERT_NE(event.kind, CallEvent::Kind::kText) << text;
        if (event.kind == CallEvent::Kind::kStart) ++calls, arguments.clear();
        if (event.kind == CallEvent::Kind::kArguments) arguments += event.text;
        if (event.kind != CallEvent::Kind::kEnd) continue;
        ++ends;
        const auto parsed = parse_json(arguments);
        ASSERT_TRUE(parsed && parsed->is_object()) << text;
      }
      ASSERT_GE(calls, 1U) << text;
      ASSERT_EQ(calls, ends) << text;
    }
    EXPECT_GE(complete, given == nullptr ? runs / 2 : 0) << name;
  }
}

}  // namespace
}  // namespace pagewise::server::tools
