// SPDX-License-Identifier: Apache-2.0
// Architecture `llama`: pre-norm with RMS norms, rotary positions on neighbouring pairs, grouped
// queries, SiLU-gated feed-forward. Llama 1 to 3, Mistral (whose first version has a window in all
// layers), Mixtral (experts) and the many models saved under the same name. Files have the rows of
// Q and K permuted for neighbouring pairs.
// And two architectures that are a Llama with a little more: `smollm3`, whose every fourth layer
// does not rotate, and `granite`, with scales for embeddings, attention, residuals and logits.
// Sources: Touvron et al. 2023 (arXiv 2302.13971, 2307.09288); Dubey et al. 2024 (arXiv 2407.21783)
// for the rope factors; Jiang et al. 2023, 2024 (arXiv 2310.06825, 2401.04088); key and tensor
// names from the GGUF specification.
#include <fmt/format.h>

#include "model/adaptors/adaptor.h"

namespace pagewise::model {
namespace {

/// SmolLM3's period of layers without rope; files do not say it.
constexpr uint32_t kSmolLm3Period = 4;

/// What the three share; `tensors` must be asked for the model's when the spec is complete.
Result<ModelSpec> read_llama(const MetadataReader& keys, TensorChecker& tensors) {
  PW_ASSIGN_OR_RETURN(const Dimensions size, keys.dimensions());
  PW_ASSIGN_OR_RETURN(ModelSpec spec, keys.begin_spec(size));
  PW_ASSIGN_OR_RETURN(spec.rope, keys.rope(RopeKind::kNormal, size.key_dim));
  if (tensors.has("rope_freqs.weight")) spec.rope.factors = RopeFactors::kOne;
  PW_RETURN_IF_ERROR(keys.set_windows(spec, 0));
  for (uint32_t i = 0; i < size.layers; ++i) {
    LayerSpec& layer = spec.layers[i];
    const std::string prefix = fmt::format("blk.{}.", i);
    layer.qkv_bias = tensors.has(prefix + (layer.fused_qkv ? "attn_qkv.bias" : "attn_q.bias"));
    layer.output_bias = tensors.has(prefix + "attn_output.bias");
    // Old converters stored the rope frequencies of every layer; they follow from the base.
    tensors.ignore(prefix + "attn_rot_embd.weight");
  }
  return spec;
}

}  // namespace

Result<ModelSpec> llama_spec(const gguf::File& file) {
  const MetadataReader keys(file, "llama");
  TensorChecker tensors(file);
  PW_RETURN_IF_ERROR(
      keys.refuse({"attention.scale", "logit_scale", "embedding_scale", "residual_scale"}));
  PW_ASSIGN_OR_RETURN(ModelSpec spec, read_llama(keys, tensors));
  PW_ASSIGN_OR_RETURN(spec.experts, keys.experts(spec.layers[0].ffn, true));
  PW_RETURN_IF_ERROR(tensors.require_model(spec));
  return spec;
}

Result<ModelSpec> smollm3_spec(const gguf::File& file) {
  const MetadataReader keys(file, "smollm3");
  TensorChecker tensors(file);
  PW_RETURN_IF_ERROR(keys.refuse(
      {"attention.scale", "logit_scale", "embedding_scale", "residual_scale", "expert_count"}));
  PW_ASSIGN_OR_RETURN(ModelSpec spec, read_llama(keys, tensors));
  for (uint32_t i = kSmolLm3Period - 1; i < spec.layers.size(); i += kSmolLm3Period) {
    spec.layers[i].rope = false;
  }
  PW_RETURN_IF_ERROR(tensors.require_model(spec));
  return spec;
}

Result<ModelSpec> granite_spec(const gguf::File& file) {
  const MetadataReader keys(file, "granite");
  TensorChecker tensors(file);
  PW_RETURN_IF_ERROR(keys.refuse_unless_zero({"expert_count"}));
  PW_ASSIGN_OR_RETURN(ModelSpec spec, read_llama(keys, tensors));
  const auto scale = [&](std::string_view name, float fallback) -> Result<float> {
    PW_ASSIGN_OR_RETURN(const double value, keys.real_or(name, 1e-9, 1e9, double{fallback}));
    return static_cast<float>(value);
  };
  PW_ASSIGN_OR_RETURN(spec.attention_scale, scale("attention.scale", spec.attention_scale));
  PW_ASSIGN_OR_RETURN(spec.embedding_scale, scale("embedding_scale", 1.0F));
  PW_ASSIGN_OR_RETURN(spec.residual_scale, scale("residual_scale", 1.0F));
  PW_ASSIGN_OR_RETURN(const float divisor, scale("logit_scale", 1.0F));
  spec.logit_scale = 1.0F / divisor;  // Granite's key divides; Cohere's multiplies
  PW_RETURN_IF_ERROR(tensors.require_model(spec));
  return spec;
}

}  // namespace pagewise::model
