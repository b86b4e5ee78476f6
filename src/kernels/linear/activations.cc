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

// x: [blocks * 32], zero-padded. Writes row `lane` of each group.
void quantize_row(const float* x, std::size_t blocks, QuantGroup* groups, std::size_t lane) {
  const DF df;
  const DI di;
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
    alignas(64) int8_t quants[kQuantBlock];
    I32 sums[2] = {hn::Zero(di), hn::Zero(di)};  // of the block's halves
    for (std::size_t v = 0; v < kVectorsPerBlock; ++v) {
      // The clamp only matters for values that are not finite: integers out of range would be
      // undefined.
      const F32 scaled =
          hn::Min(hn::Max(hn::Mul(values[v], inverse), hn::Set(df, -127.0f)), hn::Set(df, 127.0f));
      const I32 rounded = hn::NearestInt(scaled);
      I32& half_sum = sums[v / (kVectorsPerBlock / 2)];
      half_sum = hn::Add(half_sum, rounded);
      hn::StoreU(hn::DemoteTo(hn::Rebind<int8_t, DI>(), rounded), hn::Rebind<int8_t, DI>(),
                 quants + v * kLanes);
    }
    const int32_t first_sum = hn::GetLane(hn::SumOfLanes(di, sums[0]));
    const int32_t sum = first_sum + hn::GetLane(hn::SumOfLanes(di, sums[1]));
    for (std::size_t k = 0; k < kQuantBlock / 4; ++k)
      std::memcpy(group.quants[k][lane], quants + 4 * k, 4);
    const float scale = zero ? 0.0f : amax / 127.0f;
    group.scales[lane] = scale;
    group.scaled_sums[lane] = scale * static_cast<float>(sum);
    group.offset_sums[lane] = -128 * sum;
    group.half_offset_sums[lane] = -128 * first_sum;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pagewise::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagewise::kernels {

HWY_EXPORT(quantize_row);

Activations::Activations(std::size_t rows, std::size_t columns)
    : rows_(rows),
      columns_(columns),
      blocks_((columns + kQuantBlock - 1) / kQuantBlock),
      stride_(blocks_ * kQuantBlock),
      values_(rows * stride_),
      groups_((rows + kQuantRows - 1) / kQuantRows * blocks_) {}

void Activations::quantize(std::size_t r) {
  PW_CHECK(r < rows_);
  HWY_DYNAMIC_DISPATCH(quantize_row)(row(r), blocks_, group(r / kQuantRows), r % kQuantRows);
}

}  // namespace pagewise::kernels
#endif  // HWY_ONCE
