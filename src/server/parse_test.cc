// SPDX-License-Identifier: Apache-2.0
// Request bodies of both APIs: what is accepted, and the 400s of api-reference table E (rows by
// number).
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "server/anthropic/parse.h"
#include "server/openai/parse.h"

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
ApiResult<GenerationRequest> completion(std::string_view text) {
  return openai::parse_completion(parse(text),
                                  {.choices_max = 64, .prompts_max = 8, .vocab_size = 1000});
}
ApiResult<GenerationRequest> messages(std::string_view text) {
  return anthropic::parse_messages_request(parse(text));
}

/// A chat body with more fields.
std::string chat_with(std::string_view more) {
  return R"({"model":"m","messages":[{"role":"user","content":"hi"}],)" + std::string(more) + "}";
}
std::string messages_with(std::string_view more) {
  return R"({"model":"m","max_tokens":5,"messages":[{"role":"user","content":"hi"}],)" +
         std::string(more) + "}";
}

struct Refusal {
  std::string body, param, code;
};

void expect_refused(const std::vector<Refusal>& rows,
                    ApiResult<GenerationRequest> (*parser)(std::string_view)) {
  for (const Refusal& row : rows) {
    const auto result = parser(row.body);
    ASSERT_FALSE(result.has_value()) << row.body;
    EXPECT_EQ(http_status(result.error(), Surface::kOpenAi), 400) << row.body;
    EXPECT_EQ(result.error().param, row.param) << row.body;
    EXPECT_EQ(result.error().code, row.code) << row.body;
    EXPECT_FALSE(result.error().message.empty());
  }
}

TEST(OpenAiParse, ReadsAChatRequestWithEverythingThatIsOffered) {
  const auto request = chat(R"({"model":"gpt-x","messages":[
      {"role":"developer","content":"Be brief."},
      {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}],
      "max_tokens":9,"max_completion_tokens":7,"temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.1,
      "seed":-3,"n":3,"stop":"END","stream":true,"stream_options":{"include_usage":true},
      "logprobs":true,"top_logprobs":2,"user":"u","unknown_field":{"x":[1]},"logit_bias":{},
      "frequency_penalty":0,"response_format":{"type":"text"},"tools":[]})");
  ASSERT_TRUE(request.has_value()) << request.error().message;
  EXPECT_EQ(request->turns.size(), 2U);
  EXPECT_EQ(request->turns[0].role, "system");
  EXPECT_EQ(request->turns[1].blocks.size(), 2U);
  EXPECT_EQ(request->max_tokens, 7U);
  EXPECT_FLOAT_EQ(request->sampling.temperature, 0.5F);
  EXPECT_EQ(request->sampling.top_k, 40U);
  EXPECT_EQ(request->sampling.seed, static_cast<uint64_t>(-3));
  EXPECT_EQ(request->sampling.logprobs, 2);
  EXPECT_EQ(request->choices, 3U);
  EXPECT_EQ(request->stops, std::vector<std::string>{"END"});
  EXPECT_TRUE(request->stream);
  EXPECT_TRUE(request->include_usage);
}

TEST(OpenAiParse, TakesNullAsAbsent) {
  const auto request = chat(chat_with(
      R"("max_tokens":null,"temperature":null,"n":null,"stop":null,"stream":null,"stream_options":null,"seed":null)"));
  ASSERT_TRUE(request.has_value()) << request.error().message;
  EXPECT_EQ(request->max_tokens, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(request->choices, 1U);
  EXPECT_FALSE(request->seed_given);
}

TEST(OpenAiParse, RefusesTheRowsOfTableEWithTheirParamAndCode) {
  expect_refused(
      {
          {R"({"messages":[{"role":"user","content":"x"}]})", "model",
           "missing_required_parameter"},                                               // 9
          {R"({"model":"m"})", "messages", "missing_required_parameter"},               // 11
          {R"({"model":"m","messages":[]})", "messages", "empty_array"},                // 12
          {R"({"model":"m","messages":"hi"})", "messages", "invalid_type"},             // 13
          {chat_with(R"("max_tokens":-1)"), "max_tokens", "integer_below_min_value"},   // 15
          {chat_with(R"("max_tokens":0)"), "max_tokens", "integer_below_min_value"},    // 16
          {chat_with(R"("temperature":3)"), "temperature", "decimal_above_max_value"},  // 21
          {chat_with(R"("temperature":"hot")"), "temperature", "invalid_type"},         // 23
          {R"({"model":"m","messages":[{"role":"foo","content":"x"}]})", "messages[0].role",
           "invalid_value"},  // 26
          {R"({"model":"m","messages":[{"role":"user"}]})", "messages[0].content",
           "missing_required_parameter"},  // 27
          {R"({"model":"m","messages":[{"role":"user","content":[{"type":"video"}]}]})",
           "messages[0].content[0].type", "invalid_value"},  // 30
          {R"({"model":"m","messages":[{"role":"user","content":[{"text":"x"}]}]})",
           "messages[0].content[0].type", "missing_required_parameter"},  // 31
          {R"({"model":"m","messages":[{"role":"tool","tool_call_id":"x","content":"x"}]})",
           "messages[0].role", ""},                                   // 33
          {chat_with(R"("tool_choice":"auto")"), "tool_choice", ""},  // 38
          {chat_with(R"("prompt_cache_options":{"ttl":"2h"})"), "prompt_cache_options.ttl",
           "invalid_value"},  // 43
          {R"({"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]})",
           "messages[0].content[0]", ""},                                                   // 52
          {chat_with(R"("n":0)"), "n", "integer_below_min_value"},                          // 54
          {chat_with(R"("n":129)"), "n", "integer_above_max_value"},                        // 54
          {chat_with(R"("top_logprobs":2)"), "top_logprobs", ""},                           // 55
          {chat_with(R"("stream_options":{"include_usage":true})"), "stream_options", ""},  // 56
      },
      chat);
}

