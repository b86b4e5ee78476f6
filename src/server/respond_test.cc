// SPDX-License-Identifier: Apache-2.0
// Answers of both APIs, streamed and whole, from one list of engine events.
#include "server/respond.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "server/byte_tokenizer_for_tests.h"

namespace pagewise::server {
namespace {

using engine::Admission;
using engine::Delta;
using engine::Finished;
using engine::FinishReason;

struct SseEvent {
  std::string name;
  std::string data;
  json::value parsed() const { return *parse_json(data); }
};

/// Splits a stream; comment lines are dropped, as clients do.
std::vector<SseEvent> split(std::string_view stream) {
  std::vector<SseEvent> events;
  SseEvent now;
  while (!stream.empty()) {
    const std::size_t end = stream.find('\n');
    const std::string_view line = stream.substr(0, end);
    stream.remove_prefix(end + 1);
    if (line.empty()) {
      if (!now.data.empty()) events.push_back(now);
      now = {};
    } else if (line.starts_with("event: ")) {
      now.name = line.substr(7);
    } else if (line.starts_with("data: ")) {
      now.data = line.substr(6);
    }
  }
  return events;
}

ResponseContext context(Format format) {
  ResponseContext out;
  out.format = format;
  out.model = "asked";
  out.request_id = "req_1";
  out.id = "id_1";
  out.created_unix_s = 1;
  out.tokenizer = &byte_tokenizer();
  return out;
}

Admission admission() {
  Admission out;
  out.prompt_tokens = 100;
  out.cached_tokens = 64;
  out.cache_read_tokens = 60;
  out.cache_created_5m_tokens = 20;
  out.cache_created_1h_tokens = 10;
  out.input_tokens = 10;
  return out;
}

Delta text(std::string_view piece, uint32_t tokens, FinishReason finish = FinishReason::kNone,
           uint32_t choice = 0) {
  Delta out;
  out.choice = choice;
  out.text = piece;
  out.completion_tokens = tokens;
  out.finish = finish;
  return out;
}

std::string stream(ResponseContext context, std::vector<Delta> deltas, uint32_t tokens) {
  auto writer = make_stream_writer(std::move(context));
  std::string out;
  writer->admitted(0, admission(), out);
  for (const Delta& delta : deltas) writer->delta(delta, out);
  Finished finished;
  finished.completion_tokens = tokens;
  writer->finished(finished, out);
  return out;
}

json::object whole(ResponseContext context, std::vector<Delta> deltas, uint32_t tokens) {
  auto writer = make_whole_writer(std::move(context));
  writer->admitted(0, admission());
  for (Delta& delta : deltas) writer->delta(std::move(delta));
  Finished finished;
  finished.completion_tokens = tokens;
  return writer->finished(finished);
}

TEST(AnthropicStream, SendsTheEventsInTheirOrder) {
  const auto events =
      split(stream(context(Format::kMessages),
                   {text("Hel", 1), text("lo", 2), text("", 3, FinishReason::kStop)}, 3));
  std::vector<std::string> names;
  for (const SseEvent& event : events) names.push_back(event.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"message_start", "ping", "content_block_start",
                                      "content_block_delta", "content_block_delta",
                                      "content_block_stop", "message_delta", "message_stop"}));
  for (const SseEvent& event : events) EXPECT_EQ(event.parsed().at("type").as_string(), event.name);
  const json::value start = events[0].parsed();
  EXPECT_TRUE(start.at("message").at("stop_reason").is_null());
  EXPECT_EQ(start.at("message").at("model").as_string(), "asked");
  const json::value last = events[6].parsed();
  EXPECT_EQ(last.at("delta").at("stop_reason").as_string(), "end_turn");
  EXPECT_EQ(last.at("usage").at("output_tokens").as_int64(), 3);
}

TEST(AnthropicStream, HoldsNoLineEndButItsOwn) {
  // Beside U+0085, U+2028 and U+2029 some that begin with the same bytes.
  const std::string odd = "a\xC2\x85 b\xE2\x80\xA8 c\xE2\x80\xA9 \xC2\xA9 \xE2\x80\xA6 \xC2\x85";
  const std::string written =
      stream(context(Format::kMessages), {text(odd, 1), text("", 2, FinishReason::kStop)}, 2);
  for (const char* end : {"\xC2\x85", "\xE2\x80\xA8", "\xE2\x80\xA9"}) {
    EXPECT_EQ(written.find(end), std::string::npos);
  }
  EXPECT_EQ(split(written)[3].parsed().at("delta").at("text").as_string(), odd);
}

