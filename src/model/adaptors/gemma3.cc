// SPDX-License-Identifier: Apache-2.0
// Architecture `gemma3`, text only: layers with a sliding window and every sixth a full one, each
// kind with a rope base of its own; norms before and behind attention and feed-forward, and on the
// heads of Q and K; feed-forward gated by GELU; embeddings scaled by the square root of their
// width. Norm weights are used as the file has them: converters have added the 1 that the published
// formula adds.
// Source: Gemma Team 2025 (arXiv 2503.19786); key and tensor names from the GGUF specification.
#include <fmt/format.h>

#include <cmath>

#include "model/adaptors/adaptor.h"

namespace pagewise::model {
namespace {

/// Every how manieth layer attends to everything, where the file does not say so.
constexpr uint32_t kPattern = 6;
constexpr double kSlidingBase = 10000.0;
/// The one published size whose attention is not scaled by its head size: 62 layers, 27B.
constexpr uint32_t kLayersOf27B = 62;

}  // namespace

Result<ModelSpec> gemma3_spec(const gguf::File& file) {
  const MetadataReader keys(file, "gemma3");
  ModelSpec spec;
  spec.architecture = "gemma3";
  PW_ASSIGN_OR_RETURN(const std::optional<std::string> name, file.find_string("general.name"));
  spec.name = name.value_or("");
  PW_ASSIGN_OR_RETURN(const Dimensions size, keys.dimensions());
  spec.embedding = size.embedding;
  spec.context = size.context;
  spec.norm_eps = size.norm_eps;
  spec.activation = Activation::kGeluTanh;
  spec.embedding_scale = std::sqrt(static_cast<float>(size.embedding));
  PW_RETURN_IF_ERROR(
      keys.refuse({"attention.causal", "attn_logit_softcapping", "final_logit_softcapping",
                   "expert_count", "logit_scale", "embedding_scale", "residual_scale"}));

  // 1 / sqrt of the head size, except for the one size that divides the width by the heads instead.
  const double scaled_by = size.layers == kLayersOf27B
                               ? static_cast<double>(size.embedding) / size.heads
                               : static_cast<double>(size.key_dim);
  PW_ASSIGN_OR_RETURN(const double attention_scale,
                      keys.real_or("attention.scale", 1e-6, 1e6, 1.0 / std::sqrt(scaled_by)));
  spec.attention_scale = static_cast<float>(attention_scale);

  if (file.find(keys.key("rope.freq_base")) == nullptr) {
    return keys.error(keys.key("rope.freq_base") + ": missing");
  }
  PW_ASSIGN_OR_RETURN(spec.rope, keys.rope(RopeKind::kNeox, size.key_dim));
  // Scaling stretches the full layers only: a window is as long as it was in training.
  RopeSpec sliding = spec.rope;
  sliding.position_scale = 1.0;
  PW_ASSIGN_OR_RETURN(sliding.base, keys.real_or("rope.freq_base_swa", 1.0, 1e12, kSlidingBase));
  spec.sliding_rope = sliding;
  PW_ASSIGN_OR_RETURN(const uint32_t window, keys.uint("attention.sliding_window", 1, UINT32_MAX));
  PW_ASSIGN_OR_RETURN(const uint32_t pattern,
                      keys.uint_or("attention.sliding_window_pattern", 1, kLayersMax, kPattern));
  PW_ASSIGN_OR_RETURN(spec.vocab_size, keys.vocabulary());

  TensorChecker tensors(file);
  PW_RETURN_IF_ERROR(tensors.require("token_embd.weight", {spec.embedding, spec.vocab_size}));
  PW_RETURN_IF_ERROR(tensors.require_f32("output_norm.weight", spec.embedding));
  spec.tied_head = !tensors.has("output.weight");
  if (!spec.tied_head) {
    PW_RETURN_IF_ERROR(tensors.require("output.weight", {spec.embedding, spec.vocab_size}));
  }
  for (uint32_t i = 0; i < size.layers; ++i) {
    LayerSpec layer;
    if ((i + 1) % pattern != 0) {
      layer.attention = AttentionKind::kSliding;
      layer.window = window;
    }
    layer.heads = size.heads;
    layer.kv_heads = size.kv_heads;
    layer.key_dim = size.key_dim;
    layer.value_dim = size.value_dim;
    layer.ffn = size.ffn;
    layer.qk_norm = true;
    layer.post_norms = true;
    PW_RETURN_IF_ERROR(tensors.require_layer(fmt::format("blk.{}.", i), layer, spec.embedding));
    spec.layers.push_back(layer);
  }
  PW_RETURN_IF_ERROR(tensors.finish("gemma3"));
  spec.parameters = tensors.parameters();
  spec.weight_bytes = tensors.bytes();
  assign_groups(spec);
  return spec;
}

}  // namespace pagewise::model