TEST(OpenAiParse, NamesEveryFieldThatIsNotOffered) {
  const std::string code = "unsupported_parameter";
  expect_refused(
      {
          {chat_with(R"("tools":[{"type":"custom","custom":{"name":"f"}}])"), "tools[0]", code},
          {chat_with(R"("functions":[{"name":"f"}])"), "functions", code},
          {chat_with(R"("modalities":["text","audio"])"), "modalities", code},
          {chat_with(R"("audio":{"voice":"x"})"), "audio", code},
          {chat_with(R"("web_search_options":{})"), "web_search_options", code},
      },
      chat);
  expect_refused(
      {
          {R"({"model":"m","prompt":"x","suffix":"y"})", "suffix", code},
          {R"({"model":"m","prompt":"x","prompt_logprobs":1})", "prompt_logprobs", ""},
      },
      completion);
}

TEST(OpenAiParse, RefusesFieldsThatAreNotOfferedInAnotherShapeAndTakesEmptyOnesForAbsent) {
  const std::string code = "invalid_type";
  expect_refused(
      {
          {chat_with(R"("tools":0)"), "tools", code},
          {chat_with(R"("tools":{})"), "tools", code},
          {chat_with(R"("functions":false)"), "functions", code},
          {chat_with(R"("function_call":[])"), "function_call", code},
          {chat_with(R"("logit_bias":0)"), "logit_bias", code},
          {chat_with(R"("logit_bias":[])"), "logit_bias", code},
          {chat_with(R"("audio":0)"), "audio", code},
          {chat_with(R"("parallel_tool_calls":1)"), "parallel_tool_calls", code},
          {R"({"model":"m","messages":[{"role":"user","content":"x","tool_calls":0}]})",
           "messages[0].tool_calls", code},
      },
      chat);
  expect_refused({{R"({"model":"m","prompt":"x","suffix":0})", "suffix", code}}, completion);
  EXPECT_TRUE(chat(chat_with(R"("tools":[],"logit_bias":{},"audio":null,"functions":null)")));
  EXPECT_TRUE(completion(R"({"model":"m","prompt":"x","suffix":""})"));
}

TEST(OpenAiParse, KeepsWhatIsForTheChatTemplate) {
  const auto request = chat(R"({"model":"m","messages":[
      {"role":"user","content":"a","name":"Ann","cache_control":null},
      {"role":"assistant","content":"b","reasoning":"hm","refusal":null,"tool_calls":[],"mood":{"k":1}}],
      "chat_template_kwargs":{"enable_thinking":true,"style":"x"},"reasoning_effort":"none",
      "documents":[{"title":"t"}],"add_generation_prompt":false})");
  ASSERT_TRUE(request.has_value()) << request.error().message;
  EXPECT_EQ(json::serialize(request->turns[0].fields), R"({"name":"Ann"})");
  EXPECT_EQ(json::serialize(request->turns[1].fields),
            R"({"reasoning":"hm","mood":{"k":1},"reasoning_content":"hm"})");
  EXPECT_EQ(json::serialize(request->chat.variables),
            R"({"enable_thinking":true,"style":"x","thinking":true,"reasoning":true,)"
            R"("reasoning_effort":"none"})");
  EXPECT_EQ(json::serialize(request->chat.documents), R"([{"title":"t"}])");
  EXPECT_FALSE(request->chat.open_answer);
  EXPECT_TRUE(chat(chat_with(R"("chat_template_kwargs":null,"documents":null)")).has_value());
}

