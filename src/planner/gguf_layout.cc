// SPDX-License-Identifier: Apache-2.0
// A layout from the metadata of a GGUF file.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "model/spec.h"
#include "planner/layout.h"

namespace pagewise::planner {
namespace {

// What the layers of an architecture keep beside, or instead of, rows of K and V.
enum class Mixer : uint8_t {
  kNone,         // attention alone
  kLatent,       // one latent row a token, of which K and V are computed (DeepSeek)
  kSharing,      // the last `attention.shared_kv_layers` read the rows of earlier ones
  kHeadless,     // layers without KV heads keep a state, unless they are feed-forward alone
  kEvery,        // every layer keeps rows and a state
  kPeriodic,     // of `full_attention_interval` layers the last keeps rows, the others a state
  kOnly,         // every layer keeps a state and no rows
  kConvolution,  // layers without KV heads keep the inputs of a short convolution
};

struct KnownArchitecture {
  std::string_view name;
  // Which layers keep everything. 1: all, and a window is an error. 0: all, or none where the file
  // gives a window. n: of n layers the last one, the others keep a window (n layers at a time from
  // the first). Sources: the models' own configuration files (`sliding_window_pattern`,
  // `layer_types`).
  uint32_t full_every;
  Mixer mixer = Mixer::kNone;
};

constexpr KnownArchitecture kArchitectures[] = {
    {"llama", 0},
    {"qwen2", 1},
    {"qwen2moe", 1},
    {"qwen3", 1},
    {"qwen3moe", 1},
    {"granite", 1},
    {"granitemoe", 1},
    {"stablelm", 1},
    {"gemma", 1},
    {"starcoder2", 1},
    {"internlm2", 1},
    {"olmo2", 4},
    {"gemma2", 2},
    {"gemma3", 6},
    {"gemma3n", 5, Mixer::kSharing},
    {"phi3", 0},
    {"smollm3", 1},
    {"command-r", 1},
    {"cohere2", 4},
    {"falcon", 1},
    {"gpt-oss", 2},
    {"deepseek2", 1, Mixer::kLatent},
    {"jamba", 1, Mixer::kHeadless},
    {"granitehybrid", 1, Mixer::kHeadless},
    {"nemotron_h", 1, Mixer::kHeadless},
    {"falcon-h1", 1, Mixer::kEvery},
    {"qwen3next", 1, Mixer::kPeriodic},
    {"lfm2", 1, Mixer::kConvolution},
    {"mamba", 1, Mixer::kOnly},
    {"mamba2", 1, Mixer::kOnly},
};

constexpr uint32_t one_of(std::initializer_list<Mixer> mixers) {
  uint32_t bits = 0;
  for (const Mixer mixer : mixers) bits |= 1U << static_cast<uint32_t>(mixer);
  return bits;
}
constexpr uint32_t kStateSpaces =
    one_of({Mixer::kHeadless, Mixer::kEvery, Mixer::kPeriodic, Mixer::kOnly});

// Keys that tell of rows other than K and V per head, with the mixers that know them.
struct ForeignKey {
  std::string_view name;
  uint32_t known_to;
};

constexpr ForeignKey kForeignKeys[] = {
    {"attention.kv_lora_rank", one_of({Mixer::kLatent})},
    {"attention.key_length_mla", one_of({Mixer::kLatent})},
    {"ssm.state_size", kStateSpaces},
    {"ssm.inner_size", kStateSpaces},
    {"shortconv.l_cache", one_of({Mixer::kConvolution})},
    {"attention.shared_kv_layers", one_of({Mixer::kSharing})},
    {"attention.chunk_size", 0},
    {"attention.indexer.key_length", 0},
    {"wkv.head_size", 0},
};

// Qwen3NextConfig's interval, which the converter writes only where it differs.
constexpr uint64_t kIntervalUsual = 4;

std::string known_names() {
  std::string names;
  for (const KnownArchitecture& known : kArchitectures) {
    if (!names.empty()) names += ", ";
    names += known.name;
  }
  return names;
}

class Reader {
 public:
  Reader(const gguf::File& file, const KnownArchitecture& known) : file_(file), known_(known) {}

  Result<Layout> read() {
    for (const ForeignKey& foreign : kForeignKeys) {
      const bool expected = (foreign.known_to & one_of({known_.mixer})) != 0;
      if (!expected && file_.find(key(foreign.name)) != nullptr) {
        return file_.bad_value(key(foreign.name), "the planner does not know this kind of layers",
                               ErrorCode::kUnsupported);
      }
    }
    PW_ASSIGN_OR_RETURN(layers_, number("block_count", kLayersMax));
    switch (known_.mixer) {
      case Mixer::kLatent:
        return latent();
      case Mixer::kOnly:
        return only_states();
      default:
        return rows();
    }
  }

