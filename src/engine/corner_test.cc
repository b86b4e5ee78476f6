// SPDX-License-Identifier: Apache-2.0
// The corners of what can be configured, each combination on purpose instead of by chance: blocks
// of one position and of 256, windows of two positions and windows that no sequence outgrows, pools
// that hold exactly one request, several choices where not all of them fit, leases of nothing or of
// everything, callers that must not read each other. Every answer must be that of the same request
// alone without a cache.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "engine/test_support.h"
#include "kv/geometry.h"

namespace pagewise::engine {
namespace {

struct Corner {
  uint32_t block_tokens = 1;
  std::vector<uint32_t> windows;
  uint32_t spare_blocks = 0;  // beyond those of the longest request
  uint32_t choices = 1;       // of every second request
  double lease_share = 0;
  uint32_t step_tokens = 512;
};

std::string name_of(const Corner& corner) {
  std::string name = "blocks of " + std::to_string(corner.block_tokens) + ", windows";
  for (const uint32_t window : corner.windows) name += " " + std::to_string(window);
  return name + ", " + std::to_string(corner.spare_blocks) + " spare blocks, " +
         std::to_string(corner.choices) + " choices, lease share " +
         std::to_string(corner.lease_share) + ", steps of " + std::to_string(corner.step_tokens);
}

/// Prompt and answer of the longest request: a few blocks, and never a whole number of them.
uint32_t longest_of(const Corner& corner) { return 3 * corner.block_tokens + 41; }

FakeExecutorOptions machine(const Corner& corner) {
  FakeExecutorOptions options;
  options.block_tokens = corner.block_tokens;
  options.windows = corner.windows;
  options.context_max = longest_of(corner);
  for (const uint32_t window : corner.windows) {
    const uint64_t one = kv::blocks_needed(longest_of(corner), window, corner.block_tokens);
    options.group_blocks.push_back(static_cast<uint32_t>(one) + corner.spare_blocks);
  }
  return options;
}

/// Prompts that begin alike, some as long as can be served at all, in two namespaces, marked at
/// every third of the longest.
std::vector<Request> crowd(const Corner& corner, Prng& prng) {
  const uint32_t longest = longest_of(corner);
  const std::vector<TokenId> shared = random_tokens(prng, longest, 64);
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 8; ++i) {
    const uint32_t length = i % 4 == 0 ? longest - 1 - (i == 4 ? 20 : 0)
                                       : 1 + static_cast<uint32_t>(prng.below(longest - 20));
    const auto alike = static_cast<std::ptrdiff_t>(length - prng.below(length));
    Request request = greedy({shared.begin(), shared.begin() + alike}, 20);
    for (const TokenId token : random_tokens(prng, length - request.prompt.size(), 64)) {
      request.prompt.push_back(token);
    }
    request.sampling.temperature = i % 2 == 0 ? 0.0F : 1.0F;
    request.sampling.seed = i;
    request.choices = i % 2 == 0 ? 1 : corner.choices;
    request.cache.cache_namespace = i % 3 == 2 ? "other" : "";
    for (uint32_t at = longest / 3; at <= length; at += longest / 3) {
      request.cache.positions.push_back({at});
      request.cache.markers.push_back(
          {static_cast<uint32_t>(request.cache.markers.size()), LeaseClass::k5m});
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

/// What the corners together have met.
struct Met {
  uint64_t preemptions = 0, evictions = 0, hits = 0, copies_on_write = 0, reads = 0;
  uint64_t leases_refused = 0, leases_broken = 0;
};

void serve_crowd(const Corner& corner, Met& met) {
  SCOPED_TRACE(name_of(corner));
  Prng prng(mix64(corner.block_tokens * 31 + corner.windows.size() + corner.spare_blocks));
  Options options;
  options.lease_share = corner.lease_share;
  options.step_tokens = corner.step_tokens;
  Options off = options;
  off.prefix_cache = false;
  Bench bench(machine(corner), options), uncached(machine(corner), off);
  for (uint32_t round = 0; round < 2; ++round) {
    const std::vector<Request> requests = crowd(corner, prng);
    std::vector<std::shared_ptr<Recorder>> answers;
    for (const Request& request : requests) {
      answers.push_back(bench.submit(request));
      bench.step();
    }
    bench.run();
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const std::string what = "request " + std::to_string(i);
      ASSERT_TRUE(answers[i]->ok()) << what;
      const auto expected = uncached.serve(requests[i]);
      for (uint32_t c = 0; c < requests[i].choices; ++c) {
        expect_equal(expected->choices[c], answers[i]->choices[c], what);
      }
    }
  }
  const Stats stats = bench.core->stats();
  EXPECT_EQ(stats.blocks_live, 0U);
  if (corner.lease_share == 0) {
    EXPECT_EQ(stats.cache_created_tokens, 0U);
  }
  met.preemptions += stats.preemptions;
  met.evictions += stats.evictions;
  met.hits += stats.prefix_hit_tokens;
  met.copies_on_write += stats.copies_on_write;
  met.reads += stats.cache_read_tokens;
  met.leases_refused += stats.leases_refused;
  met.leases_broken += stats.leases_broken;
}

TEST(Corners, EveryCombinationAnswersLikeEachRequestAlone) {
  Met met;
  const std::vector<std::vector<uint32_t>> groups = {{0},    {2},     {0, 2},       {2, 0},
                                                     {3, 2}, {0, 17}, {0, 100'000}, {0, 0}};
  for (const uint32_t block_tokens : {1U, 2U, 16U, 256U}) {
    for (const std::vector<uint32_t>& windows : groups) {
      for (const uint32_t spare : {0U, 1U, 30U}) {
        for (const double lease_share : {0.0, 0.2, 1.0}) {
          const uint32_t choices = spare == 1 ? 3 : 2;
          const uint32_t step_tokens = lease_share == 0.2 ? 7 : 512;
          serve_crowd({block_tokens, windows, spare, choices, lease_share, step_tokens}, met);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
  EXPECT_GT(met.preemptions, 0U);
  EXPECT_GT(met.evictions, 0U);
  EXPECT_GT(met.hits, 0U);
  EXPECT_GT(met.copies_on_write, 0U);
  EXPECT_GT(met.reads, 0U);
  EXPECT_GT(met.leases_refused, 0U);
  EXPECT_GT(met.leases_broken, 0U);
}

}  // namespace
}  // namespace pagewise::engine
