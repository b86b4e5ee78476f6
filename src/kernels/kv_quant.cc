// SPDX-License-Identifier: Apache-2.0
#include "kernels/kv_quant.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/kv_quant.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
//
#include <hwy/highway.h>

#include "base/check.h"
#include "base/dtype.h"
#include "kernels/half.h"
#include "kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagewise::kernels {
namespace HWY_NAMESPACE {

void quantize_kv_groups(const float* x, std::size_t groups, int8_t* codes, uint16_t* scales) {
  const DF df;
  const hn::Rebind<int8_t, DI> d8;
  const F32 most = hn::Set(df, 127.0f);
  const F32 least = hn::Set(df, -127.0f);
  constexpr std::size_t kVectorsPerGroup = kKvScaleGroup / kLanes;
  for (std::size_t g = 0; g < groups; ++g, x += kKvScaleGroup, codes += kKvScaleGroup) {
    F32 values[kVectorsPerGroup];
    F32 maximum = hn::Zero(df);
    for (std::size_t v = 0; v < kVectorsPerGroup; ++v) {
      values[v] = hn::LoadU(df, x + v * kLanes);
      maximum = hn::Max(hn::Abs(values[v]), maximum);
    }
    const float amax = hn::GetLane(hn::MaxOfLanes(df, maximum));
    // Written so that a NaN takes the bound, too.
    scales[g] = float_to_half(amax / 127.0f < 65504.0f ? amax / 127.0f : 65504.0f);
    const float scale = half_to_float(scales[g]);
    const F32 inverse = hn::Set(df, scale > 0 ? 1.0f / scale : 0.0f);
    for (std::size_t v = 0; v < kVectorsPerGroup; ++v) {
      const F32 code = hn::Min(hn::Max(hn::Mul(values[v], inverse), least), most);
      hn::StoreU(hn::DemoteTo(d8, hn::NearestInt(code)), d8, codes + v * kLanes);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pagewise::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagewise::kernels {

HWY_EXPORT(quantize_kv_groups);

void quantize_kv(const float* x, std::size_t n, int8_t* codes, uint16_t* scales) {
  PW_CHECK(n % kKvScaleGroup == 0);
  HWY_DYNAMIC_DISPATCH(quantize_kv_groups)(x, n / kKvScaleGroup, codes, scales);
}

}  // namespace pagewise::kernels
#endif  // HWY_ONCE
