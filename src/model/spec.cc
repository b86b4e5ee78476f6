// SPDX-License-Identifier: Apache-2.0
// Dispatch by architecture, the checks that adaptors share, and the step from layers to KV groups.
#include "model/spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "model/adaptors/adaptor.h"

namespace pagewise::model {
namespace {

struct Architecture {
  std::string_view name;
  Result<ModelSpec> (*read)(const gguf::File&);
};

constexpr Architecture kArchitectures[] = {
    {"llama", llama_spec},
    {"gemma3", gemma3_spec},
};

}  // namespace

uint32_t ModelSpec::heads_max() const {
  uint32_t heads = 0;
  for (const LayerSpec& layer : layers) heads = std::max(heads, layer.heads);
  return heads;
}

std::vector<std::string_view> supported_architectures() {
  std::vector<std::string_view> names;
  for (const Architecture& architecture : kArchitectures) names.push_back(architecture.name);
  return names;
}

Result<ModelSpec> spec_from_gguf(const gguf::File& file) {
  PW_ASSIGN_OR_RETURN(const std::string name, file.require_string("general.architecture"));
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == name) return architecture.read(file);
  }
  return Error{ErrorCode::kUnsupported,
               fmt::format("{}: architecture '{}' is not supported; supported: {}", file.path(),
                           gguf::printable(name), fmt::join(supported_architectures(), ", "))};
}

void assign_groups(ModelSpec& spec) {
  struct Group {
    LayerSpec like;
    uint32_t layers;
  };
  std::vector<Group> groups;
  for (LayerSpec& layer : spec.layers) {
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const Group& group) {
      return group.like.attention == layer.attention && group.like.window == layer.window &&
             group.like.kv_heads == layer.kv_heads && group.like.key_dim == layer.key_dim &&
             group.like.value_dim == layer.value_dim;
    });
    layer.group = static_cast<uint32_t>(same - groups.begin());
    if (same == groups.end()) {
      layer.group_layer = 0;
      groups.push_back({layer, 1});
    } else {
      layer.group_layer = same->layers++;
    }
  }
}

Result<kv::Geometry> make_geometry(const ModelSpec& spec, uint32_t block_tokens, KvType key_type,
                                   KvType value_type) {
  if (block_tokens == 0) {
    return Error{ErrorCode::kInvalidArgument, "a block of 0 tokens holds nothing"};
  }
  kv::Geometry geometry;
  geometry.block_tokens = block_tokens;
  for (const LayerSpec& layer : spec.layers) {
    if (layer.group >= geometry.groups.size()) geometry.groups.resize(layer.group + 1);
    kv::GroupGeometry& group = geometry.groups[layer.group];
    group.layers++;
    group.kv_heads = layer.kv_heads;
    group.key_dim = layer.key_dim;
    group.value_dim = layer.value_dim;
    group.window = layer.window;
    group.key_type = key_type;
    group.value_type = value_type;
    const auto fits = [](KvType type, uint32_t dim) {
      return type != KvType::kQ8_0 || dim % 32 == 0;
    };
    if (!fits(key_type, layer.key_dim) || !fits(value_type, layer.value_dim)) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("KV type q8_0 needs a head dimension that is a multiple of 32, and "
                               "this model's is {}",
                               fits(key_type, layer.key_dim) ? layer.value_dim : layer.key_dim)};
    }
  }
  return geometry;
}

Error MetadataReader::error(std::string message) const {
  return {ErrorCode::kMalformed, fmt::format("{}: {}", file_.path(), message)};
}

Result<uint32_t> MetadataReader::uint(std::string_view name, uint64_t min, uint64_t max) const {
  PW_ASSIGN_OR_RETURN(const uint64_t value, file_.require_uint(key(name)));
  if (value < min || value > max) {
    return error(fmt::format("{} is {}, expected {} to {}", key(name), value, min, max));
  }
  return static_cast<uint32_t>(value);
}

Result<uint32_t> MetadataReader::uint_or(std::string_view name, uint64_t min, uint64_t max,
                                         uint32_t fallback) const {
  if (file_.find(key(name)) == nullptr) return fallback;
  return uint(name, min, max);
}