TEST(OpenAiParse, ChecksWhatIsForTheChatTemplate) {
  const std::string type = "invalid_type";
  expect_refused(
      {
          {chat_with(R"("chat_template_kwargs":[1])"), "chat_template_kwargs", type},
          {chat_with(R"("chat_template_kwargs":{"bos_token":"x"})"),
           "chat_template_kwargs.bos_token", "invalid_value"},
          {chat_with(R"("chat_template":"{{ x }}")"), "chat_template", "unsupported_parameter"},
          {chat_with(R"("documents":"x")"), "documents", type},
          {chat_with(R"("documents":[{},1])"), "documents[1]", type},
          {chat_with(R"("reasoning_effort":1)"), "reasoning_effort", type},
          {chat_with(R"("add_generation_prompt":1)"), "add_generation_prompt", type},
          {R"({"model":"m","messages":[{"role":"user","content":"x","name":5}]})",
           "messages[0].name", type},
          {R"({"model":"m","messages":[{"role":"user","content":"x","reasoning_content":{}}]})",
           "messages[0].reasoning_content", type},
      },
      chat);
  expect_refused({{R"({"model":"m","prompt":"x","tools":[{"type":"function"}]})", "tools",
                   "unsupported_parameter"}},
                 completion);
  const auto bare = openai::parse_prompt_only(
      parse(R"({"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function"}]})"));
  ASSERT_FALSE(bare.has_value());
  EXPECT_EQ(bare.error().param, "tools[0].function");
}

TEST(OpenAiParse, BoundsMaxTokensAsInC19) {
  EXPECT_EQ(chat(chat_with(R"("max_tokens":2147483648)"))->max_tokens, 2147483648U);
  expect_refused(
      {
          {chat_with(R"("max_tokens":9223372036854775808)"), "max_tokens",
           "integer_above_max_value"},
          {chat_with(R"("max_tokens":9223372036854775807)"), "max_tokens",
           "integer_above_max_value"},
          {chat_with(R"("max_tokens":1.5)"), "max_tokens", "invalid_type"},
          {chat_with(R"("max_tokens":"8")"), "max_tokens", "invalid_type"},
          {chat_with(R"("n":-1)"), "n", "integer_below_min_value"},
          {chat_with(R"("n":9223372036854775807)"), "n", "integer_above_max_value"},
      },
      chat);
}

TEST(OpenAiParse, BoundsNByTheSequencesThatMayRun) {
  EXPECT_TRUE(chat(chat_with(R"("n":64)")).has_value());
  const auto refused = chat(chat_with(R"("n":65)"));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, "integer_above_max_value");
  EXPECT_NE(refused.error().message.find("at most 64"), std::string::npos);
  EXPECT_NE(refused.error().message.find("--max-seqs"), std::string::npos);
}

TEST(OpenAiParse, ReadsPenaltiesAndBias) {
  for (const bool is_chat : {true, false}) {
    const std::string more =
        R"("frequency_penalty":-2,"presence_penalty":2,"repetition_penalty":1.5,)"
        R"("logit_bias":{"0":-100,"999":100,"7":0.5,"8":0})";
    const auto request =
        is_chat ? chat(chat_with(more)) : completion(R"({"model":"m","prompt":"x",)" + more + "}");
    ASSERT_TRUE(request.has_value()) << request.error().message;
    const sampling::Params& params = request->sampling;
    EXPECT_EQ(params.frequency_penalty, -2);
    EXPECT_EQ(params.presence_penalty, 2);
    EXPECT_EQ(params.repetition_penalty, 1.5F);
    ASSERT_EQ(params.logit_bias.size(), 3U) << "a bias of 0 is none";
    EXPECT_EQ(params.logit_bias[1].token, TokenId(999));
    EXPECT_EQ(params.logit_bias[1].bias, 100);
  }
  expect_refused(
      {
          {chat_with(R"("frequency_penalty":2.1)"), "frequency_penalty", "decimal_above_max_value"},
          {chat_with(R"("presence_penalty":-3)"), "presence_penalty", "decimal_below_min_value"},
          {chat_with(R"("repetition_penalty":0)"), "repetition_penalty", "decimal_below_min_value"},
          {chat_with(R"("repetition_penalty":1e-60)"), "repetition_penalty",
           "decimal_below_min_value"},
          {chat_with(R"("logit_bias":{"1":101})"), "logit_bias", ""},  // 57
          {chat_with(R"("logit_bias":{"1":-100.5})"), "logit_bias", ""},
          {chat_with(R"("logit_bias":{"1":"5"})"), "logit_bias", ""},
          {chat_with(R"("logit_bias":{"1":null})"), "logit_bias", ""},
          {chat_with(R"("logit_bias":{"1000":5})"), "logit_bias", ""},
          {chat_with(R"("logit_bias":{"-1":5})"), "logit_bias", ""},
          {chat_with(R"("logit_bias":{"07":5})"), "logit_bias", ""},
          {chat_with(R"("logit_bias":{"":5})"), "logit_bias", ""},
          {chat_with(R"("logit_bias":{"7 ":5})"), "logit_bias", ""},
          {chat_with(R"("logit_bias":{"hello":5})"), "logit_bias", ""},
          {chat_with(R"("logit_bias":{"99999999999999999999":5})"), "logit_bias", ""},
      },
      chat);
  const auto refused = chat(chat_with(R"("logit_bias":{"5":1,"1234":5})"));
  EXPECT_NE(refused.error().message.find("'1234'"), std::string::npos) << refused.error().message;
  std::string many = R"("logit_bias":{"0":1)";
  for (int i = 1; i <= 4096; ++i) many += ",\"" + std::to_string(i) + "\":1";
  EXPECT_NE(chat(chat_with(many + "}")).error().message.find("4097 entries"), std::string::npos);
}

