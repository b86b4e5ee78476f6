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

TEST(Layout, KeepsOneLatentRowATokenWhereTheFileHasThem) {
  // The sizes of DeepSeek V2 Lite: kv_lora_rank 512, qk_rope_head_dim 64, 27 layers.
  Writer writer = metadata("deepseek2", 27, 2048, 16);
  writer.u32("deepseek2.attention.kv_lora_rank", 512).u32("deepseek2.rope.dimension_count", 64);
  const auto layout = read(writer);
  ASSERT_TRUE(layout.has_value()) << layout.error().message;
  EXPECT_EQ(layout->groups, (std::vector<LayoutGroup>{{27, 1, 576, 0, 0}}));
  EXPECT_EQ(error_of(metadata("deepseek2", 27, 2048, 16)),
            "deepseek2.attention.kv_lora_rank: missing");
}

TEST(Layout, ReadsWindowsOfFamiliesWithoutTensors) {
  const auto windowed = [](const std::string& arch, uint32_t layers, uint32_t window) {
    Writer writer = metadata(arch, layers, 64, 4);
    writer.u32(arch + ".attention.sliding_window", window);
    return read(writer)->groups;
  };
  // Mistral 7B's first version and Phi 3 have one in all layers; gpt-oss in every other.
  EXPECT_EQ(windowed("llama", 4, 4096), (std::vector<LayoutGroup>{{4, 4, 16, 16, 4096}}));
  EXPECT_EQ(windowed("phi3", 4, 2047), (std::vector<LayoutGroup>{{4, 4, 16, 16, 2047}}));
  EXPECT_EQ(windowed("phi3", 4, 262144), (std::vector<LayoutGroup>{{4, 4, 16, 16, 0}}));
  EXPECT_EQ(windowed("gpt-oss", 4, 128),
            (std::vector<LayoutGroup>{{2, 4, 16, 16, 128}, {2, 4, 16, 16, 0}}));
  EXPECT_EQ(windowed("olmo2", 8, 4096),
            (std::vector<LayoutGroup>{{6, 4, 16, 16, 4096}, {2, 4, 16, 16, 0}}));
  EXPECT_EQ(read(metadata("olmo2", 8, 64, 4))->groups,
            (std::vector<LayoutGroup>{{8, 4, 16, 16, 0}}));
}

TEST(Layout, CountsNothingForLayersThatReadOthersRows) {
  Writer writer = metadata("gemma3n", 35, 2048, 8);
  writer.u32("gemma3n.attention.head_count_kv", 2)
      .u32("gemma3n.attention.key_length", 256)
      .u32("gemma3n.attention.value_length", 256)
      .u32("gemma3n.attention.sliding_window", 512)
      .u32("gemma3n.attention.shared_kv_layers", 15);
  const auto layout = read(writer);
  ASSERT_TRUE(layout.has_value()) << layout.error().message;
  EXPECT_EQ(layout->groups,
            (std::vector<LayoutGroup>{{16, 2, 256, 256, 512}, {4, 2, 256, 256, 0}}));
  EXPECT_EQ(layout->layers_sharing, 15u);
  writer.u32("gemma3n.attention.key_length_mla", 1);
  EXPECT_NE(error_of(writer).find("the planner does not know this kind of layers"),
            std::string::npos);
}

Writer with_state_space(Writer writer, const std::string& arch, uint32_t inner, uint32_t state,
                        uint32_t groups) {
  writer.u32(arch + ".ssm.inner_size", inner)
      .u32(arch + ".ssm.state_size", state)
      .u32(arch + ".ssm.conv_kernel", 4)
      .u32(arch + ".ssm.group_count", groups);
  return writer;
}

TEST(Layout, KeepsAStateInLayersWithoutHeads) {
  Writer jamba = with_state_space(metadata("jamba", 4, 64, 4), "jamba", 128, 16, 0);
  jamba.array<int32_t>("jamba.attention.head_count_kv", Writer::kI32, {0, 0, 2, 0});
  const auto layout = read(jamba);
  ASSERT_TRUE(layout.has_value()) << layout.error().message;
  EXPECT_EQ(layout->groups, (std::vector<LayoutGroup>{{1, 2, 16, 16, 0}}));
  EXPECT_EQ(layout->states, (std::vector<StateGroup>{{3, 3 * 128 + 16 * 128}}));

  // Of Nemotron-H's layers some are feed-forward alone: they have a width of their own.
  Writer nemotron = with_state_space(metadata("nemotron_h", 4, 64, 4), "nemotron_h", 128, 16, 2);
  nemotron.array<int32_t>("nemotron_h.attention.head_count_kv", Writer::kI32, {0, 0, 2, 0})
      .array<int32_t>("nemotron_h.feed_forward_length", Writer::kI32, {0, 256, 0, 0});
  EXPECT_EQ(read(nemotron)->states,
            (std::vector<StateGroup>{{2, 3 * (128 + 2 * 2 * 16) + 16 * 128}}));

  Writer next = with_state_space(metadata("qwen3next", 8, 64, 4), "qwen3next", 128, 16, 2);
  EXPECT_EQ(read(next)->groups, (std::vector<LayoutGroup>{{2, 4, 16, 16, 0}}));
  EXPECT_EQ(read(next)->states, (std::vector<StateGroup>{{6, 3 * (128 + 2 * 2 * 16) + 16 * 128}}));

  Writer both = with_state_space(metadata("falcon-h1", 3, 64, 4), "falcon-h1", 128, 16, 1);
  EXPECT_EQ(read(both)->groups, (std::vector<LayoutGroup>{{3, 4, 16, 16, 0}}));
  EXPECT_EQ(read(both)->states.front().layers, 3u);

  Writer pure = with_state_space(metadata("mamba2", 5, 64, 4), "mamba2", 128, 16, 1);
  EXPECT_TRUE(read(pure)->groups.empty());
  EXPECT_EQ(read(pure)->states.front().layers, 5u);

  Writer convolutions = metadata("lfm2", 3, 64, 4);
  convolutions.u32("lfm2.shortconv.l_cache", 3)
      .array<int32_t>("lfm2.attention.head_count_kv", Writer::kI32, {0, 2, 0});
  EXPECT_EQ(read(convolutions)->states, (std::vector<StateGroup>{{2, 2 * 64}}));
  EXPECT_EQ(read(convolutions)->groups, (std::vector<LayoutGroup>{{1, 2, 16, 16, 0}}));
}

TEST(Layout, RefusesAStateOfAbsurdSizeAndEncoderDecoders) {
  const Writer vast =
      with_state_space(metadata("mamba2", 5, 64, 4), "mamba2", 1U << 31, 1U << 31, 1);
  EXPECT_NE(error_of(vast).find("a state of more than 1099511627776 values"), std::string::npos);
  EXPECT_NE(error_of(metadata("t5", 4, 64, 4)).find("'t5' is an encoder-decoder"),
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
