// SPDX-License-Identifier: Apache-2.0
#include "planner/kv_cost.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/bytes.h"
#include "base/prng.h"
#include "kv/geometry.h"
#include "planner/numbers.h"

namespace pagewise::planner {
namespace {

const KvFormat& format(std::string_view name) {
  const KvFormat* found = find_kv_format(name);
  EXPECT_NE(found, nullptr) << name;
  return *found;
}

KvCost cost_of(const Layout& layout, std::string_view key, std::string_view value,
               uint32_t block_tokens) {
  const auto cost = KvCost::of_layout(layout, format(key), format(value), block_tokens);
  EXPECT_TRUE(cost.has_value()) << cost.error().message;
  return *cost;
}

Layout qwen3_4b() {
  return {.groups = {{.layers = 36, .kv_heads = 8, .key_dim = 128, .value_dim = 128}}};
}

Layout gemma3_270m(uint32_t window) {
  Layout layout;
  for (uint32_t i = 0; i < 18; ++i) {
    add_layer(layout, {.layers = 1,
                       .kv_heads = 1,
                       .key_dim = 256,
                       .value_dim = 256,
                       .window = i % 6 == 5 ? 0 : window});
  }
  return layout;
}

TEST(KvCost, C22CountsRowsPerKvHeadAndBlockTypesByTheirBlocks) {
  struct Case {
    std::string_view key, value;
    uint64_t token, total;
  };
  for (const Case& c :
       {Case{"f16", "f16", 147456, 4831838208}, Case{"q8_0", "q8_0", 78336, 2566914048},
        Case{"q4_0", "q4_0", 41472, 1358954496}, Case{"q8_0", "q4_0", 59904, 1962934272}}) {
    const KvCost cost = cost_of(qwen3_4b(), c.key, c.value, 32);
    EXPECT_EQ(cost.token_bytes(), c.token) << c.key << c.value;
    EXPECT_EQ(cost.exact(32768), c.total) << c.key << c.value;
    EXPECT_EQ(cost.paged(32768), c.total) << c.key << c.value;
  }
}

TEST(KvCost, C22KeepsWindowLayersAtTheirWindow) {
  EXPECT_EQ(cost_of(gemma3_270m(0), "f16", "f16", 32).exact(32768), 603979776u);
  const KvCost cost = cost_of(gemma3_270m(512), "f16", "f16", 32);
  EXPECT_EQ(cost.exact(32768), 108527616u);
  // In blocks, a window of 512 that begins inside a block of 32 touches 17: one block more.
  EXPECT_EQ(cost.paged(32768), 108527616u + 15 * 1024 * 32);
  EXPECT_EQ(cost.exact(100), cost_of(gemma3_270m(0), "f16", "f16", 32).exact(100));
}

TEST(KvCost, RefusesATypeThatDoesNotDivideTheHead) {
  const Layout odd{.groups = {{.layers = 2, .kv_heads = 1, .key_dim = 80, .value_dim = 80}}};
  const auto cost = KvCost::of_layout(odd, format("q8_0"), format("f16"), 32);
  ASSERT_FALSE(cost.has_value());
  EXPECT_EQ(cost.error().message,
            "KV type q8_0 packs 32 values together, which does not divide a head of 80");
}

TEST(KvCost, RefusesATokenThatIsTooLargeOrNothing) {
  const Layout vast{.groups = {{65536, 65536, 1 << 20, 1 << 20, 0}}};
  EXPECT_FALSE(KvCost::of_layout(vast, format("f32"), format("f32"), 32).has_value());
  EXPECT_FALSE(KvCost::of_layout(Layout{}, format("f16"), format("f16"), 32).has_value());
  EXPECT_FALSE(KvCost::of_token_bytes(0, 32).has_value());
  EXPECT_FALSE(KvCost::of_token_bytes(kTokenBytesMax + 1, 32).has_value());
  EXPECT_TRUE(KvCost::of_token_bytes(kTokenBytesMax, 32).has_value());
}

TEST(KvFormats, EqualTheCachesTypesWhereItHasThem) {
  for (const KvFormat& f : kv_formats()) {
    const auto row = kv_format_row_bytes(f, 256);
    ASSERT_TRUE(row.has_value());
    if (f.kv_type) {
      EXPECT_EQ(kv_type_name(*f.kv_type), f.name);
      EXPECT_EQ(*row, kv_row_bytes(*f.kv_type, 256));
    }
    EXPECT_TRUE(f.kv_type || !f.served) << f.name;
    const TensorTypeInfo* info = tensor_type_info(f.type);
    EXPECT_EQ(*row, 256u / info->block_elements * info->block_bytes) << f.name;
  }
  EXPECT_EQ(find_kv_format("q9"), nullptr);
  EXPECT_NE(kv_format_names().find("f16, bf16"), std::string::npos);
}

// A layout of a few groups and the same as the server's geometry.
struct Drawn {
  Layout layout;
  kv::Geometry geometry;
  std::string key, value;
};

Drawn draw(Prng& prng) {
  Drawn drawn;
  const auto pick_type = [&] { return std::string(kv_formats()[prng.below(4)].name); };
  drawn.key = pick_type();
  drawn.value = pick_type();
  drawn.geometry.block_tokens = uint32_t{1} << prng.below(8);
  const uint64_t groups = 1 + prng.below(3);
  for (uint64_t g = 0; g < groups; ++g) {
    LayoutGroup group;
    group.layers = static_cast<uint32_t>(1 + prng.below(5));
    group.kv_heads = static_cast<uint32_t>(1 + prng.below(4));
    group.key_dim = static_cast<uint32_t>(32 * (1 + prng.below(4)));
    group.value_dim = static_cast<uint32_t>(32 * (1 + prng.below(4)));
    group.window = prng.below(2) == 0 ? 0 : static_cast<uint32_t>(1 + prng.below(200));
    drawn.layout.groups.push_back(group);
    drawn.geometry.groups.push_back({.layers = group.layers,
                                     .kv_heads = group.kv_heads,
                                     .key_dim = group.key_dim,
                                     .value_dim = group.value_dim,
                                     .window = group.window,
                                     .key_type = *format(drawn.key).kv_type,
                                     .value_type = *format(drawn.value).kv_type});
  }
  return drawn;
}

class KvCostOfRandomLayouts : public ::testing::TestWithParam<uint64_t> {};

TEST_P(KvCostOfRandomLayouts, EqualsTheServersGeometryAndCountingByHand) {
  SCOPED_TRACE(fmt::format("seed {}", GetParam()));
  Prng prng(GetParam());
  for (int round = 0; round < 20; ++round) {
    const Drawn drawn = draw(prng);
    const kv::Geometry& geometry = drawn.geometry;
    const uint32_t block_tokens = geometry.block_tokens;
    const KvCost cost = cost_of(drawn.layout, drawn.key, drawn.value, block_tokens);
    EXPECT_EQ(cost.token_bytes(), geometry.token_bytes());

    const uint64_t tokens = 1 + prng.below(600);
    // By hand: which positions are read, and which blocks do they lie in, at each length up to
    // `tokens`.
    uint64_t exact = 0;
    uint64_t paged = 0;
    uint64_t stride_sum = 0;
    for (uint32_t g = 0; g < geometry.groups.size(); ++g) {
      const kv::GroupGeometry& group = geometry.groups[g];
      const uint64_t row = uint64_t{group.layers} * group.kv_heads *
                           (kv_row_bytes(group.key_type, group.key_dim) +
                            kv_row_bytes(group.value_type, group.value_dim));
      std::size_t blocks_most = 0;
      for (uint64_t length = 1; length <= tokens; ++length) {
        std::set<uint64_t> blocks;
        uint64_t read = 0;
        for (uint64_t position = 0; position < length; ++position) {
          if (group.window != 0 && position + group.window < length) continue;
          blocks.insert(position / block_tokens);
          ++read;
        }
        blocks_most = std::max(blocks_most, blocks.size());
        if (length == tokens) exact += read * row;
      }
      paged += blocks_most * geometry.block_stride(g);
      stride_sum += geometry.block_stride(g);
    }
    EXPECT_EQ(cost.exact(tokens), exact);
    // The bound for a window holds at every length; the longest lengths reach it.
    EXPECT_GE(cost.paged(tokens), paged);
    EXPECT_LE(cost.paged(tokens), paged + stride_sum);
    EXPECT_EQ(cost.block_bytes(), stride_sum);
  }
}

TEST_P(KvCostOfRandomLayouts, SharesAPrefixAsBlocksTakenOneByOneWould) {
  SCOPED_TRACE(fmt::format("seed {}", GetParam()));
  Prng prng(GetParam());
  for (int round = 0; round < 20; ++round) {
    const Drawn drawn = draw(prng);
    const uint32_t block_tokens = drawn.geometry.block_tokens;
    const KvCost cost = cost_of(drawn.layout, drawn.key, drawn.value, block_tokens);
    const uint64_t tokens = 1 + prng.below(500);
    const uint64_t count = 1 + prng.below(6);
    const uint64_t prefix = prng.below(tokens + 1);
    uint64_t expected = 0;
    for (uint32_t g = 0; g < drawn.geometry.groups.size(); ++g) {
      // A block is (sequence or shared, index); what lies wholly in the prefix belongs to all.
      std::set<std::pair<uint64_t, uint64_t>> blocks;
      const uint64_t each = kv::blocks_held(tokens, drawn.geometry.groups[g].window, block_tokens);
      for (uint64_t sequence = 0; sequence < count; ++sequence) {
        for (uint64_t index = 0; index < each; ++index) {
          const bool common =
              drawn.geometry.groups[g].window == 0 && (index + 1) * block_tokens <= prefix;
          blocks.emplace(common ? count : sequence, index);
        }
      }
      expected += blocks.size() * drawn.geometry.block_stride(g);
    }
    EXPECT_EQ(cost.paged_sharing(tokens, count, prefix), expected);
    EXPECT_EQ(cost.paged_sharing(tokens, count, 0), cost.paged(tokens) * count);
  }
}

TEST_P(KvCostOfRandomLayouts, InvertsItsOwnSizes) {
  SCOPED_TRACE(fmt::format("seed {}", GetParam()));
  Prng prng(GetParam());
  for (int round = 0; round < 20; ++round) {
    const Drawn drawn = draw(prng);
    const uint32_t block_tokens = drawn.geometry.block_tokens;
    const KvCost cost = cost_of(drawn.layout, drawn.key, drawn.value, block_tokens);
    const uint64_t tokens = 1 + prng.below(2000);
    const uint64_t count = 1 + prng.below(20);
    const uint64_t memory = cost.paged(1 + prng.below(2000)) * (1 + prng.below(20));

    uint64_t fitting = 0;
    while ((fitting + 1) * cost.paged(tokens) <= memory) ++fitting;
    EXPECT_EQ(cost.sequences_max(memory, tokens), fitting);

    uint64_t mean = 0;
    for (uint64_t length = block_tokens; length <= round_up(tokens, block_tokens);
         length += block_tokens) {
      if (count * cost.paged(length) <= memory) mean = length;
    }
    EXPECT_EQ(cost.mean_tokens_max(memory, count, tokens), mean);

    uint64_t exceeding = 1;
    while (exceeding < 5000 && cost.exact(exceeding) <= memory) ++exceeding;
    if (exceeding < 5000) {
      EXPECT_EQ(cost.tokens_exceeding(memory), exceeding);
    } else {
      EXPECT_GE(cost.tokens_exceeding(memory), exceeding);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, KvCostOfRandomLayouts, ::testing::Values(1, 2, 3, 4, 5));

TEST(KvCost, StaysBelow2To63AtItsLimits) {
  const auto cost = KvCost::of_token_bytes(kTokenBytesMax, 128);
  ASSERT_TRUE(cost.has_value());
  EXPECT_EQ(cost->exact(kTokensMax), uint64_t{1} << 62);
  EXPECT_EQ(cost->paged(kTokensMax), uint64_t{1} << 62);
  EXPECT_EQ(cost->paged_sharing(kTokensMax, 1000, 0), uint64_t{1} << 63);  // saturated
  EXPECT_EQ(cost->tokens_exceeding(UINT64_MAX), kTokensMax + 1);
}

TEST(Numbers, AreGroupedInThousands) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(123456), "123,456");
  EXPECT_EQ(grouped(UINT64_MAX), "18,446,744,073,709,551,615");
  EXPECT_EQ(short_tokens(4096), "4k");
  EXPECT_EQ(short_tokens(1048576), "1,024k");
  EXPECT_EQ(short_tokens(5000), "5,000");
  EXPECT_EQ(short_tokens(512), "512");
}

}  // namespace
}  // namespace pagewise::planner
