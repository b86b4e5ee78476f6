// SPDX-License-Identifier: Apache-2.0
// Architectures `qwen2` (biases on Q, K and V), `qwen3` (an RMS norm on each head of Q and K
// instead), `qwen2moe` (a few of many experts and one that every row takes, scaled by a gate of its
// own) and `qwen3moe` (experts alone): pre-norm with RMS norms, rotary positions on halves of the
// head, SiLU-gated feed-forward.
// Sources: Yang et al. 2024, 2025 (arXiv 2407.10671, 2505.09388); key and tensor names from the
// GGUF specification.
#include <fmt/format.h>

#include "model/adaptors/adaptor.h"

namespace pagewise::model {
namespace {

struct Variant {
  const char* architecture;
  bool qkv_bias;  // else by what the file has
  bool qk_norm;
  bool experts;
};

Result<ModelSpec> read_qwen(const gguf::File& file, const Variant& variant) {
  const MetadataReader keys(file, variant.architecture);
  TensorChecker tensors(file);
  PW_RETURN_IF_ERROR(
      keys.refuse({"attention.scale", "logit_scale", "embedding_scale", "residual_scale"}));
  PW_ASSIGN_OR_RETURN(const Dimensions size, keys.dimensions());
  PW_ASSIGN_OR_RETURN(ModelSpec spec, keys.begin_spec(size));
  PW_ASSIGN_OR_RETURN(spec.rope, keys.rope(RopeKind::kNeox, size.key_dim));
  // A window that the published configuration has, and switches off.
  PW_RETURN_IF_ERROR(keys.refuse_unless_zero({"attention.sliding_window"}));
  for (uint32_t i = 0; i < size.layers; ++i) {
    LayerSpec& layer = spec.layers[i];
    const std::string prefix = fmt::format("blk.{}.", i);
    layer.qkv_bias = variant.qkv_bias ||
                     tensors.has(prefix + (layer.fused_qkv ? "attn_qkv.bias" : "attn_q.bias"));
    layer.output_bias = tensors.has(prefix + "attn_output.bias");
    if (variant.qk_norm) layer.qk_norm = QkNorm::kHead;
  }
  if (!variant.experts) {
    PW_RETURN_IF_ERROR(keys.refuse_unless_zero({"expert_count"}));
  } else {
    // Where the file does not say how wide an expert is, they share out the dense width.
    PW_ASSIGN_OR_RETURN(const uint32_t used, keys.uint("expert_used_count", 1, kExpertsMax));
    PW_RETURN_IF_ERROR(keys.uint("expert_count", 1, kExpertsMax).status());
    PW_ASSIGN_OR_RETURN(spec.experts, keys.experts(std::max(1U, size.ffn / used), variant.qk_norm));
    if (!variant.qk_norm) {
      PW_ASSIGN_OR_RETURN(spec.experts.shared_ffn,
                          keys.uint_or("expert_shared_feed_forward_length", 1, kDimMax, size.ffn));
      spec.experts.shared_gate = true;
    }
  }
  PW_RETURN_IF_ERROR(tensors.require_model(spec));
  return spec;
}

}  // namespace

Result<ModelSpec> qwen2_spec(const gguf::File& file) {
  return read_qwen(file, {"qwen2", true, false, false});
}
Result<ModelSpec> qwen3_spec(const gguf::File& file) {
  return read_qwen(file, {"qwen3", false, true, false});
}
Result<ModelSpec> qwen2moe_spec(const gguf::File& file) {
  return read_qwen(file, {"qwen2moe", true, false, true});
}
Result<ModelSpec> qwen3moe_spec(const gguf::File& file) {
  return read_qwen(file, {"qwen3moe", false, true, true});
}

}  // namespace pagewise::model