TEST(OpenAiParse, ReadsEchoAndBestOf) {
  const auto request = completion(
      R"({"model":"m","prompt":"x","echo":true,"max_tokens":0,"logprobs":2,"n":2,"best_of":5})");
  ASSERT_TRUE(request.has_value()) << request.error().message;
  EXPECT_TRUE(request->echo);
  EXPECT_EQ(request->max_tokens, 0U);
  EXPECT_EQ(request->choices, 2U);
  EXPECT_EQ(request->candidates, 5U);
  EXPECT_EQ(completion(R"({"model":"m","prompt":"x","n":3})")->candidates, 3U);
  EXPECT_TRUE(completion(R"({"model":"m","prompt":"x","n":3,"best_of":3,"stream":true})"));
  expect_refused(
      {
          {R"({"model":"m","prompt":"x","max_tokens":0})", "max_tokens", "integer_below_min_value"},
          {R"({"model":"m","prompt":"x","echo":1})", "echo", "invalid_type"},
          {R"({"model":"m","prompt":"x","n":3,"best_of":2})", "best_of", ""},
          {R"({"model":"m","prompt":"x","best_of":2,"stream":true})", "best_of", ""},
          {R"({"model":"m","prompt":"x","best_of":0})", "best_of", "integer_below_min_value"},
          {R"({"model":"m","prompt":"x","best_of":65})", "best_of", "integer_above_max_value"},
      },
      completion);
}

TEST(OpenAiParse, ReadsCompletionPromptsOfEveryKind) {
  using Ids = std::vector<TokenId>;
  const auto prompts = [](std::string_view prompt) {
    return completion(R"({"model":"m","prompt":)" + std::string(prompt) + "}")->prompts;
  };
  const auto text = [](const char* words) { return PromptInput(std::string(words)); };
  const Ids five_six = {TokenId(5), TokenId(6)};
  EXPECT_EQ(prompts(R"("abc")"), std::vector<PromptInput>{text("abc")});
  EXPECT_EQ(prompts(R"(["abc"])"), std::vector<PromptInput>{text("abc")});
  EXPECT_EQ(completion(R"({"model":"m"})")->prompts, std::vector<PromptInput>{text("")});
  EXPECT_EQ(prompts("[5,6]"), std::vector<PromptInput>{five_six});
  EXPECT_EQ(prompts("[[5,6]]"), std::vector<PromptInput>{five_six});
  EXPECT_EQ(prompts(R"(["a","","b"])"), (std::vector<PromptInput>{text("a"), text(""), text("b")}));
  EXPECT_EQ(prompts("[[5,6],[7]]"), (std::vector<PromptInput>{five_six, Ids{TokenId(7)}}));
  EXPECT_EQ(completion(R"({"model":"m","prompt":"abc"})")->max_tokens, 16U);
  expect_refused(
      {{R"({"model":"m","prompt":[1,1000]})", "prompt[1]", "invalid_value"},
       {R"({"model":"m","prompt":[-1]})", "prompt[0]", "invalid_value"},
       {R"({"model":"m","prompt":[1,"a"]})", "prompt[1]", "invalid_value"},
       {R"({"model":"m","prompt":{}})", "prompt", "invalid_type"},
       {R"({"model":"m","prompt":[]})", "prompt", "empty_array"},
       {R"({"model":"m","prompt":[[5],[]]})", "prompt[1]", "empty_array"},
       {R"({"model":"m","prompt":["a",7]})", "prompt[1]", "invalid_type"},
       {R"({"model":"m","prompt":[[5],[6,1000]]})", "prompt[1][1]", "invalid_value"},
       {R"({"model":"m","prompt":["a","b","c","d","e","f","g","h","i"]})", "prompt",
        "array_above_max_length"},
       {R"({"model":"m","prompt":"x","logprobs":6})", "logprobs", "integer_above_max_value"}},
      completion);
}

TEST(OpenAiParse, CountsCacheControlOnPartsLikeTheMessagesApi) {
  const auto body = [](int markers) {
    std::string parts;
    for (int i = 0; i < 5; ++i) {
      parts += std::string(i == 0 ? "" : ",") + R"({"type":"text","text":"t")" +
               (i < markers ? R"(,"cache_control":{"type":"ephemeral"})" : "") + "}";
    }
    return R"({"model":"m","messages":[{"role":"user","content":[)" + parts + "]}]}";
  };
  const auto four = chat(body(4));
  ASSERT_TRUE(four.has_value());
  EXPECT_EQ(four->turns[0].blocks[3].marker, LeaseClass::k5m);
  EXPECT_FALSE(four->turns[0].blocks[4].marker.has_value());
  const auto five = chat(body(5));  // row 39
  ASSERT_FALSE(five.has_value());
  EXPECT_NE(five.error().message.find("Found 5"), std::string::npos);
}

