// SPDX-License-Identifier: Apache-2.0
// The form of an answer as both APIs ask for it, and every refusal (api-reference table E, rows 17
// and 58).
#include "server/output_format.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "grammar/matcher.h"
#include "server/anthropic/parse.h"
#include "server/openai/parse.h"

namespace pagewise::server {
namespace {

json::object parse(const std::string& text) {
  const auto value = parse_json(text);
  EXPECT_TRUE(value.has_value()) << text;
  return value.has_value() && value->is_object() ? value->get_object() : json::object();
}

ApiResult<GenerationRequest> chat(const std::string& format, const std::string& more = "") {
  return openai::parse_chat(parse(R"({"model":"m","messages":[{"role":"user","content":"hi"}],)" +
                                  more + R"("response_format":)" + format + "}"),
                            {.choices_max = 64, .vocab_size = 1000});
}
ApiResult<GenerationRequest> messages(const std::string& format,
                                      const std::string& max_tokens = "5",
                                      const std::string& more = "") {
  return anthropic::parse_messages_request(
      parse(R"({"model":"m","max_tokens":)" + max_tokens +
            R"(,"messages":[{"role":"user","content":"hi"})" + more +
            R"(],"output_config":{"effort":"low","format":)" + format + "}}"));
}

bool matches(const GenerationRequest& request, std::string_view text) {
  grammar::Matcher matcher(request.grammar);
  return matcher.accept(text) && matcher.may_end();
}

TEST(OutputFormat, ResponseFormatIsReadInItsThreeKinds) {
  EXPECT_EQ(chat(R"({"type":"text"})")->grammar, nullptr);
  EXPECT_EQ(chat("null")->grammar, nullptr);
  const auto object = chat(R"({"type":"json_object"})");
  ASSERT_TRUE(object.has_value());
  EXPECT_TRUE(matches(*object, R"({"any":["thing"]})"));
  EXPECT_FALSE(matches(*object, "[]"));
  const auto schema = chat(
      R"({"type":"json_schema","json_schema":{"name":"a_B-9","strict":false,"description":"d",
          "schema":{"type":"object","properties":{"a":{"type":"null"}},"required":["a"]}}})");
  ASSERT_TRUE(schema.has_value()) << schema.error().message;
  EXPECT_TRUE(matches(*schema, R"({"a": null})"));
  EXPECT_FALSE(matches(*schema, "{}"));
}

TEST(OutputFormat, ResponseFormatIsRefusedWithParamAndCode) {
  const std::string schema = R"({"type":"json_schema","json_schema":)";
  struct Row {
    std::string format, param, code;
  };
  const std::vector<Row> rows = {
      {R"("json")", "response_format", "invalid_type"},
      {"{}", "response_format.type", "missing_required_parameter"},
      {R"({"type":"xml"})", "response_format.type", "invalid_value"},
      {R"({"type":"json_schema"})", "response_format.json_schema", "missing_required_parameter"},
      {schema + R"({"schema":{}}})", "response_format.json_schema.name",
       "missing_required_parameter"},
      {schema + R"({"name":"a b","schema":{}}})", "response_format.json_schema.name",
       "invalid_value"},
      {schema + R"({"name":"","schema":{}}})", "response_format.json_schema.name", "invalid_value"},
      {schema + R"({"name":"a"}})", "response_format.json_schema.schema",
       "missing_required_parameter"},
      {schema + R"({"name":"a","schema":true}})", "response_format.json_schema.schema",
       "invalid_type"},
      {schema + R"({"name":"a","strict":1,"schema":{}}})", "response_format.json_schema.strict",
       "invalid_type"},
      {schema + R"({"name":"a","schema":{"not":{}}}})", "response_format", ""},
  };
  for (const Row& row : rows) {
    const auto result = chat(row.format);
    ASSERT_FALSE(result.has_value()) << row.format;
    EXPECT_EQ(http_status(result.error(), Surface::kOpenAi), 400) << row.format;
    EXPECT_EQ(result.error().param, row.param) << row.format;
    EXPECT_EQ(result.error().code, row.code) << row.format;
  }
  const auto refused = chat(schema + R"({"name":"a","schema":{"properties":{"b":{"oneOf":[]}}}}})");
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message.find("response_format.json_schema.schema.properties.b.oneOf: "),
            0U);
}

TEST(OutputFormat, OutputConfigFormatIsReadAndRefusedByPath) {
  EXPECT_EQ(messages("null")->grammar, nullptr);
  const auto good = messages(R"({"type":"json_schema","schema":{"type":"boolean"}})");
  ASSERT_TRUE(good.has_value()) << good.error().message;
  EXPECT_TRUE(matches(*good, "true"));
  struct Row {
    std::string format, message;
  };
  const std::vector<Row> rows = {
      {R"({"type":"json_schema","schema":{"properties":{"a":{"pattern":"x"}}}})",
       "output_config.format.schema.properties.a.pattern: "},
      {R"({"type":"json_schema"})", "output_config.format.schema: Field required"},
      {R"({"type":"json_object"})", "output_config.format.type: must be"},
      {"{}", "output_config.format.type: Field required"},
      {"[]", "output_config.format: must be an object"},
  };
  for (const Row& row : rows) {
    const auto result = messages(row.format);
    ASSERT_FALSE(result.has_value()) << row.format;
    EXPECT_EQ(http_status(result.error(), Surface::kAnthropic), 400) << row.format;
    EXPECT_EQ(result.error().message.find(row.message), 0U) << result.error().message;
  }
}

TEST(OutputFormat, NothingIsInFrontOfAnAnswerOfAForm) {
  const std::string any = R"({"type":"json_schema","schema":{}})";
  const auto warm = messages(any, "0");
  ASSERT_FALSE(warm.has_value());
  EXPECT_EQ(warm.error().message, "max_tokens: 0 is not allowed with output_config.format");
  const auto begun = messages(any, "5", R"(,{"role":"assistant","content":"{"})");
  ASSERT_FALSE(begun.has_value());
  EXPECT_EQ(begun.error().message.find("output_config.format: "), 0U);
  const auto continued =
      openai::parse_chat(parse(R"({"model":"m","messages":[{"role":"user","content":"hi"},
          {"role":"assistant","content":"{"}],"continue_final_message":true,
          "response_format":{"type":"json_object"}})"),
                         {.choices_max = 64, .vocab_size = 1000});
  ASSERT_FALSE(continued.has_value());
  EXPECT_EQ(continued.error().param, "response_format");
}

TEST(OutputFormat, CountingTokensRefusesWhatTheRequestWouldBeRefusedFor) {
  const auto count = [](const std::string& format) {
    return anthropic::parse_count_tokens(parse(
        R"({"model":"m","messages":[{"role":"user","content":"hi"}],"output_config":{"format":)" +
        format + "}}"));
  };
  EXPECT_TRUE(count(R"({"type":"json_schema","schema":{}})").has_value());
  EXPECT_FALSE(count(R"({"type":"json_schema","schema":{"if":{}}})").has_value());
}

}  // namespace
}  // namespace pagewise::server