 private:
  std::string key(std::string_view name) const { return fmt::format("{}.{}", known_.name, name); }

  Status in_range(std::string_view name, uint64_t value, uint64_t max) const {
    if (value >= 1 && value <= max) return Status::ok();
    return file_.bad_value(key(name), fmt::format("{} is not in 1 to {}", value, max));
  }

  Result<uint64_t> number(std::string_view name, uint64_t max) const {
    PW_ASSIGN_OR_RETURN(const uint64_t value, file_.require_uint(key(name)));
    PW_RETURN_IF_ERROR(in_range(name, value, max));
    return value;
  }

  /// One number for all layers, or an array with one for each. A 0 among them is for mixers whose
  /// layers need not have heads.
  Result<std::vector<uint64_t>> per_layer(std::string_view name) const {
    const bool may_be_none =
        known_.mixer == Mixer::kHeadless || known_.mixer == Mixer::kConvolution;
    const gguf::Value* value = file_.find(key(name));
    if (value == nullptr || !std::holds_alternative<std::shared_ptr<const gguf::Array>>(*value)) {
      PW_ASSIGN_OR_RETURN(const uint64_t one, number(name, kKvHeadsMax));
      return std::vector<uint64_t>(layers_, one);
    }
    PW_ASSIGN_OR_RETURN(const std::vector<int64_t> each, file_.int_array(key(name)));
    if (each.size() != layers_) {
      return file_.bad_value(key(name),
                             fmt::format("{} numbers for {} layers", each.size(), layers_));
    }
    std::vector<uint64_t> out;
    for (const int64_t count : each) {
      if (count == 0 && !may_be_none) {
        return file_.bad_value(key(name), "a layer without KV heads is of a kind not known here",
                               ErrorCode::kUnsupported);
      }
      if (count != 0) PW_RETURN_IF_ERROR(in_range(name, static_cast<uint64_t>(count), kKvHeadsMax));
      out.push_back(static_cast<uint64_t>(count));
    }
    return out;
  }

  /// The key when it is there; else, as the format defines it, the embedding shared out among the
  /// heads.
  Result<uint64_t> head_dim(std::string_view name, const std::vector<uint64_t>& heads) const {
    if (file_.find(key(name)) != nullptr) return number(name, kHeadDimMax);
    PW_ASSIGN_OR_RETURN(const uint64_t embedding, number("embedding_length", kHeadDimMax));
    const uint64_t most = *std::max_element(heads.begin(), heads.end());
    const bool equal = std::all_of(heads.begin(), heads.end(),
                                   [&](uint64_t count) { return count == most || count == 0; });
    if (!equal || most == 0 || embedding % most != 0) {
      return file_.bad_value(
          key(name),
          fmt::format("missing, and an embedding of {} does not divide by the heads", embedding));
    }
    return embedding / most;
  }

  Result<Layout> rows() {
    PW_ASSIGN_OR_RETURN(const std::vector<uint64_t> heads, per_layer("attention.head_count"));
    std::vector<uint64_t> kv_heads = heads;
    if (file_.find(key("attention.head_count_kv")) != nullptr) {
      PW_ASSIGN_OR_RETURN(kv_heads, per_layer("attention.head_count_kv"));
    }
    PW_ASSIGN_OR_RETURN(const uint64_t key_dim, head_dim("attention.key_length", heads));
    PW_ASSIGN_OR_RETURN(const uint64_t value_dim, head_dim("attention.value_length", heads));
    PW_ASSIGN_OR_RETURN(const std::vector<uint32_t> windows, windows_of());
    PW_ASSIGN_OR_RETURN(const std::vector<uint64_t> states, states_of(kv_heads));

    Layout layout;
    if (known_.mixer == Mixer::kSharing) {
      PW_ASSIGN_OR_RETURN(const auto sharing, file_.find_uint(key("attention.shared_kv_layers")));
      if (sharing.value_or(0) >= layers_) {
        return file_.bad_value(key("attention.shared_kv_layers"),
                               fmt::format("{} of {} layers share rows", *sharing, layers_));
      }
      layout.layers_sharing = static_cast<uint32_t>(sharing.value_or(0));
    }
    for (uint64_t i = 0; i < layers_ - layout.layers_sharing; ++i) {
      if (states[i] != 0) add_state(layout, {.layers = 1, .values = states[i]});
      if (kv_heads[i] == 0 || (known_.mixer == Mixer::kPeriodic && states[i] != 0)) continue;
      add_layer(layout, {.layers = 1,
                         .kv_heads = static_cast<uint32_t>(kv_heads[i]),
                         .key_dim = static_cast<uint32_t>(key_dim),
                         .value_dim = static_cast<uint32_t>(value_dim),
                         .window = windows[i]});
    }
    return layout;
  }