TEST(OpenAiParse, KeepsTheLastFourBreakpoints) {
  std::string parts;
  for (int i = 0; i < 6; ++i) {
    parts += std::string(i == 0 ? "" : ",") +
             R"({"type":"text","text":"t","prompt_cache_breakpoint":{"mode":"explicit"}})";
  }
  const auto request =
      chat(R"({"model":"m","messages":[{"role":"user","content":[)" + parts + "]}]}");
  ASSERT_TRUE(request.has_value()) << request.error().message;
  const auto& blocks = request->turns[0].blocks;
  EXPECT_FALSE(blocks[0].marker.has_value());
  EXPECT_FALSE(blocks[1].marker.has_value());
  for (int i = 2; i < 6; ++i) EXPECT_EQ(blocks[i].marker, LeaseClass::k1h);
}

TEST(OpenAiParse, SkipsTheCacheWhenAskedTo) {
  EXPECT_TRUE(chat(chat_with(R"("user":"x")"))->use_cache);
  EXPECT_FALSE(chat(chat_with(R"("cache_prompt":false)"))->use_cache);
  EXPECT_FALSE(chat(chat_with(R"("prompt_cache_options":{"mode":"explicit"})"))->use_cache);
  EXPECT_TRUE(chat(chat_with(R"("prompt_cache_options":{"mode":"implicit"})"))->use_cache);
  expect_refused({{chat_with(R"("cache_salt":5)"), "cache_salt", "invalid_type"}}, chat);
}

TEST(AnthropicParse, ReadsARequestWithEverythingThatIsOffered) {
  const auto request = messages(R"({"model":"claude-x","max_tokens":128000,
      "system":[{"type":"text","text":"sys","cache_control":{"type":"ephemeral","ttl":"1h","scope":"global"}}],
      "messages":[{"role":"user","content":"q1"},{"role":"user","content":[{"type":"text","text":"q2"}]},
        {"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},
                                       {"type":"text","text":"a1"}]},
        {"role":"user","content":[{"type":"text","text":"q3","cache_control":{"type":"ephemeral"}}]}],
      "temperature":0,"top_p":0.5,"top_k":3,"stop_sequences":["X","Y"],"metadata":{"user_id":"u"},
      "thinking":{"type":"adaptive"},"output_config":{"effort":"high"},"context_management":{"edits":[]},
      "service_tier":"auto","tools":[],"some_new_field":1})");
  ASSERT_TRUE(request.has_value()) << request.error().message;
  ASSERT_EQ(request->turns.size(), 4U);  // the two user messages are one turn
  EXPECT_EQ(request->turns[0].blocks[0].marker, LeaseClass::k1h);
  EXPECT_EQ(request->turns[1].blocks.size(), 2U);
  EXPECT_EQ(request->turns[2].blocks.size(), 1U);  // thinking is left out
  EXPECT_EQ(request->turns[3].blocks[0].marker, LeaseClass::k5m);
  EXPECT_EQ(request->max_tokens, 128000U);
  EXPECT_EQ(request->stops.size(), 2U);
  EXPECT_FALSE(request->continue_last);
}

TEST(AnthropicParse, ContinuesALastAssistantMessage) {
  const auto request = messages(R"({"model":"m","max_tokens":5,"messages":[
      {"role":"user","content":"q"},{"role":"assistant","content":"The answer is"}]})");
  ASSERT_TRUE(request.has_value());
  EXPECT_TRUE(request->continue_last);
  const auto empty = messages(R"({"model":"m","max_tokens":5,"messages":[
      {"role":"user","content":"q"},{"role":"assistant","content":""}]})");
  ASSERT_TRUE(empty.has_value()) << empty.error().message;
  EXPECT_FALSE(empty->continue_last);
  EXPECT_EQ(empty->turns.size(), 1U);
}

