// SPDX-License-Identifier: Apache-2.0
// KV type q8_0: groups of 32 values as codes of 8 bits and one f16 scale.
//
//   scale = amax / 127 rounded to f16, at most 65504; code = x / scale rounded to nearest even, at
//   most 127 in size; the value that is read back is code * scale, which f32 holds exactly (7 and
//   11 bits). A group whose scale rounds to 0 (amax below 3.8e-6) is all zeros.
// Codes are taken by the rounded scale, not by amax / 127 itself: nearer to x.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pagewise::kernels {

/// `n` values to `n` codes and n / 32 scales (f16 bits). Requires: n % 32 == 0, finite values
/// (others give unspecified but finite numbers). A group's bytes depend on the group alone.
void quantize_kv(const float* x, std::size_t n, int8_t* codes, uint16_t* scales);

}  // namespace pagewise::kernels
