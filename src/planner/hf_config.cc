// SPDX-License-Identifier: Apache-2.0
#include "planner/hf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/json.h"
#include "base/text_file.h"
#include "planner/hf_families.h"
#include "planner/hf_weights.h"

namespace pagewise::planner {
namespace {

// Published configurations have some kilobytes, an index of shards some megabytes.
constexpr std::size_t kConfigBytesMax = 16 * kMiB;
constexpr std::size_t kIndexBytesMax = 64 * kMiB;

/// What a layer keeps, in the words of `layer_types`.
enum class LayerKind : uint8_t { kFull, kSliding, kState, kNothing };

class Reader {
 public:
  /// `prefix` is "text_config." where `object` is one.
  Reader(const std::string& path, std::string prefix, const json::object& object,
         const Family& family)
      : path_(path),
        prefix_(std::move(prefix)),
        object_(object),
        family_(family),
        nested_(!prefix_.empty()) {}

  Result<Layout> read() {
    PW_RETURN_IF_ERROR(refuse_foreign());
    Layout layout;
    PW_ASSIGN_OR_RETURN(layout.context, whole("max_position_embeddings", 1, UINT64_MAX));
    if (!layout.context && nested_ && family_.defaults.context != kNull) {
      layout.context = family_.defaults.context;
    }
    switch (family_.kind) {
      case FamilyKind::kOpenElm:
        PW_RETURN_IF_ERROR(open_elm(layout));
        break;
      case FamilyKind::kLatent:
        PW_RETURN_IF_ERROR(latent(layout));
        break;
      default:
        PW_RETURN_IF_ERROR(rows(layout));
        break;
    }
    return layout;
  }

 private:
  Error bad(std::string_view key, std::string_view reason,
            ErrorCode code = ErrorCode::kMalformed) const {
    return {code, fmt::format("{}: {}{}: {}", path_, prefix_, key, reason)};
  }

