// SPDX-License-Identifier: Apache-2.0
// What the configuration classes of transformers say of the layers of each `model_type`: which keep
// a window, what a key is called, what holds where it is absent. Facts about others' formats, in
// one table.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace pagewise::planner {

/// What the layers keep beside, or instead of, rows of K and V per head.
enum class FamilyKind : uint8_t {
  kAttention,      // rows alone
  kFalcon,         // rows alone; the number of KV heads is told by three keys
  kOpenElm,        // rows alone; heads differ from layer to layer
  kLatent,         // DeepSeek: kv_lora_rank + qk_rope_head_dim values a token
  kTwoSizes,       // Gemma 4: full layers have heads of their own number and size
  kJamba,          // state-space layers between attention layers, by period and offset
  kGatedDelta,     // Qwen3-Next: layers with a matrix a head as state
  kConvolutions,   // LFM2: layers with a short convolution
  kGraniteHybrid,  // layer_types of "mamba" and "attention"
  kNemotronH,      // a pattern of letters: M state space, * attention, - and E feed-forward
  kFalconH1,       // every layer has both
};

/// Which layers keep a window where `layer_types` does not say so.
enum class FamilyWindows : uint8_t {
  kNone,
  kAll,        // all, unless sliding_window is null
  kSwitched,   // with use_sliding_window: which ones is not known without layer_types
  kFromLayer,  // with use_sliding_window: those from max_window_layers on
  kPeriod,     // of `period` layers all but the last; sliding_window_pattern overrides the period
};

inline constexpr uint32_t kNull = 0;  // the class's default is None

/// Defaults of the class: of layers, hidden size, heads and so on. kNull where it has none.
struct FamilyDefaults {
  uint32_t layers = kNull;
  uint32_t hidden = kNull;
  uint32_t heads = kNull;
  uint32_t kv_heads = kNull;  // None: as many as heads
  uint32_t head_dim = kNull;  // None: hidden / heads
  uint32_t window = kNull;    // None: no layer has one
  uint32_t context = kNull;
};

struct Family {
  std::string_view type;  // model_type
  FamilyKind kind = FamilyKind::kAttention;
  FamilyWindows windows = FamilyWindows::kNone;
  uint32_t period = 0;
  FamilyDefaults defaults;
};

std::span<const Family> families();
/// nullptr for a type that is not known.
const Family* find_family(std::string_view type);

/// Types with a second, crosswise cache, which nothing here plans.
bool is_encoder_decoder(std::string_view type);

}  // namespace pagewise::planner
