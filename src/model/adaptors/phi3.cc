// SPDX-License-Identifier: Apache-2.0
// Architecture `phi3`: a Llama with rotary positions on halves of the head, or of a leading part of
// it (Phi 4 mini), whose Q, K and V are one tensor and whose gate and up projection are another.
// Long-context files bring two sets of rope factors (LongRoPE); which one holds is decided by the
// context the model is used with, once for a process. Some files have a window in all layers.
// Sources: Abdin et al. 2024 (arXiv 2404.14219); Ding et al. 2024 (arXiv 2402.13753) for the
// factors; key and tensor names from the GGUF specification.
#include "model/adaptors/adaptor.h"

namespace pagewise::model {

Result<ModelSpec> phi3_spec(const gguf::File& file) {
  const MetadataReader keys(file, "phi3");
  TensorChecker tensors(file);
  PW_RETURN_IF_ERROR(keys.refuse(
      {"attention.scale", "logit_scale", "embedding_scale", "residual_scale", "expert_count"}));
  PW_ASSIGN_OR_RETURN(const Dimensions size, keys.dimensions());
  PW_ASSIGN_OR_RETURN(ModelSpec spec, keys.begin_spec(size));
  PW_ASSIGN_OR_RETURN(spec.rope, keys.rope(RopeKind::kNeox, size.key_dim));
  if (tensors.has("rope_factors_long.weight") || tensors.has("rope_factors_short.weight")) {
    PW_ASSIGN_OR_RETURN(spec.rope.short_context,
                        keys.uint("rope.scaling.original_context_length", 1, 1U << 30));
    spec.rope.factors = RopeFactors::kLong;
    limit_context(spec, spec.context);
    PW_ASSIGN_OR_RETURN(spec.rope.magnitude,
                        keys.real_or("rope.scaling.attn_factor", 1e-6, 1e6, 1.0));
  }
  PW_RETURN_IF_ERROR(keys.set_windows(spec, 0));
  for (LayerSpec& layer : spec.layers) layer.fused_gate = true;
  PW_RETURN_IF_ERROR(tensors.require_model(spec));
  return spec;
}

}  // namespace pagewise::model
