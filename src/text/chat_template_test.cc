// SPDX-License-Identifier: Apache-2.0
#include "text/chat_template.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "base/json.h"
#include "gguf/gguf.h"

namespace pagewise::text {
namespace {

std::string source_path(const std::string& path) {
  return std::string(PAGEWISE_SOURCE_DIR) + "/" + path;
}

std::string read_file(const std::string& path) {
  std::ifstream in(source_path(path), std::ios::binary);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

json::value read_json(const std::string& path) {
  auto value = parse_json(read_file(path));
  EXPECT_TRUE(value) << value.error().message;
  return std::move(value).value();
}

std::unique_ptr<ChatTemplate> compile(std::string_view source) {
  auto compiled = ChatTemplate::compile(source);
  if (!compiled) {
    ADD_FAILURE() << compiled.error().message << "\n" << source;
    return nullptr;
  }
  return std::move(compiled).value();
}

/// One message of one part each; origins are 0, 1, 2, ...
ChatInput input_of(const json::value& messages, bool add_generation_prompt) {
  ChatInput input;
  for (const json::value& message : messages.as_array()) {
    const auto origin = static_cast<int32_t>(input.messages.size());
    input.messages.push_back({std::string(message.at("role").as_string()),
                              {{std::string(message.at("content").as_string()), origin}}});
  }
  input.add_generation_prompt = add_generation_prompt;
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  return input;
}

void expect_well_formed(const ProvenancedText& text) {
  uint32_t at = 0;
  for (const OriginSpan& span : text.spans) {
    EXPECT_EQ(span.begin, at);
    EXPECT_LT(span.begin, span.end);
    at = span.end;
  }
  EXPECT_EQ(at, text.text.size());
}

/// Compares with what Jinja2 made of the same input.
void expect_as_jinja(const ChatTemplate& chat, const ChatInput& input,
                     const json::object& expected) {
  const auto rendered = chat.render(input);
  if (const json::value* text = expected.if_contains("rendered")) {
    ASSERT_TRUE(rendered) << rendered.error().message;
    EXPECT_EQ(rendered->text, std::string_view(text->as_string()));
    expect_well_formed(*rendered);
    return;
  }
  ASSERT_FALSE(rendered) << rendered->text;
  EXPECT_EQ(rendered.error().code, ErrorCode::kInvalidArgument) << rendered.error().message;
  if (const json::value* sentence = expected.if_contains("raised")) {
    EXPECT_EQ(rendered.error().message, std::string_view(sentence->as_string()));
  } else {
    EXPECT_TRUE(rendered.error().message.starts_with("chat template, line "))
        << rendered.error().message;
  }
}

TEST(ChatTemplate, RendersOurTemplatesAsJinja2Does) {
  const json::value expected = read_json("tests/templates/expected.json");
  int cases = 0;
  for (const json::value& file : expected.at("templates").as_array()) {
    const std::string name(file.at("file").as_string());
    const auto chat = compile(read_file("tests/templates/" + name));
    ASSERT_NE(chat, nullptr) << name;
    for (const json::value& c : file.at("cases").as_array()) {
      SCOPED_TRACE(name + " " + json::serialize(c));
      expect_as_jinja(*chat, input_of(c.at("messages"), c.at("add_generation_prompt").as_bool()),
                      c.as_object());
      ++cases;
    }
  }
  EXPECT_GE(cases, 300);
}

TEST(ChatTemplate, EvaluatesExpressionsAndWhiteSpaceAsJinja2Does) {
  const json::value expected = read_json("tests/templates/expected.json");
  const ChatInput input = input_of(expected.at("snippet_messages"), true);
  ASSERT_GE(expected.at("snippets").as_array().size(), 100u);
  for (const json::value& snippet : expected.at("snippets").as_array()) {
    SCOPED_TRACE(json::serialize(snippet));
    const auto chat = compile(std::string_view(snippet.at("source").as_string()));
    if (chat == nullptr) continue;
    expect_as_jinja(*chat, input, snippet.as_object());
  }
}

}  // namespace
}  // namespace pagewise::text
