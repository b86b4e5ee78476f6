// SPDX-License-Identifier: Apache-2.0
// What the parts of the forward pass share: how panels and rows are divided among threads, and
// biases of what a thread computed.
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/aligned.h"
#include "kernels/linear/activations.h"
#include "kernels/linear/linear.h"
#include "kernels/ops.h"
#include "kernels/range.h"
#include "kernels/thread_pool.h"
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

}  // namespace pagewise::model
