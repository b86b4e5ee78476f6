// SPDX-License-Identifier: Apache-2.0
// Architecture `deepseek2`: latent attention (one row a token for the keys and values of all
// heads), rotary positions on neighbouring pairs of a part of each head, a few layers with a plain
// feed-forward part, then layers with many experts and shared ones. DeepSeek V2 (weights by
// softmax, picked from the groups with the best experts), V3 and R1 (weights by sigmoid, picked
// with a bias), and others saved under the same name.
// Sources: DeepSeek-AI 2024 (arXiv 2405.04434, section 2; 2412.19437, section 2); key and tensor
// names from the GGUF specification.
#include <fmt/format.h>

#include <cmath>

#include "model/adaptors/adaptor.h"

namespace pagewise::model {
namespace {

// Numbers of the format for expert_gating_func.
constexpr uint32_t kGateNotSaid = 0, kGateSoftmax = 1, kGateSigmoid = 2;

/// Files from before April 2025 have the up-projections of keys and values in one tensor, and the
/// sizes of a head under the names that other architectures use for what is cached.
Result<LatentSpec> read_latent(const MetadataReader& keys, const TensorChecker& tensors,
                               const Dimensions& size) {
  LatentSpec latent;
  PW_ASSIGN_OR_RETURN(latent.rank, keys.uint("attention.kv_lora_rank", 1, kHeadDimMax));
  PW_ASSIGN_OR_RETURN(latent.rope_dims, keys.uint("rope.dimension_count", 2, kHeadDimMax));
  latent.fused = keys.file().find(keys.key("attention.key_length_mla")) == nullptr;
  uint32_t query_dim = size.key_dim;
  latent.value_dim = size.value_dim;
  if (!latent.fused) {
    PW_ASSIGN_OR_RETURN(query_dim, keys.uint("attention.key_length_mla", 1, kHeadDimMax));
    PW_ASSIGN_OR_RETURN(latent.value_dim, keys.uint("attention.value_length_mla", 1, kHeadDimMax));
  }
  if (query_dim <= latent.rope_dims) {
    return keys.error(fmt::format("{} is {}, expected less than the {} values of a head's query",
                                  keys.key("rope.dimension_count"), latent.rope_dims, query_dim));
  }
  latent.plain_dims = query_dim - latent.rope_dims;
  // The small models have no latent for queries, whatever the key says.
  PW_ASSIGN_OR_RETURN(latent.query_rank, keys.uint_or("attention.q_lora_rank", 0, kDimMax, 0));
  if (tensors.has("blk.0.attn_q.weight")) latent.query_rank = 0;
  return latent;
}

Result<ExpertSpec> read_experts(const MetadataReader& keys, const TensorChecker& tensors,
                                uint32_t layers, uint32_t dense) {
  ExpertSpec experts;
  PW_ASSIGN_OR_RETURN(experts.count, keys.uint_or("expert_count", 0, kExpertsMax, 0));
  if (experts.count == 0 || dense == layers) return ExpertSpec();
  PW_ASSIGN_OR_RETURN(experts.used, keys.uint("expert_used_count", 1, experts.count));
  PW_ASSIGN_OR_RETURN(experts.ffn, keys.uint("expert_feed_forward_length", 1, kDimMax));
  PW_ASSIGN_OR_RETURN(const uint32_t shared, keys.uint_or("expert_shared_count", 0, 1024, 0));
  experts.shared_ffn = shared * experts.ffn;
  PW_ASSIGN_OR_RETURN(const std::optional<bool> normalize,
                      keys.file().find_bool(keys.key("expert_weights_norm")));
  experts.normalize = normalize.value_or(false);
  PW_ASSIGN_OR_RETURN(experts.scale, keys.real_or("expert_weights_scale", 0, 1e6, 1.0));
  if (experts.scale == 0.0) experts.scale = 1.0;  // how some converters write none
  experts.bias = tensors.has(fmt::format("blk.{}.exp_probs_b.bias", dense));

  PW_ASSIGN_OR_RETURN(uint32_t gate,
                      keys.uint_or("expert_gating_func", 0, UINT32_MAX, kGateNotSaid));
  // Files from before V3 do not say it; the bias came with the sigmoid.
  if (gate == kGateNotSaid) gate = experts.bias ? kGateSigmoid : kGateSoftmax;
  if (gate != kGateSoftmax && gate != kGateSigmoid) {
    PW_RETURN_IF_ERROR(keys.refuse({"expert_gating_func"}));
  }
  experts.gate = gate == kGateSigmoid ? ExpertGate::kSigmoid : ExpertGate::kSoftmax;

  PW_ASSIGN_OR_RETURN(experts.groups, keys.uint_or("expert_group_count", 0, experts.count, 1));
  PW_ASSIGN_OR_RETURN(experts.groups_used,
                      keys.uint_or("expert_group_used_count", 0, kExpertsMax, experts.groups));
  if (experts.groups <= 1 || experts.groups_used >= experts.groups) {
    experts.groups = experts.groups_used = 1;
    return experts;
  }
  if (experts.groups_used == 0 || experts.count % experts.groups != 0 ||
      uint64_t{experts.count} / experts.groups * experts.groups_used < experts.used) {
    return keys.error(
        fmt::format("{} experts in {} groups, {} of them for a token, do not give {} "
                    "experts for a token",
                    experts.count, experts.groups, experts.groups_used, experts.used));
  }
  return experts;
}

}  // namespace

Result<ModelSpec> deepseek2_spec(const gguf::File& file) {
  const MetadataReader keys(file, "deepseek2");
  TensorChecker tensors(file);
  PW_RETURN_IF_ERROR(
      keys.refuse({"attention.scale", "attention.temperature_scale", "attention.temperature_length",
                   "logit_scale", "embedding_scale", "residual_scale"}));
  PW_RETURN_IF_ERROR(keys.refuse_unless_zero({"attention.sliding_window", "nextn_predict_layers"}));
  PW_ASSIGN_OR_RETURN(const Dimensions size, keys.dimensions());
  PW_ASSIGN_OR_RETURN(ModelSpec spec, keys.begin_spec(size));
  PW_ASSIGN_OR_RETURN(spec.latent, read_latent(keys, tensors, size));
  PW_ASSIGN_OR_RETURN(spec.rope,
                      keys.rope(RopeKind::kNormal, spec.latent.rope_dims, {.on_scores = true}));
  double magnitude = 1.0;
  if (spec.rope.ramp && spec.rope.position_scale < 1.0) {
    PW_ASSIGN_OR_RETURN(const double multiplier,
                        keys.real_or("rope.scaling.yarn_log_multiplier", 0.0, 10.0, 0.0));
    magnitude += multiplier * std::log(1.0 / spec.rope.position_scale);
  }
  spec.attention_scale = static_cast<float>(
      magnitude * magnitude / std::sqrt(static_cast<double>(spec.latent.query_dim())));

  PW_ASSIGN_OR_RETURN(const uint32_t dense,
                      keys.uint_or("leading_dense_block_count", 0, size.layers, 0));
  PW_ASSIGN_OR_RETURN(spec.experts, read_experts(keys, tensors, size.layers, dense));
  for (uint32_t i = 0; i < size.layers; ++i) {
    LayerSpec& layer = spec.layers[i];
    layer.latent = true;
    layer.dense = i < dense;
    layer.kv_heads = 1;
    layer.key_dim = spec.latent.rank + spec.latent.rope_dims;
    layer.value_dim = spec.latent.rank;
    layer.fused_qkv = false;
    const std::string prefix = fmt::format("blk.{}.", i);
    tensors.ignore(prefix + "attn_rot_embd.weight");
    if (spec.latent.fused) {  // some files have the parts as well, in a form of their own
      tensors.ignore(prefix + "attn_k_b.weight");
      tensors.ignore(prefix + "attn_v_b.weight");
    } else {
      tensors.ignore(prefix + "attn_kv_b.weight");
    }
  }
  PW_RETURN_IF_ERROR(tensors.require_model(spec));
  return spec;
}

}  // namespace pagewise::model