Result<double> MetadataReader::real(std::string_view name, double min, double max) const {
  PW_ASSIGN_OR_RETURN(const std::optional<double> value, file_.find_float(key(name)));
  if (!value) return error(key(name) + ": missing");
  if (!std::isfinite(*value) || *value < min || *value > max) {
    return error(fmt::format("{} is {}, expected {} to {}", key(name), *value, min, max));
  }
  return *value;
}

Result<double> MetadataReader::real_or(std::string_view name, double min, double max,
                                       double fallback) const {
  if (file_.find(key(name)) == nullptr) return fallback;
  return real(name, min, max);
}

Result<std::string> MetadataReader::string_or(std::string_view name,
                                              std::string_view fallback) const {
  PW_ASSIGN_OR_RETURN(const std::optional<std::string> value, file_.find_string(key(name)));
  return value ? *value : std::string(fallback);
}

Result<Dimensions> MetadataReader::dimensions() const {
  Dimensions out;
  PW_ASSIGN_OR_RETURN(out.embedding, uint("embedding_length", 1, kDimMax));
  PW_ASSIGN_OR_RETURN(out.context, uint("context_length", 1, 1U << 30));
  PW_ASSIGN_OR_RETURN(out.layers, uint("block_count", 1, kLayersMax));
  PW_ASSIGN_OR_RETURN(out.ffn, uint("feed_forward_length", 1, kDimMax));
  PW_ASSIGN_OR_RETURN(out.heads, uint("attention.head_count", 1, kDimMax));
  PW_ASSIGN_OR_RETURN(out.kv_heads, uint_or("attention.head_count_kv", 1, out.heads, out.heads));
  PW_ASSIGN_OR_RETURN(const double eps, real("attention.layer_norm_rms_epsilon", 1e-12, 1.0));
  out.norm_eps = static_cast<float>(eps);
  if (out.heads % out.kv_heads != 0) {
    return error(fmt::format("{} is {}, expected a multiple of {} = {}",
                             key("attention.head_count"), out.heads, key("attention.head_count_kv"),
                             out.kv_heads));
  }
  const bool has_key_dim = file_.find(key("attention.key_length")) != nullptr;
  if (!has_key_dim && (out.embedding % out.heads != 0 || out.embedding / out.heads > kHeadDimMax)) {
    return error(fmt::format("{} is {}, which {} = {} does not divide into heads",
                             key("embedding_length"), out.embedding, key("attention.head_count"),
                             out.heads));
  }
  const uint32_t even_dim = out.embedding / out.heads;
  PW_ASSIGN_OR_RETURN(out.key_dim, uint_or("attention.key_length", 2, kHeadDimMax, even_dim));
  PW_ASSIGN_OR_RETURN(out.value_dim, uint_or("attention.value_length", 1, kHeadDimMax, even_dim));
  return out;
}

Result<RopeSpec> MetadataReader::rope(RopeKind kind, uint32_t key_dim) const {
  RopeSpec rope;
  rope.kind = kind;
  PW_ASSIGN_OR_RETURN(rope.dims, uint_or("rope.dimension_count", 2, key_dim, key_dim));
  if (rope.dims % 2 != 0) {
    return error(
        fmt::format("{} is {}, expected an even number", key("rope.dimension_count"), rope.dims));
  }
  PW_ASSIGN_OR_RETURN(rope.base, real_or("rope.freq_base", 1.0, 1e12, 10000.0));
  PW_ASSIGN_OR_RETURN(const std::string scaling, string_or("rope.scaling.type", "none"));
  // Old files have the linear factor under its own name, without a type.
  PW_ASSIGN_OR_RETURN(const double old_linear, real_or("rope.scale_linear", 1e-6, 1e6, 1.0));
  PW_ASSIGN_OR_RETURN(const double factor, real_or("rope.scaling.factor", 1e-6, 1e6, old_linear));
  if (scaling == "linear" || (scaling == "none" && old_linear != 1.0)) {
    rope.position_scale = 1.0 / factor;
  } else if (scaling != "none") {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{}: {} '{}' is not supported; supported: none, linear", file_.path(),
                             key("rope.scaling.type"), gguf::printable(scaling))};
  }
  return rope;
}

