// SPDX-License-Identifier: Apache-2.0
#include "planner/layout.h"

#include <fstream>

#include "planner/hf_config.h"

namespace pagewise::planner {
namespace {

// Whether the file begins as JSON does, perhaps behind a byte order mark. A GGUF file begins with
// its name; whatever begins in neither way is left to the GGUF reader, whose words say what is
// wrong.
bool looks_like_json(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  char first[64] = {};
  file.read(first, sizeof first);
  std::string_view text(first, static_cast<std::size_t>(file.gcount()));
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  return begin != std::string_view::npos && text[begin] == '{';
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

void add_state(Layout& layout, const StateGroup& layer) {
  for (StateGroup& group : layout.states) {
    if (group.values == layer.values) {
      group.layers += layer.layers;
      return;
    }
  }
  layout.states.push_back(layer);
}

std::optional<uint64_t> StateSpace::values() const {
  // Each factor below 2^40, so that no product here exceeds 2^82.
  for (const uint64_t factor : {inner, state, groups, kernel}) {
    if (factor > kStateValuesMax) return std::nullopt;
  }
  using Wide = unsigned __int128;
  const Wide channels = Wide{inner} + 2 * Wide{groups} * state;
  const Wide past = kernel > 0 ? kernel - 1 : 0;
  if (channels > kStateValuesMax) return std::nullopt;
  const Wide sum = past * channels + Wide{state} * inner;
  if (sum > kStateValuesMax) return std::nullopt;
  return static_cast<uint64_t>(sum);
}

Result<Layout> layout_from_path(const std::string& path) {
  if (path.ends_with(".json") || looks_like_json(path)) return layout_from_config_path(path);
  PW_ASSIGN_OR_RETURN(const auto file, gguf::File::open(path, {.header_only = true}));
  return layout_from_gguf(*file);
}

}  // namespace pagewise::planner