  /// nullptr when the key is absent or null.
  const json::value* find(std::string_view key) const {
    const json::value* value = object_.if_contains(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  /// The key is there and says null: the class's None, which is not the same as absent.
  bool is_null(std::string_view key) const {
    const json::value* value = object_.if_contains(key);
    return value != nullptr && value->is_null();
  }

  Result<uint64_t> in_range(std::string_view key, const json::value& value, uint64_t min,
                            uint64_t max) const {
    uint64_t number = 0;
    if (value.is_uint64()) {
      number = value.get_uint64();
    } else if (value.is_int64() && value.get_int64() >= 0) {
      number = static_cast<uint64_t>(value.get_int64());
    } else {
      return bad(key, "no whole number");
    }
    if (number >= min && number <= max) return number;
    return bad(key, fmt::format("{} is not in {} to {}", number, min, max));
  }

  /// nullopt when the key is absent or null.
  Result<std::optional<uint64_t>> whole(std::string_view key, uint64_t min, uint64_t max) const {
    const json::value* value = find(key);
    if (value == nullptr) return std::optional<uint64_t>();
    PW_ASSIGN_OR_RETURN(const uint64_t number, in_range(key, *value, min, max));
    return std::optional(number);
  }

  /// The key, or the class's default (kNull: it has none) where it may be absent.
  Result<uint64_t> number(std::string_view key, uint64_t max, uint64_t absent) const {
    PW_ASSIGN_OR_RETURN(const std::optional<uint64_t> value, whole(key, 1, max));
    if (value) return *value;
    if (nested_ && absent != kNull && !is_null(key)) return absent;
    return bad(key, "missing");
  }

  Result<bool> flag(std::string_view key, bool absent) const {
    const json::value* value = find(key);
    if (value == nullptr) return absent;
    if (!value->is_bool()) return bad(key, "neither true nor false");
    return value->get_bool();
  }

  /// Attention of kinds whose rows are counted otherwise, or not known here.
  Status refuse_foreign() const {
    for (const std::string_view key : {"attention_chunk_size", "index_topk", "per_layer_config"}) {
      if (find(key) != nullptr) {
        return bad(key, "the planner does not know this kind of layers", ErrorCode::kUnsupported);
      }
    }
    if (family_.kind == FamilyKind::kLatent) return Status::ok();
    if (find("kv_lora_rank") != nullptr) {
      return bad("kv_lora_rank", "latent attention in a model_type that has none",
                 ErrorCode::kUnsupported);
    }
    return Status::ok();
  }

  Result<uint64_t> heads() const {
    return number("num_attention_heads", kKvHeadsMax, family_.defaults.heads);
  }
  Result<uint64_t> hidden() const {
    return number("hidden_size", kHeadDimMax, family_.defaults.hidden);
  }

  Result<uint64_t> kv_heads() const {
    if (family_.kind == FamilyKind::kFalcon) return falcon_kv_heads();
    constexpr std::string_view kKey = "num_key_value_heads";
    PW_ASSIGN_OR_RETURN(const std::optional<uint64_t> given, whole(kKey, 1, kKvHeadsMax));
    if (given) return *given;
    // None means as many as heads; where the class has a number, absent would mean that.
    if (family_.defaults.kv_heads == kNull || is_null(kKey)) return heads();
    return number(kKey, kKvHeadsMax, family_.defaults.kv_heads);
  }

  /// Falcon 7B has one KV head for all, 40B and 180B a few. Source: FalconAttention.
  Result<uint64_t> falcon_kv_heads() const {
    PW_ASSIGN_OR_RETURN(const bool grouped, flag("new_decoder_architecture", false));
    PW_ASSIGN_OR_RETURN(const bool one, flag("multi_query", true));
    if (!grouped && one) return 1;
    if (find("num_kv_heads") == nullptr) return heads();
    return number("num_kv_heads", kKvHeadsMax, kNull);
  }

  Result<uint64_t> head_dim() const {
    PW_ASSIGN_OR_RETURN(const std::optional<uint64_t> given, whole("head_dim", 1, kHeadDimMax));
    if (given) return *given;
    if (family_.defaults.head_dim != kNull) return family_.defaults.head_dim;
    PW_ASSIGN_OR_RETURN(const uint64_t width, hidden());
    PW_ASSIGN_OR_RETURN(const uint64_t count, heads());
    if (width % count != 0) {
      return bad("head_dim", fmt::format("missing, and a hidden_size of {} does not divide by {} "
                                         "heads",
                                         width, count));
    }
    return width / count;
  }

  /// Width of the windows; 0: no layer has one.
  Result<uint64_t> window() const {
    constexpr std::string_view kKey = "sliding_window";
    PW_ASSIGN_OR_RETURN(const std::optional<uint64_t> given, whole(kKey, 1, kTokensMax));
    if (given) return *given;
    if (is_null(kKey) || family_.defaults.window == kNull) return 0;
    return number(kKey, kTokensMax, family_.defaults.window);
  }

  // ---- which layers keep what ----

  Result<LayerKind> kind_of(std::string_view key, const json::value& value) const {
    if (!value.is_string()) return bad(key, "a layer's kind that is no text");
    const std::string_view name = value.get_string();
    const bool states = family_.kind == FamilyKind::kGatedDelta ||
                        family_.kind == FamilyKind::kGraniteHybrid ||
                        family_.kind == FamilyKind::kNemotronH;
    if (name == "full_attention" || name == "attention") return LayerKind::kFull;
    if (name == "sliding_attention" && family_.windows != FamilyWindows::kNone) {
      return LayerKind::kSliding;
    }
    if (states && (name == "linear_attention" || name == "mamba")) return LayerKind::kState;
    if (family_.kind == FamilyKind::kConvolutions && name == "conv") return LayerKind::kState;
    if (family_.kind == FamilyKind::kNemotronH && (name == "mlp" || name == "moe")) {
      return LayerKind::kNothing;
    }
    return bad(key,
               fmt::format("'{}' is a kind of layer that is not known of '{}'",
                           gguf::printable(name), family_.type),
               ErrorCode::kUnsupported);
  }

  /// An array with a kind for each layer. nullopt where the key is absent.
  Result<std::optional<std::vector<LayerKind>>> listed(std::string_view key,
                                                       std::optional<uint64_t> layers) const {
    using Kinds = std::optional<std::vector<LayerKind>>;
    const json::value* value = find(key);
    if (value == nullptr) return Kinds();
    if (!value->is_array()) return bad(key, "no array");
    const json::array& array = value->get_array();
    if (layers && array.size() != *layers) {
      return bad(key, fmt::format("{} entries for {} layers", array.size(), *layers));
    }
    if (array.empty() || array.size() > kLayersMax) {
      return bad(key, fmt::format("{} layers are not in 1 to {}", array.size(), kLayersMax));
    }
    std::vector<LayerKind> kinds;
    kinds.reserve(array.size());
    for (const json::value& entry : array) {
      PW_ASSIGN_OR_RETURN(const LayerKind kind, kind_of(key, entry));
      kinds.push_back(kind);
    }
    return Kinds(std::move(kinds));
  }

  Result<uint64_t> layers() const {
    return number("num_hidden_layers", kLayersMax, family_.defaults.layers);
  }

  Result<std::vector<LayerKind>> layer_kinds() const {
    if (family_.kind == FamilyKind::kNemotronH) return nemotron_kinds();
    PW_ASSIGN_OR_RETURN(const uint64_t count, layers());
    for (const std::string_view key : {"layer_types", "layers_block_type"}) {
      PW_ASSIGN_OR_RETURN(std::optional<std::vector<LayerKind>> given, listed(key, count));
      if (given) return std::move(*given);
    }
    switch (family_.kind) {
      case FamilyKind::kJamba:
        return jamba_kinds(count);
      case FamilyKind::kGatedDelta: {
        PW_ASSIGN_OR_RETURN(const auto interval, whole("full_attention_interval", 1, kLayersMax));
        return periodic(count, interval.value_or(family_.period), LayerKind::kState);
      }
      case FamilyKind::kConvolutions:
        return convolution_kinds(count);
      case FamilyKind::kGraniteHybrid:
        return bad("layer_types", "missing");
      default:
        return sliding_kinds(count);
    }
  }

  /// Of `period` layers the last is full, the others are of `kind`.
  static std::vector<LayerKind> periodic(uint64_t count, uint64_t period, LayerKind kind) {
    std::vector<LayerKind> kinds(count, kind);
    for (uint64_t i = period - 1; i < count; i += period) kinds[i] = LayerKind::kFull;
    return kinds;
  }

  Result<std::vector<LayerKind>> sliding_kinds(uint64_t count) const {
    std::vector<LayerKind> kinds(count, LayerKind::kFull);
    switch (family_.windows) {
      case FamilyWindows::kNone:
        if (find("sliding_window") != nullptr) {
          return bad(
              "sliding_window",
              fmt::format("which layers of '{}' keep a window is not known here", family_.type),
              ErrorCode::kUnsupported);
        }
        return kinds;
      case FamilyWindows::kAll: {
        PW_ASSIGN_OR_RETURN(const uint64_t width, window());
        if (width != 0) kinds.assign(count, LayerKind::kSliding);
        return kinds;
      }
      case FamilyWindows::kSwitched:
      case FamilyWindows::kFromLayer: {
        PW_ASSIGN_OR_RETURN(const bool used, flag("use_sliding_window", false));
        PW_ASSIGN_OR_RETURN(const uint64_t width, used ? window() : Result<uint64_t>(0));
        if (width == 0) return kinds;
        if (family_.windows == FamilyWindows::kSwitched) {
          return bad("use_sliding_window",
                     "true, and layer_types, which would say where, is missing",
                     ErrorCode::kUnsupported);
        }
        PW_ASSIGN_OR_RETURN(const auto first, whole("max_window_layers", 0, kLayersMax));
        if (!first) return bad("max_window_layers", "missing");
        for (uint64_t i = *first; i < count; ++i) kinds[i] = LayerKind::kSliding;
        return kinds;
      }
      case FamilyWindows::kPeriod: {
        PW_ASSIGN_OR_RETURN(const auto period, whole("sliding_window_pattern", 1, kLayersMax));
        return periodic(count, period.value_or(family_.period), LayerKind::kSliding);
      }
    }
    return kinds;
  }

  Result<std::vector<LayerKind>> jamba_kinds(uint64_t count) const {
    PW_ASSIGN_OR_RETURN(const uint64_t period, number("attn_layer_period", kLayersMax, kNull));
    PW_ASSIGN_OR_RETURN(const auto offset, whole("attn_layer_offset", 0, kLayersMax));
    if (!offset) return bad("attn_layer_offset", "missing");
    std::vector<LayerKind> kinds(count, LayerKind::kState);
    for (uint64_t i = 0; i < count; ++i) {
      if (i % period == *offset) kinds[i] = LayerKind::kFull;
    }
    return kinds;
  }

  /// Before layer_types there was a list of the attention layers' numbers.
  Result<std::vector<LayerKind>> convolution_kinds(uint64_t count) const {
    constexpr std::string_view kKey = "full_attn_idxs";
    const json::value* value = find(kKey);
    if (value == nullptr) return bad("layer_types", "missing");
    if (!value->is_array()) return bad(kKey, "no array");
    std::vector<LayerKind> kinds(count, LayerKind::kState);
    for (const json::value& entry : value->get_array()) {
      PW_ASSIGN_OR_RETURN(const uint64_t index, in_range(kKey, entry, 0, count - 1));
      kinds[index] = LayerKind::kFull;
    }
    return kinds;
  }

  Result<std::vector<LayerKind>> nemotron_kinds() const {
    for (const std::string_view key : {"layers_block_type", "layer_types"}) {
      PW_ASSIGN_OR_RETURN(std::optional<std::vector<LayerKind>> given, listed(key, std::nullopt));
      if (given) return std::move(*given);
    }
    constexpr std::string_view kKey = "hybrid_override_pattern";
    const json::value* value = find(kKey);
    if (value == nullptr) return bad(kKey, "missing");
    if (!value->is_string()) return bad(kKey, "no text");
    const std::string_view pattern = value->get_string();
    if (pattern.empty() || pattern.size() > kLayersMax) {
      return bad(kKey, fmt::format("{} layers are not in 1 to {}", pattern.size(), kLayersMax));
    }
    std::vector<LayerKind> kinds;
    kinds.reserve(pattern.size());
    for (const char letter : pattern) {
      if (letter == 'M') {
        kinds.push_back(LayerKind::kState);
      } else if (letter == '*') {
        kinds.push_back(LayerKind::kFull);
      } else if (letter == '-' || letter == 'E') {
        kinds.push_back(LayerKind::kNothing);
      } else {
        return bad(kKey, fmt::format("'{}' is no kind of layer", gguf::printable({&letter, 1})),
                   ErrorCode::kUnsupported);
      }
    }
    return kinds;
  }

  // ---- states ----

  Result<uint64_t> state_values() const {
    StateSpace space;
    std::string_view named = "mamba_d_state";
    switch (family_.kind) {
      case FamilyKind::kJamba:
      case FamilyKind::kGraniteHybrid: {
        PW_ASSIGN_OR_RETURN(const uint64_t width, hidden());
        PW_ASSIGN_OR_RETURN(const uint64_t expand, number("mamba_expand", kHeadDimMax, kNull));
        space.inner = width * expand;
        PW_ASSIGN_OR_RETURN(space.state, number(named, kHeadDimMax, kNull));
        PW_ASSIGN_OR_RETURN(space.kernel, number("mamba_d_conv", kHeadDimMax, kNull));
        if (family_.kind == FamilyKind::kGraniteHybrid) {
          PW_ASSIGN_OR_RETURN(space.groups, number("mamba_n_groups", kHeadDimMax, kNull));
        }
        break;
      }
      case FamilyKind::kFalconH1: {
        PW_ASSIGN_OR_RETURN(const auto inner, whole("mamba_d_ssm", 1, kHeadDimMax));
        if (inner) {
          space.inner = *inner;
        } else {
          PW_ASSIGN_OR_RETURN(const uint64_t width, hidden());
          PW_ASSIGN_OR_RETURN(const uint64_t expand, number("mamba_expand", kHeadDimMax, kNull));
          space.inner = width * expand;
        }
        PW_ASSIGN_OR_RETURN(space.state, number(named, kHeadDimMax, kNull));
        PW_ASSIGN_OR_RETURN(space.kernel, number("mamba_d_conv", kHeadDimMax, kNull));
        PW_ASSIGN_OR_RETURN(space.groups, number("mamba_n_groups", kHeadDimMax, kNull));
        break;
      }
      case FamilyKind::kNemotronH: {
        named = "ssm_state_size";
        PW_ASSIGN_OR_RETURN(const uint64_t count, number("mamba_num_heads", kHeadDimMax, kNull));
        PW_ASSIGN_OR_RETURN(const uint64_t width, number("mamba_head_dim", kHeadDimMax, kNull));
        space.inner = count * width;
        PW_ASSIGN_OR_RETURN(space.state, number(named, kHeadDimMax, kNull));
        PW_ASSIGN_OR_RETURN(space.kernel, number("conv_kernel", kHeadDimMax, kNull));
        PW_ASSIGN_OR_RETURN(space.groups, number("n_groups", kHeadDimMax, kNull));
        break;
      }
      case FamilyKind::kGatedDelta: {
        // A matrix of key_dim x value_dim a value head, and the inputs of the convolution over
        // queries, keys and values: the same sizes as a state space whose channels are the value
        // heads' and whose groups are the key heads. Source: Qwen3NextGatedDeltaNet.
        named = "linear_value_head_dim";
        PW_ASSIGN_OR_RETURN(const uint64_t count,
                            number("linear_num_value_heads", kHeadDimMax, kNull));
        PW_ASSIGN_OR_RETURN(const uint64_t width, number(named, kHeadDimMax, kNull));
        space.inner = count * width;
        PW_ASSIGN_OR_RETURN(space.state, number("linear_key_head_dim", kHeadDimMax, kNull));
        PW_ASSIGN_OR_RETURN(space.groups, number("linear_num_key_heads", kHeadDimMax, kNull));
        PW_ASSIGN_OR_RETURN(space.kernel, number("linear_conv_kernel_dim", kHeadDimMax, kNull));
        break;
      }
      case FamilyKind::kConvolutions: {
        named = "conv_L_cache";
        PW_ASSIGN_OR_RETURN(space.inner, hidden());
        PW_ASSIGN_OR_RETURN(space.kernel, number(named, kHeadDimMax, kNull));
        break;
      }
      default:
        return 0;
    }
    const std::optional<uint64_t> values = space.values();
    if (values) return *values;
    return bad(named, fmt::format("a state of more than {} values a layer", kStateValuesMax));
  }

  // ---- the layout ----

  Status rows(Layout& layout) const {
    PW_ASSIGN_OR_RETURN(const std::vector<LayerKind> kinds, layer_kinds());
    LayoutGroup full{.layers = 1};
    const auto is = [&](LayerKind kind) {
      return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
    };
    LayoutGroup sliding = full;
    if (is(LayerKind::kFull) || is(LayerKind::kSliding)) {
      PW_ASSIGN_OR_RETURN(const uint64_t count, kv_heads());
      PW_ASSIGN_OR_RETURN(const uint64_t width, head_dim());
      full.kv_heads = sliding.kv_heads = static_cast<uint32_t>(count);
      full.key_dim = full.value_dim = static_cast<uint32_t>(width);
      sliding.key_dim = sliding.value_dim = full.key_dim;
    }
    if (family_.kind == FamilyKind::kTwoSizes) PW_RETURN_IF_ERROR(global_rows(full));
    if (is(LayerKind::kSliding)) {
      PW_ASSIGN_OR_RETURN(const uint64_t width, window());
      if (width == 0) return bad("sliding_window", "missing, and some layers keep a window");
      sliding.window = static_cast<uint32_t>(width);
    }
    uint64_t values = 0;
    if (is(LayerKind::kState) || family_.kind == FamilyKind::kFalconH1) {
      PW_ASSIGN_OR_RETURN(values, state_values());
    }
    PW_ASSIGN_OR_RETURN(const uint64_t sharing, layers_sharing(kinds.size()));
    layout.layers_sharing = static_cast<uint32_t>(sharing);
    for (std::size_t i = 0; i + sharing < kinds.size(); ++i) {
      if (kinds[i] == LayerKind::kFull) add_layer(layout, full);
      if (kinds[i] == LayerKind::kSliding) add_layer(layout, sliding);
      if (kinds[i] == LayerKind::kState || family_.kind == FamilyKind::kFalconH1) {
        add_state(layout, {.layers = 1, .values = values});
      }
    }
    return Status::ok();
  }

  /// The last so many layers read the rows of the last one of their kind before them.
  Result<uint64_t> layers_sharing(uint64_t count) const {
    constexpr std::string_view kKey = "num_kv_shared_layers";
    PW_ASSIGN_OR_RETURN(const auto given, whole(kKey, 0, kLayersMax));
    uint64_t sharing = given.value_or(0);
    // Gemma3nTextConfig: 15; Gemma4TextConfig: 0; other classes have no such key.
    if (!given && family_.type == "gemma3n_text") {
      if (!nested_) return bad(kKey, "missing");
      sharing = 15;
    }
    if (sharing < count) return sharing;
    return bad(kKey, fmt::format("{} of {} layers share the rows of others", sharing, count));
  }

  /// Gemma 4's full layers. Source: Gemma4TextConfig.
  Status global_rows(LayoutGroup& full) const {
    constexpr uint64_t kGlobalDim = 512;
    PW_ASSIGN_OR_RETURN(const auto width, whole("global_head_dim", 1, kHeadDimMax));
    full.key_dim = full.value_dim = static_cast<uint32_t>(width.value_or(kGlobalDim));
    PW_ASSIGN_OR_RETURN(const bool overridden, flag("attention_k_eq_v", false));
    if (!overridden) return Status::ok();
    PW_ASSIGN_OR_RETURN(const auto count, whole("num_global_key_value_heads", 1, kKvHeadsMax));
    if (count) full.kv_heads = static_cast<uint32_t>(*count);
    return Status::ok();
  }

  Status latent(Layout& layout) const {
    // Both classes have the same defaults.
    constexpr uint64_t kRank = 512, kRope = 64;
    PW_ASSIGN_OR_RETURN(const uint64_t count, layers());
    PW_ASSIGN_OR_RETURN(const uint64_t rank, number("kv_lora_rank", kHeadDimMax / 2, kRank));
    PW_ASSIGN_OR_RETURN(const uint64_t rope, number("qk_rope_head_dim", kHeadDimMax / 2, kRope));
    add_layer(layout, {.layers = static_cast<uint32_t>(count),
                       .kv_heads = 1,
                       .key_dim = static_cast<uint32_t>(rank + rope)});
    return Status::ok();
  }

  Status open_elm(Layout& layout) const {
    PW_ASSIGN_OR_RETURN(const uint64_t count, number("num_transformer_layers", kLayersMax, kNull));
    PW_ASSIGN_OR_RETURN(const uint64_t width, number("head_dim", kHeadDimMax, kNull));
    constexpr std::string_view kKey = "num_kv_heads";
    const json::value* value = find(kKey);
    if (value == nullptr) return bad(kKey, "missing");
    if (!value->is_array() || value->get_array().size() != count) {
      return bad(kKey, fmt::format("no array with one number for each of {} layers", count));
    }
    for (const json::value& entry : value->get_array()) {
      PW_ASSIGN_OR_RETURN(const uint64_t heads, in_range(kKey, entry, 1, kKvHeadsMax));
      add_layer(layout, {.layers = 1,
                         .kv_heads = static_cast<uint32_t>(heads),
                         .key_dim = static_cast<uint32_t>(width),
                         .value_dim = static_cast<uint32_t>(width)});
    }
    return Status::ok();
  }

  const std::string& path_;
  const std::string prefix_;
  const json::object& object_;
  const Family& family_;
  const bool nested_;
};

/// Python writes numbers that JSON lacks as Infinity, -Infinity and NaN, and published
/// configurations have them (`time_step_limit`). None of them is a size: they become null.
std::string without_infinities(std::string_view text) {
  std::string out;
  bool quoted = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (quoted && text[at] == '\\' && at + 1 < text.size()) {
      out += text.substr(at, 2);
      ++at;
      continue;
    }
    if (text[at] == '"') quoted = !quoted;
    std::size_t skipped = 0;
    for (const std::string_view word : {"-Infinity", "Infinity", "NaN"}) {
      if (!quoted && skipped == 0 && text.substr(at).starts_with(word)) skipped = word.size();
    }
    if (skipped == 0) {
      out += text[at];
    } else {
      out += "null";
      at += skipped - 1;
    }
  }
  return out;
}

/// A text under a key; empty when there is none.
std::string text_of(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

bool is_true(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_bool() && value->get_bool();
}

/// What the index of a model's shards says they have together.
Result<uint64_t> indexed_bytes(const std::string& path) {
  PW_ASSIGN_OR_RETURN(const std::string text,
                      read_text_file(path, "model.safetensors.index.json", kIndexBytesMax));
  const Result<json::value> parsed = parse_json(text);
  if (!parsed.has_value()) {
    return Error{ErrorCode::kMalformed, fmt::format("{}: {}", path, parsed.error().message)};
  }
  const json::object* top = parsed->if_object();
  const json::value* metadata = top == nullptr ? nullptr : top->if_contains("metadata");
  const json::object* inner = metadata == nullptr ? nullptr : metadata->if_object();
  const json::value* size = inner == nullptr ? nullptr : inner->if_contains("total_size");
  if (size != nullptr && size->is_int64() && size->get_int64() > 0) {
    return static_cast<uint64_t>(size->get_int64());
  }
  return Error{ErrorCode::kMalformed,
               fmt::format("{}: metadata.total_size: missing or no number of bytes", path)};
}

/// Of what lies beside the configuration; nullopt where no weights do.
Result<std::optional<uint64_t>> weights_beside(const std::string& config_path) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(config_path).parent_path();
  std::error_code ignored;
  const fs::path index = folder / "model.safetensors.index.json";
  if (fs::is_regular_file(index, ignored)) {
    PW_ASSIGN_OR_RETURN(const uint64_t bytes, indexed_bytes(index.string()));
    return std::optional(bytes);
  }
  // The header of a single file is some kilobytes of its size.
  const std::uintmax_t bytes = fs::file_size(folder / "model.safetensors", ignored);
  if (ignored || bytes == 0) return std::optional<uint64_t>();
  return std::optional<uint64_t>(bytes);
}

}  // namespace

std::string config_types_known() {
  std::string names;
  for (const Family& family : families()) {
    if (!names.empty()) names += ", ";
    names += family.type;
  }
  return names;
}

Result<Layout> layout_from_config(std::string_view text, const std::string& path) {
  const auto fail = [&](ErrorCode code, const std::string& reason) {
    return Error{code, fmt::format("{}: {}", path, reason)};
  };
  const Result<json::value> parsed = parse_json(without_infinities(text));
  if (!parsed.has_value()) return fail(ErrorCode::kMalformed, parsed.error().message);
  if (!parsed->is_object()) return fail(ErrorCode::kMalformed, "no JSON object");
  const json::object& top = parsed->get_object();

  const json::value* inner = top.if_contains("text_config");
  const bool nested = inner != nullptr && inner->is_object();
  const json::object& object = nested ? inner->get_object() : top;
  const std::string prefix = nested ? "text_config." : "";
  const std::string type = text_of(object, "model_type");
  if (is_true(top, "is_encoder_decoder") || is_true(object, "is_encoder_decoder") ||
      is_encoder_decoder(text_of(top, "model_type")) || is_encoder_decoder(type)) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("model_type '{}' is an encoder-decoder, whose caches are not planned "
                            "here",
                            gguf::printable(nested ? text_of(top, "model_type") : type)));
  }
  if (type.empty()) return fail(ErrorCode::kMalformed, prefix + "model_type: missing");
  const Family* family = find_family(type);
  if (family == nullptr) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}model_type: the planner does not know the layout of '{}'; known: {}",
                            prefix, gguf::printable(type), config_types_known()));
  }
  PW_ASSIGN_OR_RETURN(Layout layout, Reader(path, prefix, object, *family).read());
  // Of a model that also sees or hears, the text's part is not all there is.
  if (!nested) layout.weight_bytes = weight_bytes_of_config(top);
  const std::string name = text_of(top, "_name_or_path");
  layout.name = name.empty() ? type : gguf::printable(name);
  return layout;
}

Result<Layout> layout_from_config_path(const std::string& path) {
  PW_ASSIGN_OR_RETURN(const std::string text,
                      read_text_file(path, "a config.json or a GGUF file", kConfigBytesMax + 1));
  if (text.size() > kConfigBytesMax) {
    return Error{ErrorCode::kMalformed, fmt::format("{}: more than {}, which no config.json has",
                                                    path, format_size(kConfigBytesMax))};
  }
  PW_ASSIGN_OR_RETURN(Layout layout, layout_from_config(text, path));
  PW_ASSIGN_OR_RETURN(const std::optional<uint64_t> beside, weights_beside(path));
  if (beside) layout.weight_bytes = beside;
  return layout;
}

}  // namespace pagewise::planner
