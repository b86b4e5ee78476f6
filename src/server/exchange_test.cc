// SPDX-License-Identifier: Apache-2.0
// An answer's way from the engine's events to bytes, without sockets or an engine: the test is the
// engine.
#include "server/exchange.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "server/byte_tokenizer_for_tests.h"

namespace pagewise::server {
namespace {

constexpr TimeNs kSecond = 1'000'000'000;

class ExchangeTest : public testing::Test {
 protected:
  std::unique_ptr<Exchange> begin(bool stream, Format format = Format::kChat,
                                  uint32_t prompts = 1) {
    ExchangeSetup setup;
    setup.engine.submit = [this](engine::Request,
                                 std::shared_ptr<engine::RequestSink> sink) -> Result<RequestId> {
      if (refusal_.code != ErrorCode::kOk && sinks_.size() == accepted_) return refusal_;
      sink_ = sink;
      sinks_.push_back(std::move(sink));
      return RequestId(6 + sinks_.size());
    };
    setup.requests.resize(prompts);
    setup.context.prompts = prompts;
    setup.engine.cancel = [this](RequestId id) { cancelled_.push_back(id); };
    setup.context.format = format;
    setup.context.model = "asked";
    setup.context.request_id = "req_1";
    setup.context.id = "id";
    setup.context.tokenizer = &byte_tokenizer();
    setup.surface = format == Format::kMessages ? Surface::kAnthropic : Surface::kOpenAi;
    setup.stream = stream;
    setup.model_name = "real";
    setup.route = "chat";
    setup.clock = &clock_;
    setup.log = [this](std::string_view line) { log_.emplace_back(line); };
    auto exchange = make_exchange(std::move(setup));
    exchange->start([this] { ++wakes_; });
    return exchange;
  }

  void admit() {
    engine::Admission admission;
    admission.prompt_tokens = 50;
    admission.cached_tokens = 32;
    admission.input_tokens = 50;
    admission.blocks = 2;
    admission.blocks_shared = 1;
    sink_->on_admitted(admission);
  }
  void say(std::string text, engine::FinishReason finish = engine::FinishReason::kNone) {
    engine::Delta delta;
    delta.text = std::move(text);
    delta.finish = finish;
    delta.completion_tokens = ++tokens_;
    sink_->on_delta(std::move(delta));
  }
  void finish(Status status = Status::ok()) {
    engine::Finished finished;
    finished.status = std::move(status);
    finished.completion_tokens = tokens_;
    finished.first_ns = kSecond / 10;
    finished.total_ns = kSecond / 10 + kSecond;
    sink_->on_finished(finished);
  }

