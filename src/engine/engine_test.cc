// SPDX-License-Identifier: Apache-2.0
// The engine on its thread: many callers, cancellations at any moment, a full queue, shutting down.
// Run under tsan as well.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <future>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>

#include "base/prng.h"
#include "engine/fake_executor.h"
#include "engine/fake_tokenizer.h"

namespace pagewise::engine {
namespace {

/// A sink whose end another thread can wait for.
class WaitingSink final : public RequestSink {
 public:
  void on_admitted(const Admission&) override {}
  void on_delta(Delta&& delta) override {
    std::unique_lock lock(mutex_);
    for (const TokenOutput& output : delta.tokens) tokens_.push_back(output.sampled.token);
    changed_.notify_all();
    changed_.wait(lock, [this] { return tokens_.size() < hold_at_; });
  }
  void on_finished(const Finished& finished) override {
    std::lock_guard lock(mutex_);
    EXPECT_FALSE(finished_.has_value());
    finished_ = finished;
    changed_.notify_all();
  }

  Finished wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return finished_.has_value(); });
    return *finished_;
  }
  void wait_for_tokens(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return tokens_.size() >= count || finished_.has_value(); });
  }
  std::vector<TokenId> tokens() {
    std::lock_guard lock(mutex_);
    return tokens_;
  }
  /// The engine thread stands still in this request's output from its n-th token on.
  void hold_at(std::size_t tokens) {
    std::lock_guard lock(mutex_);
    hold_at_ = tokens;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<TokenId> tokens_;
  std::optional<Finished> finished_;
  std::size_t hold_at_ = std::numeric_limits<std::size_t>::max();
};

Request request_of(uint64_t seed, std::size_t prompt_tokens, uint64_t max_tokens) {
  Prng prng(seed);
  Request request;
  for (std::size_t i = 0; i < prompt_tokens; ++i) {
    request.prompt.push_back(TokenId(static_cast<int32_t>(10 + prng.below(54))));
  }
  request.max_tokens = max_tokens;
  request.sampling.temperature = 1;
  request.sampling.seed = seed;
  request.ignore_eos = true;
  return request;
}

struct Machine {
  explicit Machine(Options options = {}, uint32_t blocks = 64)
      : executor({.blocks = blocks}), engine(executor, tokenizer, clock, options) {}
  FakeExecutor executor;
  FakeTokenizer tokenizer{64};
  SystemClock clock;
  Engine engine;
};

