// SPDX-License-Identifier: Apache-2.0
// Calls of tools in answers of both APIs, streamed and whole: the same whichever way they come.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/prng.h"
#include "server/byte_tokenizer_for_tests.h"
#include "server/respond.h"

namespace pagewise::server {
namespace {

using engine::Delta;
using engine::FinishReason;

const std::string kTwoCalls =
    "Let me look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"x y\"}}\n</tool_call>\n"
    "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";

ResponseContext context(Format format) {
  ResponseContext out;
  out.format = format;
  out.model = "asked";
  out.request_id = "req_1";
  out.id = "id_1";
  out.tokenizer = &byte_tokenizer();
  out.calls = CallRules{tools::Family::kHermes, {"f", "g"}, false};
  return out;
}

/// `text` in pieces of about `size` bytes, and the end.
std::vector<Delta> deltas(std::string_view text, std::size_t size,
                          FinishReason finish = FinishReason::kStop) {
  std::vector<Delta> out;
  while (!text.empty()) {
    Delta& delta = out.emplace_back();
    delta.text = text.substr(0, size);
    delta.completion_tokens = static_cast<uint32_t>(out.size());
    text.remove_prefix(std::min(size, text.size()));
  }
  out.emplace_back().finish = finish;
  return out;
}

json::object whole(ResponseContext context, std::vector<Delta> all) {
  auto writer = make_whole_writer(std::move(context));
  writer->admitted(0, {});
  for (Delta& delta : all) writer->delta(std::move(delta));
  return writer->finished({});
}

std::vector<json::value> streamed(ResponseContext context, const std::vector<Delta>& all) {
  auto writer = make_stream_writer(std::move(context));
  std::string out;
  writer->admitted(0, {}, out);
  for (const Delta& delta : all) writer->delta(delta, out);
  writer->finished({}, out);
  std::vector<json::value> events;
  for (std::size_t at = 0; (at = out.find("data: ", at)) != std::string::npos;) {
    const std::size_t end = out.find('\n', at);
    const std::string_view data = std::string_view(out).substr(at + 6, end - at - 6);
    if (data != "[DONE]") events.push_back(*parse_json(data));
    at = end;
  }
  return events;
}

/// What a client of the chat route puts together from chunks, in the form of the whole message.
json::object assembled_chat(const std::vector<json::value>& chunks) {
  std::string content, finish;
  json::array calls;
  for (const json::value& chunk : chunks) {
    const json::value& choice = chunk.at("choices").at(0);
    const json::object& delta = choice.at("delta").as_object();
    if (const json::value* text = delta.if_contains("content")) {
      content += std::string_view(text->as_string());
    }
    if (const json::value* pieces = delta.if_contains("tool_calls")) {
      for (const json::value& piece : pieces->as_array()) {
        const auto index = piece.at("index").to_number<std::size_t>();
        if (const json::value* id = piece.as_object().if_contains("id")) {
          EXPECT_EQ(index, calls.size());
          EXPECT_EQ(piece.at("type").as_string(), "function");
          EXPECT_EQ(piece.at("function").at("arguments").as_string(), "");
          calls.push_back(
              json::object{{"id", *id}, {"type", "function"}, {"function", piece.at("function")}});
        } else {
          EXPECT_FALSE(piece.at("function").as_object().contains("name"));
          json::value& arguments = calls.at(index).at("function").at("arguments");
          arguments = std::string(arguments.as_string()) +
                      std::string(piece.at("function").at("arguments").as_string());
        }
      }
    }
    if (!choice.at("finish_reason").is_null()) {
      finish = std::string(choice.at("finish_reason").as_string());
    }
  }
  json::object out{{"content", content}, {"tool_calls", calls}, {"finish_reason", finish}};
  return out;
}

json::object of_whole_chat(const json::object& answer) {
  const json::value& choice = answer.at("choices").at(0);
  const json::object& message = choice.at("message").as_object();
  const json::value* calls = message.if_contains("tool_calls");
  const json::value& content = message.at("content");
  return {{"content", content.is_null() ? json::value("") : content},
          {"tool_calls", calls == nullptr ? json::value(json::array()) : *calls},
          {"finish_reason", choice.at("finish_reason")}};
}

/// The same for the messages route.
json::object assembled_message(const std::vector<json::value>& events) {
  json::array content;
  std::string partial, stop;
  for (const json::value& event : events) {
    const std::string_view type(event.at("type").as_string());
    if (type == "content_block_start") {
      EXPECT_EQ(event.at("index").to_number<std::size_t>(), content.size());
      content.push_back(event.at("content_block"));
      partial.clear();
    } else if (type == "content_block_delta") {
      EXPECT_EQ(event.at("index").to_number<std::size_t>() + 1, content.size());
      const json::value& delta = event.at("delta");
      json::value& block = content.back();
      if (delta.at("type").as_string() == "text_delta") {
        block.at("text") =
            std::string(block.at("text").as_string()) + std::string(delta.at("text").as_string());
      } else {
        partial += std::string_view(delta.at("partial_json").as_string());
      }
    } else if (type == "content_block_stop") {
      json::object& block = content.back().as_object();
      if (block.at("type").as_string() == "text") {
        block["citations"] = nullptr;
      } else {
        const auto parsed = parse_json(partial);
        block["input"] = parsed ? *parsed : *parse_json(tools::closed_json(partial));
      }
    } else if (type == "message_delta") {
      stop = std::string(event.at("delta").at("stop_reason").as_string());
    }
  }
  return {{"content", content}, {"stop_reason", stop}};
}

json::object of_whole_message(const json::object& answer) {
  return {{"content", answer.at("content")}, {"stop_reason", answer.at("stop_reason")}};
}

TEST(RespondTools, GivesCallsInTheChatForm) {
  const json::object answer = whole(context(Format::kChat), deltas(kTwoCalls, 3));
  const json::value& choice = answer.at("choices").at(0);
  EXPECT_EQ(choice.at("finish_reason").as_string(), "tool_calls");
  const json::value& message = choice.at("message");
  EXPECT_EQ(message.at("content").as_string(), "Let me look.");
  const json::array& calls = message.at("tool_calls").as_array();
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls[0].at("type").as_string(), "function");
  EXPECT_EQ(calls[0].at("function").at("name").as_string(), "f");
  EXPECT_EQ(calls[0].at("function").at("arguments").as_string(), R"({"a": "x y"})");
  EXPECT_EQ(calls[1].at("function").at("arguments").as_string(), "{}");
  std::set<std::string> ids;
  for (const json::value& call : calls) {
    const std::string id(call.at("id").as_string());
    EXPECT_TRUE(id.starts_with("call_")) << id;
    ids.insert(id);
  }
  EXPECT_EQ(ids.size(), 2U);
  // Nothing said: no content, as the vendor has it; and no calls: none are named.
  const json::object only = whole(context(Format::kChat), deltas(kTwoCalls.substr(13), 3));
  EXPECT_TRUE(only.at("choices").at(0).at("message").at("content").is_null());
  const json::object none = whole(context(Format::kChat), deltas("No.", 3));
  EXPECT_FALSE(none.at("choices").at(0).at("message").as_object().contains("tool_calls"));
  EXPECT_EQ(none.at("choices").at(0).at("finish_reason").as_string(), "stop");
}

TEST(RespondTools, GivesCallsInTheMessagesForm) {
  const json::object answer = whole(context(Format::kMessages), deltas(kTwoCalls, 3));
  EXPECT_EQ(answer.at("stop_reason").as_string(), "tool_use");
  const json::array& content = answer.at("content").as_array();
  ASSERT_EQ(content.size(), 3U);
  EXPECT_EQ(content[0].at("text").as_string(), "Let me look.");
  EXPECT_EQ(content[1].at("type").as_string(), "tool_use");
  EXPECT_EQ(content[1].at("name").as_string(), "f");
  EXPECT_EQ(json::serialize(content[1].at("input")), R"({"a":"x y"})");
  EXPECT_TRUE(content[1].at("id").as_string().starts_with("toolu_"));
  EXPECT_TRUE(content[2].at("input").as_object().empty());
}

TEST(RespondTools, SaysThatALimitCutACall) {
  const std::string text =
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"x\", \"b\": \"yy";
  const auto cut = deltas(text, 5, FinishReason::kLength);
  const json::object chat = whole(context(Format::kChat), cut);
  EXPECT_EQ(chat.at("choices").at(0).at("finish_reason").as_string(), "length");
  EXPECT_EQ(chat.at("choices")
                .at(0)
                .at("message")
                .at("tool_calls")
                .at(0)
                .at("function")
                .at("arguments")
                .as_string(),
            R"({"a": "x", "b": "yy)");
  const json::object message = whole(context(Format::kMessages), cut);
  EXPECT_EQ(message.at("stop_reason").as_string(), "max_tokens");
  EXPECT_EQ(json::serialize(message.at("content").at(0).at("input")), R"({"a":"x"})");
  EXPECT_EQ(assembled_message(streamed(context(Format::kMessages), cut)),
            of_whole_message(message));
  EXPECT_EQ(assembled_chat(streamed(context(Format::kChat), cut)), of_whole_chat(chat));
}

TEST(RespondTools, LeavesTextAloneWhereNoToolMayBeCalled) {
  ResponseContext without = context(Format::kChat);
  without.calls.reset();
  const json::object answer = whole(without, deltas(kTwoCalls, 4));
  EXPECT_EQ(answer.at("choices").at(0).at("message").at("content").as_string(), kTwoCalls);
  EXPECT_EQ(answer.at("choices").at(0).at("finish_reason").as_string(), "stop");
}

TEST(RespondTools, GivesLogprobsOfEveryTokenOnce) {
  ResponseContext with = context(Format::kChat);
  with.logprobs = true;
  std::vector<Delta> all = deltas(kTwoCalls, 4);
  std::size_t tokens = 0;
  for (Delta& delta : all) {
    if (delta.text.empty()) continue;
    engine::TokenOutput token;
    token.bytes = delta.text;
    token.sampled.token = TokenId('a');
    delta.tokens.push_back(token);
    ++tokens;
  }
  std::size_t told = 0;
  for (const json::value& chunk : streamed(with, all)) {
    const json::value& logprobs = chunk.at("choices").at(0).at("logprobs");
    if (!logprobs.is_null()) told += logprobs.at("content").as_array().size();
  }
  EXPECT_EQ(told, tokens);
  EXPECT_EQ(whole(with, all).at("choices").at(0).at("logprobs").at("content").as_array().size(),
            tokens);
}

TEST(RespondTools, StreamsWhatTheWholeAnswerSays) {
  static const char* const kPieces[] = {"words ",
                                        "\n",
                                        "<tool_call>",
                                        "</tool_call>",
                                        "{\"name\": \"f\", \"arguments\": {\"a\": 1}}",
                                        "{\"name\":",
                                        "\"g\"}",
                                        "é",
                                        "<tool",
                                        "{\"name\": \"nobody\"}"};
  const char* given = std::getenv("PAGEWISE_SEED");
  const uint64_t first = given == nullptr ? 1 : std::strtoull(given, nullptr, 10);
  const uint64_t runs = given == nullptr ? 2'000 : 1;
  for (uint64_t seed = first; seed < first + runs; ++seed) {
    SCOPED_TRACE(testing::Message() << "PAGEWISE_SEED=" << seed);
    Prng prng(seed);
    std::string text;
    for (uint64_t pieces = prng.below(8); pieces > 0; --pieces) {
      text += kPieces[prng.below(std::size(kPieces))];
    }
    const FinishReason finish = prng.below(3) == 0 ? FinishReason::kLength : FinishReason::kStop;
    const auto pieces = deltas(text, 1 + prng.below(9), finish);
    const auto other = deltas(text, 1 + prng.below(9), finish);
    for (const bool certain : {false, true}) {
      ResponseContext chat = context(Format::kChat), claude = context(Format::kMessages);
      chat.calls->certain = claude.calls->certain = certain;
      ASSERT_EQ(assembled_chat(streamed(chat, pieces)), of_whole_chat(whole(chat, other))) << text;
      ASSERT_EQ(assembled_message(streamed(claude, pieces)), of_whole_message(whole(claude, other)))
          << text;
    }
  }
}

}  // namespace
}  // namespace pagewise::server
