// SPDX-License-Identifier: Apache-2.0
#include "cli/pool_size.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "base/bytes.h"
#include "model/cpu_executor.h"
#include "planner/server_memory.h"

namespace pagewise::cli {
namespace {

TEST(PoolSize, KeepsBackWhatTheStepsOfAWideModelAreComputedIn) {
  model::ModelSpec spec;
  spec.weight_bytes = 3 * kGiB;
  spec.context = 1024;
  spec.embedding = 4096;
  spec.layers.resize(1);
  spec.layers[0].heads = 32;
  spec.layers[0].kv_heads = 8;
  spec.layers[0].key_dim = spec.layers[0].value_dim = 128;
  spec.layers[0].ffn = 14'336;
  kv::Geometry geometry;
  geometry.groups = {{.layers = 1, .kv_heads = 8, .key_dim = 128, .value_dim = 128}};
  uint64_t last = 3 * kGiB;
  for (const uint32_t step_tokens : {512U, 4096U}) {
    const PoolWish wish{.kv_memory = "1000000GiB", .step_tokens = step_tokens, .threads = 1};
    const uint64_t fixed = 3 * kGiB + planner::working_memory(spec, {step_tokens, 1});
    EXPECT_GT(fixed, last);
    last = fixed + 100 * kMiB;
    EXPECT_EQ(fixed_memory(spec, wish), fixed);
    const Result<Pool> pool = size_pool(wish, spec, geometry);
    ASSERT_FALSE(pool.has_value());
    EXPECT_NE(pool.error().message.find(
                  fmt::format("weights and working memory take {}", format_size(fixed))),
              std::string::npos)
        << pool.error().message;
  }
}

}  // namespace
}  // namespace pagewise::cli
