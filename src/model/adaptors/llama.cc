// SPDX-License-Identifier: Apache-2.0
// Architecture `llama`: pre-norm with RMS norms, rotary positions on neighbouring pairs, grouped
// queries, SiLU-gated feed-forward. Llama 1 to 3 and the many models saved under the same name.
// Source: Touvron et al. 2023 (arXiv 2302.13971, 2307.09288); Dubey et al. 2024 (arXiv 2407.21783)
// for the rope factors; key and tensor names from the GGUF specification.
#include <fmt/format.h>

#include <cmath>

#include "model/adaptors/adaptor.h"

namespace pagewise::model {
namespace {

constexpr uint64_t kDimMax = 1U << 20;
constexpr uint64_t kHeadDimMax = 1024;
constexpr uint64_t kLayersMax = 4096;

Result<RopeSpec> read_rope(const MetadataReader& keys, uint32_t key_dim) {
  RopeSpec rope;
  rope.kind = RopeKind::kNormal;
  PW_ASSIGN_OR_RETURN(rope.dims, keys.uint_or("rope.dimension_count", 2, key_dim, key_dim));
  if (rope.dims % 2 != 0) {
    return keys.error(fmt::format("{} is {}, expected an even number",
                                  keys.key("rope.dimension_count"), rope.dims));
  }
  PW_ASSIGN_OR_RETURN(rope.base, keys.real_or("rope.freq_base", 1.0, 1e12, 10000.0));
  PW_ASSIGN_OR_RETURN(const std::string scaling, keys.string_or("rope.scaling.type", "none"));
  // Old files have the linear factor under its own name, without a type.
  PW_ASSIGN_OR_RETURN(const double old_linear, keys.real_or("rope.scale_linear", 1e-6, 1e6, 1.0));
  PW_ASSIGN_OR_RETURN(const double factor,
                      keys.real_or("rope.scaling.factor", 1e-6, 1e6, old_linear));
  if (scaling == "linear" || (scaling == "none" && old_linear != 1.0)) {
    rope.position_scale = 1.0 / factor;
  } else if (scaling != "none") {
    return Error{
        ErrorCode::kUnsupported,
        fmt::format("{}: {} '{}' is not supported; supported: none, linear", keys.file().path(),
                    keys.key("rope.scaling.type"), gguf::printable(scaling))};
  }
  return rope;
}

}  // namespace

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