TEST(AnthropicStream, RepeatsAllCountersInMessageDelta) {
  const auto events =
      split(stream(context(Format::kMessages), {text("x", 1, FinishReason::kLength)}, 1));
  for (const std::size_t index : {std::size_t{0}, events.size() - 2}) {
    const json::value event = events[index].parsed();
    const json::value& usage = index == 0 ? event.at("message").at("usage") : event.at("usage");
    EXPECT_EQ(usage.at("input_tokens").to_number<int>(), 10);
    EXPECT_EQ(usage.at("cache_creation_input_tokens").to_number<int>(), 30);
    EXPECT_EQ(usage.at("cache_read_input_tokens").to_number<int>(), 60);
    EXPECT_EQ(usage.at("cache_creation").at("ephemeral_1h_input_tokens").to_number<int>(), 10);
  }
}

TEST(AnthropicStream, EndsWithAnErrorEventOnAFailure) {
  auto writer = make_stream_writer(context(Format::kMessages));
  std::string out;
  writer->admitted(0, admission(), out);
  writer->failed({ErrorKind::kOverloaded, "busy", "", "", ""}, out);
  const auto events = split(out);
  EXPECT_EQ(events.back().name, "error");
  EXPECT_EQ(events.back().parsed().at("error").at("type").as_string(), "overloaded_error");
  EXPECT_EQ(events.back().parsed().at("request_id").as_string(), "req_1");
}

TEST(AnthropicWhole, SaysWhichStopSequenceMatched) {
  ResponseContext with_stops = context(Format::kMessages);
  with_stops.stops = {"AA", "BB"};
  Delta last = text("", 2, FinishReason::kStopString);
  last.stop_index = 1;
  const json::object message = whole(with_stops, {text("x", 1), last}, 2);
  EXPECT_EQ(message.at("stop_reason").as_string(), "stop_sequence");
  EXPECT_EQ(message.at("stop_sequence").as_string(), "BB");
  EXPECT_EQ(message.at("content").at(0).at("text").as_string(), "x");
}

TEST(AnthropicWhole, NamesTheFullContextAndThePrewarm) {
  const auto reason = [](FinishReason finish) {
    return std::string(
        whole(context(Format::kMessages), {text("x", 1, finish)}, 1).at("stop_reason").as_string());
  };
  EXPECT_EQ(reason(FinishReason::kContext), "model_context_window_exceeded");
  EXPECT_EQ(reason(FinishReason::kLength), "max_tokens");
  const json::object prewarm = whole(context(Format::kMessages), {}, 0);  // B12
  EXPECT_EQ(prewarm.at("stop_reason").as_string(), "max_tokens");
  EXPECT_TRUE(prewarm.at("content").as_array().empty());
  EXPECT_EQ(prewarm.at("usage").at("output_tokens").to_number<int>(), 0);
}

TEST(OpenAiWhole, CountsCachedTokensInsideThePrompt) {
  const json::object answer =
      whole(context(Format::kChat), {text("Hi", 1), text("!", 2, FinishReason::kContext)}, 2);
  const json::value& usage = answer.at("usage");
  EXPECT_EQ(usage.at("prompt_tokens").to_number<int>(), 100);
  EXPECT_EQ(usage.at("total_tokens").to_number<int>(), 102);
  EXPECT_EQ(usage.at("prompt_tokens_details").at("cached_tokens").to_number<int>(), 64);
  EXPECT_EQ(usage.at("prompt_tokens_details").at("cache_write_tokens").to_number<int>(), 26)
      << "of the marked 90 tokens 64 were reused";
  EXPECT_EQ(answer.at("choices").at(0).at("message").at("content").as_string(), "Hi!");
  EXPECT_EQ(answer.at("choices").at(0).at("finish_reason").as_string(), "length");
}

TEST(OpenAiStream, SendsUsageExactlyWhenAskedAsC14Says) {
  for (const bool asked : {false, true}) {
    ResponseContext setup = context(Format::kChat);
    setup.include_usage = asked;
    const auto events = split(stream(setup, {text("Hi", 1), text("", 2, FinishReason::kStop)}, 2));
    EXPECT_EQ(events.back().data, "[DONE]");
    std::size_t with_usage = 0;
    for (std::size_t i = 0; i + 1 < events.size(); ++i) {
      const json::value chunk = events[i].parsed();
      const json::value* usage = chunk.as_object().if_contains("usage");
      EXPECT_EQ(usage != nullptr, asked);
      if (usage != nullptr && !usage->is_null()) {
        ++with_usage;
        EXPECT_EQ(i + 2, events.size());
        EXPECT_TRUE(chunk.at("choices").as_array().empty());
        EXPECT_EQ(usage->at("completion_tokens").to_number<int>(), 2);
      }
    }
    EXPECT_EQ(with_usage, asked ? 1U : 0U);
  }
}