TEST(AnthropicParse, RefusesTheRowsOfTableE) {
  const auto content = [](std::string_view block) {
    return R"({"model":"m","max_tokens":5,"messages":[{"role":"user","content":[)" +
           std::string(block) + "]}]}";
  };
  struct Row {
    std::string body, in_message;
  };
  const std::vector<Row> rows = {
      {R"({"max_tokens":5,"messages":[{"role":"user","content":"x"}]})",
       "model: Field required"},                                        // 9
      {R"({"model":"m","max_tokens":5})", "messages: Field required"},  // 11
      {R"({"model":"m","max_tokens":5,"messages":[]})", "messages: "},  // 12
      {R"({"model":"m","max_tokens":5,"messages":{}})", "messages: "},  // 13
      {R"({"model":"m","messages":[{"role":"user","content":"x"}]})",
       "max_tokens: Field required"},  // 14
      {R"({"model":"m","max_tokens":-1,"messages":[{"role":"user","content":"x"}]})",
       "max_tokens: "},  // 15
      {R"({"model":"m","max_tokens":0,"stream":true,"messages":[{"role":"user","content":"x"}]})",
       "max_tokens: 0"},  // 17
      {R"({"model":"m","max_tokens":0,"thinking":{"type":"enabled","budget_tokens":2000},
          "messages":[{"role":"user","content":"x"}]})",
       "max_tokens: 0"},                                           // 17
      {messages_with(R"("temperature":3)"), "temperature: "},      // 21
      {messages_with(R"("temperature":1.5)"), "temperature: "},    // 22
      {messages_with(R"("temperature":"hot")"), "temperature: "},  // 23
      {R"({"model":"m","max_tokens":5,"messages":[{"role":"foo","content":"x"}]})",
       "messages.0.role: "},  // 26
      {R"({"model":"m","max_tokens":5,"messages":[{"role":"user"}]})",
       "messages.0.content: Field required"},  // 27
      {content(R"({"type":"text","text":""})"),
       "messages.0.content.0.text: text content blocks must be non-empty"},
      {content(R"({"type":"text","text":" \n\t"})"), "must contain non-whitespace text"},  // 29
      {content(R"({"type":"hologram"})"), "messages.0.content.0.type: "},                  // 30
      {content(R"({"text":"x"})"), "messages.0.content.0.type: Field required"},           // 31
      {content(R"({"type":"tool_result","tool_use_id":"x","content":"y"})"),
       "messages.0.content.0: unexpected `tool_use_id`"},                    // 33
      {messages_with(R"("tool_choice":{"type":"auto"})"), "tool_choice: "},  // 38
      {content(R"({"type":"text","text":"x","cache_control":{"type":"persistent"}})"),
       "messages.0.content.0.cache_control.type: "},  // 43
      {content(R"({"type":"text","text":"x","cache_control":{"type":"ephemeral","ttl":"2h"}})"),
       "messages.0.content.0.cache_control.ttl: "},  // 43
      {content(R"({"type":"text","text":"","cache_control":{"type":"ephemeral"}})"),
       "messages.0.content.0.text: cache_control cannot be set for empty text blocks"},  // 44
      {content(R"({"type":"document","source":{"type":"content","content":[
          {"type":"text","text":"a","cache_control":{"type":"ephemeral"}},{"type":"text","text":"b"}]}})"),
       "messages.0.content.0.source.content.0.cache_control: "},  // 46
      {messages_with(R"("thinking":{"type":"enabled","budget_tokens":100})"),
       "thinking.budget_tokens: "},  // 49
      {messages_with(R"("thinking":{"type":"enabled","budget_tokens":4000})"),
       "thinking.budget_tokens: "},  // 49
      {R"({"model":"m","max_tokens":5,"messages":[{"role":"system","content":"x"}]})",
       "messages.0.role: "},  // 51
      {R"({"model":"m","max_tokens":5,"messages":[{"role":"user","content":"x"},{"role":"system","content":"s"},
          {"role":"user","content":"y"}]})",
       "messages.1.role: "},  // 51
      {content(R"({"type":"image","source":{"type":"base64","media_type":"image/png","data":""}})"),
       "messages.0.content.0: "},  // 52
      {messages_with(R"("container":{"id":"x"})"), "container: "},
      {messages_with(R"("mcp_servers":[{"name":"x"}])"), "mcp_servers: "},
      {messages_with(R"("stop_sequences":[""])"), "stop_sequences.0: "},
      {messages_with(R"("stop_sequences":"x")"), "stop_sequences: "},
  };
  for (const Row& row : rows) {
    const auto result = messages(row.body);
    ASSERT_FALSE(result.has_value()) << row.body;
    EXPECT_EQ(http_status(result.error(), Surface::kAnthropic), 400);
    EXPECT_NE(result.error().message.find(row.in_message), std::string::npos)
        << row.body << "\n"
        << result.error().message;
  }
}

TEST(AnthropicParse, RefusesFieldsThatAreNotOfferedInAnotherShapeAndTakesEmptyOnesForAbsent) {
  const std::string code = "invalid_type";
  expect_refused(
      {
          {messages_with(R"("tools":0)"), "tools", code},
          {messages_with(R"("tools":false)"), "tools", code},
          {messages_with(R"("container":[])"), "container", code},
          {messages_with(R"("mcp_servers":{})"), "mcp_servers", code},
          {messages_with(R"("compaction":1)"), "compaction", code},
      },
      messages);
  EXPECT_TRUE(messages(messages_with(R"("tools":[],"container":null,"mcp_servers":[])")));
}

