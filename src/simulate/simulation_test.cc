// SPDX-License-Identifier: Apache-2.0
#include "simulate/simulation.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <ostream>
#include <string>

#include "base/prng.h"
#include "workload/generators.h"
#include "workload/trace_reader.h"

namespace pagewise::simulate {

/// What tests print where two differ.
void PrintTo(const Measured& measured, std::ostream* out) {
  const auto times = [](const Histogram& histogram) {
    return fmt::format("{} to {} ns ({})", histogram.quantile(0.5), histogram.max(),
                       histogram.count());
  };
  *out << fmt::format(
      "served {} of {}, failed {}, refused {} + {}, prompt tokens {}, cached {}, output {}, first "
      "{}, gaps {}, queue {}, end {}, busy {}, preemptions {}, evictions {}, waits {}, steps {}, "
      "held {}, unused {}, reserved {}",
      measured.served, measured.offered, measured.failed, measured.refused_queue,
      measured.refused_context, measured.prompt_tokens, measured.cached_tokens,
      measured.output_tokens, times(measured.first_token), times(measured.gap),
      times(measured.queue), measured.last_ns, measured.busy_ns, measured.preemptions,
      measured.evictions, measured.prefix_waits, measured.steps, measured.positions_held,
      measured.positions_unused, measured.positions_reserved);
}

namespace {

constexpr TimeNs kSecond = 1'000'000'000;

/// A millisecond a step, whatever is in it.
workload::Calibration even_steps() {
  workload::Calibration calibration;
  calibration.name = "test";
  calibration.kv_bytes_per_token = 1024;
  calibration.step_ns = 1e6;
  return calibration;
}

SimulationOptions machine(uint32_t blocks) {
  SimulationOptions options;
  options.replica.calibration = even_steps();
  options.replica.geometry = plain_geometry(options.replica.calibration.kv_bytes_per_token, 32);
  options.replica.blocks = {blocks};
  return options;
}

struct Arrival {
  TimeNs at_ns = 0;
  std::vector<workload::Piece> pieces;
  uint32_t output = 1;
};

workload::Trace trace_of(const std::vector<Arrival>& arrivals) {
  workload::Trace trace;
  for (const Arrival& arrival : arrivals) trace.add(arrival.at_ns, arrival.pieces, arrival.output);
  return trace;
}

Outcome run(const workload::Trace& trace, const SimulationOptions& options) {
  Result<Outcome> outcome = simulate(trace, options);
  EXPECT_TRUE(outcome.has_value()) << outcome.status().error().message;
  return std::move(outcome).value();
}

TEST(Simulation, ASinglePromptTakesItsStepsAndNothingElse) {
  // 1,500 tokens are three steps of at most 512; the third gives the first token, nine more follow.
  const Measured all = run(trace_of({{0, {{1, 1500}}, 10}}), machine(100)).all;
  EXPECT_EQ(all.served, 1U);
  EXPECT_EQ(all.steps, 12U);
  EXPECT_EQ(all.output_tokens, 10U);
  EXPECT_EQ(all.first_token.max(), 3'000'000);
  EXPECT_EQ(all.gap.count(), 9U);
  EXPECT_EQ(all.gap.max(), 1'000'000);
  EXPECT_EQ(all.last_ns, 12'000'000);
  EXPECT_EQ(all.busy_ns, 12'000'000);
}

TEST(Simulation, ARepeatedPromptIsReadFromTheCacheButForItsLastToken) {
  const Measured all =
      run(trace_of({{0, {{1, 640}}, 2}, {kSecond, {{1, 640}}, 2}}), machine(100)).all;
  EXPECT_EQ(all.prompt_tokens, 1280U);
  EXPECT_EQ(all.cached_tokens, 639U);
}

TEST(Simulation, ANextTurnReadsTheLastAnswer) {
  const Measured all =
      run(trace_of({{0, {{1, 100}}, 50},
                    {kSecond, {{1, 100}, {workload::kAnswerPiece, 50}, {2, 30}}, 5}}),
          machine(100))
          .all;
  // The last token of an answer was sampled and never computed.
  EXPECT_EQ(all.cached_tokens, 149U);
}

TEST(Simulation, WithoutAPrefixCacheNothingIsRead) {
  SimulationOptions options = machine(100);
  options.replica.engine.prefix_cache = false;
  const Measured all = run(trace_of({{0, {{1, 640}}, 2}, {kSecond, {{1, 640}}, 2}}), options).all;
  EXPECT_EQ(all.cached_tokens, 0U);
  EXPECT_EQ(all.served, 2U);
}

TEST(Simulation, CountsWhatAServerWouldRefuse) {
  SimulationOptions options = machine(40);  // 1,280 positions
  options.replica.engine.queue_max = 2;
  std::vector<Arrival> arrivals = {{0, {{1, 1280}}, 1}};  // too long
  for (uint32_t i = 0; i < 5; ++i) arrivals.push_back({0, {{2 + i, 1000}}, 20});
  const Measured all = run(trace_of(arrivals), options).all;
  EXPECT_EQ(all.offered, 6U);
  EXPECT_EQ(all.refused_context, 1U);
  // Two wait for the first step when the others come.
  EXPECT_EQ(all.refused_queue, 3U);
  EXPECT_EQ(all.served, 2U);
  EXPECT_EQ(all.failed, 0U);
}

TEST(Simulation, AnArrivalDuringAStepWaitsForItsEnd) {
  const Measured all =
      run(trace_of({{0, {{1, 100}}, 10}, {2'500'000, {{2, 100}}, 1}}), machine(100)).all;
  EXPECT_EQ(all.queue.max(), 500'000);
  EXPECT_EQ(all.first_token.max(), 1'500'000);
}

TEST(Simulation, APoolThatIsTooSmallPreemptsAndServesAllTheSame) {
  std::vector<Arrival> arrivals;
  for (uint32_t i = 0; i < 8; ++i) arrivals.push_back({0, {{1 + i, 100}}, 400});
  const Measured all = run(trace_of(arrivals), machine(40)).all;
  EXPECT_GT(all.preemptions, 0U);
  EXPECT_EQ(all.served, 8U);
  EXPECT_EQ(all.output_tokens, 8U * 400);
}

TEST(Simulation, MemoryThatNoTokenUsesIsLessThanABlockForEachRequest) {
  std::vector<Arrival> arrivals;
  for (uint32_t i = 0; i < 20; ++i) arrivals.push_back({0, {{1 + i, 90}}, 3000});
  const Measured all = run(trace_of(arrivals), machine(4000)).all;
  EXPECT_GT(all.positions_held, 0U);
  EXPECT_LT(all.positions_unused, all.positions_held / 20);
  EXPECT_GT(all.positions_reserved, all.positions_held);
}

// ---- Many steps in one move -----------------------------------------------------------------

/// Crowds in which everything happens: small pools, long answers, equal prompts at the same time.
struct Crowd {
  workload::Trace trace;
  SimulationOptions options;
  std::string text;
};

Crowd random_crowd(uint64_t seed) {
  Prng prng(mix64(seed));
  constexpr std::string_view kKinds[] = {"chat", "agent", "rag", "batch", "scan", "mix"};
  const std::string_view kind = kKinds[prng.below(std::size(kKinds))];
  const double rate = std::exp2(static_cast<double>(prng.below(12)) - 4);
  const workload::Trace made = workload::generate(kind, {20 + prng.below(60), seed, rate}).value();
  const auto divisor = static_cast<uint32_t>(16 + prng.below(65));
  const workload::Trace scaled = workload::changed(made, {0, UINT64_MAX, divisor, 1}).value();
  Crowd crowd;
  for (const workload::TraceRequest& request : scaled.requests()) {
    const uint32_t output =
        prng.below(4) == 0 ? static_cast<uint32_t>(prng.below(300)) : request.output_tokens;
    // Equal prompts side by side: twins.
    for (uint64_t i = 0, times = prng.below(8) == 0 ? 3 : 1; i < times; ++i) {
      crowd.trace.add(request.arrival_ns, scaled.pieces(request), output);
    }
  }
  uint64_t longest = 0;
  for (const workload::TraceRequest& request : crowd.trace.requests()) {
    longest = std::max<uint64_t>(longest, request.prompt_tokens + request.output_tokens);
  }
  ReplicaOptions& replica = crowd.options.replica;
  replica.calibration = even_steps();
  replica.calibration.prompt_token_ns = static_cast<double>(prng.below(200'000));
  replica.calibration.row_ns = static_cast<double>(prng.below(200'000));
  replica.calibration.row_position_ns = static_cast<double>(prng.below(1000));
  const uint32_t block_tokens = 1U << (prng.below(6));
  replica.geometry = plain_geometry(replica.calibration.kv_bytes_per_token, block_tokens);
  replica.blocks = {static_cast<uint32_t>(2 + longest * (1 + prng.below(12)) / 2 / block_tokens)};
  replica.engine.step_tokens = static_cast<uint32_t>(1 + prng.below(prng.below(3) == 0 ? 8 : 128));
  replica.engine.seqs_max = static_cast<uint32_t>(1 + prng.below(16));
  replica.engine.queue_max = static_cast<uint32_t>(1 + prng.below(64));
  replica.engine.prefix_cache = prng.below(8) != 0;
  replica.engine.idle_release_ns = INT64_MAX / 2;
  if (prng.below(5) == 0) replica.mark = kv::LeaseClass::k5m;
  crowd.text = fmt::format("seed {}: {} / {}, blocks of {}, {} of them", seed, kind, divisor,
                           block_tokens, replica.blocks[0]);
  return crowd;
}

/// Seeds to try: 1 to PAGEWISE_RUNS, by default few enough for every test run.
uint64_t runs() {
  const char* given = std::getenv("PAGEWISE_RUNS");
  return given == nullptr ? 150 : std::strtoull(given, nullptr, 10);
}

TEST(Simulation, ManyStepsInOneMoveGiveTheSameAsOneAfterTheOther) {
  uint64_t leaps = 0, preemptions = 0, evictions = 0, hits = 0, refused = 0;
  for (uint64_t seed = 1; seed <= runs(); ++seed) {
    const Crowd crowd = random_crowd(seed);
    SCOPED_TRACE(crowd.text);
    Measured measured[2];
    kv::BlockCounts counts[2];
    for (const bool leap : {false, true}) {
      ReplicaOptions options = crowd.options.replica;
      options.leap = leap;
      options.sample_ns = 50'000'000;
      const std::unique_ptr<Replica> replica = Replica::create(options).value();
      uint64_t id = 0;
      for (const workload::TraceRequest& request : crowd.trace.requests()) {
        ASSERT_TRUE(replica->run_until(request.arrival_ns));
        replica->offer(RequestId(++id), crowd.trace.prompt(request), crowd.trace.pieces(request),
                       request.output_tokens, request.arrival_ns);
        if (id % 16 == 0) replica->core().check_invariants();
      }
      ASSERT_TRUE(replica->finish());
      replica->core().check_invariants();
      measured[leap] = replica->measured();
      counts[leap] = replica->core().stats().groups[0].blocks;
      EXPECT_TRUE(leap || replica->leaps() == 0);
      leaps += replica->leaps();
      EXPECT_EQ(replica->requests_open(), 0U);
      EXPECT_EQ(replica->prompt_tokens_open(), 0U);
    }
    EXPECT_EQ(measured[0], measured[1]);
    EXPECT_EQ(counts[0], counts[1]);
    preemptions += measured[1].preemptions;
    evictions += measured[1].evictions;
    hits += measured[1].cached_tokens;
    refused += measured[1].refused_queue;
    if (::testing::Test::HasFailure()) return;
  }
  // What did not occur would not have been tested.
  EXPECT_GT(leaps, 1000U);
  EXPECT_GT(preemptions, 100U);
  EXPECT_GT(evictions, 1000U);
  EXPECT_GT(hits, 1000U);
  EXPECT_GT(refused, 10U);
}

TEST(Simulation, WhoTakesTurnsDoesSoInTheSameOrderBehindALeap) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Prng prng(mix64(seed));
    std::vector<Arrival> arrivals;
    TimeNs at_ns = 0;
    for (uint32_t i = 0; i < 16; ++i) {
      const auto prompt = static_cast<uint32_t>(5 + prng.below(3));
      arrivals.push_back({at_ns, {{1 + i, prompt}}, static_cast<uint32_t>(3 + prng.below(50))});
      at_ns += static_cast<TimeNs>(prng.below(60'000'000));
    }
    const workload::Trace trace = trace_of(arrivals);
    SimulationOptions options = machine(1000);
    options.replica.calibration.row_position_ns = 10'000;  // whose turn it is shows in the times
    options.replica.engine.step_tokens = static_cast<uint32_t>(2 + prng.below(3));
    const Measured leaping = run(trace, options).all;
    options.replica.leap = false;
    EXPECT_EQ(run(trace, options).all, leaping);
  }
}

TEST(Simulation, ALongAnswerAloneIsAFewMoves) {
  ReplicaOptions options = machine(1000).replica;
  options.sample_ns = INT64_MAX / 2;
  const std::unique_ptr<Replica> replica = Replica::create(options).value();
  const workload::Trace trace = trace_of({{0, {{1, 100}}, 10'000}});
  const workload::TraceRequest& request = trace.requests()[0];
  replica->offer(RequestId(1), trace.prompt(request), trace.pieces(request), 10'000, 0);
  ASSERT_TRUE(replica->finish());
  EXPECT_EQ(replica->measured().output_tokens, 10'000U);
  EXPECT_EQ(replica->leaps(), 1U);
}

// ---- Markers ----

TEST(Simulation, MarkedPromptsAreBilledAsTheServerBillsThem) {
  SimulationOptions options = machine(200);
  options.replica.mark = kv::LeaseClass::k5m;
  // A system prompt of 64, and three turns of a conversation behind it. Then another one.
  const workload::Trace trace = trace_of({{0, {{1, 64}, {2, 100}}, 1},
                                          {kSecond, {{1, 64}, {2, 100}, {3, 36}}, 1},
                                          {2 * kSecond, {{1, 64}, {4, 50}}, 1},
                                          {400 * kSecond, {{1, 64}, {5, 50}}, 1}});
  const Measured all = run(trace, options).all;
  // The last one comes when all leases have ended: nothing is an entry any more, though in memory.
  EXPECT_EQ(all.marked_created_tokens, 164U + 36 + 50 + 114);
  EXPECT_EQ(all.marked_read_tokens, 164U + 64);
  EXPECT_EQ(all.cached_tokens, 164U + 64 + 64);
  EXPECT_EQ(all.leases_broken + all.leases_refused, 0U);
}

TEST(Simulation, ALeaseKeepsWhatOtherWorkWouldPushOut) {
  std::vector<Arrival> arrivals = {{0, {{1, 640}}, 1}};
  for (uint32_t i = 0; i < 20; ++i) arrivals.push_back({kSecond * (1 + i), {{2 + i, 640}}, 1});
  arrivals.push_back({60 * kSecond, {{1, 640}}, 1});
  SimulationOptions options = machine(50);  // two and a half of these prompts
  EXPECT_EQ(run(trace_of(arrivals), options).all.cached_tokens, 0U);
  options.replica.mark = kv::LeaseClass::k5m;
  const Measured marked = run(trace_of(arrivals), options).all;
  EXPECT_EQ(marked.cached_tokens, 639U);
  // Half of the pool may be leased: one prompt, and no other one beside it.
  EXPECT_EQ(marked.leases_refused, 20U);
  EXPECT_EQ(marked.leases_broken, 0U);
}

// ---- Several servers ----------------------------------------------------------------------------

TEST(Simulation, EveryRoutingServesTheWholeTrace) {
  const workload::Trace trace = workload::generate("mix", {300, 1, 2}).value();
  for (const Routing routing : {Routing::kRandom, Routing::kLeastLoaded, Routing::kPrefixAware}) {
    SCOPED_TRACE(std::string(routing_name(routing)));
    EXPECT_EQ(parse_routing(routing_name(routing)), routing);
    SimulationOptions options = machine(8000);
    options.replicas = 3;
    options.routing = routing;
    const Outcome outcome = run(trace, options);
    ASSERT_EQ(outcome.replicas.size(), 3U);
    Measured sum;
    for (const Measured& replica : outcome.replicas) {
      sum.merge(replica);
    }
    EXPECT_EQ(sum, outcome.all);
    EXPECT_EQ(outcome.all.served, 300U);
    EXPECT_EQ(run(trace, options).all, outcome.all) << "the same again";
  }
}

TEST(Simulation, RoutingByPrefixReadsMoreThanRoutingByChance) {
  const workload::Trace trace = workload::generate("chat", {600, 1, 5}).value();
  SimulationOptions options = machine(8000);
  options.replica.calibration.prompt_token_ns = 100'000;
  options.replicas = 4;
  options.routing = Routing::kRandom;
  const Measured random = run(trace, options).all;
  options.routing = Routing::kPrefixAware;
  const Measured aware = run(trace, options).all;
  EXPECT_EQ(random.prompt_tokens, aware.prompt_tokens);
  EXPECT_GT(aware.cached_tokens, random.cached_tokens * 11 / 10);
}

TEST(Simulation, APrefixDoesNotDrawEverythingToOneServer) {
  // One manual for all; computing it again is soon cheaper than queueing behind all the others.
  const workload::Trace trace = workload::generate("rag", {400, 1, 50}).value();
  SimulationOptions options = machine(20'000);
  options.replica.calibration.prompt_token_ns = 100'000;
  options.replica.calibration.row_ns = 5'000'000;
  options.replica.engine.queue_max = UINT32_MAX;
  options.replicas = 2;
  options.routing = Routing::kPrefixAware;
  for (const Measured& replica : run(trace, options).replicas) EXPECT_GT(replica.served, 40U);
}

// ---- What the policy is worth ----------------------------------------------------------------

TEST(Simulation, TheDefaultPolicyBeatsLruOnAScanAndLosesNothingOnOtherWork) {
  for (const std::string_view kind : {"scan", "chat", "rag", "mix"}) {
    SCOPED_TRACE(std::string(kind));
    const workload::Trace trace = workload::generate(kind, {1500, 1, 1}).value();
    SimulationOptions options = machine(2000);  // 64,000 positions
    options.replica.engine.queue_max = UINT32_MAX;
    const Measured protects = run(trace, options).all;
    options.replica.engine.protected_share = 0;
    const Measured lru = run(trace, options).all;
    EXPECT_EQ(protects.prompt_tokens, lru.prompt_tokens);
    EXPECT_GE(protects.cached_tokens, lru.cached_tokens);
    if (kind == "scan") {
      EXPECT_GT(protects.cached_tokens, lru.cached_tokens * 5 / 4);
    }
  }
}

// ---- A public trace -------------------------------------------------------------------------

TEST(Simulation, APublicTraceFindsWhatItRepeats) {
  const workload::Trace trace = workload::read_trace(std::string(PAGEWISE_SOURCE_DIR) +
                                                     "/tests/data/traces/conversation_head.jsonl")
                                    .value();
  // As many blocks as the trace has: nothing is given up, so each request finds the blocks that
  // one before it had. No other knowledge than the file's.
  uint64_t repeated = 0;
  std::vector<std::vector<uint32_t>> seen;
  for (const workload::TraceRequest& request : trace.requests()) {
    std::vector<uint32_t> ids;
    for (const workload::Piece& piece : trace.pieces(request)) ids.push_back(piece.id);
    std::size_t most = 0;
    for (const std::vector<uint32_t>& other : seen) {
      const auto parted = std::mismatch(ids.begin(), ids.end(), other.begin(), other.end()).first;
      most = std::max(most, static_cast<std::size_t>(parted - ids.begin()));
    }
    repeated += std::min<uint64_t>(most * workload::kHashedTokens, request.prompt_tokens - 1);
    seen.push_back(std::move(ids));
  }
  SimulationOptions options = machine(64'000);
  options.replica.engine.queue_max = UINT32_MAX;
  options.replica.engine.seqs_max = 1;  // so that whoever comes later finds all
  const Measured all = run(trace, options).all;
  EXPECT_EQ(all.served, 100U);
  // Ids that begin alike may agree in a token or two behind the common blocks.
  EXPECT_GE(all.cached_tokens, repeated);
  EXPECT_LE(all.cached_tokens, repeated + 4 * 100);
}

}  // namespace
}  // namespace pagewise::simulate
