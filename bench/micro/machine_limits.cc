// SPDX-License-Identifier: Apache-2.0
#include "micro/machine_limits.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "micro/machine_limits.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
//
#include <hwy/highway.h>

#include "kernels/int_dot.h"

PAGEWISE_BEFORE_NAMESPACE();
namespace pagewise::kernels {
namespace HWY_NAMESPACE {

uint64_t read_all_target(const uint8_t* data, std::size_t bytes) {
  const DU du;
  constexpr std::size_t kStep = 4 * kLanes * 4;
  U32 sum[4] = {hn::Zero(du), hn::Zero(du), hn::Zero(du), hn::Zero(du)};
  for (std::size_t i = 0; i + kStep <= bytes; i += kStep) {
    for (std::size_t v = 0; v < 4; ++v) {
      sum[v] = hn::Add(sum[v],
                       hn::LoadU(du, reinterpret_cast<const uint32_t*>(data + i + v * kLanes * 4)));
    }
  }
  return hn::GetLane(hn::SumOfLanes(du, hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3]))));
}

// Sixteen chains hide a latency of four cycles at two a cycle with room to spare; on sixteen
// registers, ten.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
inline constexpr std::size_t kChains = 16;
#else
inline constexpr std::size_t kChains = 10;
#endif

double fma_loop_target(std::size_t rounds) {
  const DF df;
  F32 sums[kChains];
  for (F32& sum : sums) sum = hn::Set(df, 1.0f);
  const F32 a = hn::Set(df, 0.999f);
  const F32 b = hn::Set(df, 0.001f);
  for (std::size_t i = 0; i < rounds; ++i) {
    for (F32& sum : sums) sum = hn::MulAdd(sum, a, b);
  }
  F32 total = sums[0];
  for (const F32& sum : sums) total = hn::Add(total, sum);
  volatile float keep = hn::GetLane(total);
  (void)keep;
  return 2.0 * kLanes * kChains * static_cast<double>(rounds);
}

double int_dot_loop_target(std::size_t rounds) {
  const DI di;
  I32 sums[kChains];
  for (I32& sum : sums) sum = hn::Zero(di);
  I32 u = hn::Set(di, 0x01020304);
  const I32 s = hn::Set(di, 0x01010101);
  for (std::size_t i = 0; i < rounds; ++i) {
    for (I32& sum : sums) {
#if defined(__x86_64__)
      asm volatile("" : "+v"(u.raw));  // products are taken anew, not once for all sums
#endif
#if PAGEWISE_DOT4
      sum = dot4(sum, u, s);
#else
      sum = in_register(add16(sum, pairs(u, s)));
#endif
    }
  }
  I32 total = sums[0];
  for (const I32& sum : sums) total = hn::Add(total, sum);
  volatile int32_t keep = hn::GetLane(total);
  (void)keep;
  return 2.0 * 4 * kLanes * kChains * static_cast<double>(rounds);
}

}  // namespace HWY_NAMESPACE
}  // namespace pagewise::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagewise::kernels {
HWY_EXPORT(read_all_target);
HWY_EXPORT(fma_loop_target);
HWY_EXPORT(int_dot_loop_target);
uint64_t read_all_dispatch(const uint8_t* data, std::size_t bytes) {
  return HWY_DYNAMIC_DISPATCH(read_all_target)(data, bytes);
}
double fma_loop_dispatch(std::size_t rounds) {
  return HWY_DYNAMIC_DISPATCH(fma_loop_target)(rounds);
}
double int_dot_loop_dispatch(std::size_t rounds) {
  return HWY_DYNAMIC_DISPATCH(int_dot_loop_target)(rounds);
}
}  // namespace pagewise::kernels

namespace pagewise::bench {
uint64_t read_all(const uint8_t* data, std::size_t bytes) {
  return kernels::read_all_dispatch(data, bytes);
}
double fma_loop(std::size_t rounds) { return kernels::fma_loop_dispatch(rounds); }
double int_dot_loop(std::size_t rounds) { return kernels::int_dot_loop_dispatch(rounds); }
}  // namespace pagewise::bench
#endif  // HWY_ONCE
