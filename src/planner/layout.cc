// SPDX-License-Identifier: Apache-2.0
#include "planner/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "model/spec.h"

namespace pagewise::planner {
namespace {

// Which layers keep everything. An architecture stands here only when all its layers are softmax
// attention over K and V rows per KV head.
struct KnownArchitecture {
  std::string_view name;
  // 1: all layers; n: of n layers the last one, the others keep a window (n layers at a time from
  // the first). Sources: the models' own configuration files (`sliding_window_pattern`,
  // `layer_types`).
  uint32_t full_every;
};

constexpr KnownArchitecture kArchitectures[] = {
    {"llama", 1},     {"qwen2", 1},    {"qwen2moe", 1}, {"qwen3", 1},      {"qwen3moe", 1},
    {"granite", 1},   {"stablelm", 1}, {"gemma", 1},    {"starcoder2", 1}, {"internlm2", 1},
    {"olmo2", 1},     {"gemma2", 2},   {"gemma3", 6},   {"phi3", 1},       {"smollm3", 1},
    {"command-r", 1}, {"cohere2", 4},  {"falcon", 1},   {"gpt-oss", 2},
};

// Keys that tell of rows other than those: latent attention, state-space layers, chunked attention,
// layers that share another's cache.
constexpr std::string_view kForeignKeys[] = {
    "attention.kv_lora_rank",   "ssm.state_size", "ssm.inner_size",
    "attention.chunk_size",     "wkv.head_size",  "attention.shared_kv_layers",
    "attention.key_length_mla",
};

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
    for (const std::string_view foreign : kForeignKeys) {
      if (file_.find(key(foreign)) != nullptr) {
        return file_.bad_value(key(foreign), "the planner does not know this kind of layers",
                               ErrorCode::kUnsupported);
      }
    }
    PW_ASSIGN_OR_RETURN(const uint64_t layers, number("block_count", kLayersMax));
    PW_ASSIGN_OR_RETURN(const std::vector<uint64_t> heads,
                        per_layer("attention.head_count", layers));
    std::vector<uint64_t> kv_heads = heads;
    if (file_.find(key("attention.head_count_kv")) != nullptr) {
      PW_ASSIGN_OR_RETURN(kv_heads, per_layer("attention.head_count_kv", layers));
    }
    PW_ASSIGN_OR_RETURN(const uint64_t key_dim, head_dim("attention.key_length", heads));
    PW_ASSIGN_OR_RETURN(const uint64_t value_dim, head_dim("attention.value_length", heads));
    PW_ASSIGN_OR_RETURN(const std::vector<uint32_t> windows, windows_of(layers));

    Layout layout;
    for (uint64_t i = 0; i < layers; ++i) {
      add_layer(layout, {.layers = 1,
                         .kv_heads = static_cast<uint32_t>(kv_heads[i]),
                         .key_dim = static_cast<uint32_t>(key_dim),
                         .value_dim = static_cast<uint32_t>(value_dim),
                         .window = windows[i]});
    }
    return layout;
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

  /// One number for all layers, or an array with one for each.
  Result<std::vector<uint64_t>> per_layer(std::string_view name, uint64_t layers) const {
    const gguf::Value* value = file_.find(key(name));
    if (value == nullptr || !std::holds_alternative<std::shared_ptr<const gguf::Array>>(*value)) {
      PW_ASSIGN_OR_RETURN(const uint64_t one, number(name, kKvHeadsMax));
      return std::vector<uint64_t>(layers, one);
    }
    PW_ASSIGN_OR_RETURN(const std::vector<int64_t> each, file_.int_array(key(name)));
    if (each.size() != layers) {
      return file_.bad_value(key(name),
                             fmt::format("{} numbers for {} layers", each.size(), layers));
    }
    std::vector<uint64_t> out;
    for (const int64_t count : each) {
      if (count == 0) {
        return file_.bad_value(key(name), "a layer without KV heads is of a kind not known here",
                               ErrorCode::kUnsupported);
      }
      PW_RETURN_IF_ERROR(in_range(name, static_cast<uint64_t>(count), kKvHeadsMax));
      out.push_back(static_cast<uint64_t>(count));
    }
    return out;
  }

  /// The key when it is there; else, as the format defines it, the embedding shared out among the
  /// heads.
  Result<uint64_t> head_dim(std::string_view name, const std::vector<uint64_t>& heads) const {
    if (file_.find(key(name)) != nullptr) return number(name, kHeadDimMax);
    PW_ASSIGN_OR_RETURN(const uint64_t embedding, number("embedding_length", kHeadDimMax));
    const bool equal = std::all_of(heads.begin(), heads.end(),
                                   [&](uint64_t count) { return count == heads.front(); });
    if (!equal || embedding % heads.front() != 0) {
      return file_.bad_value(
          key(name),
          fmt::format("missing, and an embedding of {} does not divide by the heads", embedding));
    }
    return embedding / heads.front();
  }

  Result<std::vector<uint32_t>> windows_of(uint64_t layers) const {
    constexpr std::string_view kWindow = "attention.sliding_window";
    constexpr std::string_view kPattern = "attention.sliding_window_pattern";
    std::vector<uint32_t> windows(layers, 0);
    if (known_.full_every == 1) {
      PW_ASSIGN_OR_RETURN(const std::optional<uint64_t> window, file_.find_uint(key(kWindow)));
      if (window && *window != 0) {
        return file_.bad_value(
            key(kWindow),
            fmt::format("which layers of '{}' keep a window is not known here", known_.name),
            ErrorCode::kUnsupported);
      }
      return windows;
    }
    PW_ASSIGN_OR_RETURN(const uint64_t window, number(kWindow, kTokensMax));
    const gguf::Value* pattern = file_.find(key(kPattern));
    if (pattern != nullptr &&
        std::holds_alternative<std::shared_ptr<const gguf::Array>>(*pattern)) {
      PW_ASSIGN_OR_RETURN(const std::vector<int64_t> sliding, file_.int_array(key(kPattern)));
      if (sliding.size() != layers) {
        return file_.bad_value(key(kPattern),
                               fmt::format("{} values for {} layers", sliding.size(), layers));
      }
      for (uint64_t i = 0; i < layers; ++i) {
        if (sliding[i] != 0) windows[i] = static_cast<uint32_t>(window);
      }
      return windows;
    }
    uint64_t full_every = known_.full_every;
    if (pattern != nullptr) {
      PW_ASSIGN_OR_RETURN(full_every, number(kPattern, kLayersMax));
    }
    for (uint64_t i = 0; i < layers; ++i) {
      if (i % full_every != full_every - 1) windows[i] = static_cast<uint32_t>(window);
    }
    return windows;
  }

  const gguf::File& file_;
  const KnownArchitecture& known_;
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

void add_layer(Layout& layout, const LayoutGroup& layer) {
  for (LayoutGroup& group : layout.groups) {
    LayoutGroup like = layer;
    like.layers = group.layers;
    if (like == group) {
      group.layers += layer.layers;
      return;
    }
  }
  layout.groups.push_back(layer);
}

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

Result<Layout> layout_from_path(const std::string& path) {
  PW_ASSIGN_OR_RETURN(const auto file, gguf::File::open(path, {.header_only = true}));
  return layout_from_gguf(*file);
}

}  // namespace pagewise::planner
