// SPDX-License-Identifier: Apache-2.0
#include "planner/server_memory.h"

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "model/forward_memory.h"
#include "planner/engine_rules.h"

namespace pagewise::planner {
namespace {

/// Llama 3.1 8B's widths.
model::ModelSpec wide() {
  model::ModelSpec spec;
  spec.embedding = 4096;
  spec.vocab_size = 128'256;
  spec.layers.resize(32);
  for (model::LayerSpec& layer : spec.layers) {
    layer.heads = 32;
    layer.kv_heads = 8;
    layer.key_dim = layer.value_dim = 128;
    layer.ffn = 14'336;
  }
  return spec;
}

TEST(WorkingMemory, GrowsWithWhatTheThreadsOfAWideModelComputeIn) {
  const auto computing = [](uint32_t threads) {
    return working_memory(wide(), {.step_tokens = 512, .threads = threads}) - kPagewiseProcessBytes;
  };
  for (const uint32_t threads : {1U, 2U, 16U}) {
    EXPECT_EQ(computing(threads),
              model::forward_bytes(model::forward_shape(wide(), {.rows_max = 512}, threads)));
  }
  // More alone than what is kept back for all the rest.
  EXPECT_GT(computing(16), uint64_t{250} << 20);
  EXPECT_GT(working_memory(wide(), {.step_tokens = 2048, .threads = 1}),
            working_memory(wide(), {.step_tokens = 512, .threads = 1}) + (uint64_t{64} << 20));
}

TEST(WorkingMemory, HasRoomForWhatAServerTakesOnceItHasAnswered) {
  const ServerMemory there = server_memory(wide(), {.threads = 16});
  EXPECT_GT(working_memory(wide(), {.threads = 16}),
            there.buffers + there.vocabulary + there.program + (uint64_t{64} << 20));
}

}  // namespace
}  // namespace pagewise::planner
