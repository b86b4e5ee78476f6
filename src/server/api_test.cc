// SPDX-License-Identifier: Apache-2.0
// Routes, keys, models, tokens: the API called directly, without sockets and without an engine
// behind it.
#include "server/api.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
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
    setup.operators.report_pool = [](OperatorPort::Done<engine::PoolReport> done) {
      done(pool_of(10, 1 << 20));
    };
    setup.operators.report_cache = [](OperatorPort::Done<engine::CacheReport> done) {
      engine::CacheReport report;
      report.pool = pool_of(10, 1 << 20);
      engine::AccountReport everyone, acme;
      everyone.account = "everyone";
      everyone.ledger.by_tariff = {{3, 30, 10, 40, 0, 0, 0, 5}};
      everyone.namespaces = 1;
      everyone.blocks_live = 1;
      everyone.blocks_cached = 2;
      acme.account = "tenant:acme";
      acme.ledger.by_tariff = {{1, 6, 2, 3, 1, 3, 1, 2}};
      acme.namespaces = 1;
      acme.blocks_cached = 3;
      acme.blocks_leased = 1;
      acme.leases = {{32, kv::LeaseClass::k1h, 5'000'000'000, 2'500'000'000}};
      report.accounts = {everyone, acme};
      done(report);
    };
    setup.operators.report_curve = [this](OperatorPort::Done<engine::CurveReport> done) {
      done(curve_);
    };
    setup.operators.resize_pool = [this](uint64_t bytes,
                                         OperatorPort::Done<engine::PoolReport> done) {
      resized_.push_back(bytes);
      if (bytes < 100) return done(Error{ErrorCode::kPoolExhausted, "3 blocks are in use"});
      done(pool_of(10, bytes / 10));
    };
    setup.operators.clear_cache = [this](std::optional<std::string> name,
                                         OperatorPort::Done<engine::Cleared> done) {
      cleared_.push_back(name.value_or("(all)"));
      done(engine::Cleared{7, 2, 1});
    };
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
    request.peer_is_loopback = local_;
    if (auto refused = api_->begin(request)) return *std::move(refused);
    Outcome outcome = api_->handle(std::move(request));
    if (auto* response = std::get_if<HttpResponse>(&outcome)) return std::move(*response);
    exchange_ = std::move(std::get<std::unique_ptr<Exchange>>(outcome));
    exchange_->start([] {});
    Progress progress = exchange_->poll(clock_.now());
    if (progress.whole) return *std::move(progress.whole);
    return {299, "", {}, ""};  // under way
  }
  static json::value body(const HttpResponse& response) { return *parse_json(response.body); }

  static engine::PoolReport pool_of(uint32_t blocks, uint64_t block_bytes) {
    engine::PoolReport report;
    report.groups.push_back({0, block_bytes, {blocks, 1, 2, blocks - 3, 0}});
    report.block_tokens = 16;
    report.context_max = blocks * 16;
    return report;
  }

  SimClock clock_;
  bool local_ = true;
  std::vector<uint64_t> resized_;
  std::vector<std::string> cleared_;
  std::vector<engine::Request> submitted_;
  std::vector<std::string> log_;
  engine::CurveReport curve_;
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

TEST_F(ApiTest, KeysOfOneTenantShareACacheAndCountInOneAccount) {  // C09
  start(*ApiKeys::from_text("k1 tenant=acme\nk2 tenant=acme\nk3\n"));
  const auto ask_as = [&](std::string key) {
    ask("POST", "/v1/completions", R"({"model":"gpt-x","prompt":"a"})",
        {{"x-api-key", std::move(key)}});
    return submitted_.back().cache;
  };
  EXPECT_EQ(ask_as("k1").cache_namespace, ask_as("k2").cache_namespace);
  EXPECT_EQ(ask_as("k1").account, "tenant:acme");
  EXPECT_NE(ask_as("k1").cache_namespace, ask_as("k3").cache_namespace);
}

