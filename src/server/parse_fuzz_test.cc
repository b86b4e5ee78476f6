// SPDX-License-Identifier: Apache-2.0
// No body may crash the parsers: every field with every odd value, and bodies that random edits
// made of good ones. What comes out is a request or a 400, and a request keeps its bounds.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "base/prng.h"
#include "server/anthropic/parse.h"
#include "server/openai/parse.h"

namespace pagewise::server {
namespace {

constexpr std::string_view kOdd[] = {
    "null",
    "true",
    "false",
    "0",
    "-1",
    "1.5",
    "1e308",
    "9223372036854775808",
    "\"\"",
    "\"x\"",
    "\"ephemeral\"",
    "[]",
    "[null]",
    "[[]]",
    "[{}]",
    "[1]",
    "[\"\"]",
    "{}",
    R"({"type":null})",
    R"({"type":"text"})",
    R"({"type":"ephemeral","ttl":7})",
    R"([{"type":"text","text":1}])",
    R"([{"role":"user","content":[{}]}])",
    R"([{"role":"assistant","content":[]}])",
    R"([{"role":"system","content":"s"}])",
};

constexpr std::string_view kGood[] = {
    R"({"model":"m","max_tokens":5,"system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}],
        "messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"document","title":"t","source":
        {"type":"text","media_type":"text/plain","data":"d"}}]},{"role":"assistant","content":"b"}],
        "stop_sequences":["x"],"thinking":{"type":"enabled","budget_tokens":2000},"stream":true,"temperature":1,
        "cache_control":{"type":"ephemeral","ttl":"1h"},"diagnostics":{"previous_message_id":"m"},
        "tools":[],"tool_choice":null,"output_config":{"format":null},"top_p":1,"top_k":1,"cache_salt":"s"})",
    R"({"model":"m","prompt":[1,2],"max_tokens":5,"n":2,"stop":["x"],"logprobs":2,"seed":1,"stream":true,
        "stream_options":{"include_usage":true},"echo":false,"suffix":null,"best_of":2,"min_p":0.1,
        "frequency_penalty":0,"presence_penalty":0,"logit_bias":{},"repetition_penalty":1,"cache_prompt":true})",
    R"({"model":"m","prompt":["a","",[5,6]],"max_tokens":0,"n":2,"logprobs":0,"echo":true,"best_of":4,
        "frequency_penalty":-1.5,"presence_penalty":2,"logit_bias":{"5":-100,"99":1e1},"repetition_penalty":1.25,
        "temperature":0,"prompt_logprobs":null})",
    R"({"model":"m","messages":[{"role":"developer","content":"d"},{"role":"user","content":[{"type":"text",
        "text":"t","prompt_cache_breakpoint":{"mode":"explicit","ttl":"30m"},"cache_control":null}]}],
        "max_completion_tokens":3,"response_format":{"type":"text"},"modalities":["text"],"top_logprobs":3,
        "logprobs":true,"prompt_cache_options":{"mode":"implicit","ttl":"30m"},"continue_final_message":false,
        "functions":[],"function_call":null,"audio":null,"web_search_options":null,"ignore_eos":true})",
};

void check(const ApiResult<GenerationRequest>& result, const std::string& body) {
  if (!result.has_value()) {
    EXPECT_EQ(http_status(result.error(), Surface::kOpenAi), 400) << body;
    EXPECT_FALSE(result.error().message.empty()) << body;
    return;
  }
  EXPECT_GE(result->choices, 1U) << body;
  EXPECT_LE(result->choices, 64U) << body;
  EXPECT_TRUE(result->sampling.temperature >= 0 && result->sampling.temperature <= 2) << body;
  EXPECT_LE(result->sampling.logprobs, 20) << body;
  EXPECT_GE(result->candidates, result->choices) << body;
  EXPECT_LE(result->candidates, 64U) << body;
  EXPECT_GE(result->prompts.size(), 1U) << body;
  EXPECT_LE(std::abs(result->sampling.frequency_penalty), 2) << body;
  EXPECT_LE(std::abs(result->sampling.presence_penalty), 2) << body;
  EXPECT_GT(result->sampling.repetition_penalty, 0) << body;
  for (const sampling::TokenBias& bias : result->sampling.logit_bias) {
    EXPECT_TRUE(bias.token.value >= 0 && bias.token.value < 100) << body;
    EXPECT_LE(std::abs(bias.bias), 100) << body;
  }
  if (result->format != Format::kCompletion) {
    EXPECT_FALSE(result->turns.empty()) << body;
  }
  std::size_t markers = 0;
  for (const Turn& turn : result->turns) {
    for (const ContentBlock& block : turn.blocks) markers += block.marker ? 1 : 0;
  }
  EXPECT_LE(markers, 4U) << body;
}

void parse_all(const json::value& value, const std::string& body) {
  if (!value.is_object()) return;
  const openai::ParseLimits limits{.choices_max = 64, .vocab_size = 100};
  check(openai::parse_chat(value.get_object(), limits), body);
  check(openai::parse_completion(value.get_object(), limits), body);
  check(anthropic::parse_messages_request(value.get_object()), body);
  check(anthropic::parse_count_tokens(value.get_object()), body);
}

/// Calls `visit` with every value inside `value`, itself included.
template <typename Visit>
void for_each_value(json::value& value, const Visit& visit) {
  visit(value);
  if (value.is_object()) {
    for (auto& member : value.get_object()) for_each_value(member.value(), visit);
  } else if (value.is_array()) {
    for (json::value& element : value.get_array()) for_each_value(element, visit);
  }
}

TEST(ParseFuzz, EveryPlaceTakesEveryOddValue) {
  for (const std::string_view good : kGood) {
    json::value original = *parse_json(good);
    std::size_t places = 0;
    for_each_value(original, [&](json::value&) { ++places; });
    EXPECT_GT(places, 20U);
    for (std::size_t place = 0; place < places; ++place) {
      for (const std::string_view odd : kOdd) {
        json::value changed = original;
        std::size_t at = 0;
        json::value* target = nullptr;
        for_each_value(changed, [&](json::value& value) {
          if (at++ == place) target = &value;
        });
        *target = *parse_json(odd);
        parse_all(changed, json::serialize(changed));
      }
    }
  }
}

TEST(ParseFuzz, SurvivesRandomEdits) {
  const uint64_t seed = testing::UnitTest::GetInstance()->random_seed();
  Prng prng(seed);
  std::size_t parsed = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string body(kGood[prng.below(std::size(kGood))]);
    for (uint64_t edits = 1 + prng.below(3); edits > 0; --edits) {
      const std::size_t at = prng.below(body.size());
      switch (prng.below(4)) {
        case 0:
          body.erase(at, 1 + prng.below(8));
          break;
        case 1:
          body.insert(at, kOdd[prng.below(std::size(kOdd))]);
          break;
        case 2:
          body[at] = static_cast<char>(prng.below(256));
          break;
        default:
          body.insert(at, body.substr(prng.below(body.size()), prng.below(20)));
          break;
      }
    }
    if (const auto value = parse_json(body)) {
      ++parsed;
      parse_all(*value, body);
    }
  }
  EXPECT_GT(parsed, 500U) << "seed " << seed << ": the edits leave too little that parses";
}

}  // namespace
}  // namespace pagewise::server
