// SPDX-License-Identifier: Apache-2.0
// Dispatch by architecture, and the steps from layers to KV groups and from pairs to frequencies.
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
    {"llama", llama_spec},         {"qwen2", qwen2_spec},         {"qwen3", qwen3_spec},
    {"qwen2moe", qwen2moe_spec},   {"qwen3moe", qwen3moe_spec},   {"gemma", gemma_spec},
    {"gemma2", gemma2_spec},       {"gemma3", gemma3_spec},       {"phi3", phi3_spec},
    {"granite", granite_spec},     {"smollm3", smollm3_spec},     {"olmo2", olmo2_spec},
    {"command-r", command_r_spec}, {"cohere2", cohere2_spec},     {"falcon", falcon_spec},
    {"gpt-oss", gpt_oss_spec},     {"deepseek2", deepseek2_spec},
};

}  // namespace

double rope_frequency(const RopeSpec& rope, uint32_t i) {
  const double frequency = std::pow(rope.base, -2.0 * i / rope.dims);
  double share = 1.0;  // of position_scale
  if (rope.ramp) {
    const double width = std::max(rope.ramp_end - rope.ramp_begin, 0.001);
    share = std::clamp((i - rope.ramp_begin) / width, 0.0, 1.0);
  }
  return frequency * (rope.position_scale * share + (1.0 - share));
}

void limit_context(ModelSpec& spec, uint32_t context) {
  RopeSpec& rope = spec.rope;
  if (rope.factors == RopeFactors::kLong && context <= rope.short_context) {
    rope.factors = RopeFactors::kShort;
  }
}

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
             group.like.value_dim == layer.value_dim && group.like.latent == layer.latent;
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
    group.latent = layer.latent;
    if (layer.latent && key_type != value_type) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("this model keeps keys and values as one row (latent attention), so "
                               "both have one KV type, and not {} and {}",
                               kv_type_name(key_type), kv_type_name(value_type))};
    }
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

}  // namespace pagewise::model
