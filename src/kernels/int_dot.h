// SPDX-License-Identifier: Apache-2.0
// Integer dot products, compiled once per instruction set. Highway 1.0.3 has no u8 x s8 products,
// so the few bare intrinsics of the project stand here. All results are exact; who uses them must
// keep the 16-bit forms below saturation.
//
//   PAGEWISE_DOT4 == 1 (AVX3_DL by VNNI; NEON and EMU128 by plain arithmetic)
//     dot4(acc, u, s): per 32-bit lane, acc + the four products of u's bytes (unsigned) and s's
//     (signed)
//   PAGEWISE_DOT4 == 0 (AVX2, AVX3)
//     pairs(u, s): per 16-bit lane, the sum of two products; saturates beyond 16 bits
//     add16, fold16: sums of 16-bit lanes, modulo 2^16; of neighbours, each times its factor if
//     there are factors, into 32-bit lanes
//     abs8, sign8(s, w): |w| as unsigned bytes, and s with w's sign, so that |w| * sign8(s, w) == w
//     * s
//
// Sums of these are written as chains and have to stay chains: in_register() is a point that a sum
// passes as one number. Without it GCC turns the chains of a block into trees, whose products, 64
// of a tile, all wait in memory for the first addition.
#if defined(PAGEWISE_KERNELS_INT_DOT_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEWISE_KERNELS_INT_DOT_H
#undef PAGEWISE_KERNELS_INT_DOT_H
#else
#define PAGEWISE_KERNELS_INT_DOT_H
#endif

#include <hwy/highway.h>

#include "kernels/math-inl.h"

#undef PAGEWISE_DOT4
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
#define PAGEWISE_DOT4 0
#else
#define PAGEWISE_DOT4 1
#endif

// Highway's AVX3_DL is chosen on CPUs with AVX512-VNNI but does not enable its instructions.
#undef PAGEWISE_BEFORE_NAMESPACE
#if HWY_TARGET == HWY_AVX3_DL
#define PAGEWISE_BEFORE_NAMESPACE() \
  HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512vnni") static_assert(true)
#else
#define PAGEWISE_BEFORE_NAMESPACE() HWY_BEFORE_NAMESPACE()
#endif

PAGEWISE_BEFORE_NAMESPACE();
namespace pagewise::kernels {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3_DL

HWY_INLINE I32 dot4(I32 acc, I32 u, I32 s) {
  return I32{_mm512_dpbusd_epi32(acc.raw, u.raw, s.raw)};
}

#elif HWY_TARGET == HWY_AVX3

HWY_INLINE I32 in_register(I32 sum) {
  asm("" : "+v"(sum.raw));
  return sum;
}
HWY_INLINE I32 pairs(I32 u, I32 s) { return I32{_mm512_maddubs_epi16(u.raw, s.raw)}; }
HWY_INLINE I32 add16(I32 a, I32 b) { return I32{_mm512_add_epi16(a.raw, b.raw)}; }
HWY_INLINE I32 fold16(I32 a, I32 factors) { return I32{_mm512_madd_epi16(a.raw, factors.raw)}; }
HWY_INLINE I32 fold16(I32 a) { return fold16(a, I32{_mm512_set1_epi16(1)}); }
HWY_INLINE I32 abs8(I32 w) { return I32{_mm512_abs_epi8(w.raw)}; }
HWY_INLINE I32 sign8(I32 s, I32 w) {
  return I32{
      _mm512_mask_sub_epi8(s.raw, _mm512_movepi8_mask(w.raw), _mm512_setzero_si512(), s.raw)};
}

#elif HWY_TARGET == HWY_AVX2

HWY_INLINE I32 in_register(I32 sum) {
  asm("" : "+x"(sum.raw));
  return sum;
}
HWY_INLINE I32 pairs(I32 u, I32 s) { return I32{_mm256_maddubs_epi16(u.raw, s.raw)}; }
HWY_INLINE I32 add16(I32 a, I32 b) { return I32{_mm256_add_epi16(a.raw, b.raw)}; }
HWY_INLINE I32 fold16(I32 a, I32 factors) { return I32{_mm256_madd_epi16(a.raw, factors.raw)}; }
HWY_INLINE I32 fold16(I32 a) { return fold16(a, I32{_mm256_set1_epi16(1)}); }
HWY_INLINE I32 abs8(I32 w) { return I32{_mm256_abs_epi8(w.raw)}; }
HWY_INLINE I32 sign8(I32 s, I32 w) { return I32{_mm256_sign_epi8(s.raw, w.raw)}; }

#else

template <int kByte>
HWY_INLINE I32 byte_product(I32 u, I32 s) {
  const DU du;
  const DI di;
  const U32 unsigned_byte =
      hn::And(hn::ShiftRight<8 * kByte>(hn::BitCast(du, u)), hn::Set(du, 255));
  const I32 signed_byte = hn::ShiftRight<24>(hn::ShiftLeft<24 - 8 * kByte>(s));
  return hn::Mul(hn::BitCast(di, unsigned_byte), signed_byte);
}
HWY_INLINE I32 dot4(I32 acc, I32 u, I32 s) {
  acc = hn::Add(acc, hn::Add(byte_product<0>(u, s), byte_product<1>(u, s)));
  return hn::Add(acc, hn::Add(byte_product<2>(u, s), byte_product<3>(u, s)));
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace pagewise::kernels
HWY_AFTER_NAMESPACE();

#endif  // PAGEWISE_KERNELS_INT_DOT_H
