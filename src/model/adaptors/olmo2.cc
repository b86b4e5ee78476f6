// SPDX-License-Identifier: Apache-2.0
// Architecture `olmo2`: attention and feed-forward read the stream as it is, and their results are
// normed before they join it; Q and K are normed as whole rows, before rope on halves of the head.
// OLMo 3 is saved under the same name: three layers of four slide, and rope scaling holds for the
// fourth alone.
// Sources: OLMo Team 2024 (arXiv 2501.00656); key and tensor names from the GGUF specification.
#include "model/adaptors/adaptor.h"

namespace pagewise::model {
namespace {

constexpr uint32_t kOlmo3Pattern = 4;

}  // namespace

Result<ModelSpec> olmo2_spec(const gguf::File& file) {
  const MetadataReader keys(file, "olmo2");
  TensorChecker tensors(file);
  PW_RETURN_IF_ERROR(keys.refuse(
      {"attention.scale", "logit_scale", "embedding_scale", "residual_scale", "expert_count"}));
  PW_ASSIGN_OR_RETURN(const Dimensions size, keys.dimensions());
  PW_ASSIGN_OR_RETURN(ModelSpec spec, keys.begin_spec(size));
  PW_ASSIGN_OR_RETURN(spec.rope, keys.rope(RopeKind::kNeox, size.key_dim));
  RopeSpec sliding = unscaled(spec.rope);
  PW_ASSIGN_OR_RETURN(sliding.base, keys.real_or("rope.freq_base_swa", 1.0, 1e12, sliding.base));
  if (!(sliding == spec.rope)) spec.sliding_rope = sliding;
  PW_RETURN_IF_ERROR(keys.set_windows(spec, kOlmo3Pattern));
  for (LayerSpec& layer : spec.layers) {
    layer.pre_norms = false;
    layer.post_norms = true;
    layer.qk_norm = QkNorm::kRow;
  }
  PW_RETURN_IF_ERROR(tensors.require_model(spec));
  return spec;
}

}  // namespace pagewise::model
