// SPDX-License-Identifier: Apache-2.0
// What of a model decides the size of its KV cache: how many layers keep which rows for how long.
// From flags or from a GGUF header, without weights. A layout that is not known here is an error,
// not a guess.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "gguf/gguf.h"

namespace pagewise::planner {

/// Layers that keep the same rows.
struct LayoutGroup {
  uint32_t layers = 0;
  uint32_t kv_heads = 0;
  uint32_t key_dim = 0;    // elements of K per head
  uint32_t value_dim = 0;  // elements of V per head; 0: V is a part of K (latent attention)
  uint32_t window = 0;     // 0: every position is kept; else the last `window`

  bool operator==(const LayoutGroup&) const = default;
};

struct Layout {
  std::string name;  // of the model, for people; empty when made from flags
  std::vector<LayoutGroup> groups;
  std::optional<uint64_t> context;       // positions the model was made for
  std::optional<uint64_t> weight_bytes;  // all tensors of the file; absent when it lists none
};

// Limits of what can be planned; they keep all sizes below 2^63.
inline constexpr uint64_t kLayersMax = 65536;
inline constexpr uint64_t kKvHeadsMax = 65536;
inline constexpr uint64_t kHeadDimMax = uint64_t{1} << 20;
inline constexpr uint64_t kTokenBytesMax = uint64_t{1} << 32;
inline constexpr uint64_t kTokensMax = uint64_t{1} << 30;

/// Adds one layer, to the group of its like or as a new group.
void add_layer(Layout& layout, const LayoutGroup& layer);

/// The layout of `file` (a file opened header_only will do). Architectures that the server runs are
/// read through its own model::ModelSpec when the file lists tensors; metadata-only files and the
/// other architectures known here are read from their attention keys. Errors: kUnsupported naming
/// the architecture or key whose layout is not known; kMalformed naming the key and its offset.
Result<Layout> layout_from_gguf(const gguf::File& file);

/// The same with the path of a file.
Result<Layout> layout_from_path(const std::string& path);

}  // namespace pagewise::planner