TEST(OpenAiStream, InterleavesChoicesAndEndsEachOne) {
  ResponseContext setup = context(Format::kChat);
  setup.choices = 2;
  const auto events =
      split(stream(setup,
                   {text("a", 1, FinishReason::kNone, 0), text("b", 1, FinishReason::kLength, 1),
                    text("c", 2, FinishReason::kLength, 0)},
                   3));
  std::string texts[2];
  int endings[2] = {0, 0};
  for (std::size_t i = 0; i + 1 < events.size(); ++i) {
    const json::value event = events[i].parsed();
    const json::value& choice = event.at("choices").at(0);
    const auto index = static_cast<std::size_t>(choice.at("index").to_number<int>());
    if (const json::value* piece = choice.at("delta").as_object().if_contains("content")) {
      texts[index] += std::string_view(piece->as_string());
    }
    endings[index] += choice.at("finish_reason").is_null() ? 0 : 1;
  }
  EXPECT_EQ(texts[0], "ac");
  EXPECT_EQ(texts[1], "b");
  EXPECT_EQ(endings[0], 1);
  EXPECT_EQ(endings[1], 1);
}

Delta with_token(std::string_view piece, std::string_view bytes, float logprob) {
  Delta out = text(piece, 1);
  engine::TokenOutput token;
  token.bytes = bytes;
  token.sampled.logprob = logprob;
  token.sampled.top = {{TokenId('a'), logprob},
                       {TokenId(0xE2), -std::numeric_limits<float>::infinity()}};
  out.tokens.push_back(token);
  return out;
}

TEST(OpenAiLogprobs, GiveBytesInChatAndOffsetsInCompletions) {
  ResponseContext chat = context(Format::kChat);
  chat.logprobs = true;
  const json::object answer = whole(chat, {with_token("a", "a", -0.5F)}, 1);
  const json::value& entry = answer.at("choices").at(0).at("logprobs").at("content").at(0);
  EXPECT_EQ(entry.at("token").as_string(), "a");
  EXPECT_EQ(entry.at("bytes").at(0).to_number<int>(), 'a');
  EXPECT_FLOAT_EQ(entry.at("logprob").to_number<float>(), -0.5F);
  EXPECT_EQ(entry.at("top_logprobs").as_array().size(), 2U);
  EXPECT_EQ(entry.at("top_logprobs").at(1).at("logprob").to_number<double>(), -9999.0);

  ResponseContext completion = context(Format::kCompletion);
  completion.logprobs = true;
  const json::object other =
      whole(completion, {with_token("\u00e9", "\u00e9", -1), with_token("b", "b", -2)}, 2);
  const json::value& lists = other.at("choices").at(0).at("logprobs");
  EXPECT_EQ(lists.at("text_offset").at(1).to_number<int>(), 1);  // characters, not bytes
  EXPECT_EQ(lists.at("tokens").as_array().size(), 2U);
  EXPECT_TRUE(lists.at("top_logprobs").at(0).as_object().contains("bytes:\\xe2"));
}

// Plain text has a short way of its own to its bytes; with log-probabilities it takes the long one.
TEST(OpenAiStream, WritesPlainTextAsTheSameChunkThatLogprobsWouldStandIn) {
  const std::string_view piece = "say \"a\\b\"\n\t\x01 \u00e9 \U0001F600 </s>";
  for (const Format format : {Format::kChat, Format::kCompletion}) {
    for (const bool usage : {false, true}) {
      ResponseContext setup = context(format);
      setup.include_usage = usage;
      setup.choices = 2;
      Delta delta = with_token(piece, "a", -0.5F);
      delta.choice = 1;
      const auto chunk = [&](bool logprobs) {
        setup.logprobs = logprobs;
        const auto events = split(stream(setup, {delta}, 1));
        // Behind what begins a chat's two choices.
        return events[format == Format::kChat ? 2 : 0].data;
      };
      json::value with = *parse_json(chunk(true));
      json::value& logprobs = with.at("choices").at(0).at("logprobs");
      EXPECT_FALSE(logprobs.is_null());
      logprobs = nullptr;
      EXPECT_EQ(with.as_object().contains("usage"), usage);
      EXPECT_EQ(chunk(false), json::serialize(with));
    }
  }
}

