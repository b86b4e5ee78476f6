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

// Sums of the first 16 and of all 32 quants.
HWY_INLINE void sum_quants(const int8_t* quants, int32_t* first, int32_t* all) {
#if HWY_TARGET == HWY_SCALAR
  *first = 0;
  for (std::size_t i = 0; i < kQuantBlock / 2; ++i) *first += quants[i];
  *all = *first;
  for (std::size_t i = kQuantBlock / 2; i < kQuantBlock; ++i) *all += quants[i];
#else
  const hn::CappedTag<uint8_t, 32> du8;
  const hn::Repartition<uint64_t, decltype(du8)> du64;
  uint64_t eights[4];
  for (std::size_t i = 0; i < kQuantBlock; i += hn::Lanes(du8)) {
    // Sums of eight unsigned bytes exist on every instruction set; each byte stands 128 too high.
    const auto bytes = hn::LoadU(du8, reinterpret_cast<const uint8_t*>(quants) + i);
    hn::StoreU(hn::SumsOf8(hn::Xor(bytes, hn::Set(du8, 0x80))), du64, eights + i / 8);
  }
  *first = static_cast<int32_t>(eights[0] + eights[1]) - 16 * 128;
  *all = *first + static_cast<int32_t>(eights[2] + eights[3]) - 16 * 128;
#endif
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
    int32_t first_sum;
    int32_t sum;
    sum_quants(quants, &first_sum, &sum);
    for (std::size_t k = 0; k < kQuantBlock / 4; ++k)
      std::memcpy(group.quants[k][lane], quants + 4 * k, 4);
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

void Activations::quantize(std::size_t r, Activations* rest) {
  PW_CHECK(r < rows_ && (rest == nullptr || (r < rest->rows_ && columns_ == rest->columns_)));
  HWY_DYNAMIC_DISPATCH(quantize_row)
  (row(r), blocks_, group(r / kQuantRows), r % kQuantRows,
   rest == nullptr ? nullptr : rest->row(r));
  if (rest != nullptr) rest->quantize(r);
}

}  // namespace pagewise::kernels
#endif  // HWY_ONCE
