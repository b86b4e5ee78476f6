// SPDX-License-Identifier: Apache-2.0
// How the forward pass divides panels and rows among threads.
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/linear/activations.h"
#include "kernels/linear/linear.h"
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

}  // namespace pagewise::model
