// SPDX-License-Identifier: Apache-2.0
// What is remembered of prompts, which of them is nearest, where texts part, which places are told
// of; tokens are bytes here, so that everything can be counted by hand.
#include "server/explain/explanation.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/byte_tokenizer_for_tests.h"
#include "server/explain/explainer.h"
#include "server/explain/misses.h"
#include "server/http_client.h"
#include "server/json_text.h"

namespace pagewise::server::explain {
namespace {

const std::string kManual =
    "Guests are led to the table by the window, and the soup is served hot. ";

/// A prompt whose template writes "<role>" in front of each block.
Asked asked_of(std::vector<Block> blocks, std::string model = "m") {
  Asked asked{{std::move(model), std::move(blocks)}, {}, {}};
  for (const Block& block : asked.document.blocks) {
    for (const TokenId token : byte_tokenizer().encode("<" + block.role + ">" + block.text, false))
      asked.tokens.push_back(token);
    asked.ends.push_back(static_cast<uint32_t>(asked.tokens.size()));
  }
  return asked;
}
Asked asked_of(std::string system, std::string question, std::string model = "m") {
  return asked_of({{"system", std::move(system), {-1, 0}}, {"user", std::move(question), {0, 0}}},
                  std::move(model));
}
PromptHistory::Entry remembered(const Asked& asked, std::string id, TimeNs at = 0) {
  auto out = std::make_shared<Remembered>();
  out->id = std::move(id);
  out->document = asked.document;
  out->tokens = asked.tokens;
  out->ends = asked.ends;
  out->at = at;
  return out;
}

TEST(PromptHistory, KeepsTheLastPromptsOfEachNamespaceForAnHour) {
  PromptHistory history;
  history.add("a", remembered(asked_of("s", "one"), "1", 0), 0);
  history.add("a", remembered(asked_of("s", "two"), "2", 5), 5);
  history.add("b", remembered(asked_of("s", "three"), "3", 5), 5);
  const auto recent = history.recent("a", 5);
  ASSERT_EQ(recent.size(), 2U);
  EXPECT_EQ(recent[0]->id, "2") << "newest first";
  EXPECT_EQ(history.recent("a", 5, 1).size(), 1U);
  EXPECT_TRUE(history.recent("c", 5).empty());
  EXPECT_EQ(history.recent("a", PromptHistory::kKeep).size(), 1U);
  EXPECT_TRUE(history.recent("a", PromptHistory::kKeep + 5).empty());
  EXPECT_EQ(history.bytes(), 0U) << "nothing is left of any namespace";
}

TEST(PromptHistory, IsBoundedInPromptsAndBytes) {
  PromptHistory history;
  for (std::size_t i = 0; i < 2 * PromptHistory::kPromptsMaxNamespace; ++i) {
    history.add("small", remembered(asked_of("s", "q"), std::to_string(i), 1), 1);
  }
  EXPECT_EQ(history.recent("small", 1).size(), PromptHistory::kPromptsMaxNamespace);
  const auto large = remembered(asked_of(std::string(800'000, 'x'), "q"), "large", 2);
  for (int i = 0; i < 40; ++i) history.add("large", large, 2);
  EXPECT_LE(history.recent("large", 2).size() * large->bytes(), PromptHistory::kBytesMaxNamespace);
  EXPECT_FALSE(history.recent("small", 2).empty()) << "one namespace does not push out another";
  for (int space = 0; space < 8; ++space) {
    for (int i = 0; i < 4; ++i) history.add("space " + std::to_string(space), large, 3);
  }
  EXPECT_LE(history.bytes(), PromptHistory::kBytesMax);
  EXPECT_TRUE(history.recent("small", 3).empty()) << "the oldest go first";
  history.add("huge", remembered(asked_of(std::string(5'000'000, 'x'), "q"), "huge", 4), 4);
  EXPECT_TRUE(history.recent("huge", 4).empty()) << "too large to be kept at all";
}

TEST(PromptHistory, ForgetsANamespaceAndThoseBelowIt) {
  PromptHistory history;
  for (const char* name : {"acct", "acct/salt", "acct2"}) {
    history.add(name, remembered(asked_of("s", "q"), "x", 1), 1);
  }
  history.clear("acct");
  EXPECT_TRUE(history.recent("acct", 1).empty());
  EXPECT_TRUE(history.recent("acct/salt", 1).empty());
  EXPECT_EQ(history.recent("acct2", 1).size(), 1U);
  history.clear();
  EXPECT_EQ(history.bytes(), 0U);
}

std::string nearest_id(const Asked& asked, const std::vector<PromptHistory::Entry>& candidates) {
  const auto nearest = find_nearest(asked, candidates, 0, {}, byte_tokenizer());
  return nearest && nearest->prompt ? nearest->prompt->id : "none";
}

TEST(Nearest, IsThePromptThatSharesMostWhereverItStands) {
  const std::string other = "Bicycles stand behind the chapel, and the key hangs at the gate. ";
  const std::vector<PromptHistory::Entry> candidates = {
      remembered(asked_of("It is 14:02. " + other, "When?"), "same beginning"),
      remembered(asked_of("At 9 am. " + kManual, "When?"), "same manual"),
  };
  EXPECT_EQ(nearest_id(asked_of("It is 14:05. " + kManual, "Who?"), candidates), "same manual");
  EXPECT_EQ(nearest_id(asked_of("It is 14:05. " + other, "Who?"), candidates), "same beginning");
  EXPECT_EQ(nearest_id(asked_of("x", "y"), {}), "none");
}

TEST(Nearest, PrefersTheSameQuestionTheSameModelAndTheNewest) {
  const Asked asked = asked_of(kManual + "B", "What about the soup?");
  EXPECT_EQ(nearest_id(asked, {remembered(asked_of(kManual, "Else?"), "other question"),
                               remembered(asked_of(kManual + "A", "What about the soup?"),
                                          "same question")}),
            "same question");
  EXPECT_EQ(
      nearest_id(asked, {remembered(asked_of(kManual + "B", "What about tea?", "n"), "other model"),
                         remembered(asked_of(kManual + "A", "What about tea?"), "same model")}),
      "same model");
  EXPECT_EQ(nearest_id(asked, {remembered(asked_of(kManual + "B", "Why?"), "newer"),
                               remembered(asked_of(kManual + "B", "Why?"), "older")}),
            "newer");
}

TEST(Nearest, KnowsAnswersThatOnlyTheCacheHolds) {
  const Asked first = asked_of(kManual, "Who?");
  const Asked next = asked_of({{"system", kManual, {-1, 0}},
                               {"user", "Who?", {0, 0}},
                               {"assistant", "The  waiter, of course.", {1, 0}},
                               {"user", "When?", {2, 0}}});
  std::vector<TokenId> cached = first.tokens;
  for (const TokenId token : byte_tokenizer().encode("<assistant>The waiter, of course.", false))
    cached.push_back(token);
  const auto matched = static_cast<uint32_t>(
      std::mismatch(cached.begin(), cached.end(), next.tokens.begin()).first - cached.begin());
  const std::vector<PromptHistory::Entry> candidates = {remembered(first, "first")};
  const auto nearest =
      find_nearest(next, candidates, matched, std::span(cached).subspan(matched), byte_tokenizer());
  ASSERT_TRUE(nearest.has_value());
  EXPECT_EQ(nearest->prompt->id, "first");
  ASSERT_EQ(nearest->document.blocks.size(), 3U);
  EXPECT_EQ(nearest->document.blocks[2].role, "assistant");
  // Without a history the tokens alone are compared.
  const auto bare =
      find_nearest(next, {}, matched, std::span(cached).subspan(matched), byte_tokenizer());
  ASSERT_TRUE(bare.has_value());
  EXPECT_EQ(bare->prompt, nullptr);
  EXPECT_EQ(bare->shared_tokens, matched);
  EXPECT_EQ(explain(next, *bare, matched, byte_tokenizer(), "").cause, Cause::kWhiteSpace);
}

TEST(Explain, ShowsValidTextOnBothSidesCutBetweenCharacters) {
  // The two differ in the second byte of a character: the whole character is what differs.
  const std::string rest(300, 'y');
  std::string wide;
  for (int i = 0; i < 60; ++i) wide += "\xC3\xBC";
  const Asked before = asked_of(wide + "\xC3\xA4 " + kManual + rest, "Who?");
  const Asked after = asked_of(wide + "\xC3\xB6 " + kManual + rest, "Who?");
  const auto nearest =
      find_nearest(after, std::vector{remembered(before, "b")}, 0, {}, byte_tokenizer());
  const Explanation found = explain(after, *nearest, 0, byte_tokenizer(), "");
  ASSERT_TRUE(found.divergence.has_value());
  EXPECT_TRUE(found.divergence->cached_text.starts_with("\xC3\xA4 Guests"));
  EXPECT_TRUE(found.divergence->request_text.starts_with("\xC3\xB6 Guests"));
  for (const std::string& text :
       {found.divergence->context, found.divergence->cached_text, found.divergence->request_text}) {
    EXPECT_TRUE(is_valid_utf8(text));
    EXPECT_EQ(text.find("\xEF\xBF\xBD"), std::string::npos)
        << "no replacement characters: " << text;
    EXPECT_LE(text.size(), 164U);
  }
  EXPECT_EQ(found.cause, Cause::kMoved);
  EXPECT_GE(found.gain_tokens, 370U);
  EXPECT_LT(found.gain_tokens, after.tokens.size() - found.divergence->token);
}

TEST(MissLog, TellsOfAPlaceOnceAndThenNotForAWhile) {
  MissLog log;
  const Miss miss{"system.0", Cause::kTimeStamp, 12, 300};
  const TimeNs second = 1'000'000'000;
  EXPECT_FALSE(log.add("key:1/fedcba9876543210", miss, 0));
  EXPECT_FALSE(log.add("key:1/fedcba9876543210", miss, second));
  EXPECT_TRUE(log.list(std::nullopt, second).empty()) << "twice is no habit";
  const auto line = log.add("key:1/fedcba9876543210", miss, 2 * second);
  ASSERT_TRUE(line.has_value());
  EXPECT_NE(line->find("system.0 (token 12), 3 times: time_stamp"), std::string::npos) << *line;
  EXPECT_NE(line->find("namespace key:1/fedcba98 "), std::string::npos) << *line;
  for (int i = 3; i < 500; ++i) EXPECT_FALSE(log.add("key:1/fedcba9876543210", miss, i * second));
  EXPECT_TRUE(log.add("key:1/fedcba9876543210", miss, 2 * second + MissLog::kTellAgain));
  EXPECT_FALSE(log.add("key:1/fedcba9876543210", {"system.0", Cause::kId, 12, 300}, 2 * second));
}

TEST(MissLog, ListsPlacesOfANamespaceMostLostFirstAndForgetsQuietOnes) {
  MissLog log;
  for (int i = 0; i < 4; ++i) {
    log.add("a", {"messages.0.content.0", Cause::kId, 7, 50}, i);
    log.add("a/salt", {"system.0", Cause::kDate, 3, 500}, i);
    log.add("b", {"system.0", Cause::kCounter, 3, 900}, i);
  }
  const json::array listed = log.list("a", 10);
  ASSERT_EQ(listed.size(), 2U);
  EXPECT_EQ(listed[0].at("cause"), "date");
  EXPECT_EQ(listed[0].at("lost_tokens").to_number<int>(), 2000);
  EXPECT_EQ(listed[1].at("path"), "messages.0.content.0");
  EXPECT_EQ(listed[1].at("misses").to_number<int>(), 4);
  EXPECT_EQ(log.list(std::nullopt, 10).size(), 3U);
  log.clear("a");
  EXPECT_EQ(log.list(std::nullopt, 10).size(), 1U);
  EXPECT_TRUE(log.list(std::nullopt, 3 + MissLog::kKeep).empty());
}

TEST(PrefillSpeed, IsWhatTheLastPromptsTook) {
  PrefillSpeed speed;
  EXPECT_FALSE(speed.token_ms().has_value());
  speed.add(100, 200'000'000);
  EXPECT_DOUBLE_EQ(*speed.token_ms(), 2.0);
  speed.add(2, 80'000'000);
  EXPECT_DOUBLE_EQ(*speed.token_ms(), 2.0) << "too short to say anything";
  for (int i = 0; i < 100; ++i) speed.add(8192, 8192 * TimeNs{1'000'000});
  EXPECT_NEAR(*speed.token_ms(), 1.0, 0.01) << "what was long ago fades";
}

TEST(FormatOf, DecidesByTheBodysFields) {
  const auto format = [](std::string body, std::vector<HttpHeader> headers = {}) {
    HttpRequest request;
    request.headers = std::move(headers);
    return format_of(request, parse_json(body)->as_object());
  };
  const std::string user = R"({"role":"user","content":"q"})";
  for (const std::string& body : std::vector<std::string>{
           R"({"system":"s","messages":[]})", R"({"cache_control":{"type":"ephemeral"}})",
           R"({"messages":[{"role":"user","content":[{"type":"document"}]}]})",
           R"({"route":"/v1/messages","messages":[{"role":"system","content":"s"}]})",
           R"({"tools":[{"name":"a","input_schema":{}}]})"}) {
    EXPECT_EQ(format(body), Format::kMessages) << body;
  }
  for (const std::string& body : std::vector<std::string>{
           R"({"messages":[{"role":"system","content":"s"}]})",
           R"({"messages":[{"role":"developer","content":"s"}]})", R"({"messages":[)" + user + "]}",
           R"({"route":"/v1/chat/completions","system":"s"})",
           R"({"tools":[{"type":"function","function":{"name":"a"}}]})"}) {
    EXPECT_EQ(format(body), Format::kChat) << body;
  }
  EXPECT_EQ(format(R"({"messages":[)" + user + "]}", {{"anthropic-version", "2023-06-01"}}),
            Format::kMessages);
}

TEST(ServerUrl, TakesAddressesApartAndSaysWhatIsWrong) {
  const auto url = parse_server_url("http://[::1]:8080/v1/");
  ASSERT_TRUE(url.has_value());
  EXPECT_EQ(url->host, "::1");
  EXPECT_EQ(url->port, "8080");
  EXPECT_EQ(url->prefix, "") << "a base URL as clients have it";
  EXPECT_EQ(parse_server_url("localhost")->port, "80");
  EXPECT_EQ(parse_server_url("http://h:1/sub/")->prefix, "/sub");
  for (const char* wrong : {"https://h", "ftp://h", "http://", "http://h:x", "http://[::1",
                            "http://h:", "http://h/?a=b", ""}) {
    EXPECT_FALSE(parse_server_url(wrong).has_value()) << wrong;
  }
}

}  // namespace
}  // namespace pagewise::server::explain
