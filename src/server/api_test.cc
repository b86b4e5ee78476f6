// SPDX-License-Identifier: Apache-2.0
// Routes, keys, models, tokens: the API called directly, without sockets and without an engine
// behind it.
#include "server/api.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "server/byte_tokenizer_for_tests.h"

namespace pagewise::server {
namespace {

class ApiTest : public testing::Test {
 protected:
  ApiTest() { start({}); }

  void start(ApiKeys keys) {
    ApiSetup setup;
    setup.model.name = std::string("real-model");
    setup.model.aliases = {"gpt-*", "claude-local"};
    setup.model.tokenizer = &byte_tokenizer();
    setup.model.context_max = 100;
    setup.model.choices_max = 4;
    setup.model.prompts_max = 3;
    setup.keys = std::move(keys);
    setup.engine.submit = [this](engine::Request request, std::shared_ptr<engine::RequestSink>) {
      submitted_.push_back(std::move(request));
      return Result<RequestId>(RequestId(submitted_.size()));
    };
    setup.engine.cancel = [](RequestId) {};
    setup.clock = &clock_;
    setup.unix_time_s = [] { return int64_t{1'700'000'000}; };
    setup.log = [this](std::string_view line) { log_.emplace_back(line); };
    setup.random_seed = 42;
    api_ = make_api(std::move(setup));
  }

  HttpResponse ask(std::string method, std::string path, std::string body = "",
                   std::vector<HttpHeader> headers = {}) {
    HttpRequest request;
    request.method = std::move(method);
    request.path = std::move(path);
    request.body = std::move(body);
    request.headers = std::move(headers);
    if (auto refused = api_->begin(request)) return *std::move(refused);
    Outcome outcome = api_->handle(std::move(request));
    if (auto* response = std::get_if<HttpResponse>(&outcome)) return std::move(*response);
    exchange_ = std::move(std::get<std::unique_ptr<Exchange>>(outcome));
    exchange_->start([] {});
    return {299, "", {}, ""};  // under way
  }
  static json::value body(const HttpResponse& response) { return *parse_json(response.body); }

  SimClock clock_;
  std::vector<engine::Request> submitted_;
  std::vector<std::string> log_;
  std::unique_ptr<Handler> api_;
  std::unique_ptr<Exchange> exchange_;
};

TEST_F(ApiTest, FindsOpenAiRoutesWithAndWithoutV1) {
  for (const std::string prefix : {"", "/v1"}) {
    EXPECT_EQ(ask("POST", prefix + "/completions", R"({"model":"gpt-x","prompt":"ab"})").status,
              299);
    EXPECT_EQ(ask("GET", prefix + "/models").status, 200);
    EXPECT_EQ(ask("GET", prefix + "/models/gpt-7").status, 200);
  }
  EXPECT_EQ(ask("POST", "/messages", "{}").status, 404);
  EXPECT_EQ(ask("GET", "/v1/health").status, 404);
  EXPECT_EQ(submitted_.size(), 2U);
}

TEST_F(ApiTest, SaysWhichMethodsARouteTakes) {
  const HttpResponse wrong = ask("PUT", "/v1/messages");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.back().value, "POST");
  EXPECT_EQ(body(wrong).at("type").as_string(), "error");
  EXPECT_EQ(ask("POST", "/v1/models").headers.back().value, "GET, HEAD");
  EXPECT_EQ(ask("HEAD", "/health").status, 200);
}

TEST_F(ApiTest, AsksForAKeyOnlyWhenKeysAreConfiguredAndNeverForHealth) {
  EXPECT_EQ(ask("GET", "/v1/models").status, 200);
  start(ApiKeys({"k1"}));
  EXPECT_EQ(ask("GET", "/v1/models").status, 401);
  EXPECT_EQ(ask("GET", "/v1/models", "", {{"x-api-key", "k2"}}).status, 401);
  EXPECT_EQ(ask("GET", "/v1/models", "", {{"x-api-key", "k1"}}).status, 200);
  EXPECT_EQ(ask("GET", "/v1/models", "", {{"authorization", "Bearer k1"}}).status, 200);
  EXPECT_EQ(ask("GET", "/health").status, 200);
  EXPECT_EQ(ask("GET", "/ready").status, 200);
}

TEST_F(ApiTest, AnswersProbesOfTheRootAndTheVersionWithoutAKeyButNotMetrics) {
  start(ApiKeys({"k1"}));
  EXPECT_EQ(ask("GET", "/").status, 200);
  EXPECT_EQ(ask("HEAD", "/").status, 200);
  EXPECT_EQ(ask("GET", "/version").status, 200);
  EXPECT_EQ(ask("GET", "/metrics").status, 401);
}

TEST_F(ApiTest, NamesTheCacheByTheKeyOnlyWhenTheKeyWasChecked) {  // C09
  const auto name_space = [&](std::string key, std::string more = "") {
    ask("POST", "/v1/completions", R"({"model":"gpt-x","prompt":"a")" + more + "}",
        {{"x-api-key", std::move(key)}});
    return submitted_.back().cache.cache_namespace;
  };
  EXPECT_EQ(name_space("k1"), name_space("k2"));
  EXPECT_NE(name_space("k1"), name_space("k1", R"(,"cache_salt":"s")"));
  start(ApiKeys({"k1", "k2"}));
  EXPECT_NE(name_space("k1"), name_space("k2"));
}

TEST_F(ApiTest, UsesTheShapesOfTheApiThatIsSpoken) {
  EXPECT_EQ(body(ask("GET", "/v1/x")).at("error").at("code").as_string(), "unknown_url");
  const json::value other = body(ask("GET", "/v1/x", "", {{"Anthropic-Version", "2023-06-01"}}));
  EXPECT_EQ(other.at("error").at("type").as_string(), "not_found_error");
  EXPECT_TRUE(other.at("request_id").as_string().starts_with("req_"));
}

TEST_F(ApiTest, DecodesModelNamesInPaths) {
  EXPECT_EQ(body(ask("GET", "/v1/models/gpt-a%2Fb")).at("id").as_string(), "gpt-a/b");
  EXPECT_EQ(ask("GET", "/v1/models/other%2").status, 404);
}

TEST_F(ApiTest, AnswersInTextWhateverBytesAPathHas) {
  EXPECT_EQ(body(ask("GET", "/v1/models/gpt-%FF")).at("id").as_string(), "gpt-\xEF\xBF\xBD");
  const HttpResponse wrong = ask("POST", "/v1/models/gpt-\xFF");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_NE(body(wrong).at("error").at("message").as_string().find("\xEF\xBF\xBD"),
            json::string::npos);
}

TEST_F(ApiTest, HandsTheEngineWhatWasAsked) {
  const std::string asked =
      R"({"model":"gpt-x","prompt":"abc","max_tokens":7,"n":3,"temperature":0.5,"stop":["x"],"ignore_eos":true})";
  ask("POST", "/v1/completions", asked, {{"x-api-key", "k"}});
  ask("POST", "/v1/completions", asked, {{"x-api-key", "other"}});
  ASSERT_EQ(submitted_.size(), 2U);
  const engine::Request& request = submitted_[0];
  EXPECT_EQ(request.prompt.size(), 3U);
  EXPECT_EQ(request.max_tokens, 7U);
  EXPECT_EQ(request.choices, 3U);
  EXPECT_TRUE(request.ignore_eos);
  EXPECT_NE(request.sampling.seed, submitted_[1].sampling.seed)
      << "without a seed each request draws its own";
}

TEST_F(ApiTest, MakesARequestOfEachPromptOfACall) {
  ask("POST", "/v1/completions",
      R"({"model":"gpt-x","prompt":["ab",[99,100,101]],"echo":true,"logprobs":2,"best_of":3,"stop":["x"]})");
  ASSERT_EQ(submitted_.size(), 2U);
  EXPECT_EQ(submitted_[0].prompt.size(), 2U);
  EXPECT_EQ(submitted_[1].prompt.size(), 3U);
  for (const engine::Request& request : submitted_) {
    EXPECT_EQ(request.prompt_logprobs, 2);
    EXPECT_EQ(request.choices, 3U);
    EXPECT_EQ(request.stops.size(), 1U);
  }
  EXPECT_NE(submitted_[0].sampling.seed, submitted_[1].sampling.seed);
  ask("POST", "/v1/completions", R"({"model":"gpt-x","prompt":["a","b"],"seed":5,"best_of":2})");
  EXPECT_EQ(submitted_[2].sampling.seed, 5U);
  EXPECT_EQ(submitted_[3].sampling.seed, 5U);
  EXPECT_EQ(submitted_[3].sampling.logprobs, 0) << "the best are chosen by log-probability";
  EXPECT_EQ(submitted_[3].prompt_logprobs, -1);
}

TEST_F(ApiTest, RefusesACallWholeWhenOneOfItsPromptsFails) {
  const HttpResponse refused =
      ask("POST", "/v1/completions",
          R"({"model":"gpt-x","stream":true,"prompt":["a",")" + std::string(200, 'b') + "\"]}");
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(body(refused).at("error").at("param").as_string(), "prompt[1]");
  EXPECT_TRUE(submitted_.empty());
  EXPECT_EQ(
      ask("POST", "/v1/completions", R"({"model":"gpt-x","prompt":["a","b","c","d"]})").status,
      400);
}

TEST_F(ApiTest, RefusesMoreChoicesThanMayRun) {
  EXPECT_EQ(ask("POST", "/v1/completions", R"({"model":"gpt-x","prompt":"a","n":5})").status, 400);
}

TEST_F(ApiTest, RefusesAPromptThatFillsTheContext) {  // C18
  const std::string prompt(100, 'a');
  const HttpResponse refused =
      ask("POST", "/v1/completions", R"({"model":"gpt-x","prompt":")" + prompt + "\"}");
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(body(refused).at("error").at("code").as_string(), "context_length_exceeded");
  EXPECT_TRUE(submitted_.empty());
}

TEST_F(ApiTest, TokenizesInBothDialects) {
  EXPECT_EQ(body(ask("POST", "/tokenize", R"({"content":"<s>a"})")).at("tokens").as_array().size(),
            2U);
  EXPECT_EQ(body(ask("POST", "/tokenize", R"({"content":"<s>a","parse_special":false})"))
                .at("tokens")
                .as_array()
                .size(),
            4U);
  const json::value vllm = body(ask("POST", "/tokenize", R"({"prompt":"ab"})"));
  EXPECT_EQ(vllm.at("count").to_number<int>(), 2);
  EXPECT_EQ(vllm.at("max_model_len").to_number<int>(), 100);
  EXPECT_EQ(ask("POST", "/tokenize", "{}").status, 400);
  const json::value text = body(ask("POST", "/detokenize", R"({"tokens":[97,256,195]})"));
  EXPECT_EQ(text.at("content").as_string(), "a<s>\xef\xbf\xbd") << "half a character is replaced";
  EXPECT_EQ(text.at("content"), text.at("prompt"));
}

TEST_F(ApiTest, LogsOneLineARequestWithoutItsText) {
  ask("POST", "/v1/completions", R"({"model":"gpt-x","prompt":"secret words","max_tokens":-1})");
  ask("GET", "/health");
  ASSERT_EQ(log_.size(), 1U);
  EXPECT_TRUE(log_[0].ends_with(" completions 400 error=integer_below_min_value")) << log_[0];
}

}  // namespace
}  // namespace pagewise::server
