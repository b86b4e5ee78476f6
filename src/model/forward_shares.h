// SPDX-License-Identifier: Apache-2.0
// What the parts of the forward pass share: how panels and rows are divided among threads and
// tiles, and biases of what a thread computed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/aligned.h"
#include "kernels/linear/activations.h"
#include "kernels/linear/linear.h"
#include "kernels/ops.h"
#include "kernels/range.h"
#include "kernels/thread_pool.h"
#include "model/spec.h"
#include "model/weights.h"

namespace pagewise::model {

/// The outputs that `panels` holds.
inline kernels::Range outputs_of(kernels::Range panels, std::size_t outputs) {
  return {panels.begin * kernels::kPanelOutputs,
          std::min(panels.end * kernels::kPanelOutputs, outputs)};
}

inline kernels::Range all_panels(const Matrix& matrix) { return {0, matrix.linear.panels()}; }

/// This thread's part of `rows` rows, in whole quantising groups, whose cache lines threads would
/// share.
inline kernels::Range share_rows(const kernels::ThreadPool::Context& context, std::size_t rows) {
  const kernels::Range groups =
      context.share((rows + kernels::kQuantRows - 1) / kernels::kQuantRows);
  return {groups.begin * kernels::kQuantRows, std::min(groups.end * kernels::kQuantRows, rows)};
}

/// Adds a bias, which may be empty, to the outputs `outputs` of `count` rows, `stride` floats
/// apart; output o of the first is at `rows` + o.
inline void add_bias(float* rows, std::size_t count, std::size_t stride, kernels::Range outputs,
                     const kernels::AlignedArray<float>& bias) {
  if (bias.size() == 0) return;
  for (std::size_t r = 0; r < count; ++r) {
    kernels::add(rows + r * stride + outputs.begin, bias.data() + outputs.begin, outputs.size());
  }
}

/// The rows in parts of `tile_rows`.
template <typename Tile>
void for_tiles(kernels::Range rows, uint32_t tile_rows, Tile&& tile) {
  for (std::size_t r = rows.begin; r < rows.end; r += tile_rows) {
    tile(kernels::Range{r, std::min<std::size_t>(r + tile_rows, rows.end)});
  }
}

/// Floats from one row to the next.
inline std::size_t stride_of(const kernels::Activations& activations) {
  return activations.rows() < 2 ? activations.columns()
                                : static_cast<std::size_t>(activations.row(1) - activations.row(0));
}

inline kernels::RopeLayout layout_of(RopeKind kind) {
  return kind == RopeKind::kNormal ? kernels::RopeLayout::kNormal : kernels::RopeLayout::kNeox;
}

}  // namespace pagewise::model
