// SPDX-License-Identifier: Apache-2.0
#include "model/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

#include "base/bytes.h"
#include "base/check.h"

namespace pagewise::model {
namespace {

using kernels::AlignedArray;

/// Reads tensors by name and keeps count of what is done.
class Loader {
 public:
  Loader(const gguf::File& file, const ModelSpec& spec, const std::function<void(double)>& progress,
         kernels::WeightArena& arena)
      : file_(file), spec_(spec), progress_(progress), arena_(arena) {}

  Result<Matrix> matrix(const std::string& name) { return matrix(name, {0, find(name).rows()}); }

  /// The matrix of some rows of a tensor: several matrices may stand in one, each in rows of its
  /// own.
  Result<Matrix> matrix(const std::string& name, kernels::Range rows) {
    const gguf::Tensor& tensor = find(name);
    Matrix out;
    const uint64_t row_bytes = kernels::row_bytes(tensor.type, tensor.columns());
    std::span<const std::byte> data =
        file_.data(tensor).subspan(rows.begin * row_bytes, rows.size() * row_bytes);
    if (!kernels::linear_packs(tensor.type) && !data.empty()) {
      const std::span<uint8_t> kept = arena_.take(data.size());
      std::memcpy(kept.data(), data.data(), data.size());
      data = std::as_bytes(kept);
    }
    auto packed =
        kernels::LinearWeights::pack(tensor.type, rows.size(), tensor.columns(), data, &arena_);
    if (!packed) return named(name, packed.error());
    out.linear = std::move(*packed);
    bytes_ += out.linear.bytes();
    count(tensor, data.size());
    return out;
  }

  /// The matrix whose columns are some rows of a tensor, as f32: to round its values a second time
  /// would lose more than the bytes are worth.
  Result<Matrix> turned_matrix(const std::string& name, kernels::Range rows) {
    const gguf::Tensor& tensor = find(name);
    auto decoder = kernels::find_to_float(tensor.type);
    if (!decoder) return named(name, decoder.error());
    const uint64_t row_bytes = kernels::row_bytes(tensor.type, tensor.columns());
    const std::span<const std::byte> data = file_.data(tensor);
    std::vector<float> row(tensor.columns());
    std::vector<float> turned(rows.size() * row.size());
    for (std::size_t r = 0; r < rows.size(); ++r) {
      (*decoder)(data.data() + (rows.begin + r) * row_bytes, row.data(),
                 static_cast<int64_t>(row.size()));
      for (std::size_t c = 0; c < row.size(); ++c) turned[c * rows.size() + r] = row[c];
    }
    Matrix out;
    auto packed = kernels::LinearWeights::pack(TensorType::kF32, row.size(), rows.size(),
                                               std::as_bytes(std::span(turned)), &arena_);
    if (!packed) return named(name, packed.error());
    out.linear = std::move(*packed);
    bytes_ += out.linear.bytes();
    count(tensor, rows.size() * row_bytes);
    return out;
  }

  Result<AlignedArray<float>> vector(const std::string& name) {
    return vector(name, {0, find(name).columns()});
  }

  Result<AlignedArray<float>> vector(const std::string& name, kernels::Range elements) {
    const gguf::Tensor& tensor = find(name);
    PW_CHECK(tensor.type == TensorType::kF32);
    const std::span<const std::byte> data =
        file_.data(tensor).subspan(elements.begin * sizeof(float), elements.size() * sizeof(float));
    AlignedArray<float> out(elements.size());
    std::memcpy(out.data(), data.data(), data.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (!std::isfinite(out[i])) {
        return named(name, {ErrorCode::kMalformed,
                            fmt::format("element {} is not finite", elements.begin + i)});
      }
    }
    bytes_ += data.size();
    count(tensor, data.size());
    return out;
  }

  /// `name` without its ".weight".
  Result<Norm> norm(const std::string& name) {
    Norm out;
    PW_ASSIGN_OR_RETURN(out.weight, vector(name + ".weight"));
    if (spec_.norm_bias) {
      PW_ASSIGN_OR_RETURN(out.bias, vector(name + ".bias"));
    }
    return out;
  }

