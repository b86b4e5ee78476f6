// SPDX-License-Identifier: Apache-2.0
// The integer family: tiles of R activation rows x 16 outputs. One row (decode) and twelve
// (prefill) run the same sequence per output, so the tile's shape cannot be seen in the result
// (contract rules 1 and 2).
#include <hwy/base.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear/linear_integer.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
//
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstring>

#include "kernels/int_dot.h"
#include "kernels/linear/linear_internal.h"
#include "kernels/math-inl.h"

PAGEWISE_BEFORE_NAMESPACE();
namespace pagewise::kernels {
namespace HWY_NAMESPACE {

// Rows of the largest tiles. 32 registers hold 12 integer and 12 float sums, two weight vectors and
// what the end of a block needs; 16 registers hold 4 and 4.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
inline constexpr std::size_t kRowsMax = 12;
#else
inline constexpr std::size_t kRowsMax = 4;
#endif

// Where a tile of R rows finds row i: groups of four, or some rows of one group from `lane` on.
struct RowTile {
  const QuantGroup* groups[3];
  std::size_t lane;  // 0 unless R < 4
};

template <std::size_t R>
HWY_INLINE I32 quants_of(const RowTile& rows, std::size_t b, std::size_t k4, std::size_t r) {
  int32_t word;
  std::memcpy(&word, rows.groups[r / kQuantRows][b].quants[k4][rows.lane + r % kQuantRows],
              sizeof(word));
  return hn::Set(DI(), word);
}

HWY_INLINE F32 load_halves(const uint8_t* p) {
  return LoadF16::load(reinterpret_cast<const uint16_t*>(p));
}

// Panels are streamed: the hardware's prefetchers alone stop at page boundaries and fall behind
// short bursts of arithmetic. 2 KiB ahead is about the latency of memory at full bandwidth (100 ns
// x 20 GB/s).
HWY_INLINE void prefetch_ahead(const uint8_t* p, std::size_t bytes) {
  constexpr std::size_t kAhead = 2048;
  for (std::size_t i = 0; i < bytes; i += 64) hwy::Prefetch(p + kAhead + i);
}

// Q4_1. A panel block: 16 f16 scales, 16 f16 minima, 4 chunks of 16 outputs x 4 bytes: the low
// nibbles of chunk j are values 4j..4j+3, the high ones 16 + 4j..: five cache lines. w = d q + m,
// so sum w x = scale_x d (sum q xq) + m (scale_x sum xq).
template <std::size_t R, std::size_t V>
HWY_INLINE void tile_q4_1(const uint8_t* panel, std::size_t first_vector, const RowTile& rows,
                          std::size_t blocks, float (*out)[kPanelOutputs]) {
  const DF df;
  const DI di;
  const DU du;
  const I32 nibbles = hn::Set(di, 0x0f0f0f0f);
  F32 acc[R][V];
  for (std::size_t r = 0; r < R; ++r) {
    for (std::size_t v = 0; v < V; ++v) acc[r][v] = hn::Zero(df);
  }
  for (std::size_t b = 0; b < blocks; ++b, panel += kQ4BlockBytes) {
    prefetch_ahead(panel, kQ4BlockBytes);
    I32 sums[R][V];
    for (std::size_t r = 0; r < R; ++r) {
      for (std::size_t v = 0; v < V; ++v) sums[r][v] = hn::Zero(di);
    }
#if PAGEWISE_DOT4
    I32 more[V];
    for (std::size_t v = 0; v < V; ++v) more[v] = hn::Zero(di);
#endif
    for (std::size_t j = 0; j < 4; ++j) {
      for (std::size_t v = 0; v < V; ++v) {
        const uint8_t* at = panel + 64 + 64 * j + (first_vector + v) * kLanes * 4;
        const I32 packed = hn::Load(di, reinterpret_cast<const int32_t*>(at));
        const I32 low = hn::And(packed, nibbles);
        const I32 high =
            hn::And(hn::BitCast(di, hn::ShiftRight<4>(hn::BitCast(du, packed))), nibbles);
        for (std::size_t r = 0; r < R; ++r) {
          const I32 x_low = quants_of<R>(rows, b, j, r);
          const I32 x_high = quants_of<R>(rows, b, j + 4, r);
#if PAGEWISE_DOT4
          sums[r][v] = dot4(sums[r][v], low, x_low);
          if constexpr (R == 1) {
            more[v] =
                dot4(more[v], high, x_high);  // a second chain hides the latency of a lone row
          } else {
            sums[r][v] = dot4(sums[r][v], high, x_high);
          }
#else
          // At most 8 x 2 x 15 x 127 = 30,480: the whole block fits 16 bits.
          sums[r][v] = add16(sums[r][v], pairs(low, x_low));
          sums[r][v] = add16(sums[r][v], pairs(high, x_high));
#endif
        }
      }
    }
    for (std::size_t v = 0; v < V; ++v) {
      const std::size_t lane = (first_vector + v) * kLanes;
      const F32 d = load_halves(panel + 2 * lane);
      const F32 m = load_halves(panel + 32 + 2 * lane);
      for (std::size_t r = 0; r < R; ++r) {
        const QuantGroup& group = rows.groups[r / kQuantRows][b];
        const std::size_t row = rows.lane + r % kQuantRows;
#if PAGEWISE_DOT4
        const I32 sum = R == 1 ? hn::Add(sums[r][v], more[v]) : sums[r][v];
#else
        const I32 sum = fold16(sums[r][v]);
#endif
        const F32 scale = hn::Mul(d, hn::Set(df, group.scales[row]));
        acc[r][v] = hn::MulAdd(hn::ConvertTo(df, sum), scale, acc[r][v]);
        acc[r][v] = hn::MulAdd(m, hn::Set(df, group.scaled_sums[row]), acc[r][v]);
      }
    }
  }
  for (std::size_t r = 0; r < R; ++r) {
    for (std::size_t v = 0; v < V; ++v)
      hn::Store(acc[r][v], df, out[r] + (first_vector + v) * kLanes);
  }
}

// Q8_0. Per block 8 chunks of 16 outputs x 4 bytes, chunk j being values 4j..4j+3, each stored as
// quant + 128. With dot4 the weights are the unsigned side and the block's sum starts at -128 * sum
// of the activations; without, |w| and the sign trick keep 16 bits from saturating (2 x 128 x 127 =
// 32,512).
template <std::size_t R, std::size_t V>
HWY_INLINE void tile_q8_0(const uint8_t* panel, std::size_t first_vector, const RowTile& rows,
                          std::size_t blocks, float (*out)[kPanelOutputs]) {
  const DF df;
  const DI di;
  F32 acc[R][V];
  for (std::size_t r = 0; r < R; ++r) {
    for (std::size_t v = 0; v < V; ++v) acc[r][v] = hn::Zero(df);
  }
  for (std::size_t b = 0; b < blocks; ++b) {
    const uint8_t* pair = panel + b / 2 * kQ8PairBytes;
    const uint8_t* scales = pair + b % 2 * 2 * kPanelOutputs;
    const uint8_t* quants = pair + 64 + b % 2 * kQ8BlockBytes;
    prefetch_ahead(quants, kQ8BlockBytes);
    I32 sums[R][V];
    for (std::size_t r = 0; r < R; ++r) {
#if PAGEWISE_DOT4
      const I32 start =
          hn::Set(di, rows.groups[r / kQuantRows][b].offset_sums[rows.lane + r % kQuantRows]);
#else
      const I32 start = hn::Zero(di);
#endif
      for (std::size_t v = 0; v < V; ++v) sums[r][v] = start;
    }
#if PAGEWISE_DOT4
    I32 more[V];
    for (std::size_t v = 0; v < V; ++v) more[v] = hn::Zero(di);
#endif
    for (std::size_t j = 0; j < 8; ++j) {
      for (std::size_t v = 0; v < V; ++v) {
        const uint8_t* at = quants + 64 * j + (first_vector + v) * kLanes * 4;
        const I32 stored = hn::Load(di, reinterpret_cast<const int32_t*>(at));
#if PAGEWISE_DOT4
        for (std::size_t r = 0; r < R; ++r) {
          const I32 x = quants_of<R>(rows, b, j, r);
          if (R == 1 && j % 2 == 1) {
            more[v] = dot4(more[v], stored, x);
          } else {
            sums[r][v] = dot4(sums[r][v], stored, x);
          }
        }
#else
        const I32 w = hn::Xor(stored, hn::Set(di, static_cast<int32_t>(0x80808080u)));
        const I32 magnitude = abs8(w);
        for (std::size_t r = 0; r < R; ++r) {
          const I32 x = sign8(quants_of<R>(rows, b, j, r), w);
          sums[r][v] = hn::Add(sums[r][v], fold16(pairs(magnitude, x)));
        }
#endif
      }
    }
    for (std::size_t v = 0; v < V; ++v) {
      const F32 d = load_halves(scales + 2 * (first_vector + v) * kLanes);
      for (std::size_t r = 0; r < R; ++r) {
        const QuantGroup& group = rows.groups[r / kQuantRows][b];
#if PAGEWISE_DOT4
        const I32 sum = R == 1 ? hn::Add(sums[r][v], more[v]) : sums[r][v];
#else
        const I32 sum = sums[r][v];
#endif
        const F32 scale = hn::Mul(d, hn::Set(df, group.scales[rows.lane + r % kQuantRows]));
        acc[r][v] = hn::MulAdd(hn::ConvertTo(df, sum), scale, acc[r][v]);
      }
    }
  }
  for (std::size_t r = 0; r < R; ++r) {
    for (std::size_t v = 0; v < V; ++v)
      hn::Store(acc[r][v], df, out[r] + (first_vector + v) * kLanes);
  }
}

// One tile, all 16 outputs of a panel. Few rows take all vectors of a cache line at once, because
// then the panel comes from memory; many rows take one vector at a time, because then registers are
// short and the panel is in L1.
template <std::size_t R, bool kQ4>
HWY_NOINLINE void panel_tile(const uint8_t* panel, const RowTile& rows, std::size_t blocks,
                             float* out, std::size_t out_stride, std::size_t outputs) {
  constexpr std::size_t V = R <= 2 ? HWY_MIN(kVectors, 2) : 1;
  alignas(64) float tile[R][kPanelOutputs];
  for (std::size_t v = 0; v < kVectors; v += V) {
    if constexpr (kQ4) {
      tile_q4_1<R, V>(panel, v, rows, blocks, tile);
    } else {
      tile_q8_0<R, V>(panel, v, rows, blocks, tile);
    }
  }
  for (std::size_t r = 0; r < R; ++r)
    std::memcpy(out + r * out_stride, tile[r], outputs * sizeof(float));
}

template <bool kQ4>
void rows_of_panel(const uint8_t* panel, const Activations& x, Range rows, float* out,
                   std::size_t out_stride, std::size_t outputs) {
  const std::size_t blocks = x.blocks();
  for (std::size_t r = rows.begin; r < rows.end;) {
    RowTile tile{};
    tile.lane = r % kQuantRows;
    const std::size_t left = rows.end - r;
    // Whole groups go together, in tiles as even as they can be; a partial group is a small tile.
    std::size_t count = HWY_MIN(left, kQuantRows - tile.lane);
    if (tile.lane == 0 && left >= kQuantRows && kRowsMax > kQuantRows) {
      count = left >= 12 && left / 4 != 4 ? 12 : (left >= 8 ? 8 : 4);
    }
    const std::size_t groups = (count + kQuantRows - 1) / kQuantRows;
    for (std::size_t g = 0; g < groups; ++g) tile.groups[g] = x.group(r / kQuantRows + g);
    float* to = out + (r - rows.begin) * out_stride;
    switch (count) {
      case 1:
        panel_tile<1, kQ4>(panel, tile, blocks, to, out_stride, outputs);
        break;
      case 2:
        panel_tile<2, kQ4>(panel, tile, blocks, to, out_stride, outputs);
        break;
      case 3:
        panel_tile<3, kQ4>(panel, tile, blocks, to, out_stride, outputs);
        break;
      case 4:
        panel_tile<4, kQ4>(panel, tile, blocks, to, out_stride, outputs);
        break;
      default:
        if constexpr (kRowsMax > kQuantRows) {
          if (count == 8) {
            panel_tile<8, kQ4>(panel, tile, blocks, to, out_stride, outputs);
          } else {
            panel_tile<12, kQ4>(panel, tile, blocks, to, out_stride, outputs);
          }
        }
        break;
    }
    r += count;
  }
}

void linear_integer(const LinearWeights& weights, const Activations& x, Range rows, Range panels,
                    float* out, std::size_t out_stride) {
  // A block of rows stays in L2 (192 KiB of groups) while the panels pass; a panel stays in L1
  // while the block's tiles pass. Multiples of 12 and 4, so that only a range's end has odd tiles.
  const std::size_t group_bytes = x.blocks() * sizeof(QuantGroup);
  const std::size_t row_block = HWY_MAX(192 * 1024 / (3 * group_bytes), 1) * 12;
  const bool q4 = weights.type() == TensorType::kQ4_1;
  for (std::size_t begin = rows.begin; begin < rows.end;) {
    // The first block is shortened to end on a multiple of four rows.
    const std::size_t end = HWY_MIN(begin + row_block - begin % kQuantRows, rows.end);
    float* to = out + (begin - rows.begin) * out_stride;
    for (std::size_t p = panels.begin; p < panels.end; ++p) {
      const std::size_t outputs = HWY_MIN(kPanelOutputs, weights.outputs() - p * kPanelOutputs);
      if (q4) {
        rows_of_panel<true>(weights.panel(p), x, {begin, end}, to + p * kPanelOutputs, out_stride,
                            outputs);
      } else {
        rows_of_panel<false>(weights.panel(p), x, {begin, end}, to + p * kPanelOutputs, out_stride,
                             outputs);
      }
    }
    begin = end;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pagewise::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagewise::kernels {

HWY_EXPORT(linear_integer);

void run_linear_integer(const LinearWeights& weights, const Activations& x, Range rows,
                        Range panels, float* out, std::size_t out_stride) {
  HWY_DYNAMIC_DISPATCH(linear_integer)(weights, x, rows, panels, out, out_stride);
}

}  // namespace pagewise::kernels
#endif  // HWY_ONCE
