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
  Loader(const gguf::File& file, const ModelSpec& spec, const std::function<void(double)>& progress)
      : file_(file), bytes_total_(spec.weight_bytes), progress_(progress) {}

  Result<Matrix> matrix(const std::string& name) {
    const gguf::Tensor& tensor = find(name);
    Matrix out;
    std::span<const std::byte> data = file_.data(tensor);
    if (!kernels::linear_packs(tensor.type)) {
      out.raw = copy(data);
      data = {out.raw.data(), out.raw.size()};
    }
    auto packed = kernels::LinearWeights::pack(tensor.type, tensor.rows(), tensor.columns(), data);
    if (!packed) return named(name, packed.error());
    out.linear = std::move(*packed);
    bytes_ += out.linear.bytes();
    count(tensor);
    return out;
  }

  Result<AlignedArray<float>> vector(const std::string& name) {
    const gguf::Tensor& tensor = find(name);
    const std::span<const std::byte> data = file_.data(tensor);
    PW_CHECK(tensor.type == TensorType::kF32 && data.size() % sizeof(float) == 0);
    AlignedArray<float> out(data.size() / sizeof(float));
    std::memcpy(out.data(), data.data(), data.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (!std::isfinite(out[i])) {
        return named(name, {ErrorCode::kMalformed, fmt::format("element {} is not finite", i)});
      }
    }
    bytes_ += data.size();
    count(tensor);
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
    count(tensor);
    if (!also_head) return Status::ok();
    // Of a type that is decoded when used the head reads the same bytes.
    auto packed = kernels::LinearWeights::pack(tensor.type, tensor.rows(), tensor.columns(),
                                               {out.embeddings.data(), out.embeddings.size()});
    if (!packed) return named(name, packed.error());
    out.head.linear = std::move(*packed);
    return Status::ok();
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
  Error named(const std::string& name, const Error& error) const {
    return {error.code, fmt::format("{}: tensor {}: {}", file_.path(), name, error.message)};
  }
  /// What is read is not needed again: the file never stands in memory beside its packed form.
  void count(const gguf::Tensor& tensor) {
    file_.drop_pages(tensor);
    bytes_done_ += tensor.bytes;
    if (progress_) {
      progress_(static_cast<double>(bytes_done_) /
                static_cast<double>(std::max<uint64_t>(bytes_total_, 1)));
    }
  }

  const gguf::File& file_;
  const uint64_t bytes_total_;
  const std::function<void(double)>& progress_;
  uint64_t bytes_done_ = 0;
  uint64_t bytes_ = 0;
};

Result<ModelWeights> load(const gguf::File& file, const ModelSpec& spec,
                          const std::function<void(double)>& progress) {
  Loader loader(file, spec, progress);
  ModelWeights out;
  PW_RETURN_IF_ERROR(loader.embeddings("token_embd.weight", spec.tied_head, out));
  if (!spec.tied_head) {
    PW_ASSIGN_OR_RETURN(out.head, loader.matrix("output.weight"));
  }
  PW_ASSIGN_OR_RETURN(out.output_norm, loader.vector("output_norm.weight"));
  if (spec.rope.has_factors) {
    PW_ASSIGN_OR_RETURN(const AlignedArray<float> factors, loader.vector("rope_freqs.weight"));
    for (std::size_t i = 0; i < factors.size(); ++i) {
      if (!(factors[i] > 0)) {
        return Error{ErrorCode::kMalformed,
                     fmt::format("{}: tensor rope_freqs.weight: element {} is {}, expected more "
                                 "than 0",
                                 file.path(), i, factors[i])};
      }
      out.rope_factors.push_back(double{factors[i]});
    }
  }
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const auto in_layer = [i](std::string_view name) { return fmt::format("blk.{}.{}", i, name); };
    LayerWeights layer;
    PW_ASSIGN_OR_RETURN(layer.attention_norm, loader.vector(in_layer("attn_norm.weight")));
    PW_ASSIGN_OR_RETURN(layer.query, loader.matrix(in_layer("attn_q.weight")));
    PW_ASSIGN_OR_RETURN(layer.key, loader.matrix(in_layer("attn_k.weight")));
    PW_ASSIGN_OR_RETURN(layer.value, loader.matrix(in_layer("attn_v.weight")));
    PW_ASSIGN_OR_RETURN(layer.output, loader.matrix(in_layer("attn_output.weight")));
    PW_ASSIGN_OR_RETURN(layer.ffn_norm, loader.vector(in_layer("ffn_norm.weight")));
    PW_ASSIGN_OR_RETURN(layer.gate, loader.matrix(in_layer("ffn_gate.weight")));
    PW_ASSIGN_OR_RETURN(layer.up, loader.matrix(in_layer("ffn_up.weight")));
    PW_ASSIGN_OR_RETURN(layer.down, loader.matrix(in_layer("ffn_down.weight")));
    if (spec.layers[i].qkv_bias) {
      PW_ASSIGN_OR_RETURN(layer.query_bias, loader.vector(in_layer("attn_q.bias")));
      PW_ASSIGN_OR_RETURN(layer.key_bias, loader.vector(in_layer("attn_k.bias")));
      PW_ASSIGN_OR_RETURN(layer.value_bias, loader.vector(in_layer("attn_v.bias")));
    }
    if (spec.layers[i].output_bias) {
      PW_ASSIGN_OR_RETURN(layer.output_bias, loader.vector(in_layer("attn_output.bias")));
    }
    if (spec.layers[i].qk_norm) {
      PW_ASSIGN_OR_RETURN(layer.query_norm, loader.vector(in_layer("attn_q_norm.weight")));
      PW_ASSIGN_OR_RETURN(layer.key_norm, loader.vector(in_layer("attn_k_norm.weight")));
    }
    if (spec.layers[i].post_norms) {
      PW_ASSIGN_OR_RETURN(layer.post_attention_norm,
                          loader.vector(in_layer("post_attention_norm.weight")));
      PW_ASSIGN_OR_RETURN(layer.post_ffn_norm, loader.vector(in_layer("post_ffw_norm.weight")));
    }
    out.layers.push_back(std::move(layer));
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
