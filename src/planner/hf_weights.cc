// SPDX-License-Identifier: Apache-2.0
#include "planner/hf_weights.h"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace pagewise::planner {
namespace {

using Wide = unsigned __int128;

constexpr uint64_t kDimMax = uint64_t{1} << 24;  // also of the vocabulary
constexpr Wide kParametersMax = Wide{1} << 60;

/// What stands beside the matrices of attention.
enum class AttentionParts : uint8_t {
  kPlain,      // biases where `attention_bias` says so
  kQkvBias,    // Q, K and V always have one, the output none
  kHeadNorms,  // plain, and norms over a head of Q and of K
  kRowNorms,   // plain, and norms over all heads of Q and of K
  kCohere,     // norms over all heads where `use_qk_norm` says so
  kLatent,     // DeepSeek
};
enum class FeedForwardParts : uint8_t { kDense, kMixtral, kQwen2Moe, kQwen3Moe, kDeepSeek };

struct WeightFamily {
  std::string_view type;
  AttentionParts attention;
  FeedForwardParts feed_forward;
  uint32_t norms;  // of the hidden size, a layer
  bool tied;       // the class's default of tie_word_embeddings
};

// Source: the modules of models/TYPE/modeling_TYPE.py in transformers 5.24.
constexpr WeightFamily kFamilies[] = {
    {"llama", AttentionParts::kPlain, FeedForwardParts::kDense, 2, false},
    {"mistral", AttentionParts::kPlain, FeedForwardParts::kDense, 2, false},
    {"granite", AttentionParts::kPlain, FeedForwardParts::kDense, 2, false},
    {"smollm3", AttentionParts::kPlain, FeedForwardParts::kDense, 2, true},
    {"phi3", AttentionParts::kPlain, FeedForwardParts::kDense, 2, false},
    {"mixtral", AttentionParts::kPlain, FeedForwardParts::kMixtral, 2, false},
    {"qwen2", AttentionParts::kQkvBias, FeedForwardParts::kDense, 2, false},
    {"qwen2_moe", AttentionParts::kQkvBias, FeedForwardParts::kQwen2Moe, 2, false},
    {"qwen3", AttentionParts::kHeadNorms, FeedForwardParts::kDense, 2, false},
    {"qwen3_moe", AttentionParts::kHeadNorms, FeedForwardParts::kQwen3Moe, 2, false},
    {"gemma", AttentionParts::kPlain, FeedForwardParts::kDense, 2, true},
    {"gemma2", AttentionParts::kPlain, FeedForwardParts::kDense, 4, true},
    {"gemma3_text", AttentionParts::kHeadNorms, FeedForwardParts::kDense, 4, true},
    {"olmo2", AttentionParts::kRowNorms, FeedForwardParts::kDense, 2, false},
    {"cohere", AttentionParts::kCohere, FeedForwardParts::kDense, 1, true},
    {"cohere2", AttentionParts::kPlain, FeedForwardParts::kDense, 1, true},
    {"deepseek_v2", AttentionParts::kLatent, FeedForwardParts::kDeepSeek, 2, false},
    {"deepseek_v3", AttentionParts::kLatent, FeedForwardParts::kDeepSeek, 2, false},
};

/// Counts; remembers when something was missing or absurd.
class Counter {
 public:
  Counter(const json::object& config, const WeightFamily& family)
      : config_(config), family_(family) {}

  std::optional<uint64_t> count() {
    const Wide hidden = need("hidden_size");
    const Wide layers = need("num_hidden_layers");
    const Wide vocabulary = need("vocab_size");
    const Wide embeddings =
        vocabulary * hidden * (flag("tie_word_embeddings", family_.tied) ? 1 : 2);
    const Wide each = attention(hidden) + family_.norms * hidden;
    const Wide sum = embeddings + hidden + layers * each + feed_forward(hidden, layers);
    if (broken_ || sum > kParametersMax) return std::nullopt;
    return static_cast<uint64_t>(sum);
  }

