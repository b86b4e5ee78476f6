// SPDX-License-Identifier: Apache-2.0
#include "model/spec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>

#include "model/test_gguf.h"

namespace pagewise::model {
namespace {

using testing::deepseek_model;
using testing::llama_model;
using testing::LlamaShape;
using testing::ModelFile;

Result<ModelSpec> spec_of(const ModelFile& builder) {
  const gguf::testing::TempFile temporary(builder.bytes());
  auto file = gguf::File::open(temporary.path());
  EXPECT_TRUE(file.has_value()) << file.error().message;
  return spec_from_gguf(**file);
}

void expect_error(const ModelFile& builder, ErrorCode code,
                  std::initializer_list<std::string_view> words) {
  const Result<ModelSpec> spec = spec_of(builder);
  ASSERT_FALSE(spec.has_value());
  EXPECT_EQ(spec.error().code, code) << spec.error().message;
  for (const std::string_view word : words) {
    EXPECT_NE(spec.error().message.find(word), std::string::npos)
        << "'" << word << "' is not in: " << spec.error().message;
  }
  EXPECT_EQ(spec.error().message.find('\n'), std::string::npos);
}

TEST(ModelSpec, ReadsALlamaFile) {
  LlamaShape shape;
  shape.layers = 3;
  const Result<ModelSpec> spec = spec_of(llama_model(shape));
  ASSERT_TRUE(spec.has_value()) << spec.error().message;
  EXPECT_EQ(spec->architecture, "llama");
  EXPECT_EQ(spec->vocab_size, 96U);
  EXPECT_EQ(spec->embedding, 64U);
  EXPECT_EQ(spec->context, 4096U);
  EXPECT_TRUE(spec->tied_head);
  EXPECT_FLOAT_EQ(spec->attention_scale, 0.25F);
  ASSERT_EQ(spec->layers.size(), 3U);
  EXPECT_EQ(spec->layers[2].heads, 4U);
  EXPECT_EQ(spec->layers[2].kv_heads, 2U);
  EXPECT_EQ(spec->layers[2].key_dim, 16U);
  EXPECT_EQ(spec->layers[2].ffn, 96U);
  EXPECT_EQ(spec->layers[2].group_layer, 2U);
  EXPECT_EQ(spec->rope.kind, RopeKind::kNormal);
  EXPECT_DOUBLE_EQ(spec->rope.base, 10000.0);
  // token_embd, output_norm, and per layer: two norms, q and output, k and v, three of the
  // feed-forward.
  EXPECT_EQ(spec->parameters,
            96U * 64 + 64 + 3U * (2 * 64 + 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96));
}

TEST(ModelSpec, ReadsHeadSizesBiasesFactorsAndAnUntiedHead) {
  LlamaShape shape;
  shape.head_dim = 24;
  shape.rope_dims = 20;
  shape.tied = false;
  shape.bias = true;
  shape.rope_factors = true;
  shape.rope_linear = 4;
  const Result<ModelSpec> spec = spec_of(llama_model(shape));
  ASSERT_TRUE(spec.has_value()) << spec.error().message;
  EXPECT_FALSE(spec->tied_head);
  EXPECT_EQ(spec->layers[0].key_dim, 24U);
  EXPECT_EQ(spec->layers[0].value_dim, 24U);
  EXPECT_TRUE(spec->layers[0].qkv_bias);
  EXPECT_TRUE(spec->layers[0].output_bias);
  EXPECT_EQ(spec->rope.dims, 20U);
  EXPECT_EQ(spec->rope.factors, RopeFactors::kOne);
  EXPECT_DOUBLE_EQ(spec->rope.position_scale, 0.25);
}

TEST(ModelSpec, RefusesAnotherArchitectureByNameWithTheOnesItKnows) {
  ModelFile file = llama_model({});
  file.put_string("general.architecture", "mamba");
  expect_error(file, ErrorCode::kUnsupported,
               {"'mamba'",
                "supported: llama, qwen2, qwen3, qwen2moe, qwen3moe, gemma, gemma2, gemma3, phi3, "
                "granite, smollm3, olmo2, command-r, cohere2, falcon"});
}

TEST(ModelSpec, NamesAMissingKey) {
  for (const char* key : {"llama.embedding_length", "llama.context_length", "llama.block_count",
                          "llama.feed_forward_length", "llama.attention.head_count",
                          "llama.attention.layer_norm_rms_epsilon", "general.architecture"}) {
    ModelFile file = llama_model({});
    file.remove(key);
    expect_error(file, ErrorCode::kMalformed, {key, "missing"});
  }
}

TEST(ModelSpec, BoundsWhatAHeaderMayClaimC17) {
  const auto with = [](std::string_view key, uint32_t value) {
    ModelFile file = llama_model({});
    file.put_uint(key, value);
    return file;
  };
  expect_error(with("llama.block_count", 4'000'000'000), ErrorCode::kMalformed,
               {"llama.block_count is 4000000000", "expected 1 to"});
  expect_error(with("llama.embedding_length", 0), ErrorCode::kMalformed, {"embedding_length is 0"});
  expect_error(with("llama.attention.head_count", 0), ErrorCode::kMalformed, {"head_count is 0"});
  expect_error(with("llama.attention.head_count", 3), ErrorCode::kMalformed, {"head_count is 3"});
  expect_error(with("llama.attention.head_count_kv", 0), ErrorCode::kMalformed, {"head_count_kv"});
  expect_error(with("llama.attention.head_count_kv", 3), ErrorCode::kMalformed,
               {"expected a multiple"});
  expect_error(with("llama.rope.dimension_count", 7), ErrorCode::kMalformed,
               {"rope.dimension_count"});
  expect_error(with("llama.rope.dimension_count", 200), ErrorCode::kMalformed,
               {"rope.dimension_count"});
  // More layers than the file has tensors for.
  expect_error(with("llama.block_count", 3), ErrorCode::kMalformed,
               {"tensor blk.2.attn_norm.weight: missing"});
}

TEST(ModelSpec, NamesAMissingTensor) {
  for (const char* name : {"token_embd.weight", "output_norm.weight", "blk.1.attn_q.weight",
                           "blk.0.ffn_down.weight", "blk.1.ffn_norm.weight"}) {
    ModelFile file = llama_model({});
    file.remove_tensor(name);
    expect_error(file, ErrorCode::kMalformed, {std::string("tensor ") + name, "missing"});
  }
}

TEST(ModelSpec, NamesATensorOfTheWrongShapeWithBothShapes) {
  ModelFile file = llama_model({});
  file.remove_tensor("blk.1.attn_k.weight");
  file.tensor("blk.1.attn_k.weight", TensorType::kF32, {64, 31}, std::string(64 * 31 * 4, '\0'));
  expect_error(file, ErrorCode::kMalformed,
               {"tensor blk.1.attn_k.weight", "shape [64, 31]", "expected [64, 32]"});
}

TEST(ModelSpec, RefusesANormThatIsNotF32) {
  ModelFile file = llama_model({});
  file.remove_tensor("blk.0.attn_norm.weight");
  file.tensor("blk.0.attn_norm.weight", TensorType::kF16, {64}, std::string(64 * 2, '\0'));
  expect_error(file, ErrorCode::kUnsupported, {"blk.0.attn_norm.weight", "type F16"});
}

TEST(ModelSpec, RefusesATensorItWouldOtherwiseIgnore) {
  ModelFile file = llama_model({});
  file.tensor("blk.0.attn_q_norm.weight", TensorType::kF32, {16}, std::string(16 * 4, '\0'));
  expect_error(file, ErrorCode::kUnsupported, {"tensor blk.0.attn_q_norm.weight"});
}

TEST(ModelSpec, RefusesScalesThatItWouldLeaveOut) {
  for (const char* key : {"llama.attention.scale", "llama.logit_scale", "llama.embedding_scale",
                          "llama.residual_scale"}) {
    ModelFile file = llama_model({});
    file.put_float(key, 12.0F);
    expect_error(file, ErrorCode::kUnsupported, {key});
  }
}

TEST(ModelSpec, RefusesUnknownRopeScalingByName) {
  ModelFile file = llama_model({});
  file.put_string("llama.rope.scaling.type", "dynamic");
  expect_error(file, ErrorCode::kUnsupported, {"'dynamic'", "supported: none, linear, yarn"});
}

TEST(ModelSpec, ReadsAWindowOfAllLayersAndIgnoresOneAsWideAsTheContext) {
  ModelFile file = llama_model({});
  file.put_uint("llama.attention.sliding_window", 40);
  const Result<ModelSpec> spec = spec_of(file);
  ASSERT_TRUE(spec.has_value()) << spec.error().message;
  for (const LayerSpec& layer : spec->layers) {
    EXPECT_EQ(layer.attention, AttentionKind::kSliding);
    EXPECT_EQ(layer.window, 40U);
  }
  file.put_uint("llama.attention.sliding_window", 4096);
  const Result<ModelSpec> wide = spec_of(file);
  ASSERT_TRUE(wide.has_value()) << wide.error().message;
  EXPECT_EQ(wide->layers[1].attention, AttentionKind::kFull);
}

TEST(ModelSpec, ReadsYarnAndRefusesWhatItDoesNotCompute) {
  ModelFile file = llama_model({});
  file.put_string("llama.rope.scaling.type", "yarn");
  expect_error(file, ErrorCode::kMalformed, {"original_context_length", "missing"});
  file.put_float("llama.rope.scaling.factor", 4.0F);
  file.put_uint("llama.rope.scaling.original_context_length", 1024);
  const Result<ModelSpec> spec = spec_of(file);
  ASSERT_TRUE(spec.has_value()) << spec.error().message;
  EXPECT_NEAR(spec->rope.magnitude, 1.0 + 0.1 * std::log(4.0), 1e-12);
  // Pair 0 turns 163 times within 1,024 positions and keeps its frequency, the last one not once.
  EXPECT_DOUBLE_EQ(rope_frequency(spec->rope, 0), 1.0);
  EXPECT_NEAR(rope_frequency(spec->rope, 7), std::pow(10000.0, -14.0 / 16) / 4, 1e-12);
  file.put_float("llama.rope.scaling.yarn_log_multiplier", 0.1F);
  expect_error(file, ErrorCode::kUnsupported, {"yarn_log_multiplier"});
}

TEST(ModelSpec, RefusesExpertsThatAreRoutedInAnotherWayByName) {
  ModelFile file = llama_model({});
  file.put_uint("llama.expert_count", 8);
  expect_error(file, ErrorCode::kMalformed, {"llama.expert_used_count", "missing"});
  file.put_uint("llama.expert_used_count", 9);
  expect_error(file, ErrorCode::kMalformed, {"llama.expert_used_count is 9", "1 to 8"});
  file.put_uint("llama.expert_used_count", 2);
  expect_error(file, ErrorCode::kMalformed, {"tensor blk.0.ffn_gate_inp.weight: missing"});
  file.put_uint("llama.expert_gating_func", 2);
  expect_error(file, ErrorCode::kUnsupported, {"llama.expert_gating_func"});
}

LlamaShape gemma3_shape() {
  return {.layers = 4, .rope_linear = 8, .sliding_window = 512, .gemma3 = true};
}

TEST(ModelSpec, ReadsAGemma3FileWithTwoKindsOfLayers) {
  Result<ModelSpec> spec = spec_of(llama_model(gemma3_shape()));
  ASSERT_TRUE(spec.has_value()) << spec.error().message;
  EXPECT_EQ(spec->architecture, "gemma3");
  EXPECT_EQ(spec->activation, Activation::kGeluTanh);
  EXPECT_FLOAT_EQ(spec->embedding_scale, 8.0F);   // sqrt(64)
  EXPECT_FLOAT_EQ(spec->attention_scale, 0.25F);  // 1 / sqrt(16)
  for (const uint32_t l : {0U, 2U}) {
    EXPECT_EQ(spec->layers[l].attention, AttentionKind::kSliding);
    EXPECT_EQ(spec->layers[l].window, 512U);
    EXPECT_EQ(spec->layers[l].group, 0U);
    // Scaling stretches the full layers only.
    EXPECT_DOUBLE_EQ(spec->rope_of(spec->layers[l]).position_scale, 1.0);
    EXPECT_EQ(spec->rope_of(spec->layers[l]).kind, RopeKind::kNeox);
  }
  for (const uint32_t l : {1U, 3U}) {
    EXPECT_EQ(spec->layers[l].attention, AttentionKind::kFull);
    EXPECT_EQ(spec->layers[l].group, 1U);
    EXPECT_DOUBLE_EQ(spec->rope_of(spec->layers[l]).position_scale, 0.125);
  }
  EXPECT_EQ(spec->layers[1].qk_norm, QkNorm::kHead);
  EXPECT_TRUE(spec->layers[1].pre_norms && spec->layers[1].post_norms);
  ASSERT_TRUE(make_geometry(*spec, 32, KvType::kF16, KvType::kF16).has_value());
}

TEST(ModelSpec, TakesGemma3sPatternBasesAndScaleFromTheFileAndKnowsTheUsualOnes) {
  LlamaShape shape = gemma3_shape();
  shape.layers = 12;
  ModelFile file = llama_model(shape);
  file.remove("gemma3.attention.sliding_window_pattern");
  file.put_float("gemma3.rope.freq_base", 1e6F);
  const Result<ModelSpec> usual = spec_of(file);
  ASSERT_TRUE(usual.has_value()) << usual.error().message;
  for (uint32_t l = 0; l < 12; ++l) {
    const bool full = l == 5 || l == 11;
    EXPECT_EQ(usual->layers[l].attention == AttentionKind::kFull, full) << l;
    EXPECT_DOUBLE_EQ(usual->rope_of(usual->layers[l]).base, full ? 1e6 : 1e4) << l;
  }
  file.put_float("gemma3.rope.freq_base_swa", 5000.0F);
  file.put_float("gemma3.attention.scale", 0.5F);
  const Result<ModelSpec> told = spec_of(file);
  ASSERT_TRUE(told.has_value()) << told.error().message;
  EXPECT_DOUBLE_EQ(told->rope_of(told->layers[0]).base, 5000.0);
  EXPECT_FLOAT_EQ(told->attention_scale, 0.5F);
  // 62 layers are the 27B size, whose scale is 1 / sqrt(width / heads).
  shape.layers = 62;
  shape.head_dim = 32;
  shape.rope_dims = 32;
  const Result<ModelSpec> largest = spec_of(llama_model(shape));
  ASSERT_TRUE(largest.has_value()) << largest.error().message;
  EXPECT_FLOAT_EQ(largest->attention_scale, 0.25F);
}

TEST(ModelSpec, RefusesGemma3VariantsItDoesNotComputeByName) {
  for (const char* key : {"gemma3.attention.causal", "gemma3.final_logit_softcapping",
                          "gemma3.attn_logit_softcapping", "gemma3.expert_count"}) {
    ModelFile file = llama_model(gemma3_shape());
    file.put_uint(key, 1);
    expect_error(file, ErrorCode::kUnsupported, {key, "architecture 'gemma3'"});
  }
  for (const char* key : {"gemma3.attention.sliding_window", "gemma3.rope.freq_base"}) {
    ModelFile file = llama_model(gemma3_shape());
    file.remove(key);
    expect_error(file, ErrorCode::kMalformed, {key, "missing"});
  }
  for (const char* name : {"blk.1.attn_q_norm.weight", "blk.0.post_ffw_norm.weight"}) {
    ModelFile file = llama_model(gemma3_shape());
    file.remove_tensor(name);
    expect_error(file, ErrorCode::kMalformed, {name, "missing"});
  }
  ModelFile vision = llama_model(gemma3_shape());
  vision.tensor("v.patch_embd.weight", TensorType::kF32, {16}, std::string(16 * 4, '\0'));
  expect_error(vision, ErrorCode::kUnsupported, {"tensor v.patch_embd.weight"});
}

TEST(ModelSpec, ReadsLatentAttentionInBothFormsOfItsFiles) {
  for (const bool old : {false, true}) {
    const Result<ModelSpec> spec = spec_of(deepseek_model({.old = old}));
    ASSERT_TRUE(spec.has_value()) << spec.error().message;
    EXPECT_EQ(spec->latent.rank, 32U);
    EXPECT_EQ(spec->latent.rope_dims, 32U);
    EXPECT_EQ(spec->latent.plain_dims, 32U);
    EXPECT_EQ(spec->latent.value_dim, 32U);
    EXPECT_EQ(spec->latent.query_rank, 0U);
    EXPECT_EQ(spec->latent.fused, old);
    EXPECT_FLOAT_EQ(spec->attention_scale, 0.125F);  // 1 / sqrt(64)
    EXPECT_EQ(spec->layers[0].kv_heads, 1U);
    EXPECT_EQ(spec->layers[0].key_dim, 64U);
    EXPECT_EQ(spec->attended_dim(spec->layers[0]), 4U * 32);
    EXPECT_FALSE(spec->has_experts(spec->layers[0]));
    EXPECT_TRUE(spec->has_experts(spec->layers[1]));
    EXPECT_EQ(spec->experts.shared_ffn, 64U);
    EXPECT_EQ(spec->experts.gate, ExpertGate::kSoftmax);
    const auto geometry = make_geometry(*spec, 32, KvType::kF16, KvType::kF16);
    ASSERT_TRUE(geometry.has_value());
    EXPECT_EQ(geometry->token_bytes(), 2U * 64 * 2);  // layers, one row for all heads, bytes
  }
}

TEST(ModelSpec, KeepsOneRowATokenOfTheSizesOfDeepSeekV2LiteAndV3) {
  // Their published configurations: 27 and 61 layers, a latent of 512 and 64 values that rotate.
  struct Size {
    uint32_t layers, heads;
    uint64_t bytes;
  };
  for (const auto [layers, heads, bytes] : {Size{27, 16, 31'104}, Size{61, 128, 70'272}}) {
    ModelSpec spec;
    LayerSpec layer;
    layer.latent = true;
    layer.heads = heads;
    layer.kv_heads = 1;
    layer.key_dim = 576;
    layer.value_dim = 512;
    spec.layers.assign(layers, layer);
    assign_groups(spec);
    const auto f16 = make_geometry(spec, 32, KvType::kF16, KvType::kF16);
    ASSERT_TRUE(f16.has_value()) << f16.error().message;
    EXPECT_EQ(f16->token_bytes(), bytes);
    const auto q8 = make_geometry(spec, 32, KvType::kQ8_0, KvType::kQ8_0);
    ASSERT_TRUE(q8.has_value()) << q8.error().message;
    EXPECT_EQ(q8->token_bytes(), layers * 576U / 32 * 34);
    const auto mixed = make_geometry(spec, 32, KvType::kQ8_0, KvType::kF16);
    ASSERT_FALSE(mixed.has_value());
    EXPECT_NE(mixed.error().message.find("not q8_0 and f16"), std::string::npos)
        << mixed.error().message;
  }
}

TEST(ModelSpec, ReadsHowDeepSeeksExpertsAreRouted) {
  ModelFile file = deepseek_model({});
  file.put_float("deepseek2.expert_weights_scale", 2.5F);
  file.put_uint("deepseek2.expert_group_count", 4);
  file.put_uint("deepseek2.expert_group_used_count", 2);
  const Result<ModelSpec> softmax = spec_of(file);
  ASSERT_TRUE(softmax.has_value()) << softmax.error().message;
  EXPECT_EQ(softmax->experts.scale, 2.5);
  EXPECT_EQ(softmax->experts.groups, 4U);
  EXPECT_EQ(softmax->experts.groups_used, 2U);
  EXPECT_EQ(softmax->experts.gate, ExpertGate::kSoftmax);
  // Files that do not say it have the bias with the sigmoid alone.
  file.tensor("blk.1.exp_probs_b.bias", TensorType::kF32, {8}, std::string(8 * 4, '\0'));
  const Result<ModelSpec> sigmoid = spec_of(file);
  ASSERT_TRUE(sigmoid.has_value()) << sigmoid.error().message;
  EXPECT_EQ(sigmoid->experts.gate, ExpertGate::kSigmoid);
  EXPECT_TRUE(sigmoid->experts.bias);
  file.put_uint("deepseek2.expert_gating_func", 1);
  const Result<ModelSpec> told = spec_of(file);
  ASSERT_TRUE(told.has_value()) << told.error().message;
  EXPECT_EQ(told->experts.gate, ExpertGate::kSoftmax);
  file.put_uint("deepseek2.expert_gating_func", 3);
  expect_error(file, ErrorCode::kUnsupported, {"deepseek2.expert_gating_func"});
  file.put_uint("deepseek2.expert_gating_func", 2);
  file.put_uint("deepseek2.expert_group_used_count", 1);
  expect_error(file, ErrorCode::kMalformed, {"8 experts in 4 groups, 1 of them", "3 experts"});
  file.put_uint("deepseek2.expert_group_count", 3);
  expect_error(file, ErrorCode::kMalformed, {"8 experts in 3 groups"});
}

TEST(ModelSpec, PutsDeepSeeksYarnMagnitudeOnTheScores) {
  ModelFile file = deepseek_model({});
  file.put_string("deepseek2.rope.scaling.type", "yarn");
  file.put_float("deepseek2.rope.scaling.factor", 40.0F);
  file.put_uint("deepseek2.rope.scaling.original_context_length", 256);
  const Result<ModelSpec> plain = spec_of(file);
  ASSERT_TRUE(plain.has_value()) << plain.error().message;
  EXPECT_NEAR(plain->rope.magnitude, 1 + 0.1 * std::log(40.0), 1e-9);
  EXPECT_FLOAT_EQ(plain->attention_scale, 0.125F);
  file.put_float("deepseek2.rope.scaling.yarn_log_multiplier", 0.0707F);
  const Result<ModelSpec> scores = spec_of(file);
  ASSERT_TRUE(scores.has_value()) << scores.error().message;
  EXPECT_EQ(scores->rope.magnitude, 1.0);
  const double magnitude = 1 + 0.0707 * std::log(40.0);
  EXPECT_NEAR(scores->attention_scale, 0.125 * magnitude * magnitude, 1e-6);
}

TEST(ModelSpec, RefusesDeepSeekFilesThatItDoesNotComputeByName) {
  for (const char* key : {"deepseek2.attention.temperature_scale", "deepseek2.logit_scale",
                          "deepseek2.nextn_predict_layers"}) {
    ModelFile file = deepseek_model({});
    file.put_uint(key, 1);
    expect_error(file, ErrorCode::kUnsupported, {key, "architecture 'deepseek2'"});
  }
  for (const char* key : {"deepseek2.attention.kv_lora_rank", "deepseek2.rope.dimension_count",
                          "deepseek2.attention.value_length_mla", "deepseek2.expert_used_count"}) {
    ModelFile file = deepseek_model({});
    file.remove(key);
    expect_error(file, ErrorCode::kMalformed, {key, "missing"});
  }
  ModelFile wide = deepseek_model({});
  wide.put_uint("deepseek2.rope.dimension_count", 64);
  expect_error(wide, ErrorCode::kMalformed, {"rope.dimension_count is 64", "less than the 64"});
}

TEST(ModelSpec, GivesOneGroupForLikeLayersAndTwoForTwoKinds) {
  const Result<ModelSpec> read = spec_of(llama_model({}));
  ASSERT_TRUE(read.has_value());
  ModelSpec spec = *read;
  const auto one = make_geometry(spec, 32, KvType::kF16, KvType::kF16);
  ASSERT_TRUE(one.has_value());
  ASSERT_EQ(one->groups.size(), 1U);
  EXPECT_EQ(one->groups[0].layers, 2U);
  EXPECT_EQ(one->token_bytes(), 2U * 2 * 2 * 16 * 2);  // layers, K and V, KV heads, dim, bytes

  spec.layers.resize(5, spec.layers[0]);
  for (const uint32_t sliding : {0U, 1U, 3U}) {
    spec.layers[sliding].attention = AttentionKind::kSliding;
    spec.layers[sliding].window = 512;
  }
  assign_groups(spec);
  EXPECT_EQ(spec.layers[0].group, 0U);
  EXPECT_EQ(spec.layers[2].group, 1U);
  EXPECT_EQ(spec.layers[3].group, 0U);
  EXPECT_EQ(spec.layers[3].group_layer, 2U);
  EXPECT_EQ(spec.layers[4].group_layer, 1U);
  const auto two = make_geometry(spec, 16, KvType::kF32, KvType::kBF16);
  ASSERT_TRUE(two.has_value());
  ASSERT_EQ(two->groups.size(), 2U);
  EXPECT_EQ(two->groups[0].window, 512U);
  EXPECT_EQ(two->groups[0].layers, 3U);
  EXPECT_EQ(two->groups[1].layers, 2U);
}

TEST(ModelSpec, RefusesQ8KvWhereTheHeadDimensionDoesNotDivide) {
  const Result<ModelSpec> spec = spec_of(llama_model({}));  // heads of 16
  ASSERT_TRUE(spec.has_value());
  const auto geometry = make_geometry(*spec, 32, KvType::kQ8_0, KvType::kQ8_0);
  ASSERT_FALSE(geometry.has_value());
  EXPECT_NE(geometry.error().message.find("multiple of 32"), std::string::npos);
  EXPECT_FALSE(make_geometry(*spec, 0, KvType::kF16, KvType::kF16).has_value());
}

}  // namespace
}  // namespace pagewise::model