  Status embeddings(const std::string& name, bool also_head, ModelWeights& out) {
    const gguf::Tensor& tensor = find(name);
    if (also_head && kernels::linear_packs(tensor.type)) {
      PW_ASSIGN_OR_RETURN(out.head, matrix(name));
      return Status::ok();
    }
    auto decoder = kernels::find_to_float(tensor.type);
    if (!decoder) return named(name, decoder.error());
    out.embedding_decoder = *decoder;
    out.embedding_row_bytes = kernels::row_bytes(tensor.type, tensor.columns());
    out.embeddings = copy(file_.data(tensor));
    bytes_ += out.embeddings.size();
    count(tensor, tensor.bytes);
    if (!also_head) return Status::ok();
    // Of a type that is decoded when used the head reads the same bytes.
    auto packed = kernels::LinearWeights::pack(tensor.type, tensor.rows(), tensor.columns(),
                                               {out.embeddings.data(), out.embeddings.size()});
    if (!packed) return named(name, packed.error());
    out.head.linear = std::move(*packed);
    return Status::ok();
  }

  Error named(const std::string& name, const Error& error) const {
    return {error.code, fmt::format("{}: tensor {}: {}", file_.path(), name, error.message)};
  }
  uint64_t bytes() const { return bytes_; }

 private:
  const gguf::Tensor& find(const std::string& name) const {
    const gguf::Tensor* tensor = file_.find_tensor(name);
    PW_CHECK(tensor != nullptr);
    return *tensor;
  }
  static AlignedArray<std::byte> copy(std::span<const std::byte> data) {
    AlignedArray<std::byte> out(data.size());
    std::memcpy(out.data(), data.data(), data.size());
    return out;
  }
  /// What is read is not needed again: the file never stands in memory beside its packed form.
  void count(const gguf::Tensor& tensor, uint64_t bytes) {
    file_.drop_pages(tensor);
    bytes_done_ += bytes;
    if (progress_) {
      progress_(static_cast<double>(bytes_done_) /
                static_cast<double>(std::max<uint64_t>(spec_.weight_bytes, 1)));
    }
  }

