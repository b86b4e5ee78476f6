// SPDX-License-Identifier: Apache-2.0
// Rows of activations as the linear layers read them: f32, and int8 quantised once per norm and
// used by every weight that reads them (Q, K and V; gate and up).
//
// Quantisation, per row and block of 32 consecutive values (contract rule 2):
//   amax = max |x|; scale = amax / 127; q = round to nearest even (x * (127 / amax)), in [-127,
//   127]
// with f32 scales: rounding them to f16, as ggml does, only adds error. A row's bytes depend on
// that row alone (rule 1).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/aligned.h"
#include "kernels/range.h"

namespace pagewise::kernels {

inline constexpr std::size_t kQuantBlock = 32;

/// Thread: different rows may be written by different threads; reading needs a barrier in between.
/// Memory: all of it in the constructor.
class Activations {
 public:
  Activations() = default;
  /// Room for `rows` rows of `columns` values. Rows are padded to whole blocks of 32 with zeros.
  Activations(std::size_t rows, std::size_t columns);

  std::size_t rows() const { return rows_; }
  std::size_t columns() const { return columns_; }
  std::size_t blocks() const { return blocks_; }  // per row

  /// [columns] f32, 64-byte aligned. Write here, then quantize().
  float* row(std::size_t r) { return values_.data() + r * stride_; }
  const float* row(std::size_t r) const { return values_.data() + r * stride_; }

  /// Fills the int8 form of row `r` from its f32 form. Requires finite values; others give
  /// unspecified but harmless numbers. Needed before linear() with integer-family weights, not with
  /// f32 ones.
  void quantize(std::size_t r);

  // The int8 form, for kernels: quants [blocks * 32], and per block its scale, scale * sum of
  // quants (for weights with a minimum) and -128 * sum of quants (for weights stored with an offset
  // of 128).
  const int8_t* quants(std::size_t r) const { return quants_.data() + r * blocks_ * kQuantBlock; }
  const float* scales(std::size_t r) const { return scales_.data() + r * blocks_; }
  const float* scaled_sums(std::size_t r) const { return scaled_sums_.data() + r * blocks_; }
  const int32_t* offset_sums(std::size_t r) const { return offset_sums_.data() + r * blocks_; }

 private:
  std::size_t rows_ = 0;
  std::size_t columns_ = 0;
  std::size_t blocks_ = 0;
  std::size_t stride_ = 0;  // floats between rows: a multiple of 32, so of a cache line
  AlignedArray<float> values_;
  AlignedArray<int8_t> quants_;
  AlignedArray<float> scales_;
  AlignedArray<float> scaled_sums_;
  AlignedArray<int32_t> offset_sums_;
};

}  // namespace pagewise::kernels