TEST(AnthropicParse, GivesThoughtsAndSwitchesToTheChatTemplate) {
  const auto request = messages(R"({"model":"m","max_tokens":9000,"messages":[
      {"role":"user","content":"q"},
      {"role":"assistant","content":[{"type":"thinking","thinking":"one","signature":"s"},
        {"type":"redacted_thinking","data":"x"},{"type":"text","text":"a"}]},
      {"role":"assistant","content":[{"type":"thinking","thinking":"two","signature":"s"},
        {"type":"text","text":"b"}]},
      {"role":"user","content":"r"}],
      "thinking":{"type":"disabled"},"output_config":{"effort":"low"},
      "chat_template_kwargs":{"style":"x"}})");
  ASSERT_TRUE(request.has_value()) << request.error().message;
  ASSERT_EQ(request->turns.size(), 3U);
  EXPECT_EQ(json::serialize(request->turns[1].fields),
            R"({"reasoning_content":"one\ntwo","reasoning":"one\ntwo"})");
  EXPECT_EQ(request->turns[1].blocks.size(), 2U);
  EXPECT_EQ(json::serialize(request->chat.variables),
            R"({"style":"x","enable_thinking":false,"thinking":false,"reasoning":false,)"
            R"("reasoning_effort":"low"})");
  const auto own = messages(messages_with(
      R"("thinking":{"type":"adaptive"},"chat_template_kwargs":{"enable_thinking":false})"));
  ASSERT_TRUE(own.has_value());
  EXPECT_EQ(json::serialize(own->chat.variables),
            R"({"enable_thinking":false,"thinking":false,"reasoning":false})");
}

TEST(AnthropicParse, AcceptsAMessageThatPrewarms) {
  const auto request = messages(
      R"({"model":"m","max_tokens":0,"messages":[{"role":"user","content":"x"}]})");  // row 16
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(request->max_tokens, 0U);
}

TEST(AnthropicParse, AcceptsASystemMessageInsideTheConversation) {
  const auto request = messages(R"({"model":"m","max_tokens":5,"messages":[
      {"role":"user","content":"x"},{"role":"system","content":"s"},{"role":"assistant","content":"y"},
      {"role":"user","content":"z"},{"role":"system","content":"t"}]})");
  ASSERT_TRUE(request.has_value()) << request.error().message;
  EXPECT_EQ(request->turns.size(), 5U);
}

TEST(AnthropicParse, LeavesOutABillingHeaderOnlyAsTheWholeFirstSystemBlock) {  // C04
  const std::string line = "x-anthropic-billing-header: cc_version=1; cch=ab12;";
  const auto dropped = messages(messages_with(R"("system":[{"type":"text","text":")" + line +
                                              R"("},{"type":"text","text":"real"}])"));
  ASSERT_TRUE(dropped.has_value());
  ASSERT_EQ(dropped->turns[0].blocks.size(), 1U);
  EXPECT_EQ(dropped->turns[0].blocks[0].text, "real");
  const auto second = messages(messages_with(
      R"("system":[{"type":"text","text":"real"},{"type":"text","text":")" + line + R"("}])"));
  EXPECT_EQ(second->turns[0].blocks.size(), 2U);
  const auto user = messages(
      R"({"model":"m","max_tokens":5,"messages":[{"role":"user","content":")" + line + R"("}]})");
  EXPECT_EQ(user->turns[0].blocks[0].text, line);
  const auto alone = messages(messages_with(R"("system":")" + line + "\""));
  EXPECT_EQ(alone->turns[0].role, "user");
}

// Markers: reference B1-B5, C10.

std::string marked(const std::vector<std::string>& ttls, std::string_view top = "") {
  std::string parts;
  for (const std::string& ttl : ttls) {
    parts += std::string(parts.empty() ? "" : ",") + R"({"type":"text","text":"t")";
    if (!ttl.empty()) parts += R"(,"cache_control":{"type":"ephemeral","ttl":")" + ttl + "\"}";
    parts += "}";
  }
  return R"({"model":"m","max_tokens":5,"messages":[{"role":"user","content":[)" + parts + "]}]" +
         (top.empty()
              ? ""
              : R"(,"cache_control":{"type":"ephemeral","ttl":")" + std::string(top) + "\"}") +
         "}";
}

TEST(CacheMarkers, AllowFourAndRefuseAFifthWithTheCount) {
  EXPECT_TRUE(messages(marked({"5m", "5m", "5m", "5m"})).has_value());
  const auto five = messages(marked({"5m", "5m", "5m", "5m", "5m"}));  // row 39
  ASSERT_FALSE(five.has_value());
  EXPECT_EQ(five.error().message,
            "A maximum of 4 blocks with cache_control may be provided. Found 5.");
}

TEST(CacheMarkers, RefuseALongOneBehindAShortOne) {
  EXPECT_TRUE(messages(marked({"1h", "5m"})).has_value());
  const auto wrong = messages(marked({"5m", "", "1h"}));  // row 42
  ASSERT_FALSE(wrong.has_value());
  EXPECT_TRUE(wrong.error().message.starts_with("messages.0.content.2.cache_control.ttl: "))
      << wrong.error().message;
}

