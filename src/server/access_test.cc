// SPDX-License-Identifier: Apache-2.0
// Keys, namespaces, model names, diagnostics: small rules with sharp edges.
#include <gtest/gtest.h>

#include "server/admin_access.h"
#include "server/anthropic/parse.h"
#include "server/api_keys.h"
#include "server/diagnostics.h"
#include "server/key_limits.h"
#include "server/served_model.h"

namespace pagewise::server {
namespace {

ApiKeys keys_of(std::string_view text) {
  auto keys = ApiKeys::from_text(text);
  EXPECT_TRUE(keys.has_value()) << keys.status().error().message;
  return *std::move(keys);
}
std::string refusal_of(std::string_view text) {
  const auto keys = ApiKeys::from_text(text, "team.keys");
  EXPECT_FALSE(keys.has_value());
  return keys.has_value() ? "" : keys.error().message;
}

TEST(ApiKeys, ReadsOneKeyALineAndSkipsComments) {
  const ApiKeys keys = keys_of("# team\nalpha\n\n  beta  # spare\r\n#gamma\n");
  EXPECT_TRUE(keys.configured());
  EXPECT_NE(keys.find("alpha"), nullptr);
  EXPECT_NE(keys.find("beta"), nullptr);
  EXPECT_EQ(keys.find("gamma"), nullptr);
  EXPECT_EQ(keys.find(""), nullptr);
  EXPECT_EQ(keys.find("alph"), nullptr);
}

TEST(ApiKeys, SkipsAByteOrderMarkAndKeepsANumberSignInsideAKey) {
  const ApiKeys keys = keys_of(
      "\xEF\xBB\xBF"
      "alpha\nbe#ta #x\ngamma\t# y\n");
  EXPECT_NE(keys.find("alpha"), nullptr);
  EXPECT_NE(keys.find("be#ta"), nullptr);
  EXPECT_NE(keys.find("gamma"), nullptr);
  EXPECT_EQ(keys.find("be"), nullptr);
  EXPECT_FALSE(keys_of("\xEF\xBB\xBF# nothing\n").configured());
}

TEST(ApiKeys, ReadsWhatAKeyMayDoBehindIt) {
  const ApiKeys keys = keys_of(
      "alpha name=ci tenant=acme max-requests=4 max-tokens=20000 # a comment\n"
      "beta\tadmin  name=ops.1\n"
      "gamma\n");
  const ApiKey& alpha = *keys.find("alpha");
  EXPECT_EQ(alpha.name, "ci");
  EXPECT_EQ(alpha.tenant, "acme");
  EXPECT_EQ(alpha.requests_max, 4U);
  EXPECT_EQ(alpha.tokens_max, 20000U);
  EXPECT_FALSE(alpha.admin);
  const ApiKey& beta = *keys.find("beta");
  EXPECT_TRUE(beta.admin);
  EXPECT_EQ(beta.name, "ops.1");
  EXPECT_EQ(beta.requests_max, 0U);
  EXPECT_EQ(keys.find("gamma")->index, 2U);
}

TEST(ApiKeys, RefusesWhatItDoesNotUnderstandWithFileAndLine) {
  EXPECT_EQ(refusal_of("alpha\nbeta max-request=3\n"),
            "team.keys:2: unknown attribute 'max-request='; known are name=, tenant=, public, "
            "max-requests=, max-tokens=, floor=, ceiling= and admin, each behind the key");
  EXPECT_EQ(refusal_of("alpha\n\n# x\nbeta\nalpha name=x\n"),
            "team.keys:5: the same key as on line 1: remove one");
  EXPECT_EQ(refusal_of("alpha admin admin"), "team.keys:1: 'admin' stands there twice: remove one");
  EXPECT_EQ(refusal_of("alpha admin=yes"), "team.keys:1: 'admin' takes no value");
  for (const std::string number : {"", "0", "-1", "1.5", "4x", "1e3", "99999999999999999999"}) {
    EXPECT_EQ(refusal_of("alpha max-requests=" + number),
              "team.keys:1: max-requests= takes a whole number from 1 to 1000000");
    EXPECT_EQ(refusal_of("alpha max-tokens=" + number),
              "team.keys:1: max-tokens= takes a whole number from 1 to 9007199254740992");
  }
  for (const std::string& name :
       std::vector<std::string>{"", "a/b", "a=b", "\xC3\xA4", std::string(65, 'a')}) {
    EXPECT_EQ(refusal_of("alpha tenant=" + name),
              "team.keys:1: tenant= takes 1 to 64 letters, digits, '.', '_' and '-'");
  }
  for (const std::string count : {"", "0", "-1", "25%", "1GiB", "1.5", "1000000001"}) {
    for (const std::string name : {"floor", "ceiling"}) {
      EXPECT_EQ(refusal_of("alpha " + name + "=" + count),
                "team.keys:1: " + name + "= takes a whole number from 1 to 1000000000");
    }
  }
  EXPECT_EQ(refusal_of("alpha public=yes"), "team.keys:1: 'public' takes no value");
}

TEST(ApiKeys, RefusesWhatContradictsItself) {
  EXPECT_EQ(refusal_of("alpha public tenant=t"),
            "team.keys:1: 'public' and tenant= exclude each other: the keys marked 'public' share "
            "one cache");
  EXPECT_EQ(refusal_of("alpha floor=30 ceiling=20"), "team.keys:1: floor=30 is above ceiling=20");
  EXPECT_EQ(refusal_of("a tenant=t floor=30\nb tenant=t\nc tenant=t ceiling=20\n"),
            "team.keys:3: floor=30 is above ceiling=20");
  EXPECT_EQ(refusal_of("a tenant=t floor=30\nb tenant=t floor=40\n"),
            "team.keys:2: another floor= than on line 1, for the same cache: say it once");
  EXPECT_EQ(refusal_of("a public ceiling=30\nb ceiling=40\nc public ceiling=40\n"),
            "team.keys:3: another ceiling= than on line 1, for the same cache: say it once");
}

TEST(ApiKeys, FloorsAndCeilingsAreThoseOfTheAccount) {
  const ApiKeys keys = keys_of(
      "a tenant=t floor=30\nb tenant=t ceiling=90\nc tenant=t floor=30\nd\ne ceiling=7\n"
      "f public\ng public floor=5\n");
  const auto quotas = keys.quotas();
  ASSERT_EQ(quotas.size(), 3U);
  EXPECT_EQ(quotas[0].name, "tenant:t");
  EXPECT_EQ(quotas[0].floor_blocks, 30U);
  EXPECT_EQ(quotas[0].ceiling_blocks, 90U);
  EXPECT_EQ(quotas[1].name, keys.find("e")->account());
  EXPECT_EQ(quotas[1].floor_blocks, 0U);
  EXPECT_EQ(quotas[1].ceiling_blocks, 7U);
  EXPECT_EQ(quotas[2].name, "public");
  EXPECT_EQ(quotas[2].floor_blocks, 5U);
  EXPECT_TRUE(keys_of("a\nb tenant=t\n").quotas().empty());
}

TEST(ApiKeys, KeysMarkedPublicAreOneAccountAndNobodyElseIs) {
  const ApiKeys keys = keys_of("a public\nb name=n public admin\nc tenant=public\nd name=public\n");
  EXPECT_EQ(keys.find("a")->account(), "public");
  EXPECT_EQ(keys.find("b")->account(), "public");
  EXPECT_EQ(keys.find("c")->account(), "tenant:public");
  EXPECT_TRUE(keys.find("d")->account().starts_with("key:"));
  // A workspace and a salt narrow what is public as they narrow everything.
  EXPECT_NE(cache_namespace("public", "w", ""), cache_namespace("public", "", ""));
  EXPECT_NE(cache_namespace("public", "", "s"), cache_namespace("public", "", ""));
}

TEST(ApiKeys, NeverRepeatsWhatMayBeAKey) {
  for (const std::string line : {"alpha sk-S3CRET", "alpha sk-S3CRET=", "alpha S3CRET name=a"}) {
    const std::string message = refusal_of(line);
    EXPECT_EQ(message.find("alpha"), std::string::npos) << message;
    EXPECT_EQ(message.find("S3CRET"), std::string::npos) << message;
  }
}

TEST(ApiKeys, KeysOfOneTenantAreOneAccountAndOthersOneEach) {
  const ApiKeys keys = keys_of("a tenant=t\nb tenant=t\nc\nd\ntenant:t\n");
  EXPECT_EQ(keys.find("a")->account(), keys.find("b")->account());
  EXPECT_NE(keys.find("c")->account(), keys.find("d")->account());
  EXPECT_NE(keys.find("a")->account(), keys.find("tenant:t")->account());
  for (const ApiKey& key : keys.all()) {
    EXPECT_EQ(key.account().find('/'), std::string::npos);
  }
  EXPECT_EQ(keys.find("c")->account().find_first_not_of("0123456789abcdef", 4), std::string::npos)
      << "a digest, not the key";
}

TEST(ApiKeys, NamesADirectoryAsOne) {
  const auto keys = ApiKeys::from_file("/");
  ASSERT_FALSE(keys.has_value());
  EXPECT_EQ(keys.error().message, "/: a directory; give a file with one key a line");
}

TEST(ApiKeys, RefusesAFileWithoutAKeyOrWithoutAFile) {
  EXPECT_FALSE(ApiKeys::from_file("/nonexistent/keys").has_value());
  EXPECT_FALSE(keys_of("# nothing\n").configured());
}

ApiKey limited(uint32_t requests, uint64_t tokens) {
  ApiKey key;
  key.requests_max = requests;
  key.tokens_max = tokens;
  return key;
}

TEST(KeyLimits, CountsRequestsUntilTheirTicketsComeBack) {
  KeyLimits limits(2);
  const ApiKey key = limited(2, 0);
  ApiKey other = limited(1, 0);
  other.index = 1;
  auto one = limits.enter(key);
  auto two = limits.enter(key);
  ASSERT_TRUE(one && two);
  const auto three = limits.enter(key);
  ASSERT_FALSE(three);
  EXPECT_EQ(three.error().kind, ErrorKind::kRateLimited);
  EXPECT_NE(three.error().message.find("2 requests"), std::string::npos);
  EXPECT_TRUE(limits.enter(other)) << "another key has its own";
  KeyLimits::Ticket moved = std::move(*one);
  EXPECT_FALSE(limits.enter(key)) << "moving gives nothing back";
  moved.give_back();
  moved.give_back();
  auto again = limits.enter(key);
  EXPECT_TRUE(again);
  EXPECT_FALSE(limits.enter(key));
  *again = KeyLimits::Ticket();
  EXPECT_TRUE(limits.enter(key));
}

TEST(KeyLimits, CountsTheTokensThatRequestsMayComeTo) {
  KeyLimits limits(1);
  const ApiKey key = limited(0, 100);
  auto one = limits.enter(key);
  ASSERT_TRUE(one);
  EXPECT_FALSE(limits.take_tokens(*one, key, 40, 20).has_value());
  auto two = limits.enter(key);
  ASSERT_TRUE(two);
  const auto refused = limits.take_tokens(*two, key, 30, 11);
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->kind, ErrorKind::kTokensLimited);
  EXPECT_EQ(refused->message,
            "this request may take 41 tokens (30 of the prompt, 11 to generate); this key may have "
            "100 under way at once (max-tokens), and 60 are taken: try again when a request has "
            "ended, or ask for fewer");
  EXPECT_FALSE(limits.take_tokens(*two, key, 30, 10).has_value());
  one->give_back();
  auto three = limits.enter(key);
  EXPECT_FALSE(limits.take_tokens(*three, key, 60, 0).has_value());
}

TEST(KeyLimits, LowersMaxTokensToWhatTheKeyCanEverHaveAndRefusesAPromptThatIsMore) {
  const ApiKey key = limited(0, 100);
  EXPECT_EQ(*tokens_allowed(key, 40, 1, 10), 10U);
  EXPECT_EQ(*tokens_allowed(key, 40, 1, 1'000'000), 60U);
  EXPECT_EQ(*tokens_allowed(key, 40, 4, 1'000'000), 15U);
  EXPECT_EQ(*tokens_allowed(key, 100, 1, 0), 0U);
  const auto refused = tokens_allowed(key, 100, 1, 5);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::kInvalidRequest) << "waiting would not help";
  EXPECT_NE(refused.error().message.find("101 tokens (100 of the prompt)"), std::string::npos);
  EXPECT_EQ(*tokens_allowed(limited(0, 0), 1'000'000, 1, 7), 7U);
}

