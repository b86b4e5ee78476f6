// SPDX-License-Identifier: Apache-2.0
// Architecture `llama`: pre-norm with RMS norms, rotary positions on neighbouring pairs, grouped
// queries, SiLU-gated feed-forward. Llama 1 to 3 and the many models saved under the same name.
// Source: Touvron et al. 2023 (arXiv 2302.13971, 2307.09288); Dubey et al. 2024 (arXiv 2407.21783)
// for the rope factors; key and tensor names from the GGUF specification.
#include <fmt/format.h>

#include <cmath>

#include "model/adaptors/adaptor.h"

namespace pagewise::model {
Result<ModelSpec> llama_spec(const gguf::File& file) {
  const MetadataReader keys(file, "llama");
  ModelSpec spec;
  spec.architecture = "llama";
  PW_ASSIGN_OR_RETURN(const std::optional<std::string> name, file.find_string("general.name"));
  spec.name = name.value_or("");
  PW_ASSIGN_OR_RETURN(const uint32_t experts, keys.uint_or("expert_count", 0, 1 << 16, 0));
  if (experts != 0) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{}: mixture of experts ({} = {}) is not supported", file.path(),
                             keys.key("expert_count"), experts)};
  }

  PW_ASSIGN_OR_RETURN(const Dimensions size, keys.dimensions());
  spec.embedding = size.embedding;
  spec.context = size.context;
  spec.norm_eps = size.norm_eps;
  // A window that some layers were trained with: attending to everything would be another model.
  PW_ASSIGN_OR_RETURN(const uint32_t window,
                      keys.uint_or("attention.sliding_window", 0, UINT32_MAX, 0));
  if (window != 0 && window < spec.context) {
    return file.bad_value(keys.key("attention.sliding_window"),
                          "a sliding window is not supported for architecture 'llama'",
                          ErrorCode::kUnsupported);
  }
  PW_RETURN_IF_ERROR(
      keys.refuse({"attention.scale", "logit_scale", "embedding_scale", "residual_scale"}));
  PW_ASSIGN_OR_RETURN(spec.rope, keys.rope(RopeKind::kNormal, size.key_dim));
  spec.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(size.key_dim)));
  PW_ASSIGN_OR_RETURN(spec.vocab_size, keys.vocabulary());

  TensorChecker tensors(file);
  PW_RETURN_IF_ERROR(tensors.require("token_embd.weight", {spec.embedding, spec.vocab_size}));
  PW_RETURN_IF_ERROR(tensors.require_f32("output_norm.weight", spec.embedding));
  spec.tied_head = !tensors.has("output.weight");
  if (!spec.tied_head) {
    PW_RETURN_IF_ERROR(tensors.require("output.weight", {spec.embedding, spec.vocab_size}));
  }
  spec.rope.has_factors = tensors.has("rope_freqs.weight");
  if (spec.rope.has_factors) {
    PW_RETURN_IF_ERROR(tensors.require_f32("rope_freqs.weight", spec.rope.dims / 2));
  }

  for (uint32_t i = 0; i < size.layers; ++i) {
    const std::string prefix = fmt::format("blk.{}.", i);
    LayerSpec layer;
    layer.heads = size.heads;
    layer.kv_heads = size.kv_heads;
    layer.key_dim = size.key_dim;
    layer.value_dim = size.value_dim;
    layer.ffn = size.ffn;
    layer.qkv_bias = tensors.has(prefix + "attn_q.bias");
    layer.output_bias = tensors.has(prefix + "attn_output.bias");
    PW_RETURN_IF_ERROR(tensors.require_layer(prefix, layer, spec.embedding));
    // Old converters stored the rope frequencies of every layer; they follow from the base.
    tensors.ignore(prefix + "attn_rot_embd.weight");
    spec.layers.push_back(layer);
  }
  PW_RETURN_IF_ERROR(tensors.finish("llama"));
  spec.parameters = tensors.parameters();
  spec.weight_bytes = tensors.bytes();
  assign_groups(spec);
  return spec;
}

}  // namespace pagewise::model
