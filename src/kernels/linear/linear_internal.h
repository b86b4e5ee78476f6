// SPDX-License-Identifier: Apache-2.0
// What packing and kernels of the linear layers agree on. Not for other folders.
#pragma once

#include <cstddef>

#include "kernels/linear/linear.h"

namespace pagewise::kernels {

// A panel is one ascending stream of whole cache lines; every block of it holds 32 values of 16
// outputs.
//   Q4_1  per block: 16 f16 scales, 16 f16 minima, 256 bytes of nibbles
//   Q8_0  per two blocks: 2 x 16 f16 scales, 2 x 512 bytes of quants; an odd last block leaves its
//   pair's half empty
inline constexpr std::size_t kQ4BlockBytes = 64 + 256;
inline constexpr std::size_t kQ8BlockBytes = 512;
inline constexpr std::size_t kQ8PairBytes = 64 + 2 * kQ8BlockBytes;

void run_linear_integer(const LinearWeights& weights, const Activations& x, Range rows,
                        Range panels, float* out, std::size_t out_stride);
void run_linear_f32(const LinearWeights& weights, const Activations& x, Range rows, Range panels,
                    float* out, std::size_t out_stride);

}  // namespace pagewise::kernels
