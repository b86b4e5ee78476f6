// SPDX-License-Identifier: Apache-2.0
// The classifier on pairs of prompts: written ones of every kind and of none, and drawn ones, over
// which its precision is counted.
#include "server/explain/classify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/prng.h"
#include "server/explain/plain_text.h"
#include "server/explain/shared_runs.h"

namespace pagewise::server::explain {
namespace {

const std::string kManual =
    "Guests are greeted at the door and led to the table by the window. The kitchen closes at the "
    "end of the shift, and every complaint is written into the blue book before the lights go out.";
const std::string kQuestion = "What happens when a guest complains about the soup?";

/// Words and marks as tokens: enough to count what is shared, and independent of any model.
std::vector<TokenId> tokens_of(const Document& document) {
  std::vector<TokenId> tokens;
  const auto add = [&](std::string_view piece) {
    tokens.emplace_back(static_cast<int32_t>(
        xxh3(std::as_bytes(std::span(piece.data(), piece.size()))) & 0x7fffffff));
  };
  for (const Block& block : document.blocks) {
    add("<" + block.role + ">");
    std::size_t at = 0;
    const std::string_view text = block.text;
    while (at < text.size()) {
      std::size_t end = at + (text[at] == ' ' ? 1 : 0);
      if (end < text.size() && is_word(text[end])) {
        while (end < text.size() && is_word(text[end])) ++end;
      } else {
        ++end;
      }
      add(text.substr(at, end - at));
      at = std::min(end, text.size());
    }
    add("</>");
  }
  return tokens;
}

Finding classify_pair(const Document& before, const Document& after) {
  const std::vector<TokenId> a = tokens_of(before), b = tokens_of(after);
  const auto parted = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  const auto shared = static_cast<std::size_t>(parted.first - a.begin());
  const bool part = shared < std::min(a.size(), b.size());
  const SharedRuns runs(std::span<const TokenId>(a).subspan(shared));
  return classify({before, after, runs.count(std::span<const TokenId>(b).subspan(shared)), part,
                   "<|im_start|>"});
}

std::string name_of(const Finding& finding) {
  return finding.cause ? std::string(cause_name(*finding.cause)) : "none";
}

Block system_block(std::string text, int32_t block = 0) {
  return {"system", std::move(text), {-1, block}};
}
Block user_block(std::string text, int32_t message = 0, int32_t block = 0) {
  return {"user", std::move(text), {message, block}};
}
Block answer_block(std::string text, int32_t message) {
  return {"assistant", std::move(text), {message, 0}};
}

/// The changing text in front of a manual, in the system turn.
Document instructions(const std::string& text, const std::string& question = kQuestion) {
  return {"m", {system_block(text + kManual), user_block(question)}};
}
/// One message, which is all there is.
Document question(const std::string& text) {
  return {"m", {system_block("You are a waiter."), user_block(text)}};
}

struct Pair {
  std::string_view kind;
  std::string before, after;
};

// In front of the manual.
const Pair kInstructionPairs[] = {
    {"time_stamp", "Current time: 2026-11-30T14:03:22Z\n", "Current time: 2026-11-30T14:05:10Z\n"},
    {"time_stamp", "now=2026-11-30T14:03:22.123+01:00 ", "now=2026-11-30T14:03:22.907+01:00 "},
    {"time_stamp", "2026-11-30 14:03:22,123 INFO ", "2026-11-30 14:03:23,001 INFO "},
    {"time_stamp", "Date: Mon, 30 Nov 2026 14:03:22 +0100\n",
     "Date: Tue, 01 Dec 2026 09:15:00 +0100\n"},
    {"time_stamp", "It is 14:03. ", "It is 14:05. "},
    {"time_stamp", "It is 2:03 PM now. ", "It is 11:45 AM now. "},
    {"time_stamp", "It's 9 am. ", "It's 10 am. "},
    {"time_stamp", "Timestamp: 1764450000\n", "Timestamp: 1764450412\n"},
    {"time_stamp", "ts=1764450000123 ", "ts=1764450001999 "},
    {"time_stamp", "t: 1764450000.123 ", "t: 1764450007.5 "},
    {"time_stamp", "Nov 30 14:03:22 host ", "Nov 30 14:04:01 host "},
    {"time_stamp", "Mon Nov 30 14:03:22 2026\n", "Mon Nov 30 14:03:59 2026\n"},
    {"time_stamp", "[20261130T140322Z] ", "[20261130T140501Z] "},
    {"time_stamp", "Es ist 14:03 Uhr. ", "Es ist 15:10 Uhr. "},
    {"time_stamp", "Time: 14:03 CET\n", "Time: 14:04 CET\n"},
    {"time_stamp", "Today is Monday, November 30, 2026, 14:03. ",
     "Today is Tuesday, December 1, 2026, 08:30. "},
    {"time_stamp", "Today is November 30, 2026 at 2:03 pm. ",
     "Today is November 30, 2026 at 4:11 pm. "},
    {"time_stamp", "snapshot 2026-11-30_14-03-22 ", "snapshot 2026-11-30_14-09-41 "},
    {"time_stamp", "Last seen 3 minutes ago. ", "Last seen 12 minutes ago. "},
    {"time_stamp", "Good morning! ", "Good evening! "},
    {"time_stamp", "{\"now\": \"2026-11-30T14:03:22\", \"lang\": \"en\"} ",
     "{\"now\": \"2026-11-30T18:44:02\", \"lang\": \"en\"} "},
    {"time_stamp", "2026/11/30 14:03 ", "2026/11/30 14:07 "},
    {"time_stamp", "Il est 14h03. ", "Il est 16h20. "},
    {"date", "Today is 2026-11-30.\n", "Today is 2026-12-01.\n"},
    {"date", "Heute ist der 30.11.2026. ", "Heute ist der 01.12.2026. "},
    {"date", "Datum: 30.11. ", "Datum: 01.12. "},
    {"date", "Today is Monday, November 30. ", "Today is Tuesday, December 1. "},
    {"date", "Today is Monday. ", "Today is Friday. "},
    {"date", "The date is 11/30/2026. ", "The date is 12/01/2026. "},
    {"date", "Current date: 30 November 2026\n", "Current date: 1 December 2026\n"},
    {"date", "Date: Nov 30, 2026\n", "Date: Dec 2, 2026\n"},
    {"date", "As of November 2026, ", "As of December 2026, "},
    {"date", "Nous sommes le 30 novembre 2026. ", "Nous sommes le 1 décembre 2026. "},
    {"date", "Hoy es lunes, 30 de noviembre de 2026. ", "Hoy es martes, 1 de diciembre de 2026. "},
    {"date", "今日は2026年11月30日です。", "今日は2026年12月1日です。"},
    {"date", "build of 20261130 ", "build of 20261201 "},
    {"date", "Week: 2026-W48 ", "Week: 2026-W49 "},
    {"date", "November 30th, 2026: ", "December 1st, 2026: "},
    {"date", "2026/11/30 - ", "2026/12/01 - "},
    {"id", "Session 7f3c2a9e-1b4d-4c8e-9f00-3d2e1a5b6c7d\n",
     "Session 0a9b8c7d-6e5f-4a3b-8c2d-1e0f9a8b7c6d\n"},
    {"id", "request_id: 4f9a2c81 ", "request_id: b07713de "},
    {"id", "x-anthropic-billing: cch=a1b2c; ", "x-anthropic-billing: cch=99f0e; "},
    {"id", "Nonce: 83120077. ", "Nonce: 11940263. "},
    {"id", "nonce=banana ", "nonce=cherry "},
    {"id", "trace 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 ",
     "trace 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01 "},
    {"id", "run 01ARZ3NDEKTSV4RRFFQ69G5FAV ", "run 01BX5ZZKBKACTAV9WEVGEMMVRZ "},
    {"id", "msg_01XFDUDYJgAACzvnptvVoYEL: ", "msg_01Aq9w938a90dw8qQZtL6k2R: "},
    {"id", "commit 9fceb02d0ae598e95dc970b74767f19372d61af8 ",
     "commit 2fd4e1c67a2d28fced849ee1bb76e7391b93eb12 "},
    {"id", "etag \"dGhpcyBpcyBhIHRlc3Q=\" ", "etag \"c29tZXRoaW5nIGVsc2U=\" "},
    {"id", "Your session id is 481516. ", "Your session id is 234299. "},
    {"id", "{\"session\": \"sess-8f3a11\", \"lang\": \"en\"} ",
     "{\"session\": \"sess-02bc77\", \"lang\": \"en\"} "},
    {"id", "User ID: 4711. ", "User ID: 9042. "},
    {"id", "conversation c-XkPq29Za ", "conversation c-Lm04TrVw "},
    {"id", "sessionId=V1StGXR8_Z5jdHi6B-myT ", "sessionId=J7kQpR2s_mNb4vCxZ-1aLd "},
    {"counter", "This is turn 17. ", "This is turn 18. "},
    {"counter", "Request #42: ", "Request #43: "},
    {"counter", "Step 3 of 9. ", "Step 4 of 9. "},
    {"counter", "Step 9 of 12. ", "Step 10 of 12. "},
    {"counter", "Step  9 of 12. ", "Step 10 of 12. "},
    {"counter", "attempt: 1\n", "attempt: 2\n"},
    {"counter", "You have 18,250 tokens left. ", "You have 17,901 tokens left. "},
    {"counter", "Unread messages: 3. ", "Unread messages: 17. "},
    {"counter", "Iteration 7/20 ", "Iteration 8/20 "},
    {"counter", "Message no. 99. ", "Message no. 100. "},
    {"counter", "{\"turn\": 4, \"mode\": \"chat\"} ", "{\"turn\": 5, \"mode\": \"chat\"} "},
    {"counter", "This is your third attempt. ", "This is your fourth attempt. "},
    {"counter", "call-12: ", "call-13: "},
    {"white_space", "You help guests.\n\n", "You help guests.\n"},
    {"white_space", "You help guests. ", "You help  guests. "},
    {"white_space", "You help guests.\nBe kind.\nBe brief.\n",
     "You help guests.\r\nBe kind.\r\nBe brief.\r\n"},
    {"white_space", "You help guests.\tBe kind. ", "You help guests.    Be kind. "},
    {"white_space", "You help\xC2\xA0guests. ", "You help guests. "},
    {"white_space", "\xEF\xBB\xBFYou help guests. ", "You help guests. "},
    {"white_space", "  You help guests. ", "You help guests. "},
    {"white_space", "You help guests. \n", "You help guests.\n"},
    {"white_space", "You help guests.\xE2\x80\x8B ", "You help guests. "},
    {"white_space", "{\"a\": 1, \"b\": [1, 2]} ", "{\"a\":1,\"b\":[1,2]} "},
    {"white_space", "{\n  \"a\": 1,\n  \"b\": 2\n} ", "{\"a\": 1, \"b\": 2} "},
    {"key_order", "{\"zeta\": 1, \"alpha\": {\"x\": 2}} ", "{\"alpha\": {\"x\": 2}, \"zeta\": 1} "},
    {"key_order", "Config: {\"a\":1,\"b\":{\"c\":2,\"d\":3}} ",
     "Config: {\"a\":1,\"b\":{\"d\":3,\"c\":2}} "},
    {"key_order", "{\"a\":1, \"b\":2} ", "{\"b\": 2,\n \"a\": 1} "},
    {"key_order", "{'b': 1, 'a': 2, 'c': 3} ", "{'a': 2, 'b': 1, 'c': 3} "},
    {"key_order", "name: Rita\nage: 41\ncity: Bonn\n", "city: Bonn\nname: Rita\nage: 41\n"},
    {"key_order", "lang=en&mode=chat&size=2 ", "mode=chat&size=2&lang=en "},
    {"key_order", "<user name=\"Rita\" age=\"41\"> ", "<user age=\"41\" name=\"Rita\"> "},
    {"key_order", "{\"required\": [\"a\", \"b\"]} ", "{\"required\": [\"b\", \"a\"]} "},
    {"tool_order",
     "Tools: "
     "[{\"name\":\"search\",\"description\":\"finds\"},{\"name\":\"read\",\"description\":"
     "\"opens\"}]\n",
     "Tools: "
     "[{\"name\":\"read\",\"description\":\"opens\"},{\"name\":\"search\",\"description\":"
     "\"finds\"}]\n"},
    {"tool_order",
     "{\"type\":\"function\",\"function\":{\"name\":\"a\"}}\n{\"type\":\"function\",\"function\":{"
     "\"name\":\"b\"}}\n",
     "{\"type\":\"function\",\"function\":{\"name\":\"b\"}}\n{\"type\":\"function\",\"function\":{"
     "\"name\":\"a\"}}\n"},
    {"tool_order",
     "You can use these tools:\n- search: finds pages\n- read: opens one\n- write: saves\n\n",
     "You can use these tools:\n- write: saves\n- search: finds pages\n- read: opens one\n\n"},
    {"tool_order", "<tool name=\"a\">finds</tool>\n<tool name=\"b\">opens</tool>\n",
     "<tool name=\"b\">opens</tool>\n<tool name=\"a\">finds</tool>\n"},
    {"tool_order",
     "{\"tools\":[{\"name\":\"a\",\"input_schema\":{\"x\":1,\"y\":2}},{\"name\":\"b\",\"input_"
     "schema\":{}}]} ",
     "{\"tools\":[{\"name\":\"b\",\"input_schema\":{}},{\"name\":\"a\",\"input_schema\":{\"y\":2,"
     "\"x\":1}}]} "},
    {"bos", "<s>You help guests. ", "You help guests. "},
    {"bos", "You help guests. ", "<|begin_of_text|>You help guests. "},
    {"bos", "You help guests. ", "<bos>You help guests. "},
    {"bos", "You help guests. ", "<|im_start|>You help guests. "},
    {"bos", "<s>You help guests. ", "<s><s>You help guests. "},
    {"bos", "<|endoftext|>\nYou help guests. ", "You help guests. "},
    {"template", "[INST] <<SYS>>\nYou help guests.\n<</SYS>>\n", "You help guests.\n"},
    {"template", "<|im_start|>system\nYou help guests.<|im_end|>\n", "You help guests.\n"},
    {"template", "### Instruction:\nYou help guests.\n", "You help guests.\n"},
    {"template", "# Rules\n\n* Be kind.\n* Be brief.\n\n",
     "<rules>\nBe kind.\nBe brief.\n</rules>\n\n"},
    {"moved", "The guest's name is Alice. ", "The guest's name is Bob. "},
    {"moved", "Document: The soup was cold on Sunday.\n\n",
     "Document: Two plates broke in the kitchen.\n\n"},
    {"moved", "Mood: cheerful. ", "Mood: grim. "},
    {"moved", "Temperature: 21.5 C. ", "Temperature: 19.0 C. "},
    {"moved", "Remember: he likes tea. ", ""},
};

TEST(Classify, NamesTheKindOfWhatChangesInFrontOfTheInstructions) {
  for (const Pair& pair : kInstructionPairs) {
    const std::string got =
        name_of(classify_pair(instructions(pair.before), instructions(pair.after)));
    EXPECT_EQ(got, pair.kind) << "before: " << pair.before << "\nafter:  " << pair.after;
    // It is the same cause whatever is asked behind it, and in the other direction.
    const std::string other =
        name_of(classify_pair(instructions(pair.before),
                              instructions(pair.after, "Who locks the door at night, and when?")));
    EXPECT_EQ(other, pair.kind) << "another question; before: " << pair.before;
    const std::string back =
        name_of(classify_pair(instructions(pair.after), instructions(pair.before)));
    EXPECT_EQ(back, pair.kind) << "the other way round; before: " << pair.after;
  }
  EXPECT_GE(std::size(kInstructionPairs), 100U);
}

// As the only message: where people ask.
const Pair kQuestionPairs[] = {
    {"none", "What is the capital of France?", "What is the capital of Spain?"},
    {"none", "What happened on 2026-11-30?", "What happened on 2026-12-01?"},
    {"none", "Summarise section 3.", "Summarise section 4."},
    {"none", "What is 17 + 4?", "What is 18 + 4?"},
    {"none", "Hello", "Goodbye"},
    {"none", "Please look up order 48213.", "Please look up order 91732."},
    {"none", "When does the train at 14:03 leave?", "When does the train at 15:10 leave?"},
    {"none", "Translate 'house' into German, please, in one word.",
     "Translate 'garden' into German, please, in one word."},
    {"none", "Is Monday a holiday?", "Is Friday a holiday?"},
    {"none", "Tell me about page 12 of the book.", "Tell me about page 13 of the book."},
    {"none", "Write a poem about the sea.", "Explain how a steam engine works, step by step."},
    {"none", "Who was born in 1912?", "Who was born in 1913?"},
    {"none", "Explain the third chapter.", "Explain the fourth chapter."},
    {"time_stamp", "[2026-11-30 14:03] What is on the menu?",
     "[2026-11-30 14:05] What is on the menu?"},
    {"time_stamp", "It is 14:03 now. What is on the menu?",
     "It is 14:05 now. What is on the menu?"},
    {"date", "Today is 2026-11-30. What is on the menu?",
     "Today is 2026-12-01. What is on the menu?"},
    {"id", "Session 7f3c2a9e: What is on the menu?", "Session 90b1c2d3: What is on the menu?"},
    {"counter", "Turn 17: What is on the menu?", "Turn 18: What is on the menu?"},
    {"white_space", "What is on the menu?", "What is on the menu? "},
    {"white_space", "What is on the menu?\n", "What is on the menu?"},
    {"bos", "What is on the menu?", "<s>What is on the menu?"},
    {"template", "What is on the menu?", "[INST] What is on the menu? [/INST]"},
    {"time_stamp", "It is 14:03. " + kManual + " Why?", "It is 14:05. " + kManual + " How?"},
    {"moved", "Page about fish. " + kManual, "Page about meat. " + kManual},
    {"moved", "How many? " + kManual, "Why at all? " + kManual},
};

TEST(Classify, LeavesHonestQuestionsAlone) {
  for (const Pair& pair : kQuestionPairs) {
    const std::string got = name_of(classify_pair(question(pair.before), question(pair.after)));
    EXPECT_EQ(got, pair.kind) << "before: " << pair.before << "\nafter:  " << pair.after;
  }
}

TEST(Classify, FindsNoCauseInWhatConversationsDo) {
  const Document first{"m", {system_block(kManual), user_block("Hello?")}};
  Document second = first;
  second.blocks.push_back(answer_block("Good day.", 1));
  second.blocks.push_back(user_block("And now?", 2));
  EXPECT_EQ(name_of(classify_pair(first, second)), "none") << "it goes on";
  EXPECT_EQ(name_of(classify_pair(second, first)), "none") << "it goes back";
  EXPECT_EQ(name_of(classify_pair(first, first)), "none");
  Document other = second;
  other.blocks[1].text = "May I smoke here?";
  other.blocks[2].text = "No, you may not.";
  EXPECT_EQ(name_of(classify_pair(second, other)), "none") << "another conversation";
  const Document elsewhere{
      "m", {system_block("You write poems about ships and the sea."), user_block("Now?")}};
  EXPECT_EQ(name_of(classify_pair(first, elsewhere)), "none") << "another application";
}

TEST(Classify, BlamesTheModelWhenNothingElseIsInTheWay) {
  Document before = instructions("You are kind. "), after = before;
  after.model = "another";
  EXPECT_EQ(name_of(classify_pair(before, after)), "model");
  EXPECT_EQ(name_of(classify_pair(before, instructions("You are kind. ", "And tea?"))), "none");
  after.blocks[1].text = "And is there tea?";
  EXPECT_EQ(name_of(classify_pair(before, after)), "model") << "with another question";
  after = instructions("It is 14:05. ");
  after.model = "another";
  EXPECT_EQ(name_of(classify_pair(instructions("It is 14:03. "), after)), "time_stamp");
}

TEST(Classify, TellsTheSameTextsInOtherTurns) {
  const Block question = user_block(kQuestion), manual = system_block(kManual);
  const Document plain{"m", {manual, question}};
  const auto kind = [&](const Document& before, const Document& after) {
    EXPECT_EQ(name_of(classify_pair(after, before)), name_of(classify_pair(before, after)));
    return name_of(classify_pair(before, after));
  };
  EXPECT_EQ(kind(plain, {"m", {question}}), "template") << "the system turn goes";
  EXPECT_EQ(kind(plain, {"m", {user_block(kManual), user_block(kQuestion, 1)}}), "template");
  EXPECT_EQ(kind(plain, {"m", {user_block(kManual + "\n\n" + kQuestion)}}), "template");
  EXPECT_EQ(kind({"m", {manual, user_block("One.\nTwo.")}},
                 {"m", {manual, user_block("One."), user_block("Two.", 0, 1)}}),
            "template")
      << "one block or two";
  EXPECT_EQ(
      kind({"m", {manual, question, answer_block("It is taken back.", 1), user_block("Why?", 2)}},
           {"m", {manual, question, user_block("It is taken back.", 1), user_block("Why?", 2)}}),
      "template")
      << "another role";
}

TEST(Classify, SeesSharedTextBehindChangingText) {
  const std::string page_a = "Alpine huts open in June and close when the first snow falls.";
  const std::string page_b = "Harbours need pilots who know the tides and the sand banks.";
  const auto documents = [&](std::vector<std::string> texts, bool system) {
    Document document{"m", {}};
    for (std::size_t i = 0; i < texts.size(); ++i) {
      document.blocks.push_back(system ? system_block(texts[i], static_cast<int32_t>(i))
                                       : user_block(texts[i], 0, static_cast<int32_t>(i)));
    }
    document.blocks.push_back(user_block(kQuestion, system ? 0 : 1));
    return document;
  };
  for (const bool system : {true, false}) {
    EXPECT_EQ(name_of(classify_pair(documents({page_a, kManual}, system),
                                    documents({page_b, kManual}, system))),
              "moved")
        << "retrieved text in front of the manual";
    EXPECT_EQ(name_of(classify_pair(documents({page_a, page_b, kManual}, system),
                                    documents({page_b, page_a, kManual}, system))),
              "moved")
        << "swapped";
    EXPECT_EQ(name_of(classify_pair(documents({page_a, kManual}, system),
                                    documents({kManual, page_a}, system))),
              "moved");
  }
  EXPECT_EQ(name_of(classify_pair({"m", {system_block("Be brief."), system_block("Be kind.", 1)}},
                                  {"m", {system_block("Be kind."), system_block("Be brief.", 1)}})),
            "moved");
}

TEST(Classify, LetsTheFirstDifferenceDecide) {
  EXPECT_EQ(name_of(classify_pair(instructions("Session 7f3c2a9e at 14:03:22. "),
                                  instructions("Session 90b1c2d3 at 14:05:10. "))),
            "id");
  EXPECT_EQ(name_of(classify_pair(instructions("It is 14:03. Session 7f3c2a9e. "),
                                  instructions("It is 14:05. Session 90b1c2d3. "))),
            "time_stamp");
  EXPECT_EQ(name_of(classify_pair(instructions("Be kind. \nIt is 14:03. "),
                                  instructions("Be kind.\nIt is 14:05. "))),
            "white_space");
  EXPECT_EQ(
      name_of(classify_pair({"m", {system_block("It is 14:03. " + kManual), user_block("Hi")}},
                            {"m", {system_block(kManual), user_block("Hi")}})),
      "time_stamp")
      << "there once, then not";
}

TEST(Classify, SaysWhereTheTextsPart) {
  const Finding finding = classify_pair(instructions("Zeit: 14:03 "), instructions("Zeit: 14:05 "));
  EXPECT_EQ(finding.block, 0U);
  EXPECT_EQ(finding.offset, 10U);
  const Finding character = classify_pair(question("für \xC3\xA4"), question("für \xC3\xB6"));
  EXPECT_EQ(character.block, 1U);
  EXPECT_EQ(character.offset, 5U) << "between characters";
}

// ---- Drawn pairs ------------------------------------------------------------------------------

class Drawn {
 public:
  explicit Drawn(uint64_t seed) : prng_(seed) {}

