// SPDX-License-Identifier: Apache-2.0
#include "kv/pool_split.h"

#include <gtest/gtest.h>

#include "base/prng.h"

namespace pagewise::kv {
namespace {

GroupGeometry group(uint32_t layers, uint32_t window) {
  return {.layers = layers, .kv_heads = 1, .key_dim = 256, .value_dim = 256, .window = window};
}

/// The layers of Gemma 3 270M: 3 full ones and 15 that see 512 positions.
Geometry gemma() { return {32, {group(3, 0), group(15, 512)}}; }

uint64_t bytes_of(const Geometry& geometry, const PoolSplit& split) {
  uint64_t bytes = 0;
  for (uint32_t g = 0; g < geometry.groups.size(); ++g) {
    bytes += split.blocks[g] * geometry.block_stride(g);
  }
  return bytes;
}

TEST(PoolSplit, GivesOneGroupAllThatThereIs) {
  const Geometry geometry{32, {group(30, 0)}};
  const uint64_t stride = geometry.block_stride(0);
  const PoolSplit split = split_pool(geometry, {stride * 100 + stride - 1, 8192, 512});
  EXPECT_EQ(split.blocks, std::vector<uint32_t>{100});
  EXPECT_EQ(split.context, 3200U);
  EXPECT_EQ(split_pool(geometry, {stride * 300, 8192, 512}).context, 8192U);
  EXPECT_EQ(split_pool(geometry, {stride - 1, 8192, 512}).context, 0U);
}

TEST(PoolSplit, HoldsManyUsualConversationsAndOneOfTheWholeContext) {
  const Geometry geometry = gemma();
  const PoolSplit split = split_pool(geometry, {256 * kMiB, 32768, 512});
  EXPECT_EQ(split.context, 32768U);
  EXPECT_EQ(sequences_held(geometry, split.blocks, 1024), 13U);
  EXPECT_EQ(sequences_held(geometry, split.blocks, 4096), 12U);
  EXPECT_EQ(sequences_held(geometry, split.blocks, 8192), 6U);
  EXPECT_GE(sequences_held(geometry, split.blocks, 32768), 1U);
  EXPECT_GT(bytes_of(geometry, split), 256 * kMiB - geometry.block_stride(1));
}

TEST(PoolSplit, ShortensTheContextAndTheStepsBeforeTheWindow) {
  const Geometry geometry = gemma();
  for (const uint64_t mib : {10, 12, 16, 20, 40, 80}) {
    const PoolSplit split = split_pool(geometry, {mib * kMiB, 32768, 512});
    EXPECT_GE(split.blocks[1], blocks_needed(split.context, 512, 32)) << mib;
    EXPECT_EQ(geometry.blocks_for(split.context), blocks_needed(split.context, 0, 32)) << mib;
    EXPECT_GT(split.context, mib * 16) << mib;
    EXPECT_LE(bytes_of(geometry, split), mib * kMiB);
  }
  EXPECT_EQ(split_pool(geometry, {512 * kKiB, 32768, 512}).context, 0U);
}

TEST(PoolSplit, AContextThatYieldsLeavesWindowsForSeveralSequences) {
  const Geometry geometry = gemma();
  const PoolSplit firm = split_pool(geometry, {64 * kMiB, 32768, 512, 1});
  const PoolSplit yielding = split_pool(geometry, {64 * kMiB, 32768, 512, 64});
  EXPECT_EQ(sequences_held(geometry, firm.blocks, 1024), 1U);
  EXPECT_EQ(sequences_held(geometry, yielding.blocks, 1024), 4U);
  EXPECT_LT(yielding.context, firm.context);
  EXPECT_GE(yielding.context, firm.context / 2);
  // No more windows than sequences, and none where there is memory for both.
  EXPECT_GT(split_pool(geometry, {64 * kMiB, 32768, 512, 2}).context, yielding.context);
  EXPECT_EQ(split_pool(geometry, {256 * kMiB, 32768, 512, 64}).blocks,
            split_pool(geometry, {256 * kMiB, 32768, 512, 1}).blocks);
  // A window that no sequence reaches the end of is no reason.
  const Geometry wide{32, {group(3, 0), group(15, 100'000)}};
  EXPECT_EQ(split_pool(wide, {64 * kMiB, 32768, 512, 64}).blocks,
            split_pool(wide, {64 * kMiB, 32768, 512, 1}).blocks);
}

TEST(PoolSplit, IsOfTheLeastMemoryThatHoldsSoManyTokens) {
  for (const Geometry& geometry :
       {Geometry{32, {group(30, 0)}}, gemma(), Geometry{16, {group(8, 4096)}}}) {
    const uint64_t smallest =
        std::min(geometry.block_stride(0),
                 geometry.block_stride(static_cast<uint32_t>(geometry.groups.size()) - 1));
    for (const uint64_t tokens : {1, 1000, 30'000, 1'000'000}) {
      const auto held = [&](uint64_t bytes) {
        return tokens_held(geometry, split_pool(geometry, {bytes, 32768, 512}).blocks);
      };
      const uint64_t bytes = memory_to_hold(geometry, {0, 32768, 512}, tokens);
      EXPECT_GE(held(bytes), tokens);
      EXPECT_LT(held(bytes - smallest), tokens);
    }
  }
  // A third of Gemma's layers' rows would be too little, and all of them far too much.
  const uint64_t bytes = memory_to_hold(gemma(), {0, 32768, 512}, 1'000'000);
  EXPECT_GT(bytes, 1'000'000 * gemma().groups[0].token_bytes());
  EXPECT_LT(bytes, 1'000'000 * gemma().token_bytes() / 2);
}

TEST(PoolSplit, CountsTheTokensOfTheFullGroups) {
  const Geometry geometry = gemma();
  EXPECT_EQ(tokens_held(geometry, std::vector<uint32_t>{100, 40}), 3200U);
  EXPECT_EQ(tokens_held({16, {group(3, 64), group(3, 32)}}, std::vector<uint32_t>{9, 5}), 80U);
}

// Any layout and any memory: within it, nothing that could be used left over, and what it says
// about the context is so.
TEST(PoolSplit, FitsAndServesItsContextWhateverTheLayout) {
  constexpr uint64_t kSeed = 11;
  SCOPED_TRACE(kSeed);
  Prng prng(kSeed);
  const auto draw = [&](uint64_t low, uint64_t end) { return low + prng.below(end - low); };
  for (int round = 0; round < 2000; ++round) {
    Geometry geometry;
    geometry.block_tokens = static_cast<uint32_t>(1) << draw(4, 8);
    const uint64_t groups = draw(1, 4);
    for (uint64_t g = 0; g < groups; ++g) {
      const uint32_t window = draw(0, 2) == 0 ? 0 : static_cast<uint32_t>(draw(1, 5000));
      geometry.groups.push_back(group(static_cast<uint32_t>(draw(1, 40)), window));
    }
    const PoolWish wish{draw(1, uint64_t{1} << draw(10, 36)),
                        static_cast<uint32_t>(draw(2, 200'000)),
                        static_cast<uint32_t>(draw(1, 4096)), static_cast<uint32_t>(draw(1, 80))};
    const PoolSplit split = split_pool(geometry, wish);
    ASSERT_EQ(split.blocks.size(), geometry.groups.size());
    ASSERT_LE(bytes_of(geometry, split), wish.bytes) << round;
    ASSERT_LE(split.context, wish.context) << round;
    PoolWish firm = wish;
    firm.sequences = 1;
    ASSERT_GE(split.context, split_pool(geometry, firm).context / 2) << round;
    uint64_t least = 0, largest = 0;  // a block each; the dearest
    for (uint32_t g = 0; g < geometry.groups.size(); ++g) {
      least += geometry.block_stride(g);
      largest = std::max(largest, geometry.block_stride(g));
      ASSERT_GE(split.blocks[g], split.context == 0
                                     ? 0
                                     : blocks_needed(split.context, geometry.groups[g].window,
                                                     geometry.block_tokens))
          << round;
    }
    if (split.context > 0) {
      ASSERT_GE(bytes_of(geometry, split) + largest, wish.bytes) << round;
      ASSERT_GE(sequences_held(geometry, split.blocks, split.context), 1U) << round;
    } else {
      ASSERT_LT(wish.bytes, 3 * least) << round;
    }
  }
}

}  // namespace
}  // namespace pagewise::kv
