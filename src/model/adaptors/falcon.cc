// SPDX-License-Identifier: Apache-2.0
// Architecture `falcon`: attention and feed-forward side by side, reading one layer norm of the
// stream (7B) or each its own (40B and larger: attn_norm_2 is attention's); Q, K and V are one
// tensor, which converters have put in this order; feed-forward without a gate, activated by GELU
// (here in its tanh form, as llama.cpp computes it too; the published one is exact).
// Sources: Almazrouei et al. 2023 (arXiv 2311.16867); key and tensor names from the GGUF
// specification.
#include <fmt/format.h>

#include "model/adaptors/adaptor.h"

namespace pagewise::model {

Result<ModelSpec> falcon_spec(const gguf::File& file) {
  const MetadataReader keys(file, "falcon");
  TensorChecker tensors(file);
  PW_RETURN_IF_ERROR(keys.refuse({"attention.scale", "logit_scale", "embedding_scale",
                                  "residual_scale", "expert_count", "attention.sliding_window"}));
  PW_ASSIGN_OR_RETURN(const Dimensions size, keys.dimensions(NormKind::kLayer));
  PW_ASSIGN_OR_RETURN(ModelSpec spec, keys.begin_spec(size));
  spec.norm = NormKind::kLayer;
  spec.norm_bias = true;
  spec.activation = Activation::kGeluOnly;
  PW_ASSIGN_OR_RETURN(spec.rope, keys.rope(RopeKind::kNeox, size.key_dim));
  for (uint32_t i = 0; i < size.layers; ++i) {
    LayerSpec& layer = spec.layers[i];
    layer.parallel = true;
    layer.parallel_norm = tensors.has(fmt::format("blk.{}.attn_norm_2.weight", i));
  }
  PW_RETURN_IF_ERROR(tensors.require_model(spec));
  return spec;
}

}  // namespace pagewise::model
