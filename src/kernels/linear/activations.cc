// SPDX-License-Identifier: Apache-2.0
#include "kernels/linear/activations.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear/activations.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
//
#include <hwy/highway.h>

#include <cstring>

#include "base/check.h"
#include "kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagewise::kernels {
namespace HWY_NAMESPACE {

// Fills what a group holds of the sums of row `lane`, whose quants and scale it has.
HWY_INLINE void sum_row(const int8_t* quants, std::size_t lane, QuantGroup& group) {
  int32_t sums[2];
  for (std::size_t half = 0; half < 2; ++half) {
    int16_t pairs[2];
#if HWY_TARGET == HWY_SCALAR
    pairs[0] = pairs[1] = 0;
    for (std::size_t i = 0; i < kQuantBlock / 2; ++i)
      pairs[i % 4 / 2] = static_cast<int16_t>(pairs[i % 4 / 2] + quants[16 * half + i]);
#else
    const hn::FixedTag<int16_t, 8> d16;
    const hn::Repartition<int32_t, decltype(d16)> d32;
    const auto two = hn::Load(d16, reinterpret_cast<const int16_t*>(quants + 16 * half));
    auto sum = hn::Add(hn::ShiftRight<8>(hn::ShiftLeft<8>(two)), hn::ShiftRight<8>(two));
    sum = hn::Add(sum, hn::BitCast(d16, hn::Shuffle1032(hn::BitCast(d32, sum))));
    sum = hn::Add(sum, hn::BitCast(d16, hn::Shuffle2301(hn::BitCast(d32, sum))));
    const int32_t both = hn::GetLane(hn::BitCast(d32, sum));
    std::memcpy(pairs, &both, sizeof(both));
#endif
    sums[half] = pairs[0] + pairs[1];
    for (std::size_t i = 0; i < 2; ++i)
      group.pair_offsets[half][lane][i] = static_cast<int16_t>(-16 * pairs[i]);
  }
  group.scaled_sums[lane] = group.scales[lane] * static_cast<float>(sums[0] + sums[1]);
  group.offset_sums[lane] = -128 * (sums[0] + sums[1]);
  group.half_offset_sums[lane] = -128 * sums[0];
}

// x: [blocks * 32], zero-padded. Writes row `lane` of each group, and where `rest` is not null what
// the quantised form leaves over of each value.
void quantize_row(const float* x, std::size_t blocks, QuantGroup* groups, std::size_t lane,
                  float* rest) {
  const DF df;
  constexpr std::size_t kVectorsPerBlock = kQuantBlock / kLanes;
  for (std::size_t b = 0; b < blocks; ++b, x += kQuantBlock) {
    QuantGroup& group = groups[b];
    F32 values[kVectorsPerBlock];
    F32 maximum = hn::Zero(df);
    for (std::size_t v = 0; v < kVectorsPerBlock; ++v) {
      values[v] = hn::Load(df, x + v * kLanes);
      maximum = hn::Max(hn::Abs(values[v]), maximum);
    }
    const float amax = hn::GetLane(hn::MaxOfLanes(df, maximum));
    const bool zero = !(amax >= 1e-30f);
    const F32 inverse = hn::Set(df, zero ? 0.0f : 127.0f / amax);
    const float scale = zero ? 0.0f : amax / 127.0f;
    alignas(64) int8_t quants[kQuantBlock];
    for (std::size_t v = 0; v < kVectorsPerBlock; ++v) {
      // The clamp only matters for values that are not finite: integers out of range would be
      // undefined.
      const F32 scaled =
          hn::Min(hn::Max(hn::Mul(values[v], inverse), hn::Set(df, -127.0f)), hn::Set(df, 127.0f));
      const I32 rounded = hn::NearestInt(scaled);
      hn::StoreU(hn::DemoteTo(hn::Rebind<int8_t, DI>(), rounded), hn::Rebind<int8_t, DI>(),
                 quants + v * kLanes);
      if (rest == nullptr) continue;
      const F32 kept = hn::Mul(hn::ConvertTo(df, rounded), hn::Set(df, scale));
      hn::Store(hn::Sub(values[v], kept), df, rest + b * kQuantBlock + v * kLanes);
    }
    for (std::size_t k = 0; k < kQuantBlock / 4; ++k)
      std::memcpy(group.quants[k][lane], quants + 4 * k, 4);
    group.scales[lane] = scale;
    sum_row(quants, lane, group);
  }
}

#if HWY_TARGET == HWY_SCALAR
void quantize_group(const float* x, std::size_t stride, std::size_t blocks, QuantGroup* groups,
                    float* rest) {
  for (std::size_t row = 0; row < kQuantRows; ++row) {
    float* const rest_row = rest == nullptr ? nullptr : rest + row * stride;
    quantize_row(x + row * stride, blocks, groups, row, rest_row);
  }
}
#else

// One lane a row of a group.
using DRows = hn::FixedTag<float, kQuantRows>;
using DRowsU = hn::RebindToUnsigned<DRows>;
using DRowsI = hn::RebindToSigned<DRows>;
using DPairs = hn::Repartition<int16_t, DRows>;  // two lanes a row
using FRows = hn::Vec<DRows>;
using URows = hn::Vec<DRowsU>;
using DBytes = hn::FixedTag<uint8_t, 16>;
using Bytes = hn::Vec<DBytes>;
using Pairs = hn::Vec<DPairs>;

// The larger of a vector's upper and lower half, until four lanes are left.
template <typename D>
HWY_INLINE FRows halved_max(D d, hn::Vec<D> values) {
  if constexpr (hn::MaxLanes(D()) > kQuantRows) {
    const hn::Half<D> half;
    return halved_max(half, hn::Max(hn::UpperHalf(half, values), hn::LowerHalf(half, values)));
  } else {
    return values;
  }
}

// Lane r: the largest lane of lanes[r].
HWY_INLINE FRows largest_of_each(const FRows (&lanes)[kQuantRows]) {
  const DRows d;
  const FRows low = hn::Max(hn::InterleaveLower(d, lanes[0], lanes[1]),
                            hn::InterleaveUpper(d, lanes[0], lanes[1]));
  const FRows high = hn::Max(hn::InterleaveLower(d, lanes[2], lanes[3]),
                             hn::InterleaveUpper(d, lanes[2], lanes[3]));
  return hn::Max(hn::ConcatLowerLower(d, high, low), hn::ConcatUpperUpper(d, high, low));
}

// 16 numbers of [-127, 127], in N vectors, as bytes.
template <std::size_t N>
HWY_INLINE Bytes to_bytes(const I32 (&numbers)[N]) {
  const hn::Rebind<int8_t, DI> d8;
  if constexpr (N == 1) {
    return hn::BitCast(DBytes(), hn::DemoteTo(d8, numbers[0]));
  } else if constexpr (N == 2) {
    const hn::FixedTag<int8_t, 16> both;
    return hn::BitCast(
        DBytes(), hn::Combine(both, hn::DemoteTo(d8, numbers[1]), hn::DemoteTo(d8, numbers[0])));
  } else {
    alignas(16) int8_t bytes[16];
    for (std::size_t v = 0; v < N; ++v)
      hn::StoreU(hn::DemoteTo(d8, numbers[v]), d8, bytes + v * kLanes);
    return hn::Load(DBytes(), reinterpret_cast<const uint8_t*>(bytes));
  }
}

// Words 0..3 of four rows' bytes to out[0..3]: [word][row]. Returns, of each row, the sums of the
// words' first and of their last two bytes.
HWY_INLINE Pairs store_words(const Bytes (&rows)[kQuantRows], int8_t (*out)[kQuantRows][4]) {
  const DRowsU d;
  const DPairs d16;
  const URows row0 = hn::BitCast(d, rows[0]), row1 = hn::BitCast(d, rows[1]);
  const URows row2 = hn::BitCast(d, rows[2]), row3 = hn::BitCast(d, rows[3]);
  const URows low01 = hn::InterleaveLower(d, row0, row1);  // words 0 and 1 of rows 0 and 1
  const URows high01 = hn::InterleaveUpper(d, row0, row1);
  const URows low23 = hn::InterleaveLower(d, row2, row3);
  const URows high23 = hn::InterleaveUpper(d, row2, row3);
  Pairs sums = hn::Zero(d16);
  const auto store = [&](URows words, std::size_t k) {
    hn::Store(words, d, reinterpret_cast<uint32_t*>(out[k]));
    const Pairs two = hn::BitCast(d16, words);
    sums = hn::Add(sums, hn::Add(hn::ShiftRight<8>(hn::ShiftLeft<8>(two)), hn::ShiftRight<8>(two)));
  };
  store(hn::ConcatLowerLower(d, low23, low01), 0);
  store(hn::ConcatUpperUpper(d, low23, low01), 1);
  store(hn::ConcatLowerLower(d, high23, high01), 2);
  store(hn::ConcatUpperUpper(d, high23, high01), 3);
  return sums;
}

// Writes what is kept of the sums of a half, and returns each row's.
HWY_INLINE hn::Vec<DRowsI> keep_sums(Pairs sums, int16_t (*offsets)[2]) {
  const DPairs d16;
  hn::Store(hn::Sub(hn::Zero(d16), hn::ShiftLeft<4>(sums)), d16, offsets[0]);
  const auto both = hn::BitCast(DRowsI(), sums);
  return hn::Add(hn::ShiftRight<16>(hn::ShiftLeft<16>(both)), hn::ShiftRight<16>(both));
}

// The scales of a block of four rows, `stride` floats apart; `inverses` becomes 127 / amax, or 0.
HWY_INLINE void scale_block(const float* x, std::size_t stride, QuantGroup& group,
                            float* inverses) {
  const DF df;
  const DRows d;
  FRows maxima[kQuantRows];
  for (std::size_t r = 0; r < kQuantRows; ++r) {
    F32 maximum = hn::Zero(df);
    for (std::size_t i = 0; i < kQuantBlock; i += kLanes)
      maximum = hn::Max(hn::Abs(hn::Load(df, x + r * stride + i)), maximum);
    maxima[r] = halved_max(df, maximum);
  }
  const FRows amax = largest_of_each(maxima);
  const auto nonzero = hn::Ge(amax, hn::Set(d, 1e-30f));
  const FRows most = hn::Set(d, 127.0f);
  hn::Store(hn::IfThenElseZero(nonzero, hn::Div(most, amax)), d, inverses);
  hn::Store(hn::IfThenElseZero(nonzero, hn::Div(amax, most)), d, group.scales);
}

// What hangs on the scales; `rest`, unless it is null, is written like `x` is read.
HWY_INLINE void round_block(const float* x, std::size_t stride, const float* inverses,
                            QuantGroup& group, float* rest) {
  const DF df;
  const DRows d;
  const DRowsI di;
  const F32 least = hn::Set(df, -127.0f);
  const F32 most = hn::Set(df, 127.0f);
  Bytes quants[2][kQuantRows];  // of both halves
  for (std::size_t r = 0; r < kQuantRows; ++r) {
    const F32 inverse = hn::Set(df, inverses[r]);
    for (std::size_t half = 0; half < 2; ++half) {
      I32 rounded[kVectors];
      for (std::size_t v = 0; v < kVectors; ++v) {
        const std::size_t at = r * stride + half * 16 + v * kLanes;
        const F32 value = hn::Load(df, x + at);
        rounded[v] = hn::NearestInt(hn::Min(hn::Max(hn::Mul(value, inverse), least), most));
        if (rest == nullptr) continue;
        const F32 kept = hn::Mul(hn::ConvertTo(df, rounded[v]), hn::Set(df, group.scales[r]));
        hn::Store(hn::Sub(value, kept), df, rest + at);
      }
      quants[half][r] = to_bytes(rounded);
    }
  }
  const auto first = keep_sums(store_words(quants[0], group.quants), group.pair_offsets[0]);
  const auto second = keep_sums(store_words(quants[1], group.quants + 4), group.pair_offsets[1]);
  const auto all = hn::Add(first, second);
  hn::Store(hn::Mul(hn::Load(d, group.scales), hn::ConvertTo(d, all)), d, group.scaled_sums);
  const auto zero = hn::Zero(di);
  hn::Store(hn::Sub(zero, hn::ShiftLeft<7>(all)), di, group.offset_sums);
  hn::Store(hn::Sub(zero, hn::ShiftLeft<7>(first)), di, group.half_offset_sums);
}

// quantize_row() of a whole group's rows: the same operations on the same values, with rows side by
// side where one alone goes through a chain of single numbers. Scales come first, some blocks at a
// time, because two divisions in front of each block's rounding are what everything waits for.
// `x` and `rest` are the first row's, the others `stride` floats behind.
void quantize_group(const float* x, std::size_t stride, std::size_t blocks, QuantGroup* groups,
                    float* rest) {
  constexpr std::size_t kBlocks = 16;
  alignas(16) float inverses[kBlocks * kQuantRows];
  for (std::size_t begin = 0; begin < blocks; begin += kBlocks) {
    const std::size_t end = HWY_MIN(begin + kBlocks, blocks);
    for (std::size_t b = begin; b < end; ++b)
      scale_block(x + b * kQuantBlock, stride, groups[b], inverses + (b - begin) * kQuantRows);
    for (std::size_t b = begin; b < end; ++b) {
      round_block(x + b * kQuantBlock, stride, inverses + (b - begin) * kQuantRows, groups[b],
                  rest == nullptr ? nullptr : rest + b * kQuantBlock);
    }
  }
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace pagewise::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagewise::kernels {

HWY_EXPORT(quantize_row);
HWY_EXPORT(quantize_group);

Activations::Activations(std::size_t rows, std::size_t columns)
    : rows_(rows),
      columns_(columns),
      blocks_((columns + kQuantBlock - 1) / kQuantBlock),
      stride_(blocks_ * kQuantBlock),
      values_(rows * stride_),
      groups_((rows + kQuantRows - 1) / kQuantRows * blocks_) {}

void Activations::quantize(std::size_t r, Activations* rest) {
  PW_CHECK(r < rows_ && (rest == nullptr || (r < rest->rows_ && columns_ == rest->columns_)));
  HWY_DYNAMIC_DISPATCH(quantize_row)
  (row(r), blocks_, group(r / kQuantRows), r % kQuantRows,
   rest == nullptr ? nullptr : rest->row(r));
  if (rest != nullptr) rest->quantize(r);
}

void Activations::quantize(Range rows, Activations* rest) {
  PW_CHECK(rows.end <= rows_);
  PW_CHECK(rest == nullptr || (rows.end <= rest->rows_ && columns_ == rest->columns_));
  std::size_t r = rows.begin;
  while (r < rows.end) {
    if (r % kQuantRows != 0 || rows.end - r < kQuantRows) {
      quantize(r, rest);
      ++r;
      continue;
    }
    HWY_DYNAMIC_DISPATCH(quantize_group)
    (row(r), stride_, blocks_, group(r / kQuantRows), rest == nullptr ? nullptr : rest->row(r));
    if (rest != nullptr) rest->quantize(Range{r, r + kQuantRows});
    r += kQuantRows;
  }
}

}  // namespace pagewise::kernels
#endif  // HWY_ONCE