TEST_F(ApiTest, HoldsAKeyToItsRequestsInBothShapes) {
  start(*ApiKeys::from_text("k1 name=ci max-requests=1\nk2\n"));
  const std::string asked = R"({"model":"gpt-x","prompt":"a"})";
  EXPECT_EQ(ask("POST", "/v1/completions", asked, {{"x-api-key", "k1"}}).status, 299);
  const auto running = std::move(exchange_);
  HttpResponse refused = ask("POST", "/v1/completions", asked, {{"x-api-key", "k1"}});
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(body(refused).at("error").at("code").as_string(), "rate_limit_exceeded");
  EXPECT_EQ(body(refused).at("error").at("type").as_string(), "requests");
  EXPECT_EQ(refused.headers.back().name, "retry-after");
  EXPECT_TRUE(log_.back().ends_with(" completions 429 error=rate_limit_exceeded key=ci"))
      << log_.back();
  refused = ask("POST", "/v1/completions", asked,
                {{"x-api-key", "k1"}, {"anthropic-version", "2023-06-01"}});
  EXPECT_EQ(body(refused).at("error").at("type").as_string(), "rate_limit_error");
  EXPECT_EQ(ask("POST", "/v1/completions", asked, {{"x-api-key", "k2"}}).status, 299);
  EXPECT_EQ(submitted_.size(), 2U) << "nothing of a refused request reaches the engine";
  running->cancel();  // the client is gone
  EXPECT_TRUE(log_.back().ends_with(" key=ci")) << log_.back();
  EXPECT_EQ(ask("POST", "/v1/completions", asked, {{"x-api-key", "k1"}}).status, 299);
}

TEST_F(ApiTest, GivesAKeysPartBackWhenARequestIsRefusedLater) {
  start(*ApiKeys::from_text("k1 max-requests=1 max-tokens=50\n"));
  const std::string long_prompt = R"({"model":"gpt-x","prompt":")" + std::string(60, 'a') + "\"}";
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(ask("POST", "/v1/completions", long_prompt, {{"x-api-key", "k1"}}).status, 400);
    EXPECT_EQ(ask("POST", "/v1/completions", "{}", {{"x-api-key", "k1"}}).status, 400);
  }
  EXPECT_EQ(ask("POST", "/v1/completions", R"({"model":"gpt-x","prompt":"aa","max_tokens":900})",
                {{"x-api-key", "k1"}})
                .status,
            299);
  EXPECT_EQ(submitted_.back().max_tokens, 48U) << "clamped to what the key may have";
}

TEST_F(ApiTest, HoldsAKeyToItsTokens) {
  start(*ApiKeys::from_text("k1 max-tokens=50\n"));
  const auto asked = [](int tokens) {
    return R"({"model":"gpt-x","prompt":"aaaa","max_tokens":)" + std::to_string(tokens) + "}";
  };
  EXPECT_EQ(ask("POST", "/v1/completions", asked(30), {{"x-api-key", "k1"}}).status, 299);
  const auto running = std::move(exchange_);
  const HttpResponse refused = ask("POST", "/v1/completions", asked(30), {{"x-api-key", "k1"}});
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(body(refused).at("error").at("type").as_string(), "tokens");
  EXPECT_EQ(ask("POST", "/v1/completions", asked(12), {{"x-api-key", "k1"}}).status, 299);
}

TEST_F(ApiTest, AdministrationNeedsAnAdminKeyOrWithoutKeysThisMachine) {
  const std::vector<std::pair<std::string, std::string>> routes = {
      {"GET", "/v1/admin/kv"}, {"POST", "/v1/admin/kv"}, {"POST", "/v1/cache/clear"}};
  const auto status = [&](const std::pair<std::string, std::string>& route,
                          std::vector<HttpHeader> headers) {
    const std::string body = route.second.ends_with("kv") ? R"({"memory":"1MiB"})" : "{}";
    return ask(route.first, route.second, route.first == "GET" ? "" : body, std::move(headers))
        .status;
  };
  for (const auto& route : routes) {
    local_ = true;
    start({});
    EXPECT_EQ(status(route, {{"host", "localhost:1"}}), 200);
    EXPECT_EQ(status(route, {{"host", "localhost:1"}, {"x-forwarded-for", "10.0.0.1"}}), 403);
    local_ = false;
    const HttpResponse far = ask(route.first, route.second, "{}");
    EXPECT_EQ(far.status, 403);
    EXPECT_EQ(body(far).at("error").at("type").as_string(), "invalid_request_error");
    start(*ApiKeys::from_text("user\nroot admin\n"));
    EXPECT_EQ(status(route, {}), 401);
    EXPECT_EQ(status(route, {{"x-api-key", "who"}}), 401);
    EXPECT_EQ(status(route, {{"x-api-key", "user"}}), 403);
    EXPECT_EQ(status(route, {{"x-api-key", "root"}}), 200);
    local_ = true;
    EXPECT_EQ(status(route, {}), 401) << "with a key file loopback alone is not enough";
    const HttpResponse refused =
        ask(route.first, route.second, "{}", {{"x-api-key", "user"}, {"anthropic-version", "x"}});
    EXPECT_EQ(body(refused).at("error").at("type").as_string(), "permission_error");
  }
}