  PW_ASSIGN_OR_RETURN(spec.embedding, keys.uint("embedding_length", 1, kDimMax));
  PW_ASSIGN_OR_RETURN(spec.context, keys.uint("context_length", 1, 1U << 30));
  // A window that some layers were trained with: attending to everything would be another model.
  PW_ASSIGN_OR_RETURN(const uint32_t window,
                      keys.uint_or("attention.sliding_window", 0, UINT32_MAX, 0));
  if (window != 0 && window < spec.context) {
    return file.bad_value(keys.key("attention.sliding_window"),
                          "a sliding window is not supported for architecture 'llama'",
                          ErrorCode::kUnsupported);
  }
  // Scales of related families: to leave one out would be another model, fluent and wrong.
  for (const std::string_view scale :
       {"attention.scale", "logit_scale", "embedding_scale", "residual_scale"}) {
    if (file.find(keys.key(scale)) != nullptr) {
      return file.bad_value(keys.key(scale), "is not supported for architecture 'llama'",
                            ErrorCode::kUnsupported);
    }
  }
  PW_ASSIGN_OR_RETURN(const uint32_t layers, keys.uint("block_count", 1, kLayersMax));
  PW_ASSIGN_OR_RETURN(const uint32_t ffn, keys.uint("feed_forward_length", 1, kDimMax));
  PW_ASSIGN_OR_RETURN(const uint32_t heads, keys.uint("attention.head_count", 1, kDimMax));
  PW_ASSIGN_OR_RETURN(const uint32_t kv_heads,
                      keys.uint_or("attention.head_count_kv", 1, heads, heads));
  PW_ASSIGN_OR_RETURN(const double eps, keys.real("attention.layer_norm_rms_epsilon", 1e-12, 1.0));
  spec.norm_eps = static_cast<float>(eps);
  if (heads % kv_heads != 0) {
    return keys.error(fmt::format("{} is {}, expected a multiple of {} = {}",
                                  keys.key("attention.head_count"), heads,
                                  keys.key("attention.head_count_kv"), kv_heads));
  }
  const bool has_key_dim = file.find(keys.key("attention.key_length")) != nullptr;
  if (!has_key_dim && (spec.embedding % heads != 0 || spec.embedding / heads > kHeadDimMax)) {
    return keys.error(fmt::format("{} is {}, which {} = {} does not divide into heads",
                                  keys.key("embedding_length"), spec.embedding,
                                  keys.key("attention.head_count"), heads));
  }
  const uint32_t even_dim = spec.embedding / heads;
  PW_ASSIGN_OR_RETURN(const uint32_t key_dim,
                      keys.uint_or("attention.key_length", 2, kHeadDimMax, even_dim));
  PW_ASSIGN_OR_RETURN(const uint32_t value_dim,
                      keys.uint_or("attention.value_length", 1, kHeadDimMax, even_dim));
  PW_ASSIGN_OR_RETURN(spec.rope, read_rope(keys, key_dim));
  spec.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(key_dim)));

  const gguf::Tensor* embeddings = file.find_tensor("token_embd.weight");
  if (embeddings == nullptr) return keys.error("tensor token_embd.weight: missing");
  PW_ASSIGN_OR_RETURN(const std::span<const std::string_view> tokens,
                      file.string_array("tokenizer.ggml.tokens"));
  const uint64_t vocab = tokens.empty() ? embeddings->rows() : tokens.size();
  if (vocab == 0 || vocab > (1U << 24)) {
    return keys.error(fmt::format("a vocabulary of {} tokens, expected 1 to {}", vocab, 1U << 24));
  }
  spec.vocab_size = static_cast<uint32_t>(vocab);

  TensorChecker tensors(file);
  PW_RETURN_IF_ERROR(tensors.require("token_embd.weight", {spec.embedding, vocab}));
  PW_RETURN_IF_ERROR(tensors.require_f32("output_norm.weight", spec.embedding));
  spec.tied_head = !tensors.has("output.weight");
  if (!spec.tied_head) {
    PW_RETURN_IF_ERROR(tensors.require("output.weight", {spec.embedding, vocab}));
  }
  spec.rope.has_factors = tensors.has("rope_freqs.weight");
  if (spec.rope.has_factors) {
    PW_RETURN_IF_ERROR(tensors.require_f32("rope_freqs.weight", spec.rope.dims / 2));
  }

  for (uint32_t i = 0; i < layers; ++i) {
    const auto in_layer = [i](std::string_view tensor) {
      return fmt::format("blk.{}.{}", i, tensor);
    };
    LayerSpec layer;
    layer.heads = heads;
    layer.kv_heads = kv_heads;
    layer.key_dim = key_dim;
    layer.value_dim = value_dim;
    layer.ffn = ffn;
    const uint64_t query_width = uint64_t{heads} * key_dim;
    const uint64_t key_width = uint64_t{kv_heads} * key_dim;
    const uint64_t value_width = uint64_t{kv_heads} * value_dim;
    const uint64_t attention_width = uint64_t{heads} * value_dim;
    PW_RETURN_IF_ERROR(tensors.require_f32(in_layer("attn_norm.weight"), spec.embedding));
    PW_RETURN_IF_ERROR(tensors.require(in_layer("attn_q.weight"), {spec.embedding, query_width}));
    PW_RETURN_IF_ERROR(tensors.require(in_layer("attn_k.weight"), {spec.embedding, key_width}));
    PW_RETURN_IF_ERROR(tensors.require(in_layer("attn_v.weight"), {spec.embedding, value_width}));
    PW_RETURN_IF_ERROR(
        tensors.require(in_layer("attn_output.weight"), {attention_width, spec.embedding}));
    PW_RETURN_IF_ERROR(tensors.require_f32(in_layer("ffn_norm.weight"), spec.embedding));
    PW_RETURN_IF_ERROR(tensors.require(in_layer("ffn_gate.weight"), {spec.embedding, ffn}));
    PW_RETURN_IF_ERROR(tensors.require(in_layer("ffn_up.weight"), {spec.embedding, ffn}));
    PW_RETURN_IF_ERROR(tensors.require(in_layer("ffn_down.weight"), {ffn, spec.embedding}));
    layer.qkv_bias = tensors.has(in_layer("attn_q.bias"));
    if (layer.qkv_bias) {
      PW_RETURN_IF_ERROR(tensors.require_f32(in_layer("attn_q.bias"), query_width));
      PW_RETURN_IF_ERROR(tensors.require_f32(in_layer("attn_k.bias"), key_width));
      PW_RETURN_IF_ERROR(tensors.require_f32(in_layer("attn_v.bias"), value_width));
    }
    layer.output_bias = tensors.has(in_layer("attn_output.bias"));
    if (layer.output_bias) {
      PW_RETURN_IF_ERROR(tensors.require_f32(in_layer("attn_output.bias"), spec.embedding));
    }
    // Old converters stored the rope frequencies of every layer; they follow from the base.
    tensors.ignore(in_layer("attn_rot_embd.weight"));
    spec.layers.push_back(layer);
  }
  PW_RETURN_IF_ERROR(tensors.finish("llama"));
  spec.parameters = tensors.parameters();
  spec.weight_bytes = tensors.bytes();
  assign_groups(spec);
  return spec;
}

}  // namespace pagewise::model
