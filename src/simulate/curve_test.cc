// SPDX-License-Identifier: Apache-2.0
#include "simulate/curve.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <utility>
#include <vector>

#include "kv/kv_cache.h"
#include "simulate/random_trace_for_tests.h"
#include "workload/generators.h"

namespace pagewise::simulate {
namespace {

constexpr uint32_t kBlock = 512;

RandomTraceShape shape(uint32_t requests) {
  return {requests, /*output_tokens=*/kBlock, kBlock, /*pieces_max=*/6};
}

/// The definition: an LRU list of prefixes, block by block, for one size of memory.
double naive_hit_rate(const workload::Trace& trace, uint64_t tokens) {
  using Prefix = std::vector<uint32_t>;
  std::list<Prefix> list;  // most recently used first
  const std::size_t blocks_max = tokens / kBlock;
  uint64_t found = 0, all = 0;
  for (const workload::TraceRequest& request : trace.requests()) {
    std::vector<Prefix> prefixes(1);
    for (const workload::Piece& piece : trace.pieces(request)) {
      Prefix longer = prefixes.back();
      longer.push_back(piece.id);
      prefixes.push_back(std::move(longer));
    }
    prefixes.erase(prefixes.begin());
    for (const Prefix& prefix : prefixes) {
      ++all;
      found += std::find(list.begin(), list.end(), prefix) != list.end();
    }
    Prefix answer = prefixes.back();
    answer.push_back(workload::kAnswerPiece);
    prefixes.push_back(std::move(answer));
    for (std::size_t i = prefixes.size(); i-- > 0;) {
      list.remove(prefixes[i]);
      list.push_front(prefixes[i]);
    }
    while (list.size() > blocks_max) list.pop_back();
  }
  return static_cast<double>(found) / static_cast<double>(all);
}

TEST(Curve, IsTheHitRateOfAnLruListOfEachSize) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const workload::Trace trace = random_trace(seed, shape(300));
    const Curve curve = hit_rate_curve(trace, {});
    EXPECT_EQ(curve.share, 1);
    ASSERT_GT(curve.points.size(), 5U);
    for (const CurvePoint& point : curve.points) {
      EXPECT_NEAR(point.hit_rate, naive_hit_rate(trace, point.tokens), 1e-9) << point.tokens;
    }
    EXPECT_NEAR(curve.points.back().hit_rate, naive_hit_rate(trace, 1 << 30), 1e-9);
  }
}

/// The same trace on the cache itself, one request after the other.
double cache_hit_rate(const workload::Trace& trace, uint32_t block_tokens, uint64_t tokens) {
  kv::CacheConfig config;
  config.block_tokens = block_tokens;
  config.groups = {{static_cast<uint32_t>(tokens / block_tokens), 0}};
  config.protected_share = 0;
  const auto cache = kv::KvCache::create(config).value();
  kv::Orders orders;
  uint64_t found = 0;
  for (const workload::TraceRequest& request : trace.requests()) {
    std::vector<TokenId> sequence = trace.prompt(request);
    kv::AdmitRequest admit;
    admit.tokens = sequence;
    admit.cover_tokens = request.prompt_tokens + request.output_tokens;
    orders.clear();
    const Result<kv::Admitted> admitted = cache->admit(admit, orders);
    if (!admitted) continue;
    found += admitted->cached_tokens;
    sequence.resize(sequence.size() + request.output_tokens, workload::kAnswerToken);
    cache->publish(admitted->seq, sequence);
    cache->release(admitted->seq);
  }
  return static_cast<double>(found) / static_cast<double>(trace.prompt_tokens());
}

TEST(Curve, TellsWhatTheCacheFinds) {
  for (const std::string_view kind : {"chat", "agent", "mix"}) {
    SCOPED_TRACE(std::string(kind));
    const workload::Trace trace = workload::generate(kind, {1500, 1, 1}).value();
    const Curve curve = hit_rate_curve(trace, {});
    for (const CurvePoint& point : curve.points) {
      // Below that, a single request fills the memory and its own blocks are in its way.
      if (point.tokens < 300'000) continue;
      EXPECT_NEAR(cache_hit_rate(trace, 32, point.tokens), point.hit_rate, 0.02) << point.tokens;
    }
  }
}

TEST(Curve, FollowingAPartOfTheBlocksIsClose) {
  const workload::Trace trace = workload::generate("mix", {30'000, 2, 1}).value();
  const Curve whole = hit_rate_curve(trace, {.blocks_max = 1 << 22});
  ASSERT_EQ(whole.share, 1);
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const Curve part = hit_rate_curve(trace, {.blocks_max = 1 << 15, .seed = seed});
    EXPECT_LT(part.share, 0.5);
    EXPECT_LE(part.blocks, uint64_t{1} << 15);
    double error_sum = 0;
    for (const CurvePoint& point : whole.points) {
      if (point.tokens < 100'000) continue;
      const double error = std::abs(part.hit_rate_at(point.tokens) - point.hit_rate);
      EXPECT_LT(error, 0.05) << point.tokens;
      error_sum += error;
    }
    EXPECT_LT(error_sum / static_cast<double>(whole.points.size()), 0.02);
  }
}

TEST(Curve, DistancesOfAPartCountForAll) {
  const workload::Trace trace =
      random_trace(1, shape(10'000));  // steep: nothing is asked for after 60 requests
  const Curve whole = hit_rate_curve(trace, {.blocks_max = 1 << 22});
  const Curve part = hit_rate_curve(trace, {.blocks_max = 1 << 12});
  EXPECT_LT(part.share, 0.2);
  for (const CurvePoint& point : whole.points) {
    if (point.tokens < 20'000) continue;
    EXPECT_NEAR(part.hit_rate_at(point.tokens), point.hit_rate, 0.06) << point.tokens;
  }
}

TEST(Curve, OfATraceThatRepeatsNothingIsEmpty) {
  workload::Trace trace;
  for (uint32_t i = 0; i < 10; ++i) {
    const std::vector<workload::Piece> pieces = {{1 + i, 100}};
    trace.add(i, pieces, 5);
  }
  EXPECT_TRUE(hit_rate_curve(trace, {}).points.empty());
}

TEST(Curve, NeverFalls) {
  const Curve curve =
      hit_rate_curve(workload::generate("scan", {3000, 1, 1}).value(), {.blocks_max = 500});
  ASSERT_GT(curve.points.size(), 2U);
  for (std::size_t i = 1; i < curve.points.size(); ++i) {
    EXPECT_GE(curve.points[i].hit_rate, curve.points[i - 1].hit_rate);
    EXPECT_GT(curve.points[i].tokens, curve.points[i - 1].tokens);
    EXPECT_LE(curve.points[i].hit_rate, 1);
  }
}

}  // namespace
}  // namespace pagewise::simulate
