// SPDX-License-Identifier: Apache-2.0
// What of a model decides the size of its KV cache: how many layers keep which rows for how long,
// and which keep a state of fixed size instead. From flags, a GGUF header or a Hugging Face
// config.json, without weights. A layout that is not known here is an error, not a guess.
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
  uint32_t key_dim = 0;  // elements of K per head
  // Elements of V per head. 0: latent attention, where one row serves as K and, in part, as V.
  uint32_t value_dim = 0;
  uint32_t window = 0;  // 0: every position is kept; else the last `window`

  bool operator==(const LayoutGroup&) const = default;
};

/// Layers that keep, per sequence and whatever its length, a state of the same size: recurrent
/// layers, and convolutions that look back a few positions.
struct StateGroup {
  uint32_t layers = 0;
  uint64_t values = 0;  // of one layer: the convolution's last inputs and the recurrent state

  bool operator==(const StateGroup&) const = default;
};

struct Layout {
  std::string name;  // of the model, for people; empty when made from flags
  std::vector<LayoutGroup> groups;
  std::vector<StateGroup> states;
  uint32_t layers_sharing = 0;           // read the rows of an earlier layer and keep none
  std::optional<uint64_t> context;       // positions the model was made for
  std::optional<uint64_t> weight_bytes;  // of all tensors; absent when nothing lists them
};

// Limits of what can be planned; they keep all sizes below 2^63.
inline constexpr uint64_t kLayersMax = 65536;
inline constexpr uint64_t kKvHeadsMax = 65536;
inline constexpr uint64_t kHeadDimMax = uint64_t{1} << 20;
inline constexpr uint64_t kStateValuesMax = uint64_t{1} << 40;  // of one layer
inline constexpr uint64_t kTokenBytesMax = uint64_t{1} << 32;
inline constexpr uint64_t kTokensMax = uint64_t{1} << 30;

/// Adds one layer, to the group of its like or as a new group.
void add_layer(Layout& layout, const LayoutGroup& layer);
/// The same for layers with a state.
void add_state(Layout& layout, const StateGroup& layer);

/// What a state-space layer keeps of a sequence: the last `kernel` - 1 inputs of its convolution
/// over the inner channels and both group matrices, and `state` values an inner channel. Mamba 1
/// has no groups. Source: Gu and Dao, "Mamba" (2023), section 3.4, Dao and Gu, "Transformers are
/// SSMs" (2024), section 7; llama.cpp's n_embd_r and n_embd_s count the same.
struct StateSpace {
  uint64_t inner = 0;   // channels
  uint64_t state = 0;   // values a channel
  uint64_t groups = 0;  // that share their input and output matrices
  uint64_t kernel = 0;  // of the convolution, in positions

  /// nullopt when it exceeds kStateValuesMax.
  std::optional<uint64_t> values() const;
};

/// The layout of `file` (a file opened header_only will do). Architectures that the server runs are
/// read through its own model::ModelSpec when the file lists tensors; metadata-only files and the
/// other architectures known here are read from their attention keys. Errors: kUnsupported naming
/// the architecture or key whose layout is not known; kMalformed naming the key and its offset.
Result<Layout> layout_from_gguf(const gguf::File& file);

/// The layout in the file at `path`: a GGUF file, or a Hugging Face config.json (hf_config.h), told
/// apart by its first bytes.
Result<Layout> layout_from_path(const std::string& path);

}  // namespace pagewise::planner
