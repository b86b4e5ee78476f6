// SPDX-License-Identifier: Apache-2.0
// Models with sliding windows: what a simulation says of them against the same engine on an
// executor that checks every position it reads, and against plain sums.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/prng.h"
#include "engine/fake_executor.h"
#include "simulate/simulation.h"
#include "workload/generators.h"

namespace pagewise::simulate {
namespace {

struct Case {
  workload::Trace trace;
  ReplicaOptions options;
  std::string text;
};

/// Crowds on small pools, on one to three groups of which at least one has a window.
Case random_case(uint64_t seed) {
  Prng prng(mix64(seed));
  constexpr std::string_view kKinds[] = {"chat", "agent", "batch", "mix"};
  const std::string_view kind = kKinds[prng.below(std::size(kKinds))];
  const double rate = 1.0 / static_cast<double>(1 + prng.below(8));
  const workload::Trace made = workload::generate(kind, {30 + prng.below(40), seed, rate}).value();
  Case out;
  out.trace =
      workload::changed(made, {0, UINT64_MAX, static_cast<uint32_t>(24 + prng.below(60)), 1})
          .value();
  uint64_t longest = 0;
  for (const workload::TraceRequest& request : out.trace.requests()) {
    longest = std::max<uint64_t>(longest, request.prompt_tokens + request.output_tokens);
  }
  ReplicaOptions& options = out.options;
  // The same time whatever a step does, so that both executors take the same.
  options.calibration = {};
  options.calibration.kv_bytes_per_token = 1024;
  options.calibration.step_ns = 1e6;
  engine::FakeExecutorOptions fake;
  fake.block_tokens = 1U << prng.below(5);
  fake.windows.clear();
  for (uint64_t g = 0, groups = 1 + prng.below(3); g < groups; ++g) {
    const bool full = g == 0 && groups > 1 && prng.below(4) != 0;
    fake.windows.push_back(full ? 0 : static_cast<uint32_t>(2 + prng.below(120)));
  }
  options.geometry = engine::FakeExecutor(fake).geometry();
  options.engine.step_tokens = static_cast<uint32_t>(1 + prng.below(96));
  for (const uint32_t window : fake.windows) {
    const uint64_t one = kv::blocks_needed(longest + 1, window, fake.block_tokens);
    options.blocks.push_back(static_cast<uint32_t>(one + 1 + one * prng.below(10) / 4));
  }
  options.engine.seqs_max = static_cast<uint32_t>(1 + prng.below(12));
  options.engine.queue_max = static_cast<uint32_t>(4 + prng.below(64));
  options.engine.idle_release_ns = INT64_MAX / 2;
  out.text =
      fmt::format("seed {}: {}, windows {}, blocks {} of {}", seed, kind,
                  fmt::join(fake.windows, " "), fmt::join(options.blocks, " "), fake.block_tokens);
  return out;
}

class CountingSink final : public engine::RequestSink {
 public:
  CountingSink(Measured& measured, const Clock& clock) : measured_(measured), clock_(clock) {}
  void on_admitted(const engine::Admission& admission) override {
    measured_.prompt_tokens += admission.prompt_tokens;
    measured_.cached_tokens += admission.cached_tokens;
    measured_.queue.add(admission.queue_ns);
  }
  void on_delta(engine::Delta&& delta) override {
    if (delta.completion_tokens == 0) return;
    if (last_ns_ >= 0) measured_.gap.add(clock_.now() - last_ns_);
    last_ns_ = clock_.now();
  }
  void on_finished(const engine::Finished& finished) override {
    ++(finished.status ? measured_.served : measured_.failed);
    measured_.output_tokens += finished.completion_tokens;
    measured_.first_token.add(finished.first_ns);
    measured_.last_ns = clock_.now();
  }

