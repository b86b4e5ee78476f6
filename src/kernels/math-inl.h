// SPDX-License-Identifier: Apache-2.0
// What several kernels share, compiled once per instruction set: the 16 lanes in which every sum is
// taken, the one exp, and loads of the cache's element types.
#if defined(PAGEWISE_KERNELS_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEWISE_KERNELS_MATH_INL_H
#undef PAGEWISE_KERNELS_MATH_INL_H
#else
#define PAGEWISE_KERNELS_MATH_INL_H
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace pagewise::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes: one AVX-512 vector, two AVX2 or four NEON vectors make the 16 lanes of a sum.
using DF = hn::CappedTag<float, 16>;
using DI = hn::RebindToSigned<DF>;
using DU = hn::RebindToUnsigned<DF>;
using F32 = hn::Vec<DF>;
using I32 = hn::Vec<DI>;
using U32 = hn::Vec<DU>;
inline constexpr std::size_t kLanes = hn::MaxLanes(DF());
inline constexpr std::size_t kVectors = 16 / kLanes;  // of 16 lanes

// Asks for the cache line at `p`, which need not be valid memory, in the second-level cache: a core
// has few places for lines on their way to the first (24 on Zen 4, which at 120 ns is 13 GB/s), and
// many more for the second.
HWY_INLINE void prefetch_line(const void* p) { __builtin_prefetch(p, 0, 2); }

// Lanes [0, count) of p; the others are 0. Touches nothing beyond, which Highway's masked
// operations only promise on instruction sets that have them; elsewhere a padded copy does it.
HWY_INLINE F32 load_first(const float* p, std::size_t count) {
  const DF df;
  if (count >= kLanes) return hn::LoadU(df, p);
#if HWY_MEM_OPS_MIGHT_FAULT
  alignas(64) float padded[kLanes] = {};
  for (std::size_t i = 0; i < count; ++i) padded[i] = p[i];
  return hn::Load(df, padded);
#else
  return hn::MaskedLoad(hn::FirstN(df, count), df, p);
#endif
}

HWY_INLINE void store_first(F32 value, float* p, std::size_t count) {
  const DF df;
  if (count >= kLanes) {
    hn::StoreU(value, df, p);
    return;
  }
#if HWY_MEM_OPS_MIGHT_FAULT
  alignas(64) float padded[kLanes];
  hn::Store(value, df, padded);
  for (std::size_t i = 0; i < count; ++i) p[i] = padded[i];
#else
  hn::BlendedStore(value, hn::FirstN(df, count), df, p);
#endif
}

// The fixed tree: lanes 8..15 are added to 0..7, then 4..7 to 0..3, 2..3 to 0..1, 1 to 0.
HWY_INLINE float fold_lanes(const F32 (&lanes)[kVectors]) {
  alignas(64) float x[16];
  for (std::size_t v = 0; v < kVectors; ++v) hn::Store(lanes[v], DF(), x + v * kLanes);
  for (std::size_t width = 8; width > 0; width /= 2) {
    for (std::size_t i = 0; i < width; ++i) x[i] += x[i + width];
  }
  return x[0];
}

// e^x. n = x / ln 2 rounded to an integer by adding 1.5 * 2^23, whose last bits it then is; r = x -
// n ln 2 in two FMAs
// (|r| < 0.347); e^r = 1 + (r + r^2 (1/2 + r/6 + ... + r^5/5040)): the first missing term is
// below 5.3e-9 relative. 2^n by its exponent field, n in [-126, 127].
HWY_INLINE F32 exp_lanes(F32 x) {
  const DF df;
  const DI di;
  const F32 low = hn::Set(df, -87.3f);
  const F32 shift = hn::Set(df, 0x1.8p23f);
  const F32 clamped = hn::Min(hn::Max(x, low), hn::Set(df, 88.3f));
  const F32 shifted = hn::MulAdd(clamped, hn::Set(df, 1.44269504f), shift);
  const F32 n = hn::Sub(shifted, shift);
  F32 r = hn::NegMulAdd(n, hn::Set(df, 0x1.62e4p-1f), clamped);  // 15 bits: n times it is exact
  r = hn::NegMulAdd(n, hn::Set(df, 0x1.7f7d1cp-20f), r);
  F32 p = hn::Set(df, 1.0f / 5040.0f);
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f / 720.0f));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f / 120.0f));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f / 24.0f));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f / 6.0f));
  p = hn::MulAdd(p, r, hn::Set(df, 0.5f));
  const F32 e = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(df, 1.0f));
  const I32 exponent = hn::ShiftLeft<23>(hn::Add(hn::BitCast(di, shifted), hn::Set(di, 127)));
  return hn::IfThenZeroElse(hn::Lt(x, low), hn::Mul(e, hn::BitCast(df, exponent)));
}

// cap * tanh(x / cap), as cap * (1 - 2 / (exp(2 x / cap) + 1)).
HWY_INLINE F32 soft_cap_lanes(F32 x, F32 cap) {
  const DF df;
  const F32 two = hn::Set(df, 2.0f);
  const F32 one = hn::Set(df, 1.0f);
  const F32 e = exp_lanes(hn::Mul(two, hn::Div(x, cap)));
  return hn::Mul(cap, hn::Sub(one, hn::Div(two, hn::Add(e, one))));
}

// kLanes values of a cache type as f32. `p` may be unaligned.
struct LoadF32 {
  using Element = float;
  static HWY_INLINE F32 load(const float* p) { return hn::LoadU(DF(), p); }
};
struct LoadF16 {
  using Element = uint16_t;
  static HWY_INLINE F32 load(const uint16_t* p) {
    const hn::Rebind<hwy::float16_t, DF> dh;
    return hn::PromoteTo(DF(), hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(p)));
  }
};
struct LoadI8 {
  using Element = int8_t;
  static HWY_INLINE F32 load(const int8_t* p) {
    const hn::Rebind<int8_t, DI> d8;
    return hn::ConvertTo(DF(), hn::PromoteTo(DI(), hn::LoadU(d8, p)));
  }
};
struct LoadBF16 {
  using Element = uint16_t;
  static HWY_INLINE F32 load(const uint16_t* p) {
    const hn::Rebind<uint16_t, DU> dh;
    return hn::BitCast(DF(), hn::ShiftLeft<16>(hn::PromoteTo(DU(), hn::LoadU(dh, p))));
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace pagewise::kernels
HWY_AFTER_NAMESPACE();

#endif  // PAGEWISE_KERNELS_MATH_INL_H