  Result<Layout> latent() const {
    PW_ASSIGN_OR_RETURN(const uint64_t rank, number("attention.kv_lora_rank", kHeadDimMax / 2));
    PW_ASSIGN_OR_RETURN(const uint64_t rope, number("rope.dimension_count", kHeadDimMax / 2));
    Layout layout;
    add_layer(layout, {.layers = static_cast<uint32_t>(layers_),
                       .kv_heads = 1,
                       .key_dim = static_cast<uint32_t>(rank + rope)});
    return layout;
  }

  Result<Layout> only_states() const {
    if (file_.find(key("ssm.inner_size")) == nullptr) {
      return file_.bad_value("general.architecture",
                             fmt::format("the planner does not know the layout of a '{}' without "
                                         "ssm.inner_size",
                                         known_.name),
                             ErrorCode::kUnsupported);
    }
    PW_ASSIGN_OR_RETURN(const uint64_t values, state_space());
    Layout layout;
    add_state(layout, {.layers = static_cast<uint32_t>(layers_), .values = values});
    return layout;
  }

  /// Values of a state-space layer's state.
  Result<uint64_t> state_space() const {
    StateSpace space;
    PW_ASSIGN_OR_RETURN(space.inner, number("ssm.inner_size", kStateValuesMax));
    PW_ASSIGN_OR_RETURN(space.state, number("ssm.state_size", kStateValuesMax));
    PW_ASSIGN_OR_RETURN(space.kernel, number("ssm.conv_kernel", kStateValuesMax));
    PW_ASSIGN_OR_RETURN(const auto groups, file_.find_uint(key("ssm.group_count")));
    space.groups = groups.value_or(0);
    const std::optional<uint64_t> values = space.values();
    if (values) return *values;
    return file_.bad_value(key("ssm.inner_size"),
                           fmt::format("a state of more than {} values", kStateValuesMax));
  }

  /// Values of each layer's state; 0: it has none.
  Result<std::vector<uint64_t>> states_of(const std::vector<uint64_t>& kv_heads) const {
    std::vector<uint64_t> states(layers_, 0);
    switch (known_.mixer) {
      case Mixer::kHeadless: {
        PW_ASSIGN_OR_RETURN(const uint64_t values, state_space());
        PW_ASSIGN_OR_RETURN(const std::vector<bool> feed_forward, feed_forward_alone(kv_heads));
        for (uint64_t i = 0; i < layers_; ++i) {
          if (kv_heads[i] == 0 && !feed_forward[i]) states[i] = values;
        }
        break;
      }
      case Mixer::kEvery: {
        PW_ASSIGN_OR_RETURN(const uint64_t values, state_space());
        states.assign(layers_, values);
        break;
      }
      case Mixer::kPeriodic: {
        PW_ASSIGN_OR_RETURN(const uint64_t values, state_space());
        uint64_t interval = kIntervalUsual;
        if (file_.find(key("full_attention_interval")) != nullptr) {
          PW_ASSIGN_OR_RETURN(interval, number("full_attention_interval", kLayersMax));
        }
        for (uint64_t i = 0; i < layers_; ++i) {
          if (i % interval != interval - 1) states[i] = values;
        }
        break;
      }
      case Mixer::kConvolution: {
        PW_ASSIGN_OR_RETURN(const uint64_t positions, number("shortconv.l_cache", kHeadDimMax));
        PW_ASSIGN_OR_RETURN(const uint64_t width, number("embedding_length", kHeadDimMax));
        for (uint64_t i = 0; i < layers_; ++i) {
          if (kv_heads[i] == 0) states[i] = width * (positions - 1);
        }
        break;
      }
      default:
        break;
    }
    return states;
  }

  /// Layers without heads that are feed-forward and keep nothing: those whose own width is given,
  /// where the file has a width for each layer (Nemotron-H).
  Result<std::vector<bool>> feed_forward_alone(const std::vector<uint64_t>& kv_heads) const {
    std::vector<bool> alone(layers_, false);
    constexpr std::string_view kWidth = "feed_forward_length";
    if (known_.name != "nemotron_h") return alone;
    PW_ASSIGN_OR_RETURN(const std::vector<int64_t> widths, file_.int_array(key(kWidth)));
    if (widths.size() != layers_) {
      return file_.bad_value(key(kWidth),
                             fmt::format("{} numbers for {} layers", widths.size(), layers_));
    }
    for (uint64_t i = 0; i < layers_; ++i) alone[i] = kv_heads[i] == 0 && widths[i] != 0;
    return alone;
  }