  uint64_t below(uint64_t n) { return prng_.below(n); }
  template <std::size_t N>
  std::string pick(const std::array<const char*, N>& list) {
    return list[below(N)];
  }
  std::string digits(uint64_t value, std::size_t width) {
    std::string text = std::to_string(value);
    return std::string(text.size() < width ? width - text.size() : 0, '0') + text;
  }
  std::string letters(std::string_view alphabet, std::size_t count) {
    std::string out;
    for (std::size_t i = 0; i < count; ++i) out += alphabet[below(alphabet.size())];
    return out;
  }
  std::string words(std::size_t count) {
    static constexpr std::array<const char*, 24> kWords = {
        "harbour", "window", "letter", "garden", "engine",  "paper",  "river",  "quiet",
        "copper",  "lamp",   "bridge", "winter", "answer",  "corner", "bread",  "signal",
        "captain", "forest", "market", "silver", "station", "pencil", "valley", "blanket"};
    std::string out;
    for (std::size_t i = 0; i < count; ++i) out += (i == 0 ? "" : " ") + pick(kWords);
    return out;
  }
  std::string sentence(std::size_t count) {
    std::string out = words(count);
    out[0] = static_cast<char>(out[0] - 'a' + 'A');
    return out + ". ";
  }

 private:
  Prng prng_;
};

constexpr std::array<const char*, 12> kMonthNames = {
    "January", "February", "March",     "April",   "May",      "June",
    "July",    "August",   "September", "October", "November", "December"};
constexpr std::array<const char*, 7> kDayNames = {"Monday", "Tuesday",  "Wednesday", "Thursday",
                                                  "Friday", "Saturday", "Sunday"};

std::string draw_date(Drawn& d, uint64_t form) {
  const std::string year = d.digits(2020 + d.below(10), 4), month = d.digits(1 + d.below(12), 2),
                    day = d.digits(1 + d.below(28), 2);
  const std::string name = kMonthNames[d.below(12)];
  switch (form % 6) {
    case 0:
      return year + "-" + month + "-" + day;
    case 1:
      return day + "." + month + "." + year;
    case 2:
      return month + "/" + day + "/" + year;
    case 3:
      return name + " " + std::to_string(1 + d.below(28)) + ", " + year;
    case 4:
      return std::string(kDayNames[d.below(7)]) + ", " + name + " " +
             std::to_string(1 + d.below(28));
    default:
      return std::to_string(1 + d.below(28)) + " " + name.substr(0, 3) + " " + year;
  }
}
std::string draw_time(Drawn& d, uint64_t form) {
  const std::string hour = d.digits(d.below(24), 2), minute = d.digits(d.below(60), 2),
                    second = d.digits(d.below(60), 2);
  switch (form % 7) {
    case 0:
      return draw_date(d, 0) + "T" + hour + ":" + minute + ":" + second + "Z";
    case 1:
      return hour + ":" + minute;
    case 2:
      return draw_date(d, 1) + " " + hour + ":" + minute + ":" + second;
    case 3:
      return std::to_string(1'600'000'000 + d.below(200'000'000));
    case 4:
      return std::to_string(1'600'000'000'000 + d.below(200'000'000'000));
    case 5:
      return std::to_string(1 + d.below(12)) + ":" + minute + (d.below(2) == 0 ? " AM" : " PM");
    default:
      return draw_date(d, 3) + " at " + hour + ":" + minute;
  }
}
std::string draw_id(Drawn& d, uint64_t form) {
  const std::string_view hex = "0123456789abcdef";
  const std::string_view wide = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  switch (form % 5) {
    case 0:
      return d.letters(hex, 8) + "-" + d.letters(hex, 4) + "-4" + d.letters(hex, 3) + "-a" +
             d.letters(hex, 3) + "-" + d.letters(hex, 12);
    case 1:
      return d.letters(hex, 32);
    case 2:
      return "req_" + d.letters(wide, 22);
    case 3:
      return d.letters("0123456789ABCDEFGHJKMNPQRSTVWXYZ", 26);
    default:
      return d.letters(wide, 16) + "==";
  }
}

struct DrawnPair {
  std::string kind, before, after;
};

/// Two openings of a kind, between words that both share.
DrawnPair draw_opening(Drawn& d, uint64_t kind) {
  const std::string head = d.below(2) == 0 ? "" : d.sentence(3 + d.below(6));
  const std::string tail = d.below(2) == 0 ? ". " : "\n";
  const auto pair = [&](std::string name, const std::string& label, const std::string& a,
                        const std::string& b) {
    return DrawnPair{std::move(name), head + label + a + tail, head + label + b + tail};
  };
  switch (kind) {
    case 0: {
      const uint64_t form = d.below(7);
      return pair("time_stamp",
                  d.pick(std::array{"Current time: ", "It is ", "now = ", "Timestamp: ", "As of "}),
                  draw_time(d, form), draw_time(d, form));
    }
    case 1: {
      const uint64_t form = d.below(6);
      return pair("date", d.pick(std::array{"Today is ", "Current date: ", "Date: ", "date="}),
                  draw_date(d, form), draw_date(d, form));
    }
    case 2: {
      const uint64_t form = d.below(5);
      return pair(
          "id", d.pick(std::array{"Session: ", "request id ", "trace=", "Conversation ", "ref: "}),
          draw_id(d, form), draw_id(d, form));
    }
    case 3: {
      const uint64_t number = 1 + d.below(400);
      return pair("counter",
                  d.pick(std::array{"Turn ", "Step ", "message #", "attempt ", "Iteration "}),
                  std::to_string(number), std::to_string(number + 1 + d.below(5)));
    }
    case 4: {
      std::string words = d.sentence(12);
      std::string other = words;
      const std::size_t space = other.find(' ', other.size() / 3);
      other.replace(space, 1, d.pick(std::array{"  ", "\n", "\t", "\xC2\xA0", " \r\n"}));
      return pair("white_space", "", words, other);
    }
    case 5: {
      std::vector<std::string> members;
      for (uint64_t i = 0, n = 3 + d.below(4); i < n; ++i)
        members.push_back(
            "\"" + d.words(1) + std::to_string(i) +
            "\": " + (d.below(2) == 0 ? std::to_string(d.below(99)) : "\"" + d.words(2) + "\""));
      std::vector<std::string> turned(members.begin() + 1, members.end());
      turned.push_back(members.front());
      const auto join = [](const std::vector<std::string>& list) {
        std::string out = "{";
        for (std::size_t i = 0; i < list.size(); ++i) out += (i == 0 ? "" : ", ") + list[i];
        return out + "}";
      };
      return pair("key_order", "Settings: ", join(members), join(turned));
    }
    default:
      return pair("moved", "About: ", d.sentence(6 + d.below(10)), d.sentence(6 + d.below(10)));
  }
}

TEST(Classify, IsPreciseOnDrawnPairs) {
  constexpr uint64_t kSeed = 20261130;
  std::printf("seed %llu\n", static_cast<unsigned long long>(kSeed));
  Drawn d(kSeed);
  std::map<std::string, int> asked, right, claimed, claimed_right;
  std::string first_wrong;
  constexpr int kPairs = 4000;
  for (int i = 0; i < kPairs; ++i) {
    std::string kind;
    Document before, after;
    if (d.below(4) == 0) {
      kind = "none";  // the same instructions, another question
      const std::string shared = d.sentence(30);
      const auto asks = [&] {
        return d.sentence(4 + d.below(8)) + "What about the " + d.words(1) + "?";
      };
      before = {"m", {system_block(shared), user_block(asks())}};
      after = {"m", {system_block(shared), user_block(asks())}};
      if (before.blocks[1].text == after.blocks[1].text) continue;
    } else {
      const DrawnPair pair = draw_opening(d, d.below(7));
      if (pair.before == pair.after) continue;
      kind = pair.kind;
      const std::string manual = d.sentence(25);
      before = {"m", {system_block(pair.before + manual), user_block(d.sentence(5))}};
      after = {"m", {system_block(pair.after + manual), user_block(d.sentence(5))}};
    }
    const std::string got = name_of(classify_pair(before, after));
    ++asked[kind];
    ++claimed[got];
    right[kind] += got == kind;
    claimed_right[got] += got == kind;
    if (got != kind && first_wrong.size() < 3000)
      first_wrong += kind + " taken for " + got + ":\n  " + before.blocks[0].text + "\n  " +
                     after.blocks[0].text + "\n";
  }
  int all = 0, all_right = 0;
  for (const auto& [kind, count] : asked) {
    std::printf("%-12s %5d pairs, recall %.4f, precision %.4f\n", kind.c_str(), count,
                static_cast<double>(right[kind]) / count,
                claimed[kind] == 0 ? 0 : static_cast<double>(claimed_right[kind]) / claimed[kind]);
    EXPECT_GE(right[kind], count * 97 / 100) << kind << "\n" << first_wrong;
    EXPECT_GE(claimed_right[kind], claimed[kind] * 97 / 100) << kind << "\n" << first_wrong;
    all += count;
    all_right += right[kind];
  }
  std::printf("all          %5d pairs, right %.4f\n", all, static_cast<double>(all_right) / all);
  EXPECT_GE(all_right, all * 99 / 100) << first_wrong;
}

}  // namespace
}  // namespace pagewise::server::explain