 private:
  const json::value* find(std::string_view key) const {
    const json::value* value = config_.if_contains(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  bool flag(std::string_view key, bool absent) const {
    const json::value* value = find(key);
    return value != nullptr && value->is_bool() ? value->get_bool() : absent;
  }
  std::optional<uint64_t> number(std::string_view key) const {
    const json::value* value = find(key);
    if (value == nullptr || !value->is_int64() || value->get_int64() < 0) return std::nullopt;
    const auto out = static_cast<uint64_t>(value->get_int64());
    return out > kDimMax ? std::nullopt : std::optional(out);
  }
  Wide need(std::string_view key) {
    const std::optional<uint64_t> value = number(key);
    broken_ = broken_ || !value;
    return value.value_or(0);
  }

  Wide attention(Wide hidden) {
    if (family_.attention == AttentionParts::kLatent) return latent(hidden);
    const Wide heads = need("num_attention_heads");
    const Wide kv_heads = number("num_key_value_heads").value_or(static_cast<uint64_t>(heads));
    Wide width = 0;
    if (const auto given = number("head_dim")) {
      width = *given;
    } else if (family_.tied && family_.type.starts_with("gemma")) {
      broken_ = true;  // its class has a width of its own
    } else {
      width = heads == 0 ? 0 : hidden / heads;
    }
    const Wide query = heads * width, key = kv_heads * width;
    Wide sum = 2 * hidden * query + 2 * hidden * key;
    const bool bias = flag("attention_bias", false);
    switch (family_.attention) {
      case AttentionParts::kQkvBias:
        return sum + (flag("qkv_bias", true) ? query + 2 * key : 0);
      case AttentionParts::kHeadNorms:
        sum += 2 * width;
        break;
      case AttentionParts::kRowNorms:
        sum += query + key;
        break;
      case AttentionParts::kCohere:
        sum += flag("use_qk_norm", false) ? query + key : 0;
        break;
      default:
        break;
    }
    return sum + (bias ? query + 2 * key + hidden : 0);
  }

  Wide latent(Wide hidden) {
    const Wide heads = need("num_attention_heads"), rank = need("kv_lora_rank");
    const Wide nope = need("qk_nope_head_dim"), rope = need("qk_rope_head_dim");
    const Wide value = need("v_head_dim");
    const Wide query = heads * (nope + rope);
    const auto query_rank = number("q_lora_rank");
    const Wide queries = query_rank ? Wide{*query_rank} * (hidden + 1 + query) : hidden * query;
    if (flag("attention_bias", false)) broken_ = true;
    return queries + hidden * (rank + rope) + rank + rank * heads * (nope + value) +
           heads * value * hidden;
  }

  /// Of all layers.
  Wide feed_forward(Wide hidden, Wide layers) {
    const auto gated = [&](Wide width) { return 3 * hidden * width; };
    switch (family_.feed_forward) {
      case FeedForwardParts::kDense: {
        const Wide width = need("intermediate_size");
        const Wide bias = flag("mlp_bias", false) ? 2 * width + hidden : 0;
        return layers * (gated(width) + bias);
      }
      case FeedForwardParts::kMixtral: {
        const Wide experts = need("num_local_experts");
        return layers * experts * (gated(need("intermediate_size")) + hidden);
      }
      case FeedForwardParts::kQwen2Moe:
      case FeedForwardParts::kQwen3Moe: {
        if (number("decoder_sparse_step").value_or(1) != 1) broken_ = true;
        const json::value* dense = find("mlp_only_layers");
        if (dense != nullptr && !(dense->is_array() && dense->get_array().empty())) broken_ = true;
        // Newer versions save it under Mixtral's name.
        const Wide experts = need(find("num_experts") ? "num_experts" : "num_local_experts");
        Wide each = experts * (gated(need("moe_intermediate_size")) + hidden);
        if (family_.feed_forward == FeedForwardParts::kQwen2Moe) {
          each += gated(need("shared_expert_intermediate_size")) + hidden;
        }
        return layers * each;
      }
      case FeedForwardParts::kDeepSeek: {
        const Wide dense = std::min(need("first_k_dense_replace"), layers);
        const Wide experts = need("n_routed_experts");
        const Wide width = gated(need("moe_intermediate_size"));
        const Wide router = experts * (hidden + (family_.type == "deepseek_v3" ? 1 : 0));
        return dense * gated(need("intermediate_size")) +
               (layers - dense) * ((experts + need("n_shared_experts")) * width + router);
      }
    }
    return 0;
  }

  const json::object& config_;
  const WeightFamily& family_;
  bool broken_ = false;
};

std::string_view text_of(const json::object& config, std::string_view key) {
  const json::value* value = config.if_contains(key);
  return value != nullptr && value->is_string() ? std::string_view(value->get_string())
                                                : std::string_view();
}

}  // namespace

std::optional<uint64_t> parameters_of_config(const json::object& config) {
  const std::string_view type = text_of(config, "model_type");
  const auto family = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                   [&](const WeightFamily& known) { return known.type == type; });
  if (family == std::end(kFamilies)) return std::nullopt;
  return Counter(config, *family).count();
}

std::optional<uint64_t> weight_bytes_of_config(const json::object& config) {
  const json::value* quantised = config.if_contains("quantization_config");
  if (quantised != nullptr && !quantised->is_null()) return std::nullopt;
  std::string_view dtype = text_of(config, "dtype");
  if (dtype.empty()) dtype = text_of(config, "torch_dtype");
  const uint64_t bytes = dtype == "bfloat16" || dtype == "float16" ? 2 : dtype == "float32" ? 4 : 0;
  const std::optional<uint64_t> parameters = parameters_of_config(config);
  if (bytes == 0 || !parameters) return std::nullopt;
  return *parameters * bytes;
}

}  // namespace pagewise::planner
