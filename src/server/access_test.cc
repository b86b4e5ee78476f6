// SPDX-License-Identifier: Apache-2.0
// Keys, namespaces, model names, diagnostics: small rules with sharp edges.
#include <gtest/gtest.h>

#include "server/anthropic/parse.h"
#include "server/api_keys.h"
#include "server/diagnostics.h"
#include "server/served_model.h"

namespace pagewise::server {
namespace {

TEST(ApiKeys, ReadsOneKeyALineAndSkipsComments) {
  const ApiKeys keys = ApiKeys::from_text("# team\nalpha\n\n  beta  # spare\r\n#gamma\n");
  EXPECT_TRUE(keys.configured());
  EXPECT_TRUE(keys.accepts("alpha"));
  EXPECT_TRUE(keys.accepts("beta"));
  EXPECT_FALSE(keys.accepts("gamma"));
  EXPECT_FALSE(keys.accepts(""));
  EXPECT_FALSE(keys.accepts("alph"));
}

TEST(ApiKeys, SkipsAByteOrderMarkAndKeepsANumberSignInsideAKey) {
  const ApiKeys keys = ApiKeys::from_text(
      "\xEF\xBB\xBF"
      "alpha\nbe#ta #x\ngamma\t# y\n");
  EXPECT_TRUE(keys.accepts("alpha"));
  EXPECT_TRUE(keys.accepts("be#ta"));
  EXPECT_TRUE(keys.accepts("gamma"));
  EXPECT_FALSE(keys.accepts("be"));
  EXPECT_FALSE(ApiKeys::from_text("\xEF\xBB\xBF# nothing\n").configured());
}

TEST(ApiKeys, NamesADirectoryAsOne) {
  const auto keys = ApiKeys::from_file("/");
  ASSERT_FALSE(keys.has_value());
  EXPECT_EQ(keys.error().message, "/: a directory; give a file with one key a line");
}

TEST(ApiKeys, RefusesAFileWithoutAKeyOrWithoutAFile) {
  EXPECT_FALSE(ApiKeys::from_file("/nonexistent/keys").has_value());
  EXPECT_FALSE(ApiKeys::from_text("# nothing\n").configured());
}

TEST(PresentedKey, ComesFromEitherHeaderAndXApiKeyWins) {
  HttpRequest request;
  EXPECT_FALSE(presented_key(request).has_value());
  request.headers = {{"Authorization", "bearer  k1 "}};
  EXPECT_EQ(presented_key(request), "k1");
  request.headers.push_back({"X-Api-Key", "k2"});
  EXPECT_EQ(presented_key(request), "k2");
  request.headers = {{"authorization", "Basic abc"}};
  EXPECT_FALSE(presented_key(request).has_value());
  request.headers = {{"authorization", "Bearer "}};
  EXPECT_FALSE(presented_key(request).has_value());
}

TEST(CacheNamespace, DiffersByKeyWorkspaceAndSaltAndTakesAnEmptySaltAsNone) {  // C09
  const std::string plain = cache_namespace("k", "", "");
  EXPECT_EQ(plain, cache_namespace("k", "", ""));
  EXPECT_NE(plain, cache_namespace("j", "", ""));
  EXPECT_NE(plain, cache_namespace("k", "w", ""));
  EXPECT_NE(plain, cache_namespace("k", "", "s"));
  EXPECT_NE(cache_namespace("k", "w", ""), cache_namespace("k", "", "w"));
  EXPECT_NE(cache_namespace("ab", "c", ""), cache_namespace("a", "bc", ""));
  EXPECT_EQ(plain.find('k'), std::string::npos);  // the key itself goes nowhere
}

TEST(Alias, MatchesGlobsOverTheWholeName) {
  EXPECT_TRUE(glob_match("claude-*", "claude-sonnet-5"));
  EXPECT_FALSE(glob_match("claude-*", "my-claude-x"));
  EXPECT_TRUE(glob_match("*", ""));
  EXPECT_TRUE(glob_match("g?t-*-x*", "gpt-4-x-mini"));
  EXPECT_FALSE(glob_match("g?t", "gpt-4"));
  EXPECT_TRUE(glob_match("a*b*c", "a-b-b-c"));
  EXPECT_FALSE(glob_match("a*b*c", "a-b-b"));
  EXPECT_FALSE(glob_match("", "x"));
}

TEST(Alias, ListsPlainNamesAndAnswersToGlobs) {
  ServedModel model;
  model.name = "real";
  model.aliases = {"gpt-*", "claude-local"};
  EXPECT_TRUE(model.answers_to("real"));
  EXPECT_TRUE(model.answers_to("gpt-5"));
  EXPECT_TRUE(model.answers_to("claude-local"));
  EXPECT_FALSE(model.answers_to("other"));
  EXPECT_EQ(model.listed_names(), (std::vector<std::string>{"real", "claude-local"}));
}

Fingerprint fingerprint(std::string system, std::vector<std::string> users,
                        std::string model = "m") {
  GenerationRequest request;
  request.model = std::move(model);
  Prompt prompt;
  uint32_t at = 10;
  if (!system.empty()) {
    request.turns.push_back({"system", {{system, std::nullopt}}});
    prompt.positions.push_back({at});
  }
  for (const std::string& user : users) {
    request.turns.push_back({"user", {{user, std::nullopt}}});
    prompt.positions.push_back({at += 10});
  }
  prompt.tokens.resize(at + 5);
  return make_fingerprint(request, prompt);
}

std::string reason(const json::value& answer) {
  return std::string(answer.at("cache_miss_reason").at("type").as_string());
}

TEST(Diagnostics, NamesTheEarliestDifference) {  // B13
  const Fingerprint before = fingerprint("s", {"a", "b"});
  EXPECT_TRUE(compare(before, fingerprint("s", {"a", "b", "c"})).is_null());
  EXPECT_EQ(reason(compare(before, fingerprint("t", {"a", "b"}))), "system_changed");
  EXPECT_EQ(reason(compare(before, fingerprint("s", {"a", "b"}, "n"))), "model_changed");
  const json::value changed = compare(before, fingerprint("s", {"a", "x", "c"}));
  EXPECT_EQ(reason(changed), "messages_changed");
  // 45 tokens, kept to the end of "a" at 20.
  EXPECT_EQ(changed.at("cache_miss_reason").at("cache_missed_input_tokens").to_number<int>(), 25);
}

TEST(Diagnostics, TellsToolsSpeedAndOtherParametersApart) {  // B13
  const auto of = [](std::string body) {
    json::object parsed = parse_json(body)->as_object();
    parsed["model"] = "m";
    parsed["max_tokens"] = 5000;
    parsed["messages"] = {{{"role", "user"}, {"content", "q"}}};
    parsed["diagnostics"] = {{"previous_message_id", nullptr}};
    const bool tools = parsed.contains("tools");
    json::value sent = tools ? parsed["tools"] : nullptr;
    parsed.erase("tools");  // not offered by the route so far
    auto request = anthropic::parse_messages_request(parsed);
    EXPECT_TRUE(request) << body;
    if (tools) request->diagnostics->tools = json::serialize(sent);
    Prompt prompt;
    prompt.positions = {{3}};
    prompt.tokens.resize(8);
    return make_fingerprint(*request, prompt);
  };
  const Fingerprint plain = of("{}");
  EXPECT_EQ(reason(compare(plain, of(R"({"speed":"fast"})"))), "model_changed");
  EXPECT_EQ(reason(compare(plain, of(R"({"tools":[{"name":"a"}]})"))), "tools_changed");
  EXPECT_EQ(reason(compare(plain, of(R"({"thinking":{"type":"adaptive"}})"))), "unavailable");
  EXPECT_EQ(reason(compare(plain, of(R"({"output_config":{"effort":"low"}})"))), "unavailable");
  EXPECT_EQ(reason(compare(plain, of(R"({"system":"s","thinking":{"type":"adaptive"}})"))),
            "system_changed")
      << "what comes first in a prompt is said first";
  // What is left out is what it means.
  for (const char* usual :
       {R"({"speed":"standard"})", R"({"speed":null})", R"({"thinking":{"type":"disabled"}})",
        R"({"output_config":{"effort":"high"}})",
        R"({"temperature":0.5,"stop_sequences":["x"],"stream":true})"}) {
    EXPECT_TRUE(compare(plain, of(usual)).is_null()) << usual;
  }
  EXPECT_FALSE(compare(plain, of(R"({"thinking":{"type":"adaptive"}})"))
                   .at("cache_miss_reason")
                   .as_object()
                   .contains("cache_missed_input_tokens"));
}

TEST(Diagnostics, IsBoundedInDepthAndInMemory) {
  std::vector<std::string> deep(Fingerprint::kBlocksMax + 1, "a");
  const Fingerprint long_one = fingerprint("s", deep);
  deep.emplace_back("b");
  EXPECT_EQ(reason(compare(long_one, fingerprint("s", deep))), "unavailable");
  deep[7] = "changed";
  EXPECT_EQ(reason(compare(long_one, fingerprint("s", deep))), "messages_changed");
  DiagnosticsLog log;
  for (int i = 0; i < 1000; ++i) log.exchange("ns", "", "msg_" + std::to_string(i), long_one, i);
  EXPECT_LE(log.size() * long_one.bytes(), DiagnosticsLog::kBytesMax);
  EXPECT_GT(log.size(), 300U);
  EXPECT_EQ(reason(log.exchange("ns", "msg_0", "x", fingerprint("s", {"a"}), 1000)),
            "previous_message_not_found");
  EXPECT_TRUE(log.exchange("ns", "msg_999", "y", long_one, 1000).is_object());
}

TEST(Diagnostics, KnowsOnlyItsOwnNamespaceAndTheLastHour) {
  DiagnosticsLog log;
  EXPECT_TRUE(log.exchange("ns", "", "msg_1", fingerprint("s", {"a"}), 0).is_null());
  EXPECT_TRUE(log.exchange("ns", "msg_1", "msg_2", fingerprint("s", {"a", "b"}), 1).is_null());
  EXPECT_EQ(reason(log.exchange("other", "msg_1", "msg_3", fingerprint("s", {"a"}), 2)),
            "previous_message_not_found");
  EXPECT_EQ(reason(log.exchange("ns", "msg_1", "msg_4", fingerprint("s", {"a"}),
                                DiagnosticsLog::kKeep + 1)),
            "previous_message_not_found");
}

}  // namespace
}  // namespace pagewise::server
