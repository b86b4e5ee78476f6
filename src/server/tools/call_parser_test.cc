// SPDX-License-Identifier: Apache-2.0
#include "server/tools/call_parser.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/prng.h"

namespace pagewise::server::tools {
namespace {

using Kind = CallEvent::Kind;
using Events = std::vector<CallEvent>;

Events merged(const Events& events) {
  Events out;
  for (const CallEvent& event : events) {
    const bool piece = event.kind == Kind::kText || event.kind == Kind::kArguments;
    if (piece && !out.empty() && out.back().kind == event.kind) {
      out.back().text += event.text;
    } else if (!(piece && event.text.empty())) {
      out.push_back(event);
    }
  }
  return out;
}

struct Answer {
  Family family = Family::kHermes;
  std::string text;
  bool cut = false;
  bool certain = false;
};

/// `cuts`: where the text is cut into pieces.
Events read(const Answer& answer, const std::vector<std::size_t>& cuts = {}) {
  CallParser parser(syntax_of(answer.family), {"f", "get_time"}, answer.certain);
  Events out;
  std::size_t at = 0;
  for (const std::size_t cut : cuts) {
    parser.push(std::string_view(answer.text).substr(at, cut - at), out);
    at = cut;
  }
  parser.push(std::string_view(answer.text).substr(at), out);
  parser.finish(answer.cut, out);
  return merged(out);
}

/// For reading in a test: "text" is words, f(...) a complete call, f(...~ one without its end.
std::string shown(const Events& events) {
  std::string out;
  for (const CallEvent& event : events) {
    if (event.kind == Kind::kText) out += "\"" + event.text + "\"";
    if (event.kind == Kind::kStart) out += event.text + "(";
    if (event.kind == Kind::kArguments) out += event.text;
    if (event.kind == Kind::kEnd) out += ")";
  }
  return out;
}

std::string hermes(std::string_view text, bool cut = false) {
  return shown(read({Family::kHermes, std::string(text), cut}));
}

TEST(CallParser, ReadsCallsBetweenTheirTags) {
  EXPECT_EQ(hermes("Just words."), "\"Just words.\"");
  EXPECT_EQ(hermes("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"),
            "f({\"a\": 1})");
  EXPECT_EQ(hermes("Let me see.\n\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n"),
            "\"Let me see.\"f({})");
  EXPECT_EQ(hermes("<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n"
                   "<tool_call>\n{\"name\": \"get_time\", \"arguments\": {\"x\": \"y\"}}\n"
                   "</tool_call>"),
            "f({})get_time({\"x\": \"y\"})");
  EXPECT_EQ(hermes("<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call> Done."),
            "f({})\"Done.\"");
  // What closes calls may stand in a text of the arguments.
  EXPECT_EQ(hermes(R"(<tool_call>{"name":"f","arguments":{"a":"</tool_call>"}}</tool_call>)"),
            R"(f({"a":"</tool_call>"}))");
  // Models leave the closing out, or write a list.
  EXPECT_EQ(hermes("<tool_call>{\"name\":\"f\",\"arguments\":{}}"), "f({})");
  EXPECT_EQ(hermes("<tool_call>[{\"name\":\"f\"}, {\"name\":\"get_time\"}]</tool_call>"),
            "f({})get_time({})");
}

TEST(CallParser, GivesBackWholeWhatOnlyLookedLikeACall) {
  for (const char* text : {
           "<tool_call>",
           "a <tool_call> b",
           "<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>",
           "x\n<tool_call>\n{\"name\": \"f\", \"arguments\": {a}}\n</tool_call>",
           "<tool_call>{\"arguments\": {}}</tool_call>",
           "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
           "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}",
           "<tool_call>[{\"name\":\"f\"} {\"name\":\"f\"}]</tool_call>",
           "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"\\ud800\"}}</tool_call>",
           "the tag is <tool_c",
           "trailing space  \n",
           "  \n leading",
           "<<tool_call",
       }) {
    EXPECT_EQ(hermes(text), "\"" + std::string(text) + "\"");
  }
  // What follows is read afresh.
  EXPECT_EQ(hermes("<tool_call>oh <tool_call>{\"name\":\"f\"}</tool_call>"),
            "\"<tool_call>oh\"f({})");
}

TEST(CallParser, LeavesACallThatALimitCutWithoutItsEnd) {
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"xy", true),
            "f({\"a\": \"xy");
  EXPECT_EQ(hermes("So: <tool_call>{\"na", true), "\"So:\"");
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"f\", \"argum", true), "");
  EXPECT_EQ(hermes("<tool_call>", true), "");
  EXPECT_EQ(hermes("the tag is <tool_c", true), "\"the tag is <tool_c\"");
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"f\", \"arguments\": {}}\n</tool_", true), "f({})");
  EXPECT_EQ(hermes("<tool_call>[{\"name\": \"f\"}, {\"na", true), "f({})");
  EXPECT_EQ(shown(read({Family::kLlama3, "{\"na", true})), "\"{\"na\"");
}