Result<uint32_t> MetadataReader::vocabulary() const {
  const gguf::Tensor* embeddings = file_.find_tensor("token_embd.weight");
  if (embeddings == nullptr) return error("tensor token_embd.weight: missing");
  PW_ASSIGN_OR_RETURN(const std::span<const std::string_view> tokens,
                      file_.string_array("tokenizer.ggml.tokens"));
  const uint64_t vocab = tokens.empty() ? embeddings->rows() : tokens.size();
  if (vocab == 0 || vocab > (1U << 24)) {
    return error(fmt::format("a vocabulary of {} tokens, expected 1 to {}", vocab, 1U << 24));
  }
  return static_cast<uint32_t>(vocab);
}

Status MetadataReader::refuse(std::initializer_list<std::string_view> names) const {
  for (const std::string_view name : names) {
    if (file_.find(key(name)) == nullptr) continue;
    return file_.bad_value(key(name),
                           fmt::format("is not supported for architecture '{}'",
                                       std::string_view(prefix_).substr(0, prefix_.size() - 1)),
                           ErrorCode::kUnsupported);
  }
  return Status::ok();
}

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

Status TensorChecker::require_f32(const std::string& name, uint64_t elements) {
  PW_RETURN_IF_ERROR(require(name, {elements}));
  const gguf::Tensor* tensor = file_.find_tensor(name);
  if (tensor->type != TensorType::kF32) {
    const TensorTypeInfo* info = tensor_type_info(tensor->type);
    return error(ErrorCode::kUnsupported,
                 fmt::format("tensor {}: type {}, expected F32", name,
                             info == nullptr ? std::string_view("unknown") : info->name));
  }
  return Status::ok();
}

Status TensorChecker::require_layer(const std::string& prefix, const LayerSpec& layer,
                                    uint64_t embedding) {
  const uint64_t query = uint64_t{layer.heads} * layer.key_dim;
  const uint64_t key = uint64_t{layer.kv_heads} * layer.key_dim;
  const uint64_t value = uint64_t{layer.kv_heads} * layer.value_dim;
  const uint64_t attention = uint64_t{layer.heads} * layer.value_dim;
  PW_RETURN_IF_ERROR(require_f32(prefix + "attn_norm.weight", embedding));
  PW_RETURN_IF_ERROR(require(prefix + "attn_q.weight", {embedding, query}));
  PW_RETURN_IF_ERROR(require(prefix + "attn_k.weight", {embedding, key}));
  PW_RETURN_IF_ERROR(require(prefix + "attn_v.weight", {embedding, value}));
  PW_RETURN_IF_ERROR(require(prefix + "attn_output.weight", {attention, embedding}));
  PW_RETURN_IF_ERROR(require_f32(prefix + "ffn_norm.weight", embedding));
  PW_RETURN_IF_ERROR(require(prefix + "ffn_gate.weight", {embedding, layer.ffn}));
  PW_RETURN_IF_ERROR(require(prefix + "ffn_up.weight", {embedding, layer.ffn}));
  PW_RETURN_IF_ERROR(require(prefix + "ffn_down.weight", {layer.ffn, embedding}));
  if (layer.qkv_bias) {
    PW_RETURN_IF_ERROR(require_f32(prefix + "attn_q.bias", query));
    PW_RETURN_IF_ERROR(require_f32(prefix + "attn_k.bias", key));
    PW_RETURN_IF_ERROR(require_f32(prefix + "attn_v.bias", value));
  }
  if (layer.output_bias) PW_RETURN_IF_ERROR(require_f32(prefix + "attn_output.bias", embedding));
  if (layer.qk_norm) {
    PW_RETURN_IF_ERROR(require_f32(prefix + "attn_q_norm.weight", layer.key_dim));
    PW_RETURN_IF_ERROR(require_f32(prefix + "attn_k_norm.weight", layer.key_dim));
  }
  if (layer.post_norms) {
    PW_RETURN_IF_ERROR(require_f32(prefix + "post_attention_norm.weight", embedding));
    PW_RETURN_IF_ERROR(require_f32(prefix + "post_ffw_norm.weight", embedding));
  }
  return Status::ok();
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
