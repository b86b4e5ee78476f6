// SPDX-License-Identifier: Apache-2.0
#include "server/reasoning.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "server/splitting_for_tests.h"

namespace pagewise::server {
namespace {

constexpr ReasoningSyntax kTags = {"<think>", "</think>"};

Split split(std::string_view text, const std::vector<std::size_t>& cuts, bool begun,
            engine::FinishReason finish = engine::FinishReason::kStop,
            const ReasoningSyntax& syntax = kTags) {
  return split_in_pieces(ReasoningSplitter(syntax, begun), text, cuts, finish);
}

struct Case {
  std::string_view raw;
  bool begun;
  std::string_view thought, text;
};

/// In all pieces that a text can come in.
void expect_split(const Case& one, const ReasoningSyntax& syntax) {
  std::vector<std::size_t> every;
  for (std::size_t i = 1; i < one.raw.size(); ++i) every.push_back(i);
  std::vector<std::vector<std::size_t>> ways = {{}, every};
  for (std::size_t a = 0; a <= one.raw.size(); ++a) {
    for (std::size_t b = a; b <= one.raw.size(); ++b) ways.push_back({a, b});
  }
  for (const std::vector<std::size_t>& cuts : ways) {
    const Split found = split(one.raw, cuts, one.begun, engine::FinishReason::kStop, syntax);
    ASSERT_EQ(found.thought, one.thought) << one.raw;
    ASSERT_EQ(found.text, one.text) << one.raw;
  }
}

constexpr Case kCases[] = {
    {"<think>\nA cat.\n</think>\n\nMeow.", false, "A cat.", "Meow."},
    {"  \n<think>A cat.</think>Meow.", false, "A cat.", "Meow."},
    {"A cat.\n</think>\n\nMeow.", true, "A cat.", "Meow."},
    {"\n\nA cat.\n\n  so it is </think> Meow. ", true, "A cat.\n\n  so it is", "Meow. "},
    {"<think>\n\n</think>\n\nMeow.", false, "", "Meow."},
    {"<think></think>", false, "", ""},
    {"<think>\nnever ends </thin", false, "never ends </thin", ""},
    {"cut off in thought", true, "cut off in thought", ""},
    {"a < b <th </think", true, "a < b <th </think", ""},
    {"No thought.", false, "", "No thought."},
    {"  No thought. ", false, "", "  No thought. "},
    {"I <think>not</think>.", false, "", "I <think>not</think>."},
    {"<thin", false, "", "<thin"},
    {"<thinking>x", false, "", "<thinking>x"},
    {" \n ", false, "", " \n "},
    {"", false, "", ""},
    {"", true, "", ""},
    {"</think>Meow", true, "", "Meow"},
    {"<think>one</think>two<think>three</think>", false, "one", "two<think>three</think>"},
    {"<think>\xC3\xA9\xE4\xB8\xAD</think>\xF0\x9F\x99\x82", false, "\xC3\xA9\xE4\xB8\xAD",
     "\xF0\x9F\x99\x82"},
};

TEST(Reasoning, IsTheSameHoweverTheTextWasCut) {
  for (const Case& one : kCases) expect_split(one, kTags);
}

constexpr Case kMarkedAnswers[] = {
    {"<think>A.</think><response>B. </response>", false, "A.", "B."},
    {"<think>A.</think>\n\n<response>\n B </res\n </response> \n", false, "A.", "B </res \n"},
    {"<think>A.</think>B.", false, "A.", "B."},
    {"<think>A.</think><response>B </respo", false, "A.", "B </respo"},
    {"<think>A.</think> <respon", false, "A.", "<respon"},
    {"<think>A.</think><response>B</response>C</response>", false, "A.", "BC</response>"},
    {"<think>A.</think><response><response>B</response>", false, "A.", "<response>B"},
    {"<response>B</response>", false, "", "<response>B</response>"},
    {"<think>A.</think><response></response>", false, "A.", ""},
};

TEST(Reasoning, LeavesOutTheMarksAroundAnAnswerBehindAThought) {
  for (const Case& one : kMarkedAnswers) {
    expect_split(one, {"<think>", "</think>", "<response>", "</response>"});
  }
}

TEST(Reasoning, NothingOfAMarkIsEverSaid) {
  ReasoningSplitter splitter(kTags, false);
  std::string said;
  for (const char c : std::string_view("<think>x</think>y")) {
    engine::Delta delta;
    delta.text = c;
    const std::string thought = splitter.take(delta);
    EXPECT_TRUE(thought.empty() || thought == "x") << thought;
    EXPECT_TRUE(delta.text.empty() || delta.text == "y") << delta.text;
    said += thought + delta.text;
  }
  EXPECT_EQ(said, "xy");
}

TEST(Reasoning, TokensAreCountedToTheThoughtsEnd) {
  // "<think>", "a", "</think>", "b", "c"
  EXPECT_EQ(split("<think>a</think>bc", {7, 8, 16, 17}, false).tokens, 3U);
  EXPECT_EQ(split("a</think>bc", {1, 9, 10}, true).tokens, 2U);
  EXPECT_EQ(split("abc", {1, 2}, false).tokens, 0U);
  EXPECT_EQ(split("ab", {1}, true, engine::FinishReason::kLength).tokens, 2U);
}

TEST(Reasoning, AThoughtHasNoLogProbabilitiesInTheAnswer) {
  ReasoningSplitter splitter(kTags, true);
  engine::Delta inside;
  inside.text = "a";
  inside.tokens.resize(1);
  splitter.take(inside);
  EXPECT_TRUE(inside.tokens.empty());
  engine::Delta closing;
  closing.text = "</think>";
  closing.tokens.resize(1);
  splitter.take(closing);
  EXPECT_TRUE(closing.tokens.empty());
  engine::Delta answer;
  answer.text = "b";
  answer.tokens.resize(1);
  splitter.take(answer);
  EXPECT_EQ(answer.tokens.size(), 1U);
}

TEST(Reasoning, APromptMayLeaveAThoughtOpen) {
  EXPECT_TRUE(leaves_thought_open("<|im_start|>assistant\n<think>\n", kTags));
  EXPECT_TRUE(leaves_thought_open("<think>done</think> and <think>so on", kTags));
  EXPECT_FALSE(leaves_thought_open("<think>\n\n</think>\n\n", kTags));
  EXPECT_FALSE(leaves_thought_open("assistant\n", kTags));
  EXPECT_FALSE(leaves_thought_open("<think>", {}));
}

std::string_view open_mark_of(const std::string& source) {
  const auto chat = text::ChatTemplate::compile(source);
  EXPECT_TRUE(chat.has_value()) << chat.error().message;
  return chat ? detect_reasoning(**chat).open : "";
}

std::string file(const std::string& name) {
  std::ifstream in(std::string(PAGEWISE_SOURCE_DIR) + "/tests/templates/" + name);
  std::stringstream out;
  out << in.rdbuf();
  EXPECT_FALSE(out.str().empty()) << name;
  return out.str();
}

TEST(Reasoning, IsFoundInTheTemplatesThatHaveIt) {
  for (const char* name : {"thinking.jinja", "families/qwen3.jinja", "families/smollm3.jinja",
                           "families/deepseek.jinja", "families/granite.jinja"}) {
    EXPECT_EQ(open_mark_of(file(name)), "<think>") << name;
  }
  EXPECT_EQ(open_mark_of(file("families/cohere2.jinja")), "<|START_THINKING|>");
  for (const char* name :
       {"chatml.jinja", "families/gemma.jinja", "families/llama3.jinja", "families/phi.jinja",
        "families/mistral.jinja", "families/command_r.jinja", "families/qwen2_5.jinja",
        "families/falcon.jinja", "families/olmo.jinja"}) {
    EXPECT_EQ(open_mark_of(file(name)), "") << name;
  }
  EXPECT_EQ(open_mark_of("{% for m in messages %}{{ m.content }}{% endfor %}[THINK]"), "[THINK]");
  EXPECT_EQ(
      open_mark_of("{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}"),
      "<think>");
  // Under whichever name the template has its switch.
  EXPECT_EQ(open_mark_of("{% if thinking %}Here is my thought process: Here is my response:"
                         "{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}"),
            "Here is my thought process:");
  EXPECT_EQ(open_mark_of("{{ raise_exception('never') }}"), "");
  const auto chat = text::ChatTemplate::compile(file("families/gpt_oss.jinja"));
  ASSERT_TRUE(chat.has_value()) << chat.error().message;
  EXPECT_TRUE(detect_reasoning(**chat).channels);
}

TEST(Reasoning, KnowsWhoseAnswersStandBetweenMarksToo) {
  const auto granite = text::ChatTemplate::compile(file("families/granite.jinja"));
  ASSERT_TRUE(granite.has_value()) << granite.error().message;
  EXPECT_EQ(detect_reasoning(**granite).answer_open, "<response>");
  EXPECT_EQ(detect_reasoning(**granite).answer_close, "</response>");
  const auto qwen = text::ChatTemplate::compile(file("families/qwen3.jinja"));
  ASSERT_TRUE(qwen.has_value()) << qwen.error().message;
  EXPECT_EQ(detect_reasoning(**qwen).answer_open, "");
}

}  // namespace
}  // namespace pagewise::server
