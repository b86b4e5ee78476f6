// SPDX-License-Identifier: Apache-2.0
// Architecture `gpt-oss`: pre-norm with RMS norms, biases on all projections of attention, rotary
// positions on halves of the head with YaRN, and of each head a sink, a learned score that takes
// part in the softmax without a value. Every other layer slides, the first one included. A router
// with a bias picks a few experts, weighed by softmax over those picked; theirs is a clamped gate,
// and their projections have biases, too. The norm in front of feed-forward has the name of the one
// behind attention.
// Sources: OpenAI 2025 (arXiv 2508.10925) and the published model code, for what no file says:
// where YaRN's ramp ends between two pairs it is not rounded (llama.cpp rounds it), and the clamp
// is at 7; key and tensor names from the GGUF specification.
#include "model/adaptors/adaptor.h"

namespace pagewise::model {
namespace {

constexpr uint32_t kPattern = 2;
constexpr float kClamp = 7.0F;

}  // namespace

Result<ModelSpec> gpt_oss_spec(const gguf::File& file) {
  const MetadataReader keys(file, "gpt-oss");
  TensorChecker tensors(file);
  PW_RETURN_IF_ERROR(
      keys.refuse({"attention.scale", "logit_scale", "embedding_scale", "residual_scale"}));
  PW_ASSIGN_OR_RETURN(const Dimensions size, keys.dimensions());
  PW_ASSIGN_OR_RETURN(ModelSpec spec, keys.begin_spec(size));
  PW_ASSIGN_OR_RETURN(spec.rope, keys.rope(RopeKind::kNeox, size.key_dim, {.whole_ramp = false}));
  PW_RETURN_IF_ERROR(keys.uint("attention.sliding_window", 1, UINT32_MAX).status());
  PW_RETURN_IF_ERROR(keys.set_windows(spec, kPattern));
  PW_RETURN_IF_ERROR(keys.uint("expert_count", 1, kExpertsMax).status());
  PW_ASSIGN_OR_RETURN(spec.experts, keys.experts(size.ffn, true));
  // Softmax over the picked is softmax over all, divided by the sum of the picked.
  spec.experts.normalize = true;
  spec.experts.biases = true;
  spec.activation = Activation::kClampedSwiglu;
  spec.activation_limit = kClamp;
  for (LayerSpec& layer : spec.layers) {
    layer.qkv_bias = layer.output_bias = true;
    layer.sinks = true;
    layer.ffn_norm_renamed = true;
  }
  PW_RETURN_IF_ERROR(tensors.require_model(spec));
  return spec;
}

}  // namespace pagewise::model