HttpRequest local_request() {
  HttpRequest request;
  request.peer_is_loopback = true;
  request.headers = {{"Host", "127.0.0.1:8080"}};
  return request;
}

TEST(AdminAccess, TakesProgramsOnThisMachineAndNobodyWhomTheyPassOn) {
  EXPECT_EQ(why_not_local(local_request()), "");
  HttpRequest request = local_request();
  request.peer_is_loopback = false;
  EXPECT_EQ(why_not_local(request), "it comes over the network");
  for (const std::string header :
       {"X-Forwarded-For", "Forwarded", "X-Real-IP", "Via", "x-forwarded-proto"}) {
    request = local_request();
    request.headers.push_back({header, "127.0.0.1"});
    EXPECT_NE(why_not_local(request), "") << header;
  }
}

TEST(AdminAccess, RefusesWebPagesOfOtherOriginsAndNamesThatOnlyResolveHere) {
  HttpRequest request = local_request();
  request.headers.push_back({"Origin", "https://example.org"});
  EXPECT_NE(why_not_local(request), "");
  request.headers.back().value = "null";
  EXPECT_NE(why_not_local(request), "");
  request.headers.back().value = "http://127.0.0.1:8080";
  EXPECT_EQ(why_not_local(request), "");
  for (const std::string host : {"rebound.example:8080", "127.0.0.1.example", "10.0.0.1:80"}) {
    request = local_request();
    request.headers[0].value = host;
    EXPECT_NE(why_not_local(request), "") << host;
  }
  for (const std::string host :
       {"localhost", "localhost:8080", "[::1]:8080", "[::1]", "127.1.2.3"}) {
    request.headers[0].value = host;
    EXPECT_EQ(why_not_local(request), "") << host;
  }
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
  EXPECT_TRUE(plain.starts_with("k/")) << "an account's namespaces are below its name";
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
    auto request = anthropic::parse_messages_request(parsed);
    EXPECT_TRUE(request) << body;
    Prompt prompt;
    prompt.positions = {{3}};
    prompt.tokens.resize(8);
    return make_fingerprint(*request, prompt);
  };
  const Fingerprint plain = of("{}");
  EXPECT_EQ(reason(compare(plain, of(R"({"speed":"fast"})"))), "model_changed");
  const auto tools = [&](std::string first, std::string second) {
    const auto tool = [](const std::string& more) {
      return R"({"input_schema":{"type":"object"},)" + more + "}";
    };
    return of(R"({"tools":[)" + tool(first) + "," + tool(second) + "]}");
  };
  const Fingerprint two = tools(R"("name":"a")", R"("name":"b")");
  EXPECT_EQ(reason(compare(plain, two)), "tools_changed");
  EXPECT_EQ(reason(compare(two, tools(R"("name":"b")", R"("name":"a")"))), "tools_changed");
  EXPECT_TRUE(
      compare(two, tools(R"("name":"a")", R"("name":"b","cache_control":{"type":"ephemeral"})"))
          .is_null())
      << "a marker is no part of what is asked";
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
