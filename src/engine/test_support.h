// SPDX-License-Identifier: Apache-2.0
// What the engine's tests share: a sink that remembers and checks the order of what it hears, a
// core on the fake executor, and the answer that any correct serving must give.
#pragma once

#include <gtest/gtest.h>

#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "engine/core.h"
#include "engine/fake_executor.h"
#include "engine/fake_tokenizer.h"

namespace pagewise::engine {

/// A machine with one pool.
inline FakeExecutorOptions pool(uint32_t block_tokens, uint32_t blocks) {
  FakeExecutorOptions options;
  options.block_tokens = block_tokens;
  options.blocks = blocks;
  return options;
}

/// One choice as its client saw it.
struct ChoiceRecord {
  std::string text;
  std::vector<TokenId> tokens;
  std::vector<sampling::Sampled> sampled;
  FinishReason finish = FinishReason::kNone;
  uint32_t stop_index = 0;
  uint32_t completion_tokens = 0;
  uint32_t deltas = 0;
  double logprob_sum = 0;
};

class Recorder final : public RequestSink {
 public:
  explicit Recorder(uint32_t choices = 1) : choices(choices) {}

  void on_admitted(const Admission& value) override {
    EXPECT_FALSE(admission.has_value()) << "admitted twice";
    EXPECT_FALSE(finished.has_value());
    admission = value;
  }
  void on_prompt(PromptLogprobs&& piece) override {
    EXPECT_TRUE(admission.has_value()) << "output before admission";
    EXPECT_EQ(piece.position, prompt.size()) << "a gap in the prompt";
    EXPECT_FALSE(piece.tokens.empty());
    for (const ChoiceRecord& choice : choices) EXPECT_EQ(choice.deltas, 0U) << "prompt too late";
    std::move(piece.tokens.begin(), piece.tokens.end(), std::back_inserter(prompt));
  }
  void on_delta(Delta&& delta) override {
    EXPECT_TRUE(admission.has_value()) << "output before admission";
    EXPECT_FALSE(finished.has_value()) << "output after the end";
    ASSERT_LT(delta.choice, choices.size());
    ChoiceRecord& choice = choices[delta.choice];
    EXPECT_EQ(choice.finish, FinishReason::kNone) << "output of a choice that had ended";
    EXPECT_TRUE(!delta.text.empty() || !delta.tokens.empty() ||
                delta.finish != FinishReason::kNone);
    EXPECT_GE(delta.completion_tokens, choice.completion_tokens);
    choice.text += delta.text;
    for (TokenOutput& output : delta.tokens) {
      choice.tokens.push_back(output.sampled.token);
      choice.sampled.push_back(std::move(output.sampled));
    }
    choice.finish = delta.finish;
    choice.stop_index = delta.stop_index;
    choice.completion_tokens = delta.completion_tokens;
    choice.logprob_sum = delta.logprob_sum;
    ++choice.deltas;
  }
  void on_finished(const Finished& value) override {
    EXPECT_FALSE(finished.has_value()) << "finished twice";
    finished = value;
    if (!value.status) return;
    uint32_t completion_tokens = 0;
    for (const ChoiceRecord& choice : choices) {
      EXPECT_NE(choice.finish, FinishReason::kNone) << "a choice never ended";
      completion_tokens += choice.completion_tokens;
    }
    EXPECT_EQ(completion_tokens, value.completion_tokens);
  }

  bool ok() const { return finished.has_value() && finished->status.has_value(); }

