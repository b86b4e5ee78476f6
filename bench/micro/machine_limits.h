// SPDX-License-Identifier: Apache-2.0
// What this machine can do at most, measured in the same run as the kernels: read bandwidth, f32
// FMA and integer dot products, with the instruction set that the kernels use.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pagewise::bench {

/// Reads [data, data + bytes) once. Returns something that depends on it.
uint64_t read_all(const uint8_t* data, std::size_t bytes);

/// Independent FMA chains in registers. Returns the number of floating-point operations done.
double fma_loop(std::size_t rounds);

/// Independent u8 x s8 dot product chains in registers. Returns the number of integer operations
/// done (a product and a sum count as two, as in GFLOP/s-equivalent).
double int_dot_loop(std::size_t rounds);

}  // namespace pagewise::bench
