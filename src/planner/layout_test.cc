// SPDX-License-Identifier: Apache-2.0
#include "planner/layout.h"

#include <gtest/gtest.h>

#include "gguf/test_writer.h"
#include "model/spec.h"

namespace pagewise::planner {
namespace {

using gguf::testing::TempFile;
using gguf::testing::Writer;

Result<Layout> read(const Writer& writer) {
  const TempFile file(writer.bytes());
  return layout_from_path(file.path());
}

std::string error_of(const Writer& writer) {
  const TempFile file(writer.bytes());
  const auto layout = layout_from_path(file.path());
  if (layout.has_value()) return "(read)";
  EXPECT_EQ(layout.error().message.find(file.path() + ": "), 0u) << layout.error().message;
  return layout.error().message.substr(file.path().size() + 2);
}

Writer metadata(const std::string& arch, uint32_t layers, uint32_t embedding, uint32_t heads) {
  Writer writer;
  writer.string("general.architecture", arch)
      .u32(arch + ".block_count", layers)
      .u32(arch + ".context_length", 32768)
      .u32(arch + ".embedding_length", embedding)
      .u32(arch + ".attention.head_count", heads);
  return writer;
}

Writer qwen3() {
  Writer writer = metadata("qwen3", 36, 2560, 32);
  writer.u32("qwen3.attention.head_count_kv", 8)
      .u32("qwen3.attention.key_length", 128)
      .u32("qwen3.attention.value_length", 128);
  return writer;
}

Writer gemma3() {
  Writer writer = metadata("gemma3", 18, 640, 4);
  writer.u32("gemma3.attention.head_count_kv", 1)
      .u32("gemma3.attention.key_length", 256)
      .u32("gemma3.attention.value_length", 256);
  return writer;
}

TEST(Layout, C22TakesTheHeadSizeFromItsKeyAndNotFromTheEmbedding) {
  const auto layout = read(qwen3());
  ASSERT_TRUE(layout.has_value()) << layout.error().message;
  EXPECT_EQ(layout->groups, (std::vector<LayoutGroup>{{36, 8, 128, 128, 0}}));
  EXPECT_EQ(layout->context, 32768u);
  EXPECT_EQ(layout->name, "qwen3");
  EXPECT_FALSE(layout->weight_bytes.has_value());
}

TEST(Layout, C22ReadsEverySixthGemma3LayerAsFull) {
  Writer writer = gemma3();
  writer.u32("gemma3.attention.sliding_window", 512);
  const auto layout = read(writer);
  ASSERT_TRUE(layout.has_value()) << layout.error().message;
  EXPECT_EQ(layout->groups,
            (std::vector<LayoutGroup>{{15, 1, 256, 256, 512}, {3, 1, 256, 256, 0}}));
}

TEST(Layout, FollowsAPatternThatTheFileGives) {
  Writer period = gemma3();
  period.u32("gemma3.attention.sliding_window", 512)
      .u32("gemma3.attention.sliding_window_pattern", 3);
  EXPECT_EQ(read(period)->groups,
            (std::vector<LayoutGroup>{{12, 1, 256, 256, 512}, {6, 1, 256, 256, 0}}));

  std::vector<uint8_t> each(18, 1);
  each[0] = each[17] = 0;
  Writer flags = gemma3();
  flags.u32("gemma3.attention.sliding_window", 512)
      .array<uint8_t>("gemma3.attention.sliding_window_pattern", Writer::kBool, each);
  EXPECT_EQ(read(flags)->groups,
            (std::vector<LayoutGroup>{{2, 1, 256, 256, 0}, {16, 1, 256, 256, 512}}));

  Writer wrong = gemma3();
  wrong.u32("gemma3.attention.sliding_window", 512)
      .array<uint8_t>("gemma3.attention.sliding_window_pattern", Writer::kBool, {1, 0});
  EXPECT_NE(error_of(wrong).find("2 values for 18 layers"), std::string::npos);
}

TEST(Layout, SharesTheEmbeddingAmongTheHeadsWhenTheFileGivesNoHeadSize) {
  Writer writer = metadata("llama", 30, 576, 9);
  writer.u32("llama.attention.head_count_kv", 3).string("general.name", "Small");
  const auto layout = read(writer);
  ASSERT_TRUE(layout.has_value()) << layout.error().message;
  EXPECT_EQ(layout->groups, (std::vector<LayoutGroup>{{30, 3, 64, 64, 0}}));
  EXPECT_EQ(layout->name, "Small");
  // Without KV heads of their own, every head keeps its K and V.
  EXPECT_EQ(read(metadata("llama", 2, 64, 4))->groups,
            (std::vector<LayoutGroup>{{2, 4, 16, 16, 0}}));
}

TEST(Layout, ReadsKvHeadsThatDifferFromLayerToLayer) {
  Writer writer = metadata("llama", 4, 64, 4);
  writer.array<int32_t>("llama.attention.head_count_kv", Writer::kI32, {4, 2, 4, 1});
  EXPECT_EQ(read(writer)->groups,
            (std::vector<LayoutGroup>{{2, 4, 16, 16, 0}, {1, 2, 16, 16, 0}, {1, 1, 16, 16, 0}}));
  Writer few = metadata("llama", 4, 64, 4);
  few.array<int32_t>("llama.attention.head_count_kv", Writer::kI32, {4, 2});
  EXPECT_NE(error_of(few).find("2 numbers for 4 layers"), std::string::npos);
  Writer none = metadata("llama", 2, 64, 4);
  none.array<int32_t>("llama.attention.head_count_kv", Writer::kI32, {4, 0});
  EXPECT_NE(error_of(none).find("a layer without KV heads is of a kind not known here"),
            std::string::npos);
}

TEST(Layout, IsAnErrorWhereItIsNotKnown) {
  EXPECT_NE(error_of(metadata("mamba", 4, 64, 4))
                .find("general.architecture at offset 52: the planner does not know the layout"),
            std::string::npos);
  Writer latent = metadata("llama", 4, 64, 4);
  latent.u32("llama.attention.kv_lora_rank", 512);
  EXPECT_NE(error_of(latent).find("llama.attention.kv_lora_rank at offset "), std::string::npos);
  Writer window = qwen3();
  window.u32("qwen3.attention.sliding_window", 4096);
  EXPECT_NE(error_of(window).find("which layers of 'qwen3' keep a window is not known here"),
            std::string::npos);
  Writer open_window = qwen3();
  open_window.u32("qwen3.attention.sliding_window", 0);
  EXPECT_TRUE(read(open_window).has_value());
}

TEST(Layout, NamesTheKeyThatIsMissingOrMakesNoSense) {
  EXPECT_EQ(error_of(Writer()), "general.architecture: missing");
  EXPECT_EQ(error_of(Writer().string("general.architecture", "qwen3")),
            "qwen3.block_count: missing");
  EXPECT_NE(error_of(gemma3()).find("gemma3.attention.sliding_window: missing"), std::string::npos);
  EXPECT_NE(error_of(metadata("llama", 0, 64, 4)).find("llama.block_count at offset "),
            std::string::npos);
  EXPECT_NE(error_of(metadata("llama", 1, 64, 0)).find("0 is not in 1 to 65536"),
            std::string::npos);
  EXPECT_NE(error_of(metadata("llama", 1, 65, 4))
                .find("missing, and an embedding of 65 does not divide by the heads"),
            std::string::npos);
}

TEST(Layout, OfTheTestModelIsWhatTheServerComputesWith) {
  const std::string path = PAGEWISE_SOURCE_DIR "/models/SmolLM2-135M-Instruct.Q4_1.gguf";
  const auto layout = layout_from_path(path);
  ASSERT_TRUE(layout.has_value()) << layout.error().message;
  EXPECT_EQ(layout->groups, (std::vector<LayoutGroup>{{30, 3, 64, 64, 0}}));
  EXPECT_EQ(layout->context, 8192u);

  const auto file = gguf::File::open(path, {.header_only = true});
  ASSERT_TRUE(file.has_value());
  const auto spec = model::spec_from_gguf(**file);
  ASSERT_TRUE(spec.has_value());
  const auto geometry = model::make_geometry(*spec, 32, KvType::kF16, KvType::kF16);
  ASSERT_TRUE(geometry.has_value());
  EXPECT_EQ(geometry->token_bytes(), 23040u);
  ASSERT_EQ(geometry->groups.size(), 1u);
  EXPECT_EQ(geometry->groups[0].layers, layout->groups[0].layers);
  EXPECT_EQ(layout->weight_bytes, spec->weight_bytes);
}

}  // namespace
}  // namespace pagewise::planner
