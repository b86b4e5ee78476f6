// SPDX-License-Identifier: Apache-2.0
// An engine on a model file, and what equality tests compare of its answers.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/core.h"
#include "engine/test_support.h"
#include "golden/real_model.h"
#include "text/tokenizer.h"

namespace pagewise::golden {

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<uint32_t> logprob_bits;  // of each token, then of its best five
  bool operator==(const Answer&) const = default;
};

inline Answer answer_of(const engine::Recorder& recorder, uint32_t choice = 0) {
  Answer answer;
  EXPECT_TRUE(recorder.ok());
  const auto add = [&](float logprob) {
    uint32_t bits;
    std::memcpy(&bits, &logprob, sizeof(bits));
    answer.logprob_bits.push_back(bits);
  };
  for (const sampling::Sampled& sampled : recorder.choices[choice].sampled) {
    answer.tokens.push_back(sampled.token.value);
    add(sampled.logprob);
    for (const sampling::TokenLogprob& best : sampled.top) {
      answer.tokens.push_back(best.token.value);
      add(best.logprob);
    }
  }
  return answer;
}

/// One engine on a model of tests/golden, stepped by hand.
class EngineBench {
 public:
  EngineBench(const RealModel& model, const text::Tokenizer& tokenizer,
              const ExecutorSetting& setting, const engine::Options& options) {
    auto made = make_executor(model, setting);
    EXPECT_TRUE(made.has_value()) << made.status().error().message;
    executor_ = std::move(*made);
    restart(tokenizer, options);
  }
  /// A new engine with an empty cache on the same executor.
  void restart(const text::Tokenizer& tokenizer, const engine::Options& options) {
    core_.reset();
    auto core = engine::Core::create(*executor_, tokenizer, clock_, options);
    EXPECT_TRUE(core.has_value()) << core.status().error().message;
    core_ = std::move(*core);
  }
  std::shared_ptr<engine::Recorder> submit(engine::Request request) {
    auto recorder = std::make_shared<engine::Recorder>(request.choices);
    const Status status = core_->check(request);
    EXPECT_TRUE(status.has_value()) << status.error().message;
    core_->submit(RequestId(next_id_++), std::move(request), recorder, clock_.now());
    return recorder;
  }
  void run() {
    while (core_->step()) clock_.advance(1'000'000);
    core_->check_invariants();
  }
  std::vector<Answer> together(const std::vector<engine::Request>& requests) {
    std::vector<std::shared_ptr<engine::Recorder>> recorders;
    for (const engine::Request& request : requests) recorders.push_back(submit(request));
    run();
    std::vector<Answer> answers;
    for (const auto& recorder : recorders) answers.push_back(answer_of(*recorder));
    return answers;
  }
  std::vector<Answer> one_by_one(const std::vector<engine::Request>& requests) {
    std::vector<Answer> answers;
    for (const engine::Request& request : requests) answers.push_back(together({request})[0]);
    return answers;
  }
  const engine::Core& core() const { return *core_; }

 private:
  SimClock clock_;
  std::unique_ptr<model::CpuExecutor> executor_;
  std::unique_ptr<engine::Core> core_;
  uint64_t next_id_ = 1;
};

inline engine::Options options_of(uint32_t step_tokens, bool prefix_cache, uint32_t seqs_max) {
  engine::Options options;
  options.step_tokens = step_tokens;
  options.prefix_cache = prefix_cache;
  options.seqs_max = seqs_max;
  options.shuffle_blocks = true;
  options.shuffle_seed = 42;
  return options;
}

}  // namespace pagewise::golden
