// SPDX-License-Identifier: Apache-2.0
// Which tensors a spec asks for, by name and shape.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "model/adaptors/adaptor.h"

namespace pagewise::model {

Error TensorChecker::error(ErrorCode code, std::string message) const {
  return {code, fmt::format("{}: {}", file_.path(), message)};
}

Status TensorChecker::require(const std::string& name, std::initializer_list<uint64_t> shape) {
  const gguf::Tensor* tensor = file_.find_tensor(name);
  if (tensor == nullptr)
    return error(ErrorCode::kMalformed, fmt::format("tensor {}: missing", name));
  // Writers may append dimensions of 1; what counts is the extent along each axis.
  const std::vector<uint64_t> wanted(shape);
  bool same = true;
  for (std::size_t axis = 0; axis < std::max(wanted.size(), tensor->shape.size()); ++axis) {
    const uint64_t have = axis < tensor->shape.size() ? tensor->shape[axis] : 1;
    const uint64_t want = axis < wanted.size() ? wanted[axis] : 1;
    same = same && have == want;
  }
  if (!same) {
    return error(ErrorCode::kMalformed,
                 fmt::format("tensor {}: shape [{}], expected [{}]", name,
                             fmt::join(tensor->shape, ", "), fmt::join(wanted, ", ")));
  }
  if (used_.insert(name).second) {
    parameters_ += tensor->columns() * tensor->rows();
    bytes_ += tensor->bytes;
  }
  return Status::ok();
}

Status TensorChecker::require_f32(const std::string& name, std::initializer_list<uint64_t> shape) {
  PW_RETURN_IF_ERROR(require(name, shape));
  const gguf::Tensor* tensor = file_.find_tensor(name);
  if (tensor->type != TensorType::kF32) {
    const TensorTypeInfo* info = tensor_type_info(tensor->type);
    return error(ErrorCode::kUnsupported,
                 fmt::format("tensor {}: type {}, expected F32", name,
                             info == nullptr ? std::string_view("unknown") : info->name));
  }
  return Status::ok();
}

Status TensorChecker::require_norm(const std::string& name, const ModelSpec& spec) {
  PW_RETURN_IF_ERROR(require_f32(name + ".weight", {spec.embedding}));
  return spec.norm_bias ? require_f32(name + ".bias", {spec.embedding}) : Status::ok();
}

Status TensorChecker::require_model(ModelSpec& spec) {
  PW_RETURN_IF_ERROR(require("token_embd.weight", {spec.embedding, spec.vocab_size}));
  PW_RETURN_IF_ERROR(require_norm("output_norm", spec));
  spec.tied_head = !has("output.weight");
  if (!spec.tied_head) {
    PW_RETURN_IF_ERROR(require("output.weight", {spec.embedding, spec.vocab_size}));
  }
  const uint64_t pairs = spec.rope.dims / 2;
  switch (spec.rope.factors) {
    case RopeFactors::kNone:
      break;
    case RopeFactors::kOne:
      PW_RETURN_IF_ERROR(require_f32("rope_freqs.weight", {pairs}));
      break;
    case RopeFactors::kShort:
    case RopeFactors::kLong:
      PW_RETURN_IF_ERROR(require_f32("rope_factors_short.weight", {pairs}));
      PW_RETURN_IF_ERROR(require_f32("rope_factors_long.weight", {pairs}));
      break;
  }
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    PW_RETURN_IF_ERROR(require_layer(fmt::format("blk.{}.", i), spec.layers[i], spec));
  }
  PW_RETURN_IF_ERROR(finish(spec.architecture));
  spec.parameters = parameters_;
  spec.weight_bytes = bytes_;
  assign_groups(spec);
  return Status::ok();
}

Status TensorChecker::require_layer(const std::string& prefix, const LayerSpec& layer,
                                    const ModelSpec& spec) {
  if (layer.pre_norms) PW_RETURN_IF_ERROR(require_norm(prefix + "attn_norm", spec));
  PW_RETURN_IF_ERROR(layer.latent ? require_latent(prefix, spec.latent, layer.heads, spec.embedding)
                                  : require_attention(prefix, layer, spec.embedding));
  if (layer.pre_norms) {
    PW_RETURN_IF_ERROR(require_norm(prefix + std::string(layer.ffn_norm_name()), spec));
    if (layer.parallel_norm) PW_RETURN_IF_ERROR(require_norm(prefix + "attn_norm_2", spec));
  }
  if (layer.post_norms) {
    PW_RETURN_IF_ERROR(require_norm(prefix + "post_attention_norm", spec));
    PW_RETURN_IF_ERROR(require_norm(prefix + "post_ffw_norm", spec));
  }
  const uint64_t embedding = spec.embedding;
  if (spec.has_experts(layer)) return require_experts(prefix, spec.experts, embedding);
  const bool gated = spec.activation != Activation::kGeluOnly;
  if (gated && !layer.fused_gate) {
    PW_RETURN_IF_ERROR(require(prefix + "ffn_gate.weight", {embedding, layer.ffn}));
  }
  const uint64_t up_rows = uint64_t{layer.ffn} * (layer.fused_gate ? 2 : 1);
  PW_RETURN_IF_ERROR(require(prefix + "ffn_up.weight", {embedding, up_rows}));
  return require(prefix + "ffn_down.weight", {layer.ffn, embedding});
}

