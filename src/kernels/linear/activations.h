// SPDX-License-Identifier: Apache-2.0
// Rows of activations as the linear layers read them: f32, and int8 quantised once per norm and
// used by every weight that reads them (Q, K and V; gate and up).
//
// Quantisation, per row and block of 32 consecutive values (contract rule 2):
//   amax = max |x|; scale = amax / 127; q = x * (127 / amax) rounded to nearest even
// with f32 scales: rounding them to f16, as ggml does, only adds error. A block whose amax is below
// 1e-30 is all zeros (127 / amax would overflow). A row's bytes depend on that row alone (rule 1).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/aligned.h"
#include "kernels/range.h"

namespace pagewise::kernels {

inline constexpr std::size_t kQuantBlock = 32;
inline constexpr std::size_t kQuantRows = 4;

/// One block of 32 values of four rows, as kernels walk it: every field at a constant offset from
/// one pointer, because a tile of 12 rows with a pointer per row and array would not fit the
/// registers.
struct QuantGroup {
  int8_t quants[kQuantBlock / 4][kQuantRows][4];  // [k / 4][row][k % 4]
  float scales[kQuantRows];
  float scaled_sums[kQuantRows];  // scale * sum of quants: for weights with a minimum
  int32_t
      offset_sums[kQuantRows];  // -128 * sum of quants: for weights stored with an offset of 128
  int32_t half_offset_sums[kQuantRows];  // the same of the first 16 values
  // Of each half, -16 * the sum of quants k with k % 4 < 2, and of the others: for the 16-bit lanes
  // in which products of two and two are added up.
  int16_t pair_offsets[2][kQuantRows][2];
};
static_assert(sizeof(QuantGroup) == 224);

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
  /// `rest`, of the same number of columns, may be given: its row `r` becomes what the int8 form
  /// leaves over of this one, quantised in its turn.
  void quantize(std::size_t r, Activations* rest = nullptr);
  /// The same of each of `rows`, and the same bytes. Whole groups of four rows take a third of the
  /// time.
  void quantize(Range rows, Activations* rest = nullptr);

  /// The int8 form of rows [4 g, 4 g + 4): [blocks].
  QuantGroup* group(std::size_t g) { return groups_.data() + g * blocks_; }
  const QuantGroup* group(std::size_t g) const { return groups_.data() + g * blocks_; }

 private:
  std::size_t rows_ = 0;
  std::size_t columns_ = 0;
  std::size_t blocks_ = 0;
  std::size_t stride_ = 0;  // floats between rows: a multiple of 32, so of a cache line
  AlignedArray<float> values_;
  AlignedArray<QuantGroup> groups_;
};

}  // namespace pagewise::kernels