TEST(CallParser, TellsArgumentsAsTheyComeWhenACallIsCertain) {
  CallParser parser(syntax_of(Family::kHermes), {"f"}, true);
  Events out;
  parser.push("<tool_call>{\"name\": \"f\", \"argu", out);
  EXPECT_TRUE(out.empty());
  parser.push("ments\": {", out);
  EXPECT_EQ(shown(out), "f({");
  parser.push("\"a\": ", out);
  EXPECT_EQ(shown(out), "f({\"a\": ");
  parser.push("1}}\n</tool_call>", out);
  EXPECT_EQ(shown(out), "f({\"a\": 1})");
}

TEST(CallParser, ReadsEveryFamilysForm) {
  const std::string python = "<|python_tag|>";
  const std::string begin = "<｜tool▁call▁begin｜>", end = "<｜tool▁call▁end｜>";
  const std::string calls = "<｜tool▁calls▁begin｜>", done = "<｜tool▁calls▁end｜>";
  const std::string separator = "<｜tool▁sep｜>";
  struct Row {
    Family family;
    std::string text, shown;
  };
  for (const Row& row : std::vector<Row>{
           {Family::kLlama3, R"({"name": "f", "parameters": {"a": "b"}})", R"(f({"a": "b"}))"},
           {Family::kLlama3, "\n{\"name\": \"f\", \"parameters\": {}}\n", "f({})"},
           {Family::kLlama3, R"({"name":"f","parameters":{}}; {"name":"get_time"})",
            "f({})get_time({})"},
           {Family::kLlama3, R"(I say {"name": "f", "parameters": {}})",
            R"("I say {"name": "f", "parameters": {}}")"},
           {Family::kLlama3, "Well. " + python + R"({"name": "f", "parameters": {}})",
            "\"Well.\"f({})"},
           {Family::kLlama3, python + "print(1)", "\"" + python + "print(1)\""},
           {Family::kLlama3, R"({"title": "f"})", R"("{"title": "f"}")"},
           {Family::kMistral, R"([TOOL_CALLS][{"name": "f", "arguments": {"a": 1}, "id": "x"}])",
            R"(f({"a": 1}))"},
           {Family::kMistral, R"([TOOL_CALLS] [{"name":"f"},{"name":"get_time"}] )",
            "f({})get_time({})"},
           {Family::kMistral, R"([TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]get_time[ARGS]{})",
            R"(f({"a": 1})get_time({}))"},
           {Family::kMistral, R"([TOOL_CALLS]f[CALL_ID]123456789[ARGS]{})", "f({})"},
           {Family::kMistral, R"([TOOL_CALLS]f{"a": 1})", R"(f({"a": 1}))"},
           {Family::kMistral, "[TOOL_CALLS] are great", "\"[TOOL_CALLS] are great\""},
           {Family::kDeepSeek,
            "Hm." + calls + begin + "function" + separator + "f\n```json\n{\"a\": 1}\n```" + end +
                "\n" + begin + "function" + separator + "get_time\n```json\n{}\n```" + end + done,
            "\"Hm.\"f({\"a\": 1})get_time({})"},
           {Family::kDeepSeek, calls + begin + "f" + separator + "{\"a\": 1}" + end + done,
            "f({\"a\": 1})"},
           {Family::kDeepSeek, calls + begin + "function" + separator + "nobody\n```json\n{}\n```",
            "\"" + calls + begin + "function" + separator + "nobody\n```json\n{}\n```\""},
           {Family::kCommandR,
            "Action: ```json\n[\n {\"tool_name\": \"f\", \"parameters\": {\"a\": 1}}\n]\n```",
            "f({\"a\": 1})"},
           {Family::kCommandR,
            "<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": "
            "{}}]<|END_ACTION|>",
            "f({})"},
           {Family::kPipedTags, R"(<|tool_call|>[{"name":"f","arguments":{}}])", "f({})"},
           {Family::kPipedTags, R"(<|tool_call|>{"name": "f"};{"name": "get_time"}<|/tool_call|>)",
            "f({})get_time({})"},
           {Family::kChannels,
            "I look.<|channel|>commentary to=functions.f "
            "<|constrain|>json<|message|>{\"a\": 1}<|call|>",
            "\"I look.\"f({\"a\": 1})"},
           {Family::kChannels, " to=functions.f<|channel|>commentary json<|message|>{}", "f({})"},
           {Family::kChannels, "<|channel|>commentary to=functions.nobody<|message|>{}",
            "\"<|channel|>commentary to=functions.nobody<|message|>{}\""},
           {Family::kChannels, "set it to=functions.f {}", "\"set it to=functions.f {}\""},
       }) {
    EXPECT_EQ(shown(read({row.family, row.text})), row.shown) << row.text;
  }
}