TEST_F(ApiTest, ResizesThePoolInBytesOrWithUnitsAndRefusesTheRest) {
  EXPECT_EQ(body(ask("POST", "/v1/admin/kv", R"({"memory":"1.5GiB"})")).at("memory").as_int64(),
            1'610'612'730);
  EXPECT_EQ(ask("POST", "/v1/admin/kv", R"({"memory":4096})").status, 200);
  EXPECT_EQ(resized_, (std::vector<uint64_t>{1'610'612'736, 4096}));
  const HttpResponse conflict = ask("POST", "/v1/admin/kv", R"({"memory":50})");
  EXPECT_EQ(conflict.status, 409);
  EXPECT_EQ(body(conflict).at("error").at("message").as_string(), "3 blocks are in use");
  EXPECT_EQ(body(ask("POST", "/v1/admin/kv", R"({"memory":50})", {{"anthropic-version", "x"}}))
                .at("error")
                .at("type")
                .as_string(),
            "conflict_error");
  for (const std::string bad : {"{}", R"({"memory":null})", R"({"memory":0})", R"({"memory":-1})",
                                R"({"memory":1.5})", R"({"memory":"much"})", R"({"memory":[1]})",
                                R"({"blocks":4})", R"({"memory":"1GiB","blocks":4})", "[]"}) {
    EXPECT_EQ(ask("POST", "/v1/admin/kv", bad).status, 400) << bad;
  }
  EXPECT_EQ(resized_.size(), 4U);
  EXPECT_EQ(ask("PUT", "/v1/admin/kv", "{}").headers.back().value, "GET, HEAD, POST");
}

TEST_F(ApiTest, ClearsTheCacheOfOneNamespaceOrAll) {
  const json::value all = body(ask("POST", "/v1/cache/clear", "{}"));
  EXPECT_EQ(all.at("blocks_cleared").to_number<int>(), 7);
  EXPECT_EQ(all.at("leases_dropped").to_number<int>(), 2);
  ask("POST", "/v1/cache/clear", R"({"namespace":"tenant:acme"})");
  EXPECT_EQ(cleared_, (std::vector<std::string>{"(all)", "tenant:acme"}));
  EXPECT_EQ(ask("POST", "/v1/cache/clear", R"({"namespace":""})").status, 400);
  EXPECT_EQ(ask("POST", "/v1/cache/clear", R"({"name_space":"a"})").status, 400)
      << "a misspelt field must not clear everything";
  EXPECT_EQ(cleared_.size(), 2U);
}

TEST_F(ApiTest, ShowsAKeyItsOwnCacheAndAnAdministratorEveryones) {
  start(*ApiKeys::from_text("k1 tenant=acme name=one\nk2\nroot admin\n"));
  const json::value own = body(ask("GET", "/v1/cache/stats", "", {{"x-api-key", "k1"}}));
  EXPECT_EQ(own.at("namespace").as_string(), "tenant:acme");
  EXPECT_EQ(own.at("tokens").at("read").to_number<int>(), 1);
  EXPECT_EQ(own.at("hit_share").to_number<double>(), 0.25);
  EXPECT_EQ(own.at("leases").at(0).at("ttl").as_string(), "1h");
  EXPECT_EQ(own.at("leases").at(0).at("seconds_left").to_number<double>(), 2.5);
  EXPECT_FALSE(own.as_object().contains("namespaces"));
  const json::value none = body(ask("GET", "/v1/cache/stats", "", {{"x-api-key", "k2"}}));
  EXPECT_EQ(none.at("blocks").at("cached").to_number<int>(), 0);
  const json::value whole = body(ask("GET", "/v1/cache/stats", "", {{"x-api-key", "root"}}));
  EXPECT_EQ(whole.at("namespaces").as_array().size(), 2U);
  EXPECT_EQ(whole.at("namespaces").at(1).at("keys").at(0).as_string(), "one");
  EXPECT_EQ(whole.at("tokens").at("computed").to_number<int>(), 36);
  EXPECT_EQ(whole.at("blocks").at("pool").to_number<int>(), 10);
}

TEST_F(ApiTest, TellsAnAdministratorWhatOtherSizesOfMemoryWouldFind) {
  curve_.pool = pool_of(10, 1 << 20);
  engine::CurveFigures figures;
  figures.requests = 200;
  figures.prompt_tokens = 5000;
  figures.requests_counted = 100;
  figures.prompt_tokens_counted = 2500;
  figures.hit_rate = 0.5301;
  figures.enough = true;
  figures.predicted = {0.25, 0.5, 0.71, 0.8};
  figures.points = {{64, 0.125}, {640, 0.8}};
  figures.pool_tokens = 320;
  curve_.figures = figures;
  start(*ApiKeys::from_text("k1 tenant=acme\nroot admin\n"));
  EXPECT_EQ(ask("GET", "/v1/cache/curve", "", {{"x-api-key", "k1"}}).status, 403)
      << "it is made of everybody's traffic";
  const json::value curve = body(ask("GET", "/v1/cache/curve", "", {{"x-api-key", "root"}}));
  EXPECT_TRUE(curve.at("enough").as_bool());
  EXPECT_EQ(curve.at("summary").as_string(),
            "53 % of prompt tokens were read from the cache; predicted: 25 % with half the memory, "
            "50 % with this, 71 % with twice, 80 % with four times");
  EXPECT_EQ(curve.at("hit_rate").to_number<double>(), 0.5301);
  EXPECT_EQ(curve.at("pool_tokens").to_number<int>(), 320);
  const json::array& predictions = curve.at("predictions").as_array();
  ASSERT_EQ(predictions.size(), 4U);
  EXPECT_EQ(predictions[2].at("memory").as_string(), "2x");
  EXPECT_EQ(predictions[2].at("tokens").to_number<int>(), 640);
  EXPECT_EQ(predictions[2].at("bytes"), curve.at("pool_bytes").to_number<uint64_t>() * 2);
  EXPECT_EQ(predictions[2].at("hit_rate").to_number<double>(), 0.71);
  EXPECT_EQ(curve.at("points").at(0).at("tokens").to_number<int>(), 64);
}

TEST_F(ApiTest, SaysWhyThereIsNoPredictionRatherThanInventingOne) {
  const auto summary = [this] {
    const json::value curve = body(ask("GET", "/v1/cache/curve", ""));
    EXPECT_FALSE(curve.at("enough").as_bool());
    EXPECT_TRUE(curve.at("predictions").as_array().empty());
    EXPECT_TRUE(curve.at("points").as_array().empty());
    return std::string(curve.at("summary").as_string());
  };
  curve_.pool = pool_of(10, 1 << 20);
  EXPECT_EQ(summary(), "the curve is off: start without --cache-curve off");
  curve_.figures = engine::CurveFigures();
  curve_.figures->pool_tokens = 320;
  curve_.figures->requests = 99;
  EXPECT_EQ(summary(),
            "too little traffic to tell: 99 requests have looked into the cache, 100 are needed");
  curve_.figures->requests = 100;
  EXPECT_NE(summary().find("fewer than 256 blocks"), std::string::npos);
  curve_.figures.reset();
  curve_.prefix_cache = false;
  EXPECT_EQ(summary(), "the prefix cache is off: start without --no-prefix-cache");
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
