// SPDX-License-Identifier: Apache-2.0
// What the engine says of other sizes of memory while it serves, against what the simulator says of
// the same requests as a trace.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "simulate/curve.h"
#include "simulate/machine.h"
#include "simulate/random_trace_for_tests.h"
#include "simulate/replica.h"
#include "workload/generators.h"

namespace pagewise::simulate {
namespace {

constexpr uint32_t kBlock = 32;

RandomTraceShape shape(uint32_t requests, uint32_t output_tokens) {
  return {requests, output_tokens, kBlock, /*pieces_max=*/4, /*piece_blocks_max=*/4};
}

ReplicaOptions machine(uint32_t blocks) {
  ReplicaOptions options;
  options.geometry = plain_geometry(options.calibration.kv_bytes_per_token, kBlock);
  options.blocks = {blocks};
  options.engine.cache_curve = true;
  options.engine.queue_max = 1'000'000;
  return options;
}

/// Serves the whole trace. `apart`: each request when the one before has ended; else when it comes.
std::unique_ptr<Replica> serve(const workload::Trace& trace, const ReplicaOptions& options,
                               bool apart) {
  auto replica = Replica::create(options).value();
  uint64_t id = 1;
  for (const workload::TraceRequest& request : trace.requests()) {
    if (apart) {
      EXPECT_TRUE(replica->finish());
    } else {
      EXPECT_TRUE(replica->run_until(request.arrival_ns));
    }
    replica->offer(RequestId(id++), trace.prompt(request), trace.pieces(request),
                   request.output_tokens, request.arrival_ns);
  }
  EXPECT_TRUE(replica->finish());
  EXPECT_EQ(replica->measured().served, trace.requests().size());
  return replica;
}

engine::CurveFigures figures(const Replica& replica) {
  return replica.core().curve_report().figures.value();
}

TEST(LiveCurve, IsTheSimulatorsOfTheSameRequests) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const workload::Trace trace = random_trace(seed, shape(300, 0));
    const Curve simulated = hit_rate_curve(trace, {.block_tokens = kBlock});
    ASSERT_EQ(simulated.share, 1);
    // Whatever the pool: what it evicted meanwhile does not show.
    for (const uint32_t blocks : {128U, 4096U}) {
      const engine::CurveFigures live = figures(*serve(trace, machine(blocks), true));
      ASSERT_TRUE(live.enough);
      ASSERT_EQ(live.followed_share, 1);
      std::size_t compared = 0;
      for (const CurvePoint& point : simulated.points) {
        const auto same =
            std::find_if(live.points.begin(), live.points.end(),
                         [&](const CurvePoint& other) { return other.tokens == point.tokens; });
        if (same == live.points.end()) continue;
        EXPECT_NEAR(same->hit_rate, point.hit_rate, 1e-9) << point.tokens;
        ++compared;
      }
      EXPECT_GT(compared, 10U);
    }
  }
}

TEST(LiveCurve, IsCloseToTheSimulatorsWhereRequestsOverlapAndAnswer) {
  for (const std::string_view kind : {"chat", "agent"}) {
    SCOPED_TRACE(std::string(kind));
    const workload::Trace whole = workload::generate(kind, {600, 1, 0.05}).value();
    const Curve simulated = hit_rate_curve(whole, {.block_tokens = kBlock});
    const auto replica = serve(whole, machine(4096), false);
    const engine::CurveFigures live = figures(*replica);
    EXPECT_EQ(live.requests, 600U);
    std::size_t compared = 0;
    for (const CurvePoint& point : simulated.points) {
      const auto same =
          std::find_if(live.points.begin(), live.points.end(),
                       [&](const CurvePoint& other) { return other.tokens == point.tokens; });
      // Below, a few requests fill the memory at once.
      if (same == live.points.end() || point.tokens < 40'000) continue;
      EXPECT_NEAR(same->hit_rate, point.hit_rate, 0.02) << point.tokens;
      ++compared;
    }
    EXPECT_GT(compared, 2U);
  }
}

TEST(LiveCurve, PredictsAtItsOwnSizeWhatTheCacheFinds) {
  for (const std::string_view kind : {"chat", "agent"}) {
    SCOPED_TRACE(std::string(kind));
    const workload::Trace trace = workload::generate(kind, {600, 1, 0.02}).value();
    for (const double share : {0.0, engine::Options().protected_share}) {
      ReplicaOptions options = machine(4096);
      options.engine.protected_share = share;
      const auto replica = serve(trace, options, false);
      const engine::CurveFigures live = figures(*replica);
      const Measured measured = replica->measured();
      EXPECT_NEAR(
          live.hit_rate,
          static_cast<double>(measured.cached_tokens) / static_cast<double>(measured.prompt_tokens),
          1e-9);
      EXPECT_GT(live.hit_rate, 0.3);
      EXPECT_NEAR(live.predicted[1], live.hit_rate, 0.03);
    }
  }
}

TEST(LiveCurve, TellsWhatAnotherPoolThenFinds) {
  // What half and twice the memory would find, against servers that have it.
  const workload::Trace trace = workload::generate("mix", {800, 3, 0.02}).value();
  const engine::CurveFigures live = figures(*serve(trace, machine(4096), false));
  for (std::size_t i = 0; i < engine::kCurveFactors.size(); ++i) {
    const auto blocks = static_cast<uint32_t>(4096 * engine::kCurveFactors[i]);
    const engine::CurveFigures there = figures(*serve(trace, machine(blocks), false));
    EXPECT_NEAR(live.predicted[i], there.hit_rate, 0.04) << engine::kCurveFactors[i];
  }
}

}  // namespace
}  // namespace pagewise::simulate
