// SPDX-License-Identifier: Apache-2.0
// Architectures `command-r` and `cohere2`: attention and feed-forward side by side, both reading
// one layer norm (without bias) of the stream; rotary positions on neighbouring pairs; logits
// scaled. Cohere 2 slides in three layers of four, and the fourth, which attends to everything,
// does not rotate. Of `command-r` the size with norms on Q and K (Command R+) is refused: its
// tensors are named as not computed with. Sources: the models' published configurations; key and
// tensor names from the GGUF specification.
#include "model/adaptors/adaptor.h"

namespace pagewise::model {
namespace {

constexpr uint32_t kCohere2Pattern = 4;

Result<ModelSpec> read_cohere(const MetadataReader& keys, const Dimensions& size) {
  PW_RETURN_IF_ERROR(keys.refuse({"attention.scale", "embedding_scale", "residual_scale"}));
  PW_RETURN_IF_ERROR(keys.refuse_unless_zero({"expert_count"}));
  PW_ASSIGN_OR_RETURN(ModelSpec spec, keys.begin_spec(size));
  spec.norm = NormKind::kLayer;
  PW_ASSIGN_OR_RETURN(spec.rope, keys.rope(RopeKind::kNormal, size.key_dim));
  PW_ASSIGN_OR_RETURN(const double logit_scale, keys.real("logit_scale", 1e-9, 1e9));
  spec.logit_scale = static_cast<float>(logit_scale);
  for (LayerSpec& layer : spec.layers) layer.parallel = true;
  return spec;
}

}  // namespace

Result<ModelSpec> command_r_spec(const gguf::File& file) {
  const MetadataReader keys(file, "command-r");
  TensorChecker tensors(file);
  PW_ASSIGN_OR_RETURN(const Dimensions size, keys.dimensions(NormKind::kLayer));
  PW_RETURN_IF_ERROR(keys.refuse_unless_zero({"attention.sliding_window"}));
  PW_ASSIGN_OR_RETURN(ModelSpec spec, read_cohere(keys, size));
  PW_RETURN_IF_ERROR(tensors.require_model(spec));
  return spec;
}

Result<ModelSpec> cohere2_spec(const gguf::File& file) {
  const MetadataReader keys(file, "cohere2");
  TensorChecker tensors(file);
  PW_ASSIGN_OR_RETURN(const Dimensions size, keys.dimensions(NormKind::kLayer));
  PW_ASSIGN_OR_RETURN(ModelSpec spec, read_cohere(keys, size));
  PW_RETURN_IF_ERROR(keys.uint("attention.sliding_window", 1, UINT32_MAX).status());
  PW_RETURN_IF_ERROR(keys.set_windows(spec, kCohere2Pattern));
  for (LayerSpec& layer : spec.layers) layer.rope = layer.attention == AttentionKind::kSliding;
  PW_RETURN_IF_ERROR(tensors.require_model(spec));
  return spec;
}

}  // namespace pagewise::model