TEST(Engine, AnswersCallersOnManyThreadsAsIfEachWereAlone) {
  std::vector<std::vector<TokenId>> expected(24);
  {
    Options options;
    options.prefix_cache = false;
    Machine machine(options);
    for (uint64_t i = 0; i < expected.size(); ++i) {
      auto sink = std::make_shared<WaitingSink>();
      ASSERT_TRUE(machine.engine.submit(request_of(i, 20 + i * 7, 30), sink).has_value());
      ASSERT_TRUE(sink->wait().status.has_value());
      expected[i] = sink->tokens();
    }
  }
  Machine machine;
  std::vector<std::thread> callers;
  std::atomic<bool> looking = true;
  std::thread onlooker([&] {
    while (looking) {
      const Stats stats = machine.engine.stats();
      EXPECT_EQ(stats.blocks_live + stats.blocks_cached + stats.blocks_free, stats.blocks_pool);
      std::this_thread::yield();
    }
  });
  for (uint64_t t = 0; t < 4; ++t) {
    callers.emplace_back([&, t] {
      Prng prng(t);
      for (int round = 0; round < 12; ++round) {
        const uint64_t which = prng.below(expected.size());
        auto sink = std::make_shared<WaitingSink>();
        const auto id = machine.engine.submit(request_of(which, 20 + which * 7, 30), sink);
        ASSERT_TRUE(id.has_value());
        const bool cancel = prng.below(3) == 0;
        if (cancel) {
          sink->wait_for_tokens(prng.below(10));
          machine.engine.cancel(*id);
        }
        const Finished finished = sink->wait();
        const std::vector<TokenId> tokens = sink->tokens();
        if (finished.status) {
          EXPECT_EQ(tokens, expected[which]);
        } else {
          EXPECT_TRUE(cancel);
          EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), expected[which].begin()));
        }
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  looking = false;
  onlooker.join();
  const Stats stats = machine.engine.stats();
  EXPECT_EQ(stats.requests_running + stats.requests_waiting, 0U);
  EXPECT_EQ(stats.blocks_live, 0U);
  EXPECT_TRUE(machine.executor.violations().empty());
}

/// What a look-up was told; another thread can wait for it.
Result<LookedUp> look_up(Engine& engine, std::vector<TokenId> tokens, uint32_t beyond_max) {
  auto told = std::make_shared<std::promise<Result<LookedUp>>>();
  LookUp asked;
  asked.tokens = std::move(tokens);
  asked.beyond_max = beyond_max;
  engine.look_up(std::move(asked),
                 [told](Result<LookedUp> answer) { told->set_value(std::move(answer)); });
  return told->get_future().get();
}

TEST(Engine, TellsWhatItKnowsOfAPromptWithoutChangingAnything) {
  Machine machine;
  const Request request = request_of(1, 100, 8);
  auto sink = std::make_shared<WaitingSink>();
  ASSERT_TRUE(machine.engine.submit(request, sink).has_value());
  sink->wait();
  const Stats before = machine.engine.stats();
  std::vector<TokenId> prompt = request.prompt;
  prompt[70] = TokenId(prompt[70].value == 10 ? 11 : 10);
  const Result<LookedUp> parted = look_up(machine.engine, prompt, 4);
  ASSERT_TRUE(parted.has_value());
  EXPECT_EQ(parted->found.cached_tokens, 70U);
  EXPECT_EQ(parted->found.beyond,
            std::vector<TokenId>(request.prompt.begin() + 70, request.prompt.begin() + 74));
  // The answer is in the cache, too: a prompt that goes on with it reads it.
  prompt = request.prompt;
  const std::vector<TokenId> answer = sink->tokens();
  prompt.insert(prompt.end(), answer.begin(), answer.end());
  EXPECT_EQ(look_up(machine.engine, prompt, 0)->found.matched_tokens, 107U);
  EXPECT_EQ(look_up(machine.engine, {}, 0).error().code, ErrorCode::kInvalidArgument);
  const Stats after = machine.engine.stats();
  EXPECT_EQ(after.steps, before.steps) << "nothing was computed";
  EXPECT_EQ(after.prefix_query_tokens, before.prefix_query_tokens);
  EXPECT_EQ(after.blocks_cached, before.blocks_cached);
}

TEST(Engine, BoundsTheQuestionsThatWaitAndAnswersThemAllWhenItStops) {
  std::atomic<int> answered = 0, cancelled = 0;
  int accepted = 0;
  auto holder = std::make_shared<WaitingSink>();
  {
    Machine machine;
    holder->hold_at(1);
    ASSERT_TRUE(machine.engine.submit(request_of(1, 10, 20), holder).has_value());
    holder->wait_for_tokens(1);  // the engine thread stands still now
    std::optional<ErrorCode> refused;
    while (true) {
      LookUp asked;
      asked.tokens = {TokenId(1)};
      // A refusal comes at once and on this thread, the rest from the engine's.
      machine.engine.look_up(std::move(asked),
                             [&, here = std::this_thread::get_id()](Result<LookedUp> answer) {
                               if (std::this_thread::get_id() == here) {
                                 refused = answer.error().code;
                               } else {
                                 ++(answer.has_value() ? answered : cancelled);
                               }
                             });
      if (refused) break;
      ASSERT_LT(++accepted, 10'000);
    }
    EXPECT_EQ(refused, ErrorCode::kOverloaded);
    holder->hold_at(std::numeric_limits<std::size_t>::max());
  }
  EXPECT_GT(accepted, 10);
  EXPECT_EQ(answered + cancelled, accepted);
}

TEST(Engine, RefusesWhenTheQueueIsFull) {
  Options options;
  options.seqs_max = 1;
  options.queue_max = 2;
  Machine machine(options);
  auto running = std::make_shared<WaitingSink>();
  running->hold_at(2);  // a step has passed by then, so its slot is known to be taken
  ASSERT_TRUE(machine.engine.submit(request_of(1, 10, 500), running).has_value());
  running->wait_for_tokens(2);
  std::vector<std::shared_ptr<WaitingSink>> waiting;
  for (int i = 0; i < 2; ++i) {
    waiting.push_back(std::make_shared<WaitingSink>());
    ASSERT_TRUE(machine.engine.submit(request_of(2, 10, 5), waiting.back()).has_value());
  }
  const auto refused = machine.engine.submit(request_of(2, 10, 5), std::make_shared<WaitingSink>());
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kOverloaded);
  EXPECT_EQ(machine.engine.stats().requests_waiting, 2U);
  EXPECT_EQ(machine.engine.stats().requests_running, 1U);
  running->hold_at(std::numeric_limits<std::size_t>::max());
  EXPECT_TRUE(running->wait().status.has_value());
  for (const auto& sink : waiting) EXPECT_TRUE(sink->wait().status.has_value());
}

TEST(Engine, RefusalsThatNeedNoWaitingComeBackAtOnce) {
  Options options;
  options.context_max = 100;
  Machine machine(options);
  EXPECT_EQ(machine.engine.options().context_max, 100U);
  const auto sink = std::make_shared<WaitingSink>();
  EXPECT_EQ(machine.engine.submit(request_of(1, 100, 1), sink).error().code,
            ErrorCode::kContextTooLong);
  EXPECT_EQ(machine.engine.submit(Request{}, sink).error().code, ErrorCode::kInvalidArgument);
  machine.engine.cancel(RequestId(77));  // unknown: ignored
}

TEST(Engine, LeasesEndAndMemoryGoesBackThoughNoRequestComes) {
  Options options;
  options.lease_5m_ns = 30'000'000;
  options.idle_release_ns = 30'000'000;
  Machine machine(options);
  Request marked = request_of(1, 100, 4);
  marked.cache.positions = {{64}};
  marked.cache.markers = {{0, LeaseClass::k5m}};
  Request private_one = request_of(2, 100, 4);
  private_one.cache.use_cache = false;
  for (const Request& request : {marked, private_one}) {
    auto sink = std::make_shared<WaitingSink>();
    ASSERT_TRUE(machine.engine.submit(request, sink).has_value());
    EXPECT_TRUE(sink->wait().status.has_value());
  }
  // Nothing but time passes. A test that waits in vain is ended by its runner.
  while (machine.engine.stats().blocks_leased > 0) std::this_thread::yield();
  while (machine.engine.stats().blocks_returned == 0) std::this_thread::yield();
  EXPECT_EQ(machine.engine.stats().requests_running, 0U);
}

TEST(Engine, ShuttingDownTellsEveryRequest) {
  std::vector<std::shared_ptr<WaitingSink>> sinks;
  {
    Options options;
    options.seqs_max = 2;
    Machine machine(options, 4096);
    for (uint64_t i = 0; i < 6; ++i) {
      sinks.push_back(std::make_shared<WaitingSink>());
      ASSERT_TRUE(machine.engine.submit(request_of(i, 100, 60'000), sinks.back()).has_value());
    }
    sinks[0]->wait_for_tokens(3);
  }
  for (const auto& sink : sinks) EXPECT_EQ(sink->wait().status.code(), ErrorCode::kCancelled);
}

TEST(Engine, AConfigurationThatCannotServeRefusesWithItsReason) {
  FakeExecutor executor({.block_tokens = 1, .blocks = 1});
  const FakeTokenizer tokenizer(64);
  const SystemClock clock;
  Engine engine(executor, tokenizer, clock, Options{});
  const auto result = engine.submit(request_of(1, 1, 1), std::make_shared<WaitingSink>());
  ASSERT_FALSE(result.has_value());
  EXPECT_NE(result.error().message.find("KV memory"), std::string::npos);
}

/// What the statistics say at the moment a request's end is heard.
class StatsAtEnd final : public RequestSink {
 public:
  explicit StatsAtEnd(const Engine& engine) : engine_(engine) {}
  void on_admitted(const Admission&) override {}
  void on_delta(Delta&&) override {}
  void on_finished(const Finished&) override { stats_.set_value(engine_.stats()); }
  Stats wait() { return stats_.get_future().get(); }

 private:
  const Engine& engine_;
  std::promise<Stats> stats_;
};

TEST(Engine, StatisticsKnowOfARequestsEndBeforeItsSinkDoes) {
  Machine machine;
  Engine& engine = machine.engine;
  for (uint64_t ended = 1; ended <= 20; ++ended) {
    auto sink = std::make_shared<StatsAtEnd>(engine);
    Request request;
    request.prompt.assign(3 + ended, TokenId(7));
    request.max_tokens = 2;
    request.ignore_eos = true;
    ASSERT_TRUE(engine.submit(std::move(request), sink).has_value());
    const Stats stats = sink->wait();
    EXPECT_EQ(stats.requests_running, 0u);
    EXPECT_EQ(stats.blocks_live, 0u);
    EXPECT_EQ(stats.finished_length, ended);
  }
}

/// What the statistics say at the moment a request's first token is heard.
class StatsAtToken final : public RequestSink {
 public:
  explicit StatsAtToken(const Engine& engine) : engine_(engine) {}
  void on_admitted(const Admission&) override {}
  void on_delta(Delta&& delta) override {
    if (delta.completion_tokens == 1) stats_.set_value(engine_.stats());
  }
  void on_finished(const Finished&) override { finished_.set_value(); }
  Stats wait() {
    finished_.get_future().wait();
    return stats_.get_future().get();
  }

 private:
  const Engine& engine_;
  std::promise<Stats> stats_;
  std::promise<void> finished_;
};

TEST(Engine, StatisticsKnowOfATokenBeforeItsSinkDoes) {
  Machine machine;
  for (uint32_t request = 1; request <= 20; ++request) {
    auto sink = std::make_shared<StatsAtToken>(machine.engine);
    ASSERT_TRUE(machine.engine.submit(request_of(request, 40, 5), sink).has_value());
    const Stats stats = sink->wait();
    EXPECT_EQ(stats.requests_running, 1u);
    EXPECT_GT(stats.blocks_live, 0u);
  }
}

TEST(Engine, SaysAtOnceWhyItCannotStart) {
  EXPECT_TRUE(Machine().engine.start_status().has_value());
  const Machine machine({.lease_5m_ns = 0});
  ASSERT_FALSE(machine.engine.start_status().has_value());
  EXPECT_EQ(machine.engine.start_status().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace pagewise::engine
