// SPDX-License-Identifier: Apache-2.0
// Reading an architecture's keys within bounds.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "model/adaptors/adaptor.h"

namespace pagewise::model {

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

Result<Dimensions> MetadataReader::dimensions(NormKind norm) const {
  Dimensions out;
  PW_ASSIGN_OR_RETURN(out.embedding, uint("embedding_length", 1, kDimMax));
  PW_ASSIGN_OR_RETURN(out.context, uint("context_length", 1, 1U << 30));
  PW_ASSIGN_OR_RETURN(out.layers, uint("block_count", 1, kLayersMax));
  PW_ASSIGN_OR_RETURN(out.ffn, uint("feed_forward_length", 1, kDimMax));
  PW_ASSIGN_OR_RETURN(out.heads, uint("attention.head_count", 1, kDimMax));
  PW_ASSIGN_OR_RETURN(out.kv_heads, uint_or("attention.head_count_kv", 1, out.heads, out.heads));
  PW_ASSIGN_OR_RETURN(const double eps,
                      real(norm == NormKind::kRms ? "attention.layer_norm_rms_epsilon"
                                                  : "attention.layer_norm_epsilon",
                           1e-12, 1.0));
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

Result<RopeSpec> MetadataReader::rope(RopeKind kind, uint32_t key_dim, const YarnForm& yarn) const {
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
  } else if (scaling == "yarn") {
    PW_RETURN_IF_ERROR(add_yarn(factor, yarn, rope));
  } else if (scaling != "none" && scaling != "longrope") {  // the latter is told by its tensors
    return Error{
        ErrorCode::kUnsupported,
        fmt::format("{}: {} '{}' is not supported; supported: none, linear, yarn, longrope",
                    file_.path(), key("rope.scaling.type"), gguf::printable(scaling))};
  }
  return rope;
}

/// Pairs that turn more than 32 times within the original context keep their frequency, those that
/// turn less than once are stretched. Source: Peng et al. 2023 (arXiv 2309.00071), section 3.2 and
/// equation 22; the defaults are the paper's for the llama family.
Status MetadataReader::add_yarn(double factor, const YarnForm& form, RopeSpec& rope) const {
  // Of these the format does not say what other values would mean for every file.
  PW_RETURN_IF_ERROR(refuse({"rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor"}));
  PW_ASSIGN_OR_RETURN(const double multiplier,
                      real_or("rope.scaling.yarn_log_multiplier", -1e3, 1e3, 0.0));
  const bool on_scores = multiplier != 0.0;
  if (on_scores && !form.on_scores) {
    PW_RETURN_IF_ERROR(refuse({"rope.scaling.yarn_log_multiplier"}));
  }
  PW_ASSIGN_OR_RETURN(const uint32_t context,
                      uint("rope.scaling.original_context_length", 1, 1U << 30));
  PW_ASSIGN_OR_RETURN(const double fast, real_or("rope.scaling.yarn_beta_fast", 1e-3, 1e6, 32.0));
  PW_ASSIGN_OR_RETURN(const double slow, real_or("rope.scaling.yarn_beta_slow", 1e-3, 1e6, 1.0));
  PW_ASSIGN_OR_RETURN(const double attention, real_or("rope.scaling.attn_factor", 1e-6, 1e6, 1.0));
  if (rope.base <= 1.0) return error(key("rope.freq_base") + " is 1, expected more with yarn");
  /// The pair that turns so many times within the original context.
  const auto pair_of = [&](double turns) {
    constexpr double kTwoPi = 6.283185307179586;
    return rope.dims * std::log(context / (turns * kTwoPi)) / (2.0 * std::log(rope.base));
  };
  rope.position_scale = 1.0 / factor;
  rope.ramp = true;
  const double begin = pair_of(fast), end = pair_of(slow);
  rope.ramp_begin = std::max(0.0, form.whole_ramp ? std::floor(begin) : begin);
  rope.ramp_end = std::min(rope.dims - 1.0, form.whole_ramp ? std::ceil(end) : end);
  rope.magnitude = attention;
  if (!on_scores && factor > 1.0) rope.magnitude *= 0.1 * std::log(factor) + 1.0;
  return Status::ok();
}

Status MetadataReader::set_windows(ModelSpec& spec, uint32_t full_every, uint32_t window) const {
  PW_ASSIGN_OR_RETURN(window, uint_or("attention.sliding_window", 0, UINT32_MAX, window));
  if (window == 0) return Status::ok();
  // Where all layers are alike, a window as wide as the context leaves nothing behind.
  if (full_every == 0 && window >= spec.context) return Status::ok();
  const auto slide = [window](LayerSpec& layer) {
    layer.attention = AttentionKind::kSliding;
    layer.window = window;
  };
  const std::string pattern_key = key("attention.sliding_window_pattern");
  const gguf::Value* pattern = file_.find(pattern_key);
  if (pattern != nullptr && std::holds_alternative<std::shared_ptr<const gguf::Array>>(*pattern)) {
    PW_ASSIGN_OR_RETURN(const std::vector<int64_t> sliding, file_.int_array(pattern_key));
    if (sliding.size() != spec.layers.size()) {
      return error(fmt::format("{} has {} values, expected one for each of {} layers", pattern_key,
                               sliding.size(), spec.layers.size()));
    }
    for (std::size_t i = 0; i < sliding.size(); ++i) {
      if (sliding[i] != 0) slide(spec.layers[i]);
    }
    return Status::ok();
  }
  PW_ASSIGN_OR_RETURN(const uint32_t every,
                      uint_or("attention.sliding_window_pattern", 1, kLayersMax, full_every));
  for (uint32_t i = 0; i < spec.layers.size(); ++i) {
    if (every == 0 || (i + 1) % every != 0) slide(spec.layers[i]);
  }
  return Status::ok();
}

Result<ExpertSpec> MetadataReader::experts(uint32_t ffn, bool normalize) const {
  ExpertSpec experts;
  PW_ASSIGN_OR_RETURN(experts.count, uint_or("expert_count", 0, kExpertsMax, 0));
  if (experts.count == 0) return experts;
  PW_ASSIGN_OR_RETURN(experts.used, uint("expert_used_count", 1, experts.count));
  PW_ASSIGN_OR_RETURN(experts.ffn, uint_or("expert_feed_forward_length", 1, kDimMax, ffn));
  PW_ASSIGN_OR_RETURN(const std::optional<bool> told, file_.find_bool(key("expert_weights_norm")));
  experts.normalize = told.value_or(normalize);
  // Values that leave softmax over all experts, without groups and dense layers, as it is.
  struct Neutral {
    std::string_view name;
    double value;
  };
  for (const Neutral& neutral : {Neutral{"expert_gating_func", 1},
                                 {"expert_weights_scale", 1},
                                 {"leading_dense_block_count", 0},
                                 {"expert_group_count", 1},
                                 {"expert_group_used_count", 1}}) {
    PW_ASSIGN_OR_RETURN(const double value, real_or(neutral.name, 0, 1e9, neutral.value));
    if (value != neutral.value) PW_RETURN_IF_ERROR(refuse({neutral.name}));
  }
  return experts;
}

Result<ModelSpec> MetadataReader::begin_spec(const Dimensions& size) const {
  ModelSpec spec;
  spec.architecture = prefix_.substr(0, prefix_.size() - 1);
  PW_ASSIGN_OR_RETURN(const std::optional<std::string> name, file_.find_string("general.name"));
  spec.name = name.value_or("");
  spec.embedding = size.embedding;
  spec.context = size.context;
  spec.norm_eps = size.norm_eps;
  spec.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(size.key_dim)));
  PW_ASSIGN_OR_RETURN(spec.vocab_size, vocabulary());
  LayerSpec layer;
  layer.heads = size.heads;
  layer.kv_heads = size.kv_heads;
  layer.key_dim = size.key_dim;
  layer.value_dim = size.value_dim;
  layer.ffn = size.ffn;
  layer.fused_qkv = file_.find_tensor("blk.0.attn_qkv.weight") != nullptr;
  spec.layers.assign(size.layers, layer);
  return spec;
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

Status MetadataReader::refuse_unless_zero(std::initializer_list<std::string_view> names) const {
  for (const std::string_view name : names) {
    PW_ASSIGN_OR_RETURN(const uint32_t value, uint_or(name, 0, UINT32_MAX, 0));
    if (value != 0) PW_RETURN_IF_ERROR(refuse({name}));
  }
  return Status::ok();
}

RopeSpec unscaled(const RopeSpec& rope) {
  RopeSpec plain;
  plain.kind = rope.kind;
  plain.dims = rope.dims;
  plain.base = rope.base;
  return plain;
}

}  // namespace pagewise::model