/// A text of pieces that calls are made of, more or less in their order.
std::string random_text(Prng& prng) {
  static const char* const kPieces[] = {
      "<tool_call>",
      "</tool_call>",
      "<|python_tag|>",
      "[TOOL_CALLS]",
      "[ARGS]",
      "<｜tool▁calls▁begin｜>",
      "<｜tool▁call▁begin｜>",
      "<｜tool▁sep｜>",
      "<｜tool▁call▁end｜>",
      "Action: ```json",
      "```",
      "<|tool_call|>",
      "<|channel|>commentary to=functions.",
      " to=functions.",
      "<|channel|>commentary json",
      "<|message|>",
      "<|call|>",
      "{\"name\": \"f\", \"arguments\": {\"a\": [1, \"</tool_call>\"]}}",
      "{\"name\": \"f\", \"parameters\": {}}",
      "{\"name\": \"nobody\", \"arguments\": {}}",
      "{\"name\": \"get_time\"}",
      "[",
      "]",
      ",",
      ";",
      "{",
      "}",
      "function",
      "f",
      "\n",
      " ",
      "words ",
      "é😀",
      "<tool",
      "\"",
  };
  std::string out;
  for (uint64_t pieces = prng.below(9); pieces > 0; --pieces) {
    std::string_view piece = kPieces[prng.below(std::size(kPieces))];
    if (prng.below(8) == 0) piece = piece.substr(0, prng.below(piece.size()) + 1);
    out += piece;
  }
  return out;
}

TEST(CallParser, GivesTheSameEventsHoweverTheTextWasCut) {
  const char* given = std::getenv("PAGEWISE_SEED");
  const uint64_t first = given == nullptr ? 1 : std::strtoull(given, nullptr, 10);
  const uint64_t runs = given == nullptr ? 20'000 : 1;
  for (uint64_t seed = first; seed < first + runs; ++seed) {
    SCOPED_TRACE(testing::Message() << "PAGEWISE_SEED=" << seed);
    Prng prng(seed);
    Answer answer;
    answer.family = static_cast<Family>(prng.below(7));
    answer.text = random_text(prng);
    answer.cut = prng.below(3) == 0;
    answer.certain = prng.below(3) == 0;
    const Events whole = read(answer);
    std::vector<std::size_t> cuts;
    for (std::size_t at = 1; at < answer.text.size(); ++at) {
      if (prng.below(3) == 0) cuts.push_back(at);
    }
    ASSERT_EQ(shown(read(answer, cuts)), shown(whole)) << answer.text;
    std::vector<std::size_t> bytes;
    for (std::size_t at = 1; at < answer.text.size(); ++at) bytes.push_back(at);
    ASSERT_EQ(shown(read(answer, bytes)), shown(whole)) << answer.text;
    // Nothing is lost where nothing was a call.
    const bool words = whole.empty() || (whole.size() == 1 && whole[0].kind == Kind::kText);
    if (words && !answer.cut && !answer.text.empty()) {
      ASSERT_EQ(whole.size(), 1U) << answer.text;
      ASSERT_EQ(whole[0].text, answer.text);
    }
  }
}

}  // namespace
}  // namespace pagewise::server::tools