Status TensorChecker::require_attention(const std::string& prefix, const LayerSpec& layer,
                                        uint64_t embedding) {
  const uint64_t query = uint64_t{layer.heads} * layer.key_dim;
  const uint64_t key = uint64_t{layer.kv_heads} * layer.key_dim;
  const uint64_t value = uint64_t{layer.kv_heads} * layer.value_dim;
  const uint64_t attention = uint64_t{layer.heads} * layer.value_dim;
  if (layer.fused_qkv) {
    PW_RETURN_IF_ERROR(require(prefix + "attn_qkv.weight", {embedding, query + key + value}));
    if (layer.qkv_bias) {
      PW_RETURN_IF_ERROR(require_f32(prefix + "attn_qkv.bias", {query + key + value}));
    }
  } else {
    PW_RETURN_IF_ERROR(require(prefix + "attn_q.weight", {embedding, query}));
    PW_RETURN_IF_ERROR(require(prefix + "attn_k.weight", {embedding, key}));
    PW_RETURN_IF_ERROR(require(prefix + "attn_v.weight", {embedding, value}));
    if (layer.qkv_bias) {
      PW_RETURN_IF_ERROR(require_f32(prefix + "attn_q.bias", {query}));
      PW_RETURN_IF_ERROR(require_f32(prefix + "attn_k.bias", {key}));
      PW_RETURN_IF_ERROR(require_f32(prefix + "attn_v.bias", {value}));
    }
  }
  PW_RETURN_IF_ERROR(require(prefix + "attn_output.weight", {attention, embedding}));
  if (layer.output_bias) PW_RETURN_IF_ERROR(require_f32(prefix + "attn_output.bias", {embedding}));
  if (layer.sinks) PW_RETURN_IF_ERROR(require_f32(prefix + "attn_sinks.weight", {layer.heads}));
  if (layer.qk_norm != QkNorm::kNone) {
    const bool row = layer.qk_norm == QkNorm::kRow;
    PW_RETURN_IF_ERROR(require_f32(prefix + "attn_q_norm.weight", {row ? query : layer.key_dim}));
    PW_RETURN_IF_ERROR(require_f32(prefix + "attn_k_norm.weight", {row ? key : layer.key_dim}));
  }
  return Status::ok();
}

Status TensorChecker::require_latent(const std::string& prefix, const LatentSpec& latent,
                                     uint64_t heads, uint64_t embedding) {
  uint64_t from = embedding;
  if (latent.query_rank != 0) {
    from = latent.query_rank;
    PW_RETURN_IF_ERROR(require(prefix + "attn_q_a.weight", {embedding, from}));
    PW_RETURN_IF_ERROR(require_f32(prefix + "attn_q_a_norm.weight", {from}));
  }
  PW_RETURN_IF_ERROR(
      require(prefix + (latent.query_rank != 0 ? "attn_q_b.weight" : "attn_q.weight"),
              {from, heads * latent.query_dim()}));
  const uint64_t rank = latent.rank, plain = latent.plain_dims, value = latent.value_dim;
  PW_RETURN_IF_ERROR(
      require(prefix + "attn_kv_a_mqa.weight", {embedding, rank + latent.rope_dims}));
  PW_RETURN_IF_ERROR(require_f32(prefix + "attn_kv_a_norm.weight", {rank}));
  if (latent.fused) {
    PW_RETURN_IF_ERROR(require(prefix + "attn_kv_b.weight", {rank, heads * (plain + value)}));
  } else {
    PW_RETURN_IF_ERROR(require(prefix + "attn_k_b.weight", {plain, rank, heads}));
    PW_RETURN_IF_ERROR(require(prefix + "attn_v_b.weight", {rank, value, heads}));
  }
  return require(prefix + "attn_output.weight", {heads * value, embedding});
}

Status TensorChecker::require_experts(const std::string& prefix, const ExpertSpec& experts,
                                      uint64_t embedding) {
  const uint64_t count = experts.count, ffn = experts.ffn, shared = experts.shared_ffn;
  PW_RETURN_IF_ERROR(require(prefix + "ffn_gate_inp.weight", {embedding, count}));
  PW_RETURN_IF_ERROR(require(prefix + "ffn_gate_exps.weight", {embedding, ffn, count}));
  PW_RETURN_IF_ERROR(require(prefix + "ffn_up_exps.weight", {embedding, ffn, count}));
  PW_RETURN_IF_ERROR(require(prefix + "ffn_down_exps.weight", {ffn, embedding, count}));
  if (experts.biases) {
    PW_RETURN_IF_ERROR(require_f32(prefix + "ffn_gate_inp.bias", {count}));
    PW_RETURN_IF_ERROR(require_f32(prefix + "ffn_gate_exps.bias", {ffn, count}));
    PW_RETURN_IF_ERROR(require_f32(prefix + "ffn_up_exps.bias", {ffn, count}));
    PW_RETURN_IF_ERROR(require_f32(prefix + "ffn_down_exps.bias", {embedding, count}));
  }
  if (experts.bias) PW_RETURN_IF_ERROR(require_f32(prefix + "exp_probs_b.bias", {count}));
  if (shared == 0) return Status::ok();
  if (experts.shared_gate) {
    PW_RETURN_IF_ERROR(require(prefix + "ffn_gate_inp_shexp.weight", {embedding}));
  }
  PW_RETURN_IF_ERROR(require(prefix + "ffn_gate_shexp.weight", {embedding, shared}));
  PW_RETURN_IF_ERROR(require(prefix + "ffn_up_shexp.weight", {embedding, shared}));
  return require(prefix + "ffn_down_shexp.weight", {shared, embedding});
}

Status TensorChecker::finish(std::string_view architecture) const {
  for (const gguf::Tensor& tensor : file_.tensors()) {
    if (!used_.contains(tensor.name)) {
      return error(ErrorCode::kUnsupported,
                   fmt::format("tensor {}: not something this program computes with for "
                               "architecture '{}'",
                               gguf::printable(tensor.name), architecture));
    }
  }
  return Status::ok();
}

}  // namespace pagewise::model