  SimClock clock_;
  Error refusal_{ErrorCode::kOk, ""};
  std::shared_ptr<engine::RequestSink> sink_;                // the last one
  std::vector<std::shared_ptr<engine::RequestSink>> sinks_;  // of all prompts
  std::size_t accepted_ = 0;  // requests that are taken before the refusal
  std::vector<RequestId> cancelled_;
  std::vector<std::string> log_;
  int wakes_ = 0;
  uint32_t tokens_ = 0;
};

std::string header(const HttpResponse& response, std::string_view name) {
  for (const HttpHeader& entry : response.headers) {
    if (entry.name == name) return entry.value;
  }
  return "(none)";
}

TEST_F(ExchangeTest, AnswersWholeWithTheHeadersOfTheDesign) {
  auto exchange = begin(false);
  admit();
  say("a");
  say("b", engine::FinishReason::kStop);
  finish();
  const Progress progress = exchange->poll(clock_.now());
  ASSERT_TRUE(progress.whole.has_value());
  EXPECT_EQ(progress.whole->status, 200);
  EXPECT_EQ(header(*progress.whole, "x-cached-tokens"), "32");
  EXPECT_EQ(header(*progress.whole, "x-model"), "real");
  EXPECT_EQ(header(*progress.whole, "request-id"), "req_1");
  EXPECT_NE(header(*progress.whole, "server-timing").find("first;dur=100.0"), std::string::npos);
  EXPECT_TRUE(progress.done);
  ASSERT_EQ(log_.size(), 1U);
  EXPECT_EQ(log_[0],
            "req_1 chat 200 prompt=50 cached=32 created=0 out=2 queue=0ms ttft=100ms 1tok/s "
            "blocks=2 (1 shared) "
            "stop=end_turn");
}

TEST_F(ExchangeTest, SendsAStreamsHeadersAtAdmissionAndEachPieceAsItComes) {
  auto exchange = begin(true);
  EXPECT_FALSE(exchange->poll(clock_.now()).head.has_value());
  admit();
  Progress progress = exchange->poll(clock_.now());
  ASSERT_TRUE(progress.head.has_value());
  EXPECT_EQ(header(*progress.head, "x-cached-tokens"), "32");
  EXPECT_EQ(header(*progress.head, "cache-control"), "no-cache");
  EXPECT_EQ(header(*progress.head, "x-accel-buffering"), "no");
  say("hello");
  progress = exchange->poll(clock_.now());
  EXPECT_FALSE(progress.head.has_value());
  EXPECT_NE(progress.bytes.find("hello"), std::string::npos);
  EXPECT_FALSE(progress.done);
  say("", engine::FinishReason::kLength);
  finish();
  progress = exchange->poll(clock_.now());
  EXPECT_TRUE(progress.bytes.ends_with("data: [DONE]\n\n"));
  EXPECT_TRUE(progress.done);
}

TEST_F(ExchangeTest, WakesOnceForManyEvents) {
  auto exchange = begin(true);
  admit();
  say("a");
  say("b");
  EXPECT_EQ(wakes_, 1);
  exchange->poll(clock_.now());
  say("c");
  EXPECT_EQ(wakes_, 2);
}

TEST_F(ExchangeTest, TellsAQueuedStreamThatItWaitsEveryTenSeconds) {
  auto exchange = begin(true);
  const Progress first = exchange->poll(clock_.now());
  EXPECT_EQ(first.look_again_at, clock_.now() + 10 * kSecond);
  clock_.advance(10 * kSecond);
  Progress progress = exchange->poll(clock_.now());
  ASSERT_TRUE(progress.head.has_value());
  EXPECT_EQ(header(*progress.head, "x-cached-tokens"), "(none)");
  EXPECT_EQ(progress.bytes, ": queued\n\n");
  clock_.advance(5 * kSecond);
  EXPECT_TRUE(exchange->poll(clock_.now()).bytes.empty());
  clock_.advance(5 * kSecond);
  EXPECT_EQ(exchange->poll(clock_.now()).bytes, ": queued\n\n");
  // Refused after the 200: an error event, not a status.
  finish(Status(ErrorCode::kInternal, "broke"));
  progress = exchange->poll(clock_.now());
  EXPECT_FALSE(progress.whole.has_value());
  EXPECT_NE(progress.bytes.find("broke"), std::string::npos);
  EXPECT_TRUE(progress.done);
}

TEST_F(ExchangeTest, PingsThroughALongPrefill) {
  auto exchange = begin(true, Format::kMessages);
  admit();
  exchange->poll(clock_.now());
  clock_.advance(10 * kSecond);
  EXPECT_EQ(exchange->poll(clock_.now()).bytes, "event: ping\ndata: {\"type\":\"ping\"}\n\n");
}

TEST_F(ExchangeTest, AnswersARefusalWithItsStatusEvenForAStream) {
  refusal_ = {ErrorCode::kOverloaded, "the queue is full"};
  for (const auto& [format, status] :
       {std::pair{Format::kChat, 503}, std::pair{Format::kMessages, 529}}) {
    auto exchange = begin(true, format);
    const Progress progress = exchange->poll(clock_.now());
    ASSERT_TRUE(progress.whole.has_value());
    EXPECT_EQ(progress.whole->status, status);
    EXPECT_EQ(header(*progress.whole, "retry-after"), "1");
    EXPECT_FALSE(progress.head.has_value());
  }
}

TEST_F(ExchangeTest, CancelsTheEnginesRequestWhenTheClientLeaves) {  // C07
  auto exchange = begin(false);
  admit();
  say("a");
  exchange->poll(clock_.now());
  exchange->cancel();
  EXPECT_EQ(cancelled_, std::vector<RequestId>{RequestId(7)});
  ASSERT_EQ(log_.size(), 1U);
  EXPECT_NE(log_[0].find(" 499 "), std::string::npos);
  EXPECT_TRUE(log_[0].ends_with("stop=cancelled"));
  // What still arrives harms nobody.
  say("late");
  finish();
  EXPECT_TRUE(exchange->poll(clock_.now()).done);
  EXPECT_EQ(log_.size(), 1U);
}

TEST_F(ExchangeTest, CancelsWhenItIsDropped) {
  begin(true).reset();
  EXPECT_EQ(cancelled_.size(), 1U);
}

TEST_F(ExchangeTest, EndsAStreamWithAnErrorWhenTheServerStops) {
  auto exchange = begin(true);
  admit();
  exchange->poll(clock_.now());
  exchange->shut_down();
  const Progress progress = exchange->poll(clock_.now());
  EXPECT_NE(progress.bytes.find("shutting down"), std::string::npos);
  EXPECT_TRUE(progress.done);
  EXPECT_EQ(cancelled_.size(), 1U);
}

TEST_F(ExchangeTest, LogsAStreamThatFailsLaterWithTheStatusThatWasSentAndItsRealTimes) {
  clock_.advance(kSecond);  // a clock at zero would hide times that are not set
  auto exchange = begin(true);
  admit();
  clock_.advance(kSecond / 4);
  say("a");
  for (int i = 0; i < 10; ++i) {
    clock_.advance(kSecond / 10);
    say("b");
  }
  exchange->poll(clock_.now());
  exchange->shut_down();
  exchange->poll(clock_.now());
  ASSERT_EQ(log_.size(), 1U);
  EXPECT_EQ(log_[0],
            "req_1 chat 200 prompt=50 cached=32 created=0 out=11 queue=0ms ttft=250ms 10tok/s "
            "blocks=2 (1 shared) stop=overloaded_error");
}

// Several prompts in one call.

engine::Admission prompt_of(uint32_t tokens, uint32_t cached) {
  engine::Admission admission;
  admission.prompt_tokens = admission.input_tokens = tokens;
  admission.cached_tokens = cached;
  return admission;
}

engine::Delta ending(std::string text) {
  engine::Delta delta;
  delta.text = std::move(text);
  delta.finish = engine::FinishReason::kLength;
  delta.completion_tokens = 2;
  return delta;
}

engine::Finished two_tokens() {
  engine::Finished finished;
  finished.completion_tokens = 2;
  finished.first_ns = kSecond / 10;
  finished.total_ns = kSecond;
  return finished;
}

TEST_F(ExchangeTest, AnswersSeveralPromptsOnceAllHaveEndedWithSummedUsage) {
  auto exchange = begin(false, Format::kCompletion, 3);
  ASSERT_EQ(sinks_.size(), 3U);
  for (uint32_t p : {2U, 0U, 1U}) {  // in any order
    EXPECT_FALSE(exchange->poll(clock_.now()).done);
    sinks_[p]->on_admitted(prompt_of(10 + p, p));
    sinks_[p]->on_delta(ending(std::string(1, static_cast<char>('a' + p))));
    sinks_[p]->on_finished(two_tokens());
  }
  const Progress progress = exchange->poll(clock_.now());
  ASSERT_TRUE(progress.whole.has_value());
  const json::value body = *parse_json(progress.whole->body);
  for (std::size_t p = 0; p < 3; ++p) {
    EXPECT_EQ(body.at("choices").at(p).at("text").as_string(),
              std::string(1, static_cast<char>('a' + p)));
  }
  EXPECT_EQ(body.at("usage").at("prompt_tokens").to_number<int>(), 33);
  EXPECT_EQ(body.at("usage").at("completion_tokens").to_number<int>(), 6);
  EXPECT_EQ(header(*progress.whole, "x-cached-tokens"), "3");
  ASSERT_EQ(log_.size(), 1U);
  EXPECT_NE(log_[0].find("prompt=33 cached=3 created=0 out=6"), std::string::npos) << log_[0];
  EXPECT_TRUE(cancelled_.empty());
}

TEST_F(ExchangeTest, AStreamOfSeveralPromptsHasItsHeadWhenAllAreAdmittedOrTheFirstSpeaks) {
  auto exchange = begin(true, Format::kCompletion, 2);
  sinks_[0]->on_admitted(prompt_of(10, 4));
  EXPECT_FALSE(exchange->poll(clock_.now()).head.has_value());
  sinks_[1]->on_admitted(prompt_of(10, 5));
  Progress progress = exchange->poll(clock_.now());
  ASSERT_TRUE(progress.head.has_value());
  EXPECT_EQ(header(*progress.head, "x-cached-tokens"), "9");

  sinks_.clear();
  auto other = begin(true, Format::kCompletion, 2);
  sinks_[0]->on_admitted(prompt_of(10, 4));
  other->poll(clock_.now());
  sinks_[0]->on_delta(ending("x"));
  progress = other->poll(clock_.now());
  ASSERT_TRUE(progress.head.has_value());
  EXPECT_EQ(header(*progress.head, "x-cached-tokens"), "(none)") << "the sum is not known yet";
  EXPECT_NE(progress.bytes.find("\"text\":\"x\""), std::string::npos);
  sinks_[0]->on_finished(two_tokens());
  EXPECT_FALSE(other->poll(clock_.now()).done);
}

TEST_F(ExchangeTest, WaitsWithManyPromptsLikeWithOne) {
  auto exchange = begin(true, Format::kCompletion, 2);
  sinks_[0]->on_admitted(prompt_of(10, 4));
  exchange->poll(clock_.now());
  clock_.advance(10 * kSecond);
  const Progress progress = exchange->poll(clock_.now());
  EXPECT_TRUE(progress.head.has_value());
  EXPECT_EQ(progress.bytes, ": working\n\n");
}

TEST_F(ExchangeTest, ARefusedPromptTakesTheWholeCallWithItBeforeAByte) {
  refusal_ = {ErrorCode::kOverloaded, "the queue is full"};
  accepted_ = 2;
  auto exchange = begin(true, Format::kCompletion, 4);
  const Progress progress = exchange->poll(clock_.now());
  ASSERT_TRUE(progress.whole.has_value());
  EXPECT_EQ(progress.whole->status, 503);
  EXPECT_EQ(cancelled_, (std::vector<RequestId>{RequestId(7), RequestId(8)}));
}

TEST_F(ExchangeTest, AFailureOfOnePromptEndsAllAndAClientThatLeavesToo) {
  auto exchange = begin(true, Format::kCompletion, 3);
  for (const auto& sink : sinks_) sink->on_admitted(prompt_of(10, 0));
  sinks_[0]->on_delta(ending("x"));
  sinks_[0]->on_finished(two_tokens());
  engine::Finished broke;
  broke.status = Status(ErrorCode::kInternal, "broke");
  sinks_[1]->on_finished(broke);
  const Progress progress = exchange->poll(clock_.now());
  EXPECT_TRUE(progress.done);
  EXPECT_NE(progress.bytes.find("broke"), std::string::npos);
  EXPECT_EQ(cancelled_, std::vector<RequestId>{RequestId(9)});

  cancelled_.clear();
  sinks_.clear();
  auto other = begin(false, Format::kCompletion, 3);
  sinks_[1]->on_admitted(prompt_of(10, 0));
  sinks_[1]->on_finished(two_tokens());
  other->poll(clock_.now());
  other->cancel();
  EXPECT_EQ(cancelled_, (std::vector<RequestId>{RequestId(7), RequestId(9)}));
}

}  // namespace
}  // namespace pagewise::server
