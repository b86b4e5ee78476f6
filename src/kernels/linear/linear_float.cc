// SPDX-License-Identifier: Apache-2.0
// Weights of plain floats (F32, F16, BF16) in panels of 16 outputs: widened in registers, one FMA
// chain per output in ascending k. A few rows read several panels at once, so that there are chains
// enough to keep up with memory; many rows are tiles of rows whose weights are widened once for
// all. What a tile looks like does not enter the result (contract rules 1 and 2).
#include <hwy/base.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear/linear_float.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
//
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstring>

#include "kernels/linear/linear_internal.h"
#include "kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagewise::kernels {
namespace HWY_NAMESPACE {

// Tiles are R rows times P panels: as many panels as the rows at hand leave registers for. 32
// registers of 16 lanes hold 12 x 2 or 4 x 4 sums, the weights and a broadcast; 16 registers of 8
// lanes hold 6 x 1, 2 x 2 or 1 x 4 sums of two vectors.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
inline constexpr std::size_t kTileRows[] = {12, 8, 4, 2, 1};
constexpr std::size_t rows_most(std::size_t panels) { return panels > 2 ? 4 : 12; }
#else
inline constexpr std::size_t kTileRows[] = {6, 4, 2, 1};
constexpr std::size_t rows_most(std::size_t panels) {
  return panels > 2 ? 1 : (panels > 1 ? 2 : 6);
}
#endif
// Columns after which a tile of many rows gives way to the next one: two panels of F32 are 64 KiB
// then, and 12 rows of activations 24 KiB, so the panels stay in L2 while all tiles pass.
inline constexpr std::size_t kColumnsAtOnce = 512;
// Rows whose sums wait meanwhile.
inline constexpr std::size_t kRowsAtOnce = 48;

// acc[r][p] += panel p * row r for columns [begin, end). `ahead`: bytes from what is read to what
// is asked for.
template <std::size_t R, std::size_t P, typename Load>
HWY_INLINE void add_columns(const uint8_t* panel, std::size_t panel_bytes, std::size_t begin,
                            std::size_t end, std::size_t ahead, const float* x,
                            std::size_t x_stride, F32 (&acc)[R][P][kVectors]) {
  using Element = typename Load::Element;
  for (std::size_t k = begin; k < end; ++k) {
    F32 w[P][kVectors];
    for (std::size_t p = 0; p < P; ++p) {
      const uint8_t* from = panel + p * panel_bytes + k * kPanelOutputs * sizeof(Element);
      hwy::Prefetch(from + ahead);
      for (std::size_t v = 0; v < kVectors; ++v)
        w[p][v] = Load::load(reinterpret_cast<const Element*>(from) + v * kLanes);
    }
    for (std::size_t r = 0; r < R; ++r) {
      const F32 value = hn::Set(DF(), x[r * x_stride + k]);
      for (std::size_t p = 0; p < P; ++p) {
        for (std::size_t v = 0; v < kVectors; ++v)
          acc[r][p][v] = hn::MulAdd(w[p][v], value, acc[r][p][v]);
      }
    }
  }
}

// Where a tile finds its weights: some columns of P panels, and what is read after them.
struct FloatPanels {
  const uint8_t* first;
  std::size_t panel_bytes;  // from one panel to the next
  std::size_t columns;
  bool last_columns;  // the next panels come afterwards; else the next columns of the same ones
};

// sums[r][p] += panel p * row r; `sums` is [R][P][16].
template <std::size_t R, std::size_t P, typename Load>
HWY_NOINLINE void float_tile(const FloatPanels& panels, const float* x, std::size_t x_stride,
                             float* sums) {
  const DF df;
  F32 acc[R][P][kVectors];
  for (std::size_t r = 0; r < R; ++r) {
    for (std::size_t p = 0; p < P; ++p) {
      for (std::size_t v = 0; v < kVectors; ++v)
        acc[r][p][v] = hn::Load(df, sums + (r * P + p) * kPanelOutputs + v * kLanes);
    }
  }
  // 2 KiB ahead in each panel is about the latency of memory at full bandwidth. A panel is over in
  // a few microseconds, so its last part asks for what comes behind these P panels.
  constexpr std::size_t kAhead = 2048;
  constexpr std::size_t kAheadColumns = kAhead / (kPanelOutputs * sizeof(typename Load::Element));
  const std::size_t columns = panels.columns;
  const std::size_t last = columns > kAheadColumns ? columns - kAheadColumns : 0;
  const std::size_t behind = panels.last_columns ? (P - 1) * panels.panel_bytes : 0;
  add_columns<R, P, Load>(panels.first, panels.panel_bytes, 0, last, kAhead, x, x_stride, acc);
  add_columns<R, P, Load>(panels.first, panels.panel_bytes, last, columns, kAhead + behind, x,
                          x_stride, acc);
  for (std::size_t r = 0; r < R; ++r) {
    for (std::size_t p = 0; p < P; ++p) {
      for (std::size_t v = 0; v < kVectors; ++v)
        hn::Store(acc[r][p][v], df, sums + (r * P + p) * kPanelOutputs + v * kLanes);
    }
  }
}

// The largest tile of at most `left` rows; returns its rows.
template <std::size_t P, typename Load, std::size_t kIndex = 0>
HWY_INLINE std::size_t largest_tile(std::size_t left, const FloatPanels& panels, const float* x,
                                    std::size_t x_stride, float* sums) {
  constexpr std::size_t kRows = kTileRows[kIndex];
  if constexpr (kRows <= rows_most(P)) {
    if (left >= kRows) {
      float_tile<kRows, P, Load>(panels, x, x_stride, sums);
      return kRows;
    }
  }
  if constexpr (kRows > 1)
    return largest_tile<P, Load, kIndex + 1>(left, panels, x, x_stride, sums);
  return 0;
}

// One call's view of its arguments.
struct FloatWork {
  const LinearWeights& weights;
  const Activations& x;
  float* out;  // row 0 of the range
  std::size_t out_stride;
};

// Panels [p, p + P) for all rows of the range.
template <std::size_t P, typename Load>
void float_panels(const FloatWork& work, Range rows, std::size_t p) {
  alignas(64) float sums[kRowsAtOnce * P * kPanelOutputs];
  const std::size_t columns = work.weights.columns();
  const auto panel_bytes = static_cast<std::size_t>(work.weights.panel(1) - work.weights.panel(0));
  const std::size_t x_stride =
      work.x.rows() < 2 ? 0 : static_cast<std::size_t>(work.x.row(1) - work.x.row(0));
  for (std::size_t begin = rows.begin; begin < rows.end; begin += kRowsAtOnce) {
    const std::size_t count = HWY_MIN(kRowsAtOnce, rows.end - begin);
    std::memset(sums, 0, count * P * kPanelOutputs * sizeof(float));
    const std::size_t at_once = count <= rows_most(P) ? columns : kColumnsAtOnce;
    for (std::size_t k = 0; k < columns; k += at_once) {
      const FloatPanels part = {
          work.weights.panel(p) + k * kPanelOutputs * sizeof(typename Load::Element), panel_bytes,
          HWY_MIN(at_once, columns - k), k + at_once >= columns};
      for (std::size_t r = 0; r < count;) {
        r += largest_tile<P, Load>(count - r, part, work.x.row(begin + r) + k, x_stride,
                                   sums + r * P * kPanelOutputs);
      }
    }
    const std::size_t outputs =
        HWY_MIN(P * kPanelOutputs, work.weights.outputs() - p * kPanelOutputs);
    for (std::size_t r = 0; r < count; ++r) {
      std::memcpy(work.out + (begin - rows.begin + r) * work.out_stride + p * kPanelOutputs,
                  sums + r * P * kPanelOutputs, outputs * sizeof(float));
    }
  }
}

template <typename Load>
void float_of(const FloatWork& work, Range rows, Range panels) {
  std::size_t p = panels.begin;
  if (rows.size() <= rows_most(4)) {
    for (; p + 4 <= panels.end; p += 4) float_panels<4, Load>(work, rows, p);
  }
  if (rows.size() <= rows_most(2) || rows_most(2) == rows_most(1)) {
    for (; p + 2 <= panels.end; p += 2) float_panels<2, Load>(work, rows, p);
  }
  for (; p < panels.end; ++p) float_panels<1, Load>(work, rows, p);
}

void linear_float(const LinearWeights& weights, const Activations& x, Range rows, Range panels,
                  float* out, std::size_t out_stride) {
  const FloatWork work{weights, x, out, out_stride};
  switch (weights.type()) {
    case TensorType::kF16:
      float_of<LoadF16>(work, rows, panels);
      break;
    case TensorType::kBF16:
      float_of<LoadBF16>(work, rows, panels);
      break;
    default:
      float_of<LoadF32>(work, rows, panels);
      break;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pagewise::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagewise::kernels {

HWY_EXPORT(linear_float);

void run_linear_float(const LinearWeights& weights, const Activations& x, Range rows, Range panels,
                      float* out, std::size_t out_stride) {
  HWY_DYNAMIC_DISPATCH(linear_float)(weights, x, rows, panels, out, out_stride);
}

}  // namespace pagewise::kernels
#endif  // HWY_ONCE
