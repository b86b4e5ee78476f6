// SPDX-License-Identifier: Apache-2.0
// Types without kernels of their own: weights decoded a chunk of columns at a time, transposed so
// that lanes are outputs, and one FMA chain per output in ascending k. The chain pauses in memory
// between chunks, which changes no bit.
#include <hwy/base.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear/linear_decoded.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
//
#include <hwy/highway.h>

#include <cstring>

#include "kernels/linear/linear_internal.h"
#include "kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagewise::kernels {
namespace HWY_NAMESPACE {

// Columns decoded at once: a multiple of every type's block (32, 64, 256), 16 KiB for 16 outputs.
inline constexpr std::size_t kChunk = 256;
// Rows whose sums wait on the stack while a chunk is used: the cost of decoding is spread over
// them.
inline constexpr std::size_t kRowsAtOnce = 64;

// sums[r] += weights[k] * x[r][k] for k in [0, columns), R rows.
template <std::size_t R>
HWY_INLINE void chunk_tile(const float (*weights)[kPanelOutputs], std::size_t columns,
                           const float* const* x, float (*sums)[kPanelOutputs]) {
  const DF df;
  F32 acc[R][kVectors];
  for (std::size_t r = 0; r < R; ++r) {
    for (std::size_t v = 0; v < kVectors; ++v) acc[r][v] = hn::Load(df, sums[r] + v * kLanes);
  }
  for (std::size_t k = 0; k < columns; ++k) {
    F32 w[kVectors];
    for (std::size_t v = 0; v < kVectors; ++v) w[v] = hn::Load(df, weights[k] + v * kLanes);
    for (std::size_t r = 0; r < R; ++r) {
      const F32 value = hn::Set(df, x[r][k]);
      for (std::size_t v = 0; v < kVectors; ++v) acc[r][v] = hn::MulAdd(w[v], value, acc[r][v]);
    }
  }
  for (std::size_t r = 0; r < R; ++r) {
    for (std::size_t v = 0; v < kVectors; ++v) hn::Store(acc[r][v], df, sums[r] + v * kLanes);
  }
}

void linear_decoded(const LinearWeights& weights, const Activations& x, Range rows, Range panels,
                    float* out, std::size_t out_stride) {
  alignas(64) float decoded[kPanelOutputs][kChunk];
  alignas(64) float transposed[kChunk][kPanelOutputs];
  alignas(64) float sums[kRowsAtOnce][kPanelOutputs];
  const ToFloat to_float = weights.decoder();
  for (std::size_t p = panels.begin; p < panels.end; ++p) {
    const std::size_t output = p * kPanelOutputs;
    const std::size_t outputs = HWY_MIN(kPanelOutputs, weights.outputs() - output);
    if (outputs < kPanelOutputs) std::memset(decoded, 0, sizeof(decoded));
    for (std::size_t begin = rows.begin; begin < rows.end; begin += kRowsAtOnce) {
      const std::size_t count = HWY_MIN(kRowsAtOnce, rows.end - begin);
      std::memset(sums, 0, count * sizeof(sums[0]));
      for (std::size_t k = 0; k < weights.columns(); k += kChunk) {
        const std::size_t columns = HWY_MIN(kChunk, weights.columns() - k);
        const std::size_t offset = row_bytes(weights.type(), k);
        for (std::size_t o = 0; o < outputs; ++o) {
          to_float(weights.raw_row(output + o) + offset, decoded[o], static_cast<int64_t>(columns));
        }
        for (std::size_t i = 0; i < columns; ++i) {
          for (std::size_t o = 0; o < kPanelOutputs; ++o) transposed[i][o] = decoded[o][i];
        }
        std::size_t r = 0;
        const float* x_rows[4];
        for (; r + 4 <= count; r += 4) {
          for (std::size_t i = 0; i < 4; ++i) x_rows[i] = x.row(begin + r + i) + k;
          chunk_tile<4>(transposed, columns, x_rows, sums + r);
        }
        for (; r < count; ++r) {
          x_rows[0] = x.row(begin + r) + k;
          chunk_tile<1>(transposed, columns, x_rows, sums + r);
        }
      }
      for (std::size_t r = 0; r < count; ++r) {
        std::memcpy(out + (begin - rows.begin + r) * out_stride + output, sums[r],
                    outputs * sizeof(float));
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pagewise::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagewise::kernels {

HWY_EXPORT(linear_decoded);

void run_linear_decoded(const LinearWeights& weights, const Activations& x, Range rows,
                        Range panels, float* out, std::size_t out_stride) {
  HWY_DYNAMIC_DISPATCH(linear_decoded)(weights, x, rows, panels, out, out_stride);
}

}  // namespace pagewise::kernels
#endif  // HWY_ONCE