 private:
  Measured& measured_;
  const Clock& clock_;
  TimeNs last_ns_ = -1;
};

/// The same requests on the engine's own core over an executor that keeps and checks every
/// position.
Measured serve_on_fake(const Case& asked) {
  const ReplicaOptions& options = asked.options;
  SimClock clock;
  engine::FakeExecutorOptions fake;
  fake.block_tokens = options.geometry.block_tokens;
  fake.windows.clear();
  for (const kv::GroupGeometry& group : options.geometry.groups) {
    fake.windows.push_back(group.window);
  }
  fake.group_blocks = options.blocks;
  fake.vocab_size = workload::kVocabSize;
  fake.on_step = [&](std::span<const model::StepRun>) { clock.advance(1'000'000); };
  engine::FakeExecutor executor(fake);
  const WordlessTokenizer tokenizer;
  const auto core = engine::Core::create(executor, tokenizer, clock, options.engine).value();
  Measured measured;
  uint64_t id = 0;
  for (const workload::TraceRequest& arrival : asked.trace.requests()) {
    while (!core->idle() && clock.now() < arrival.arrival_ns) core->step();
    if (core->idle()) clock.set(std::max(clock.now(), arrival.arrival_ns));
    ++id, ++measured.offered;
    engine::Request request;
    request.prompt = asked.trace.prompt(arrival);
    request.max_tokens = arrival.output_tokens;
    request.sampling.temperature = 0;
    request.sampling.logit_bias = {{workload::kAnswerToken, 100}};
    request.ignore_eos = true;
    if (!core->check(request)) {
      ++measured.refused_context;
    } else if (core->waiting() >= options.engine.queue_max) {
      ++measured.refused_queue;
    } else {
      core->submit(RequestId(id), std::move(request),
                   std::make_shared<CountingSink>(measured, clock), arrival.arrival_ns);
    }
    if (id % 8 == 0) core->check_invariants();
  }
  while (!core->idle()) core->step();
  core->check_invariants();
  EXPECT_EQ(executor.violations(), std::vector<std::string>());
  const engine::Stats stats = core->stats();
  measured.preemptions = stats.preemptions;
  measured.evictions = stats.evictions;
  measured.prefix_waits = stats.prefix_waits;
  measured.steps = stats.steps;
  for (const engine::GroupStats& group : stats.groups) {
    measured.sequence_rest_max.push_back(group.sequence_rest_max);
    measured.sequence_step_max.push_back(group.sequence_step_max);
  }
  return measured;
}

Measured replay(const Case& asked, bool leap) {
  SimulationOptions options;
  options.replica = asked.options;
  options.replica.leap = leap;
  options.replica.sample_ns = INT64_MAX / 2;
  Measured measured = simulate(asked.trace, options).value().all;
  measured.busy_ns = 0;  // which the other one does not count
  return measured;
}

TEST(Windows, AreSimulatedAsTheEngineServesThemOnAnExecutorThatChecksEveryRead) {
  uint64_t hits = 0, evictions = 0, preemptions = 0, refused = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const Case asked = random_case(seed);
    SCOPED_TRACE(asked.text);
    const Measured simulated = replay(asked, true);
    EXPECT_EQ(simulated, replay(asked, false));
    EXPECT_EQ(simulated, serve_on_fake(asked));
    const uint32_t block_tokens = asked.options.geometry.block_tokens;
    for (uint32_t g = 0; g < asked.options.blocks.size(); ++g) {
      const uint64_t window = asked.options.geometry.groups[g].window;
      if (window == 0) continue;
      // In tokens: the window and a block at rest; the tokens of a step and two blocks during it.
      EXPECT_LE((simulated.sequence_rest_max[g] - 1) * block_tokens, window + block_tokens);
      EXPECT_LE(simulated.sequence_step_max[g] * block_tokens,
                window + asked.options.engine.step_tokens + 2 * block_tokens);
    }
    hits += simulated.cached_tokens;
    evictions += simulated.evictions;
    preemptions += simulated.preemptions;
    refused += simulated.refused_queue;
    if (::testing::Test::HasFailure()) return;
  }
  // What did not occur would not have been tested.
  EXPECT_GT(hits, 10'000U);
  EXPECT_GT(evictions, 1000U);
  EXPECT_GT(preemptions, 20U);
  EXPECT_GT(refused, 10U);
}

}  // namespace
}  // namespace pagewise::simulate