TEST(CompletionStream, UsesTheSameObjectAsTheWholeAnswer) {
  const auto events = split(
      stream(context(Format::kCompletion), {text("x", 1), text("", 1, FinishReason::kLength)}, 1));
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0].parsed().at("object").as_string(), "text_completion");
  EXPECT_EQ(events[0].parsed().at("choices").at(0).at("text").as_string(), "x");
  EXPECT_EQ(events[1].parsed().at("choices").at(0).at("finish_reason").as_string(), "length");
}

/// Token ids with log-probabilities -1, -2, ... and one runner-up.
engine::PromptLogprobs scores(uint32_t position, const std::vector<int32_t>& ids) {
  engine::PromptLogprobs piece;
  piece.position = position;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    sampling::Sampled token;
    token.token = TokenId(ids[i]);
    token.logprob = -static_cast<float>(position + i);
    token.top = {{TokenId('z'), -0.25F}};
    piece.tokens.push_back(token);
  }
  return piece;
}

Delta generated(std::string_view piece, const std::vector<int32_t>& ids, uint32_t choice) {
  Delta out = text(piece, 1, FinishReason::kNone, choice);
  for (const int32_t id : ids) {
    engine::TokenOutput token;
    token.sampled.token = TokenId(id);
    token.sampled.logprob = -0.5F;
    token.sampled.top = {{TokenId(id), -0.5F}};
    token.bytes = byte_tokenizer().token_bytes(TokenId(id));
    out.tokens.push_back(token);
  }
  return out;
}

/// Two prompts, the second cut inside a character that the answer completes; two choices each.
ResponseContext repeating() {
  ResponseContext setup = context(Format::kCompletion);
  setup.prompts = 2;
  setup.choices = 2;
  setup.logprobs = true;
  setup.echo = {{"\u00e9b", {0, 1, 2, 3}}, {"a\xE2\x82", {1, 2, 3}}};
  return setup;
}

const std::vector<int32_t> kFirst = {256, 0xC3, 0xA9, 'b'}, kSecond = {'a', 0xE2, 0x82};

void expect_lists(const json::value& lists, const std::vector<std::string>& tokens,
                  const std::vector<int>& offsets) {
  ASSERT_EQ(lists.at("tokens").as_array().size(), tokens.size());
  for (const char* name : {"token_logprobs", "top_logprobs", "text_offset"}) {
    ASSERT_EQ(lists.at(name).as_array().size(), tokens.size()) << name;
  }
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_EQ(lists.at("tokens").at(i).as_string(), tokens[i]);
    EXPECT_EQ(lists.at("text_offset").at(i).to_number<int>(), offsets[i]) << i;
  }
}

