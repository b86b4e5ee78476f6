// SPDX-License-Identifier: Apache-2.0
// The shapes of everything that the forward pass works in, and the memory they take: one function
// of a spec, from which the pass allocates and by which a planner counts without a model.
//
// A test holds that Forward takes just these bytes, on every architecture.
#pragma once

#include <cstdint>
#include <vector>

#include "model/spec.h"

namespace pagewise::model {

/// Rows of a tile of the many-rows schedule: a multiple of the 12 and 8 rows that linear() takes
/// at a time. Its activations, 48 * (576 + 1536) * (4 + 1.5) bytes for the smallest models, 0.6 MB,
/// leave room for panels of weights in a 1 MB L2 cache.
inline constexpr uint32_t kForwardTileRows = 48;
/// Rows whose norms and quantised forms every thread makes for itself: one row of 576 values takes
/// about as long as a barrier (0.2 us), and saves one.
inline constexpr uint32_t kForwardSoloRows = 4;
/// Outputs of gate and up that are computed before their product is taken: 48 rows of both are 96
/// KiB.
inline constexpr uint32_t kForwardFfnChunk = 256;

struct ForwardLimits {
  uint32_t rows_max = 0;
  uint32_t runs_max = 0;
  uint32_t context_max = 0;
};

/// Values of a row where not said; 0 where the model has none of it.
struct ForwardShape {
  ForwardLimits limits;
  uint32_t threads = 1;
  uint32_t few_rows_max = 0;  // more rows than this take the many-rows schedule
  uint32_t embedding = 0;
  uint32_t ffn = 0;        // the widest feed-forward part, or experts side by side
  uint32_t dense_ffn = 0;  // of the layers without experts
  uint32_t query = 0, key = 0, value = 0;
  uint32_t rest = 0;  // of what is projected with the rest of its activations, too: V, latents
  std::vector<LayerSpec> groups;   // a layer of each KV group
  std::vector<uint32_t> attended;  // by group: what the output projection reads
  uint32_t latent_query = 0, latent_attended = 0;
  LatentSpec latent;  // with rank 0 where no layer is latent
  ExpertSpec experts;
};

/// Requires: a spec as spec_from_gguf() gives it; threads >= 1.
ForwardShape forward_shape(const ModelSpec& spec, const ForwardLimits& limits, uint32_t threads);

/// Bytes that the pass holds from its start on, beside weights and KV. What comes with use is not
/// in it: logits, sines and cosines of positions that were reached, and states of attention that
/// was split among threads.
uint64_t forward_bytes(const ForwardShape& shape);

}  // namespace pagewise::model