  std::vector<ChoiceRecord> choices;
  std::vector<sampling::Sampled> prompt;  // with Request::prompt_logprobs
  std::optional<Admission> admission;
  std::optional<Finished> finished;
};

/// A client that keeps nothing, so that what it hears allocates nothing.
class CountingSink final : public RequestSink {
 public:
  void on_admitted(const Admission&) override {}
  void on_delta(Delta&& delta) override { tokens += delta.tokens.size(); }
  void on_finished(const Finished&) override {}
  uint64_t tokens = 0;
};

inline void expect_equal(const ChoiceRecord& expected, const ChoiceRecord& got,
                         const std::string& what) {
  EXPECT_EQ(expected.tokens, got.tokens) << what;
  EXPECT_EQ(expected.text, got.text) << what;
  EXPECT_EQ(expected.finish, got.finish) << what;
  EXPECT_EQ(expected.stop_index, got.stop_index) << what;
  EXPECT_EQ(expected.completion_tokens, got.completion_tokens) << what;
  EXPECT_EQ(expected.logprob_sum, got.logprob_sum) << what;
  ASSERT_EQ(expected.sampled.size(), got.sampled.size()) << what;
  for (std::size_t i = 0; i < expected.sampled.size(); ++i) {
    EXPECT_EQ(expected.sampled[i].logprob, got.sampled[i].logprob) << what << ", token " << i;
  }
}

/// The scored prompt: bit for bit, also the runners-up.
inline void expect_equal(const std::vector<sampling::Sampled>& expected,
                         const std::vector<sampling::Sampled>& got, const std::string& what) {
  ASSERT_EQ(expected.size(), got.size()) << what;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(expected[i].token, got[i].token) << what << ", prompt token " << i;
    EXPECT_EQ(expected[i].logprob, got[i].logprob) << what << ", prompt token " << i;
    ASSERT_EQ(expected[i].top.size(), got[i].top.size()) << what;
    for (std::size_t t = 0; t < expected[i].top.size(); ++t) {
      EXPECT_EQ(expected[i].top[t].token, got[i].top[t].token) << what << ", prompt token " << i;
      EXPECT_EQ(expected[i].top[t].logprob, got[i].top[t].logprob) << what;
    }
  }
}

inline std::vector<TokenId> random_tokens(Prng& prng, std::size_t count, uint32_t vocab_size) {
  std::vector<TokenId> tokens;
  for (std::size_t i = 0; i < count; ++i) {
    tokens.push_back(TokenId(static_cast<int32_t>(prng.below(vocab_size))));
  }
  return tokens;
}

inline Request greedy(std::vector<TokenId> prompt, uint64_t max_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  request.sampling.logprobs = 0;
  request.ignore_eos = true;
  return request;
}

/// A core on the fake executor. Every step is followed by check_invariants.
class Bench {
 public:
  explicit Bench(FakeExecutorOptions executor_options = {}, Options options = {})
      : executor(executor_options), tokenizer(executor_options.vocab_size) {
    clock.set(1'000'000);
    auto created = Core::create(executor, tokenizer, clock, options);
    EXPECT_TRUE(created.has_value()) << created.status().error().message;
    core = std::move(*created);
  }
  ~Bench() {
    core.reset();
    EXPECT_EQ(executor.violations(), std::vector<std::string>{});
  }

  std::shared_ptr<Recorder> submit(Request request) {
    auto recorder = std::make_shared<Recorder>(request.choices);
    const Status status = core->check(request);
    EXPECT_TRUE(status.has_value()) << status.error().message;
    last_id = RequestId(next_id_++);
    core->submit(last_id, std::move(request), recorder, clock.now());
    return recorder;
  }
  bool step() {
    const bool more = core->step();
    clock.advance(1'000'000);
    core->check_invariants();
    return more;
  }
  void run(uint32_t steps_max = 1'000'000) {
    for (uint32_t i = 0; i < steps_max; ++i) {
      if (!step()) return;
    }
    ADD_FAILURE() << "work is left after " << steps_max << " steps";
  }
  std::shared_ptr<Recorder> serve(Request request) {
    auto recorder = submit(std::move(request));
    run();
    EXPECT_TRUE(recorder->ok());
    return recorder;
  }

  SimClock clock;
  FakeExecutor executor;
  FakeTokenizer tokenizer;
  std::unique_ptr<Core> core;
  RequestId last_id;

 private:
  uint64_t next_id_ = 1;
};

/// The tokens that any correct serving samples: straight from the definition, without an engine.
inline std::vector<TokenId> defined_tokens(const FakeExecutor& executor, const Request& request,
                                           uint32_t choice, uint64_t count) {
  sampling::Sampler sampler(executor.vocab_size());
  std::vector<TokenId> tokens = request.prompt;
  for (uint64_t i = 0; i < count; ++i) {
    const std::vector<float> logits = executor.logits_after(tokens);
    const sampling::History history{request.prompt,
                                    std::span(tokens).subspan(request.prompt.size())};
    tokens.push_back(
        sampler.sample(logits, request.sampling, history, choice, tokens.size()).token);
  }
  tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(request.prompt.size()));
  return tokens;
}

}  // namespace pagewise::engine
