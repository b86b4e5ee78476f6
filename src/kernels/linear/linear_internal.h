// SPDX-License-Identifier: Apache-2.0
// What packing and kernels of the linear layers agree on. Not for other folders.
#pragma once

#include <cstddef>

#include "kernels/linear/linear.h"

namespace pagewise::kernels {

inline constexpr std::size_t kQ4BlockBytes =
    64 + 256;  // of a panel, 32 values: scales and minima, nibbles
inline constexpr std::size_t kQ8BlockBytes = 512;  // of a panel, 32 values, scales apart

/// Bytes of a Q8_0 panel's scales: whole cache lines, so that the quants behind them are aligned.
constexpr std::size_t q8_scale_bytes(std::size_t blocks) {
  return (blocks * 2 * kPanelOutputs + 63) / 64 * 64;
}

void run_linear_integer(const LinearWeights& weights, const Activations& x, Range rows,
                        Range panels, float* out, std::size_t out_stride);
void run_linear_f32(const LinearWeights& weights, const Activations& x, Range rows, Range panels,
                    float* out, std::size_t out_stride);

}  // namespace pagewise::kernels
