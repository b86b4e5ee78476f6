// SPDX-License-Identifier: Apache-2.0
// What packing and kernels of the linear layers agree on. Not for other folders.
#pragma once

#include <cstddef>

#include "kernels/linear/linear.h"

namespace pagewise::kernels {

// A panel is one ascending stream of whole cache lines (half ones of F16 and BF16); every block of
// it holds 32 values of 16 outputs.
//   Q4_1  per block: 16 f16 scales, 16 f16 minima, 256 bytes of nibbles
//   Q4_0, IQ4_NL  per two blocks: 2 x 16 f16 scales, 2 x 256 bytes of nibbles
//   MXFP4  per four blocks: 4 x 16 exponent bytes, 4 x 256 bytes of nibbles; of a last four that is
//   not whole the rest is empty
//   Q8_0  per two blocks: 2 x 16 f16 scales, 2 x 512 bytes of quants; an odd last block leaves its
//   pair's half empty
//   Q5_0  per two blocks: 2 x 16 f16 scales, 2 x (64 bytes of high bits, 256 of nibbles)
//   Q5_1  per block: 16 f16 scales, 16 f16 minima, 64 bytes of high bits, 256 of nibbles
//   Q4_K  per eight blocks: 16 f16 scales, 16 f16 scales of the minima, 8 x (16 scales, 16 minima,
//   a byte each), 8 x 256 bytes of nibbles
//   Q5_K  the same with 8 x (64 bytes of high bits, 256 of nibbles)
//   Q6_K  per eight blocks: 16 f16 scales (and 32 bytes of nothing), 8 x 2 x 16 signed byte scales
//   of 16 values each, 8 x (128 bytes of high pairs, 256 of nibbles)
// Nibbles: chunk j of four, 64 bytes, holds 4 bytes of each output: their low halves are values
// 4j..4j+3, the high ones 16 + 4j...  High bits, 4 bytes of each output: bit t of byte i is that of
// value 4t + i. High pairs, two such vectors, for values 0..15 and 16..31: bits 2t and 2t + 1 of
// byte i are those of value 4t + i of the half.
//   F16, BF16, F32  per column: 16 values
inline constexpr std::size_t kNibbleBytes = 256;
inline constexpr std::size_t kQ4BlockBytes = 64 + kNibbleBytes;
inline constexpr std::size_t kQ8BlockBytes = 512;
inline constexpr std::size_t kQ8PairBytes = 64 + 2 * kQ8BlockBytes;
inline constexpr std::size_t kQ40PairBytes = 64 + 2 * kNibbleBytes;
inline constexpr std::size_t kMxfp4Blocks = 4;  // that share a cache line of exponents
inline constexpr std::size_t kMxfp4UnitBytes = 64 + kMxfp4Blocks * kNibbleBytes;
inline constexpr std::size_t kQ5BlockBytes = 64 + kNibbleBytes;
inline constexpr std::size_t kQ51BlockBytes = 64 + kQ5BlockBytes;
inline constexpr std::size_t kQ5PairBytes = 64 + 2 * kQ5BlockBytes;
inline constexpr std::size_t kSuperBlocks = 8;  // blocks of 32 in one of 256
inline constexpr std::size_t kKScaleBytes = 64 + kSuperBlocks * 32;
inline constexpr std::size_t kQ4KSuperBytes = kKScaleBytes + kSuperBlocks * kNibbleBytes;
inline constexpr std::size_t kQ5KSuperBytes = kKScaleBytes + kSuperBlocks * kQ5BlockBytes;
inline constexpr std::size_t kQ6KBlockBytes = 128 + kNibbleBytes;
inline constexpr std::size_t kQ6KSuperBytes = kKScaleBytes + kSuperBlocks * kQ6KBlockBytes;

void run_linear_integer(const LinearWeights& weights, const Activations& x, Range rows,
                        Range panels, float* out, std::size_t out_stride);
void run_linear_float(const LinearWeights& weights, const Activations& x, Range rows, Range panels,
                      float* out, std::size_t out_stride);
void run_linear_decoded(const LinearWeights& weights, const Activations& x, Range rows,
                        Range panels, float* out, std::size_t out_stride);

}  // namespace pagewise::kernels