TEST(CacheMarkers, PutTheAutomaticOneOnTheLastBlock) {
  const auto request = messages(marked({"", ""}, "5m"));
  ASSERT_TRUE(request.has_value());
  EXPECT_FALSE(request->turns[0].blocks[0].marker.has_value());
  EXPECT_EQ(request->turns[0].blocks[1].marker, LeaseClass::k5m);
  EXPECT_TRUE(messages(marked({"", "5m"}, "5m")).has_value());                     // no effect
  EXPECT_FALSE(messages(marked({"", "5m"}, "1h")).has_value());                    // row 41
  EXPECT_FALSE(messages(marked({"5m", "5m", "5m", "5m", ""}, "5m")).has_value());  // row 40
  EXPECT_FALSE(messages(marked({"5m", ""}, "1h")).has_value());                    // row 42, too
}

TEST(CacheMarkers, PutTheAutomaticOneInFrontOfAThoughtThatEndsTheRequest) {  // B5
  for (const std::string type : {"thinking", "redacted_thinking"}) {
    const std::string thought =
        R"({"type":")" + type + R"(","thinking":"t","signature":"s","data":"d"})";
    const auto with = [&](const std::string& last) {
      return messages(
          R"({"model":"m","max_tokens":5,"cache_control":{"type":"ephemeral","ttl":"1h"},
          "messages":[{"role":"user","content":"x"},{"role":"assistant","content":[)" +
          last + "]}]}");
    };
    const auto behind_text = with(R"({"type":"text","text":"y"},)" + thought);
    ASSERT_TRUE(behind_text.has_value()) << behind_text.error().message;
    EXPECT_FALSE(behind_text->turns[0].blocks[0].marker.has_value());
    EXPECT_EQ(behind_text->turns[1].blocks[0].marker, LeaseClass::k1h);
    const auto alone = with(thought);
    ASSERT_TRUE(alone.has_value()) << alone.error().message;
    EXPECT_EQ(alone->turns[0].blocks[0].marker, LeaseClass::k1h);
  }
}

TEST(CacheMarkers, TakeNullAsNone) {
  const auto request = messages(R"({"model":"m","max_tokens":5,"cache_control":null,"messages":[
      {"role":"user","content":[{"type":"text","text":"x","cache_control":null}]}]})");
  ASSERT_TRUE(request.has_value());
  EXPECT_FALSE(request->turns[0].blocks[0].marker.has_value());
}

TEST(CacheMarkers, MoveFromTheLastInnerBlockToTheDocument) {
  const auto request =
      messages(R"({"model":"m","max_tokens":5,"messages":[{"role":"user","content":[
      {"type":"document","title":"T","source":{"type":"content","content":[{"type":"text","text":"a"},
        {"type":"text","text":"b","cache_control":{"type":"ephemeral","ttl":"1h"}}]}},
      {"type":"text","text":"q"}]}]})");
  ASSERT_TRUE(request.has_value()) << request.error().message;
  EXPECT_EQ(request->turns[0].blocks[0].text, "T\na\nb");
  EXPECT_EQ(request->turns[0].blocks[0].marker, LeaseClass::k1h);
}

TEST(CacheMarkers, OnAThoughtAreIgnoredOrRefusedWhenStrict) {  // row 45
  for (const std::string type : {"thinking", "redacted_thinking"}) {
    const auto body = [&](std::string_view marker) {
      return parse(R"({"model":"m","max_tokens":5,"messages":[{"role":"user","content":"x"},
          {"role":"assistant","content":[{"type":")" +
                   type + R"(","thinking":"t","signature":"s","cache_control":)" +
                   std::string(marker) + R"(},{"type":"text","text":"a"}]},
          {"role":"user","content":"y"}]})");
    };
    const json::object marked = body(R"({"type":"ephemeral"})");
    EXPECT_TRUE(anthropic::parse_messages_request(marked).has_value());
    const auto strict = anthropic::parse_messages_request(marked, {.strict_markers = true});
    ASSERT_FALSE(strict.has_value());
    EXPECT_EQ(strict.error().message,
              "messages.1.content.0." + type + ".cache_control: Extra inputs are not permitted");
    EXPECT_FALSE(anthropic::parse_count_tokens(marked, {.strict_markers = true}).has_value());
    EXPECT_FALSE(anthropic::parse_explained(marked, {.strict_markers = true}).has_value());
    EXPECT_TRUE(anthropic::parse_messages_request(body("null"), {.strict_markers = true}));
  }
}

TEST(CountTokens, NeedsNoMaxTokensAndChecksTheRest) {
  EXPECT_TRUE(anthropic::parse_count_tokens(
                  parse(R"({"model":"m","messages":[{"role":"user","content":"x"}]})"))
                  .has_value());
  EXPECT_FALSE(anthropic::parse_count_tokens(parse(R"({"model":"m","messages":[]})")).has_value());
}

}  // namespace
}  // namespace pagewise::server