  const gguf::File& file_;
  const ModelSpec& spec_;
  const std::function<void(double)>& progress_;
  kernels::WeightArena& arena_;
  uint64_t bytes_done_ = 0;
  uint64_t bytes_ = 0;
};

/// Divisors of rope's angles. Errors: kMalformed naming the tensor and the element.
Result<std::vector<double>> load_rope_factors(Loader& loader, const ModelSpec& spec) {
  std::vector<double> out;
  if (spec.rope.factors == RopeFactors::kNone) return out;
  const char* name = spec.rope.factors == RopeFactors::kOne     ? "rope_freqs.weight"
                     : spec.rope.factors == RopeFactors::kShort ? "rope_factors_short.weight"
                                                                : "rope_factors_long.weight";
  PW_ASSIGN_OR_RETURN(const AlignedArray<float> factors, loader.vector(name));
  for (std::size_t i = 0; i < factors.size(); ++i) {
    if (!(factors[i] > 0)) {
      return loader.named(name,
                          {ErrorCode::kMalformed,
                           fmt::format("element {} is {}, expected more than 0", i, factors[i])});
    }
    out.push_back(double{factors[i]});
  }
  return out;
}

Status load_latent_attention(Loader& loader, const std::string& prefix, std::size_t heads,
                             const LatentSpec& spec, LayerWeights& out) {
  if (spec.query_rank != 0) {
    PW_ASSIGN_OR_RETURN(out.latent.query_down, loader.matrix(prefix + "attn_q_a.weight"));
    PW_ASSIGN_OR_RETURN(out.query_norm, loader.vector(prefix + "attn_q_a_norm.weight"));
  }
  PW_ASSIGN_OR_RETURN(out.query, loader.matrix(prefix + (spec.query_rank != 0 ? "attn_q_b.weight"
                                                                              : "attn_q.weight")));
  PW_ASSIGN_OR_RETURN(out.key, loader.matrix(prefix + "attn_kv_a_mqa.weight"));
  PW_ASSIGN_OR_RETURN(out.key_norm, loader.vector(prefix + "attn_kv_a_norm.weight"));
  for (std::size_t h = 0; h < heads; ++h) {
    Matrix& key_up = out.latent.key_up.emplace_back();
    Matrix& value_up = out.latent.value_up.emplace_back();
    if (spec.fused) {  // of each head the rows of keys, then of values
      const std::string name = prefix + "attn_kv_b.weight";
      const std::size_t begin = h * (spec.plain_dims + spec.value_dim);
      const std::size_t middle = begin + spec.plain_dims;
      PW_ASSIGN_OR_RETURN(key_up, loader.turned_matrix(name, {begin, middle}));
      PW_ASSIGN_OR_RETURN(value_up, loader.matrix(name, {middle, middle + spec.value_dim}));
    } else {
      const kernels::Range keys = {h * spec.rank, (h + 1) * spec.rank};
      const kernels::Range values = {h * spec.value_dim, (h + 1) * spec.value_dim};
      PW_ASSIGN_OR_RETURN(key_up, loader.matrix(prefix + "attn_k_b.weight", keys));
      PW_ASSIGN_OR_RETURN(value_up, loader.matrix(prefix + "attn_v_b.weight", values));
    }
  }
  PW_ASSIGN_OR_RETURN(out.output, loader.matrix(prefix + "attn_output.weight"));
  return Status::ok();
}

Status load_attention(Loader& loader, const std::string& prefix, const LayerSpec& spec,
                      LayerWeights& out) {
  const std::size_t query = std::size_t{spec.heads} * spec.key_dim;
  const std::size_t key = query + std::size_t{spec.kv_heads} * spec.key_dim;
  const std::size_t value = key + std::size_t{spec.kv_heads} * spec.value_dim;
  if (spec.fused_qkv) {
    const std::string name = prefix + "attn_qkv.weight";
    PW_ASSIGN_OR_RETURN(out.query, loader.matrix(name, {0, query}));
    PW_ASSIGN_OR_RETURN(out.key, loader.matrix(name, {query, key}));
    PW_ASSIGN_OR_RETURN(out.value, loader.matrix(name, {key, value}));
  } else {
    PW_ASSIGN_OR_RETURN(out.query, loader.matrix(prefix + "attn_q.weight"));
    PW_ASSIGN_OR_RETURN(out.key, loader.matrix(prefix + "attn_k.weight"));
    PW_ASSIGN_OR_RETURN(out.value, loader.matrix(prefix + "attn_v.weight"));
  }
  PW_ASSIGN_OR_RETURN(out.output, loader.matrix(prefix + "attn_output.weight"));
  if (spec.qkv_bias && spec.fused_qkv) {
    const std::string name = prefix + "attn_qkv.bias";
    PW_ASSIGN_OR_RETURN(out.query_bias, loader.vector(name, {0, query}));
    PW_ASSIGN_OR_RETURN(out.key_bias, loader.vector(name, {query, key}));
    PW_ASSIGN_OR_RETURN(out.value_bias, loader.vector(name, {key, value}));
  } else if (spec.qkv_bias) {
    PW_ASSIGN_OR_RETURN(out.query_bias, loader.vector(prefix + "attn_q.bias"));
    PW_ASSIGN_OR_RETURN(out.key_bias, loader.vector(prefix + "attn_k.bias"));
    PW_ASSIGN_OR_RETURN(out.value_bias, loader.vector(prefix + "attn_v.bias"));
  }
  if (spec.output_bias) {
    PW_ASSIGN_OR_RETURN(out.output_bias, loader.vector(prefix + "attn_output.bias"));
  }
  if (spec.sinks) {
    PW_ASSIGN_OR_RETURN(out.sinks, loader.vector(prefix + "attn_sinks.weight"));
  }
  if (spec.qk_norm != QkNorm::kNone) {
    PW_ASSIGN_OR_RETURN(out.query_norm, loader.vector(prefix + "attn_q_norm.weight"));
    PW_ASSIGN_OR_RETURN(out.key_norm, loader.vector(prefix + "attn_k_norm.weight"));
  }
  return Status::ok();
}

Status load_norms(Loader& loader, const std::string& prefix, const LayerSpec& spec,
                  LayerWeights& out) {
  if (spec.pre_norms) {
    PW_ASSIGN_OR_RETURN(out.attention_norm,
                        loader.norm(prefix + (spec.parallel_norm ? "attn_norm_2" : "attn_norm")));
    PW_ASSIGN_OR_RETURN(out.ffn_norm, loader.norm(prefix + std::string(spec.ffn_norm_name())));
  }
  if (spec.post_norms) {
    PW_ASSIGN_OR_RETURN(out.post_attention_norm, loader.norm(prefix + "post_attention_norm"));
    PW_ASSIGN_OR_RETURN(out.post_ffn_norm, loader.norm(prefix + "post_ffw_norm"));
  }
  return Status::ok();
}

Status load_experts(Loader& loader, const std::string& prefix, const ExpertSpec& spec,
                    std::size_t embedding, ExpertWeights& out) {
  PW_ASSIGN_OR_RETURN(out.router, loader.matrix(prefix + "ffn_gate_inp.weight"));
  if (spec.biases) {
    PW_ASSIGN_OR_RETURN(out.router_bias, loader.vector(prefix + "ffn_gate_inp.bias"));
  }
  for (std::size_t e = 0; e < spec.count; ++e) {
    const kernels::Range inner = {e * spec.ffn, (e + 1) * spec.ffn};
    const kernels::Range outer = {e * embedding, (e + 1) * embedding};
    FeedForward& expert = out.experts.emplace_back();
    PW_ASSIGN_OR_RETURN(expert.gate, loader.matrix(prefix + "ffn_gate_exps.weight", inner));
    PW_ASSIGN_OR_RETURN(expert.up, loader.matrix(prefix + "ffn_up_exps.weight", inner));
    PW_ASSIGN_OR_RETURN(expert.down, loader.matrix(prefix + "ffn_down_exps.weight", outer));
    if (!spec.biases) continue;
    PW_ASSIGN_OR_RETURN(expert.gate_bias, loader.vector(prefix + "ffn_gate_exps.bias", inner));
    PW_ASSIGN_OR_RETURN(expert.up_bias, loader.vector(prefix + "ffn_up_exps.bias", inner));
    PW_ASSIGN_OR_RETURN(expert.down_bias, loader.vector(prefix + "ffn_down_exps.bias", outer));
  }
  if (spec.bias) {
    PW_ASSIGN_OR_RETURN(out.bias, loader.vector(prefix + "exp_probs_b.bias"));
  }
  if (spec.shared_ffn == 0) return Status::ok();
  if (spec.shared_gate) {
    PW_ASSIGN_OR_RETURN(out.shared_gate, loader.matrix(prefix + "ffn_gate_inp_shexp.weight"));
  }
  PW_ASSIGN_OR_RETURN(out.shared.gate, loader.matrix(prefix + "ffn_gate_shexp.weight"));
  PW_ASSIGN_OR_RETURN(out.shared.up, loader.matrix(prefix + "ffn_up_shexp.weight"));
  PW_ASSIGN_OR_RETURN(out.shared.down, loader.matrix(prefix + "ffn_down_shexp.weight"));
  return Status::ok();
}

Status load_feed_forward(Loader& loader, const std::string& prefix, const LayerSpec& layer,
                         const ModelSpec& spec, LayerWeights& out) {
  if (spec.has_experts(layer)) {
    return load_experts(loader, prefix, spec.experts, spec.embedding, out.experts);
  }
  const std::string up = prefix + "ffn_up.weight";
  if (layer.fused_gate) {
    PW_ASSIGN_OR_RETURN(out.ffn.gate, loader.matrix(up, {0, layer.ffn}));
    PW_ASSIGN_OR_RETURN(out.ffn.up, loader.matrix(up, {layer.ffn, std::size_t{layer.ffn} * 2}));
  } else {
    if (spec.activation != Activation::kGeluOnly) {
      PW_ASSIGN_OR_RETURN(out.ffn.gate, loader.matrix(prefix + "ffn_gate.weight"));
    }
    PW_ASSIGN_OR_RETURN(out.ffn.up, loader.matrix(up));
  }
  PW_ASSIGN_OR_RETURN(out.ffn.down, loader.matrix(prefix + "ffn_down.weight"));
  return Status::ok();
}

Result<ModelWeights> load(const gguf::File& file, const ModelSpec& spec,
                          const std::function<void(double)>& progress) {
  ModelWeights out;
  // Packing changes matrices by less than a percent, and norms are elsewhere.
  out.arena = kernels::WeightArena(spec.weight_bytes + spec.weight_bytes / 100);
  Loader loader(file, spec, progress, out.arena);
  PW_RETURN_IF_ERROR(loader.embeddings("token_embd.weight", spec.tied_head, out));
  if (!spec.tied_head) {
    PW_ASSIGN_OR_RETURN(out.head, loader.matrix("output.weight"));
  }
  PW_ASSIGN_OR_RETURN(out.output_norm, loader.norm("output_norm"));
  PW_ASSIGN_OR_RETURN(out.rope_factors, load_rope_factors(loader, spec));
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const std::string prefix = fmt::format("blk.{}.", i);
    LayerWeights& layer = out.layers.emplace_back();
    PW_RETURN_IF_ERROR(load_norms(loader, prefix, spec.layers[i], layer));
    PW_RETURN_IF_ERROR(
        spec.layers[i].latent
            ? load_latent_attention(loader, prefix, spec.layers[i].heads, spec.latent, layer)
            : load_attention(loader, prefix, spec.layers[i], layer));
    PW_RETURN_IF_ERROR(load_feed_forward(loader, prefix, spec.layers[i], spec, layer));
  }
  out.bytes = loader.bytes();
  file.drop_pages();
  return out;
}

}  // namespace

Result<ModelWeights> load_weights(const gguf::File& file, const ModelSpec& spec,
                                  const std::function<void(double)>& progress) {
  try {
    return load(file, spec, progress);
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::kIo, fmt::format("{}: not enough memory for {} of weights", file.path(),
                                             format_size(spec.weight_bytes))};
  }
}

}  // namespace pagewise::model