  Result<std::vector<uint32_t>> windows_of() const {
    constexpr std::string_view kWindow = "attention.sliding_window";
    constexpr std::string_view kPattern = "attention.sliding_window_pattern";
    std::vector<uint32_t> windows(layers_, 0);
    PW_ASSIGN_OR_RETURN(const std::optional<uint64_t> given, file_.find_uint(key(kWindow)));
    if (known_.full_every == 1) {
      if (given && *given != 0) {
        return file_.bad_value(
            key(kWindow),
            fmt::format("which layers of '{}' keep a window is not known here", known_.name),
            ErrorCode::kUnsupported);
      }
      return windows;
    }
    // OLMo 2 has none; OLMo 3, of the same name, has.
    if ((known_.full_every == 0 || known_.name == "olmo2") && given.value_or(0) == 0) {
      return windows;
    }
    PW_ASSIGN_OR_RETURN(const uint64_t window, number(kWindow, kTokensMax));
    PW_ASSIGN_OR_RETURN(const auto context, file_.find_uint(key("context_length")));
    // As the server reads it: where all layers are alike, such a window leaves nothing behind.
    if (known_.full_every == 0 && context && window >= *context) return windows;
    const gguf::Value* pattern = file_.find(key(kPattern));
    if (pattern != nullptr &&
        std::holds_alternative<std::shared_ptr<const gguf::Array>>(*pattern)) {
      PW_ASSIGN_OR_RETURN(const std::vector<int64_t> sliding, file_.int_array(key(kPattern)));
      if (sliding.size() != layers_) {
        return file_.bad_value(key(kPattern),
                               fmt::format("{} values for {} layers", sliding.size(), layers_));
      }
      for (uint64_t i = 0; i < layers_; ++i) {
        if (sliding[i] != 0) windows[i] = static_cast<uint32_t>(window);
      }
      return windows;
    }
    uint64_t full_every = known_.full_every;
    if (pattern != nullptr) {
      PW_ASSIGN_OR_RETURN(full_every, number(kPattern, kLayersMax));
    }
    for (uint64_t i = 0; i < layers_; ++i) {
      if (full_every == 0 || i % full_every != full_every - 1) {
        windows[i] = static_cast<uint32_t>(window);
      }
    }
    return windows;
  }

  const gguf::File& file_;
  const KnownArchitecture& known_;
  uint64_t layers_ = 0;
};

Layout layout_from_spec(const model::ModelSpec& spec) {
  Layout layout;
  for (const model::LayerSpec& layer : spec.layers) {
    add_layer(layout, {.layers = 1,
                       .kv_heads = layer.kv_heads,
                       .key_dim = layer.key_dim,
                       .value_dim = layer.latent ? 0 : layer.value_dim,
                       .window = layer.window});
  }
  return layout;
}

}  // namespace

Result<Layout> layout_from_gguf(const gguf::File& file) {
  constexpr std::string_view kArchitecture = "general.architecture";
  PW_ASSIGN_OR_RETURN(const std::string architecture, file.require_string(kArchitecture));
  const auto known =
      std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                   [&](const KnownArchitecture& a) { return a.name == architecture; });
  const std::vector<std::string_view> served = model::supported_architectures();
  Layout layout;
  if (!file.tensors().empty() &&
      std::find(served.begin(), served.end(), architecture) != served.end()) {
    PW_ASSIGN_OR_RETURN(const model::ModelSpec spec, model::spec_from_gguf(file));
    layout = layout_from_spec(spec);
  } else if (known != std::end(kArchitectures)) {
    PW_ASSIGN_OR_RETURN(layout, Reader(file, *known).read());
  } else if (architecture == "t5" || architecture == "t5encoder") {
    return file.bad_value(
        kArchitecture,
        fmt::format("'{}' is an encoder-decoder, whose caches are not planned here", architecture),
        ErrorCode::kUnsupported);
  } else {
    return file.bad_value(
        kArchitecture,
        fmt::format("the planner does not know the layout of this architecture; known: {}",
                    known_names()),
        ErrorCode::kUnsupported);
  }
  PW_ASSIGN_OR_RETURN(const std::optional<std::string> name, file.find_string("general.name"));
  layout.name = name.value_or(architecture);
  PW_ASSIGN_OR_RETURN(layout.context, file.find_uint(architecture + ".context_length"));
  if (!file.tensors().empty()) {
    uint64_t bytes = 0;
    // Their ends are checked to lie below 2^63 and they do not overlap, so the sum cannot wrap.
    for (const gguf::Tensor& tensor : file.tensors()) bytes += tensor.bytes;
    layout.weight_bytes = bytes;
  }
  return layout;
}

}  // namespace pagewise::planner