TEST(OpenAiWhole, BeginsWithThePromptAndItsLogprobsWhenAsked) {  // C20
  auto writer = make_whole_writer(repeating());
  for (uint32_t prompt = 0; prompt < 2; ++prompt) {
    writer->admitted(prompt, admission());
    writer->scored(prompt, scores(0, prompt == 0 ? kFirst : kSecond));
  }
  writer->delta(generated("!", {'!'}, 1));
  writer->delta(generated("\u20ac", {0xAC}, 2));
  const json::object answer = writer->finished({});
  const json::array& choices = answer.at("choices").as_array();
  ASSERT_EQ(choices.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(choices[i].at("index").to_number<std::size_t>(), i);
  EXPECT_EQ(choices[0].at("text").as_string(), "\u00e9b");
  EXPECT_EQ(choices[1].at("text").as_string(), "\u00e9b!");
  EXPECT_EQ(choices[2].at("text").as_string(), "a\u20ac");
  EXPECT_EQ(choices[3].at("text").as_string(), "a");
  expect_lists(choices[1].at("logprobs"), {"<s>", "bytes:\\xc3", "bytes:\\xa9", "b", "!"},
               {0, 0, 0, 1, 2});
  expect_lists(choices[2].at("logprobs"), {"a", "bytes:\\xe2", "bytes:\\x82", "bytes:\\xac"},
               {0, 1, 1, 1});
  const json::value& lists = choices[0].at("logprobs");
  EXPECT_TRUE(lists.at("token_logprobs").at(0).is_null());
  EXPECT_TRUE(lists.at("top_logprobs").at(0).is_null());
  EXPECT_EQ(lists.at("token_logprobs").at(3).to_number<double>(), -3);
  // The best ones, and the token that stands there.
  EXPECT_EQ(lists.at("top_logprobs").at(3).at("z").to_number<double>(), -0.25);
  EXPECT_EQ(lists.at("top_logprobs").at(3).at("b").to_number<double>(), -3);
}

TEST(OpenAiStream, SendsAPromptInThePiecesInWhichItIsScored) {  // C20
  auto writer = make_stream_writer(repeating());
  std::string out;
  writer->admitted(0, admission(), out);
  writer->admitted(1, admission(), out);
  EXPECT_TRUE(out.empty());
  writer->scored(1, scores(0, {'a', 0xE2}), out);
  writer->scored(0, scores(0, {256, 0xC3}), out);
  writer->scored(1, scores(2, {0x82}), out);
  writer->scored(0, scores(2, {0xA9, 'b'}), out);
  writer->delta(generated("\u20ac", {0xAC}, 2), out);
  writer->delta(generated("!", {'!'}, 1), out);
  writer->finished({}, out);
  std::vector<std::string> texts(4);
  std::vector<json::array> tokens(4), offsets(4);
  const auto append = [](json::array& to, const json::value& from) {
    for (const json::value& entry : from.as_array()) to.push_back(entry);
  };
  const auto events = split(out);
  for (std::size_t i = 0; i + 1 < events.size(); ++i) {
    const json::value event = events[i].parsed();
    const json::value& choice = event.at("choices").at(0);
    const auto index = choice.at("index").to_number<std::size_t>();
    texts[index] += std::string_view(choice.at("text").as_string());
    append(tokens[index], choice.at("logprobs").at("tokens"));
    append(offsets[index], choice.at("logprobs").at("text_offset"));
  }
  EXPECT_EQ(texts, (std::vector<std::string>{"\u00e9b", "\u00e9b!", "a\u20ac", "a"}));
  EXPECT_EQ(offsets[1], (json::array{0, 0, 0, 1, 2}));
  EXPECT_EQ(offsets[2], (json::array{0, 1, 1, 1}));
  EXPECT_EQ(tokens[2].size(), 4U);
}

TEST(OpenAiStream, SendsARepeatedPromptAtAdmissionWithoutLogprobs) {
  ResponseContext setup = repeating();
  setup.logprobs = false;
  auto writer = make_stream_writer(setup);
  std::string out;
  writer->admitted(1, admission(), out);
  const auto events = split(out);
  ASSERT_EQ(events.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    const json::value event = events[i].parsed();
    EXPECT_EQ(event.at("choices").at(0).at("text").as_string(), "a");
    EXPECT_EQ(event.at("choices").at(0).at("index").to_number<std::size_t>(), 2 + i);
  }
}

TEST(OpenAiWhole, ShowsTheCandidatesWithTheBestLogprobAToken) {
  ResponseContext setup = context(Format::kCompletion);
  setup.prompts = 2;
  setup.choices = 2;
  setup.candidates = 3;
  auto writer = make_whole_writer(setup);
  const auto say = [&](uint32_t choice, const char* words, uint32_t tokens, double sum) {
    Delta delta = text(words, tokens, FinishReason::kLength, choice);
    delta.logprob_sum = sum;
    writer->delta(std::move(delta));
  };
  say(0, "worst", 2, -8);
  say(1, "best", 4, -4);
  say(2, "second", 1, -2);
  say(3, "equal", 1, -1);
  say(4, "equal too", 2, -2);
  say(5, "worse", 1, -1.5);
  const json::object answer = writer->finished({});
  std::vector<std::string> texts;
  for (const json::value& choice : answer.at("choices").as_array()) {
    EXPECT_EQ(choice.at("index").to_number<std::size_t>(), texts.size());
    texts.emplace_back(choice.at("text").as_string());
  }
  EXPECT_EQ(texts, (std::vector<std::string>{"best", "second", "equal", "equal too"}));
}

TEST(OpenAiLogprobs, CountNoCharactersForControlTokensThatTheTextDoesNotHave) {
  ResponseContext setup = context(Format::kCompletion);
  setup.logprobs = true;
  const json::object answer = whole(setup, {generated("ab", {'a', 257, 'b'}, 0)}, 3);
  expect_lists(answer.at("choices").at(0).at("logprobs"), {"a", "</s>", "b"}, {0, 1, 1});
}

}  // namespace
}  // namespace pagewise::server
