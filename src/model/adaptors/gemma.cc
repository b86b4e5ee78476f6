// SPDX-License-Identifier: Apache-2.0
// Architectures `gemma`, `gemma2` and `gemma3` (text only): feed-forward gated by GELU, embeddings
// scaled by the square root of their width. The later two have some layers with a sliding window,
// and norms before and behind attention and feed-forward. Gemma 2 slides in every other layer and
// caps scores and logits softly; Gemma 3 slides in five of six, with a rope base of their own, and
// norms the heads of Q and K. Norm weights are used as the file has them: converters have added the
// 1 that the published formula adds.
// Sources: Gemma Team 2024, 2024, 2025 (arXiv 2403.08295, 2408.00118, 2503.19786); key and tensor
// names from the GGUF specification.
#include <cmath>

#include "model/adaptors/adaptor.h"

namespace pagewise::model {
namespace {

// Every how manieth layer attends to everything, where the file does not say so.
constexpr uint32_t kGemma2Pattern = 2;
constexpr uint32_t kGemma3Pattern = 6;
constexpr double kGemma3SlidingBase = 10000.0;
// The published sizes whose attention is not scaled by their head size: both are called 27B.
constexpr uint32_t kGemma2LayersOf27B = 46;
constexpr uint32_t kGemma3LayersOf27B = 62;
// Gemma 2's caps and window, where the file does not say so.
constexpr double kAttentionCap = 50.0;
constexpr double kLogitCap = 30.0;
constexpr uint32_t kGemma2Window = 4096;

Result<ModelSpec> read_gemma(const MetadataReader& keys, const Dimensions& size,
                             uint32_t layers_of_27b) {
  PW_ASSIGN_OR_RETURN(ModelSpec spec, keys.begin_spec(size));
  spec.activation = Activation::kGeluTanh;
  spec.embedding_scale = std::sqrt(static_cast<float>(size.embedding));
  // 1 / sqrt of the head size, except for the one size that divides the width by the heads instead.
  const double scaled_by = size.layers == layers_of_27b
                               ? static_cast<double>(size.embedding) / size.heads
                               : static_cast<double>(size.key_dim);
  PW_ASSIGN_OR_RETURN(const double attention_scale,
                      keys.real_or("attention.scale", 1e-6, 1e6, 1.0 / std::sqrt(scaled_by)));
  spec.attention_scale = static_cast<float>(attention_scale);
  return spec;
}

}  // namespace

Result<ModelSpec> gemma_spec(const gguf::File& file) {
  const MetadataReader keys(file, "gemma");
  TensorChecker tensors(file);
  PW_ASSIGN_OR_RETURN(const Dimensions size, keys.dimensions());
  PW_ASSIGN_OR_RETURN(ModelSpec spec, read_gemma(keys, size, 0));
  PW_RETURN_IF_ERROR(
      keys.refuse({"attention.causal", "attn_logit_softcapping", "final_logit_softcapping",
                   "expert_count", "logit_scale", "embedding_scale", "residual_scale"}));
  PW_RETURN_IF_ERROR(keys.refuse_unless_zero({"attention.sliding_window"}));
  PW_ASSIGN_OR_RETURN(spec.rope, keys.rope(RopeKind::kNeox, size.key_dim));
  PW_RETURN_IF_ERROR(tensors.require_model(spec));
  return spec;
}

Result<ModelSpec> gemma2_spec(const gguf::File& file) {
  const MetadataReader keys(file, "gemma2");
  TensorChecker tensors(file);
  PW_ASSIGN_OR_RETURN(const Dimensions size, keys.dimensions());
  PW_ASSIGN_OR_RETURN(ModelSpec spec, read_gemma(keys, size, kGemma2LayersOf27B));
  PW_RETURN_IF_ERROR(keys.refuse(
      {"attention.causal", "expert_count", "logit_scale", "embedding_scale", "residual_scale"}));
  const auto cap = [&](std::string_view name, double fallback) -> Result<float> {
    PW_ASSIGN_OR_RETURN(const double value, keys.real_or(name, 0.0, 1e6, fallback));
    return static_cast<float>(value);
  };
  PW_ASSIGN_OR_RETURN(spec.attention_softcap, cap("attn_logit_softcapping", kAttentionCap));
  PW_ASSIGN_OR_RETURN(spec.logit_softcap, cap("final_logit_softcapping", kLogitCap));
  PW_ASSIGN_OR_RETURN(spec.rope, keys.rope(RopeKind::kNeox, size.key_dim));
  PW_RETURN_IF_ERROR(keys.set_windows(spec, kGemma2Pattern, kGemma2Window));
  for (LayerSpec& layer : spec.layers) layer.post_norms = true;
  PW_RETURN_IF_ERROR(tensors.require_model(spec));
  return spec;
}

Result<ModelSpec> gemma3_spec(const gguf::File& file) {
  const MetadataReader keys(file, "gemma3");
  TensorChecker tensors(file);
  PW_ASSIGN_OR_RETURN(const Dimensions size, keys.dimensions());
  PW_ASSIGN_OR_RETURN(ModelSpec spec, read_gemma(keys, size, kGemma3LayersOf27B));
  PW_RETURN_IF_ERROR(
      keys.refuse({"attention.causal", "attn_logit_softcapping", "final_logit_softcapping",
                   "expert_count", "logit_scale", "embedding_scale", "residual_scale"}));
  if (file.find(keys.key("rope.freq_base")) == nullptr) {
    return keys.error(keys.key("rope.freq_base") + ": missing");
  }
  PW_ASSIGN_OR_RETURN(spec.rope, keys.rope(RopeKind::kNeox, size.key_dim));
  // Scaling stretches the full layers only: a window is as long as it was in training.
  RopeSpec sliding = unscaled(spec.rope);
  PW_ASSIGN_OR_RETURN(sliding.base,
                      keys.real_or("rope.freq_base_swa", 1.0, 1e12, kGemma3SlidingBase));
  spec.sliding_rope = sliding;
  PW_RETURN_IF_ERROR(keys.uint("attention.sliding_window", 1, UINT32_MAX).status());
  PW_RETURN_IF_ERROR(keys.set_windows(spec, kGemma3Pattern));
  for (LayerSpec& layer : spec.layers) {
    layer.post_norms = true;
    layer.qk_norm = QkNorm::kHead;
  }
  PW_RETURN_IF_ERROR(tensors.require_model(spec));
  return spec;
}

}  // namespace pagewise::model
