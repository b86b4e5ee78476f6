// SPDX-License-Identifier: Apache-2.0
// Where Q4_K, Q5_K and Q6_K keep what belongs to one value of their blocks of 256, and what the
// codes of IQ4_NL and MXFP4 stand for: for everything that reads them, to_float.h and the packing
// of linear layers. Layouts from the GGUF specification.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace pagewise::kernels {

inline constexpr std::size_t kSuperBlock = 256;

/// Q4_K and Q5_K: eight 6-bit scales and eight 6-bit minima in 12 bytes, one of each per 32 values.
struct ScaleMin {
  int scale;
  int min;
};
inline ScaleMin scale_min_k(const uint8_t* packed, int group) {
  if (group < 4) return {packed[group] & 63, packed[group + 4] & 63};
  return {(packed[group + 4] & 15) | ((packed[group - 4] >> 6) << 4),
          (packed[group + 4] >> 4) | ((packed[group] >> 6) << 4)};
}

/// Q4_K, 144 bytes: f16 scale, f16 scale of the minima, 12 bytes of scales, 128 of nibbles.
inline uint8_t q4_k_code(const uint8_t* block, std::size_t k) {
  return (block[16 + 32 * (k / 64) + k % 32] >> (4 * (k / 32 % 2))) & 15;
}

/// Q5_K, 176 bytes: as Q4_K, with 32 bytes of fifth bits in front of the nibbles.
inline uint8_t q5_k_code(const uint8_t* block, std::size_t k) {
  const int low = (block[48 + 32 * (k / 64) + k % 32] >> (4 * (k / 32 % 2))) & 15;
  return static_cast<uint8_t>(low | ((block[16 + k % 32] >> (k / 32)) & 1) << 4);
}

/// Q6_K, 210 bytes: 128 of low nibbles, 64 of high pairs, 16 signed scales of 16 values each, an
/// f16 scale. The code is the value plus 32.
inline uint8_t q6_k_code(const uint8_t* block, std::size_t k) {
  const std::size_t half = k / 128;
  const std::size_t quarter = k / 32 % 4;
  const int low = (block[64 * half + 32 * (quarter % 2) + k % 32] >> (4 * (quarter / 2))) & 15;
  const int high = (block[128 + 32 * half + k % 32] >> (2 * quarter)) & 3;
  return static_cast<uint8_t>(low | high << 4);
}

/// IQ4_NL: the values of its 16 codes, in units of the block's scale.
inline constexpr int8_t kIq4NlValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                            1,    13,   25,  38,  53,  69,  89,  113};

/// MXFP4: the values of its 16 codes (E2M1) doubled, so that they are whole. Source: OCP
/// Microscaling Formats specification 1.0, section 5.3.
inline constexpr int8_t kMxfp4Values[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                            0, -1, -2, -3, -4, -6, -8, -12};

/// MXFP4: half of the scale that an exponent byte (E8M0) stands for, 2^(e - 128), which makes up
/// for the doubled values. Below e = 2 it is subnormal. 255, which the specification calls not a
/// number, is read as 2^127, as ggml reads it.
constexpr float mxfp4_scale(uint8_t e) {
  return std::bit_cast<float>(e < 2 ? 0x00200000U << e : (uint32_t{e} - 1) << 23);
}

}  // namespace pagewise::kernels
