// SPDX-License-Identifier: Apache-2.0
#include "kernels/ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ops.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
//
#include <hwy/highway.h>

#include <cmath>

#include "base/check.h"
#include "kernels/half.h"
#include "kernels/isa.h"
#include "kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagewise::kernels {
namespace HWY_NAMESPACE {

void rms_norm_row(const float* x, const float* weight, std::size_t n, float eps, float* out) {
  F32 sums[kVectors];
  for (F32& sum : sums) sum = hn::Zero(DF());
  for (std::size_t i = 0; i < n; i += 16) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      const std::size_t at = i + v * kLanes;
      if (at >= n) break;
      const F32 value = load_first(x + at, n - at);
      sums[v] = hn::MulAdd(value, value, sums[v]);
    }
  }
  const float mean = fold_lanes(sums) / static_cast<float>(n);
  const F32 factor = hn::Set(DF(), 1.0f / std::sqrt(mean + eps));
  for (std::size_t i = 0; i < n; i += kLanes) {
    const F32 scaled = hn::Mul(load_first(x + i, n - i), factor);
    store_first(hn::Mul(scaled, load_first(weight + i, n - i)), out + i, n - i);
  }
}

// Lanes beyond the row stay 0 in both sums: load_first() fills them with 0, which is not the mean.
void layer_norm_row(const float* x, const float* weight, const float* bias, std::size_t n,
                    float eps, float* out) {
  const DF df;
  F32 sums[kVectors];
  for (F32& sum : sums) sum = hn::Zero(df);
  for (std::size_t i = 0; i < n; i += kLanes) {
    F32& sum = sums[i / kLanes % kVectors];
    sum = hn::Add(sum, load_first(x + i, n - i));
  }
  const float scale = 1.0f / static_cast<float>(n);
  const F32 mean = hn::Set(df, fold_lanes(sums) * scale);
  for (F32& sum : sums) sum = hn::Zero(df);
  for (std::size_t i = 0; i < n; i += kLanes) {
    F32& sum = sums[i / kLanes % kVectors];
    F32 apart = hn::Sub(load_first(x + i, n - i), mean);
    if (n - i < kLanes) apart = hn::IfThenElseZero(hn::FirstN(df, n - i), apart);
    sum = hn::MulAdd(apart, apart, sum);
  }
  const F32 factor = hn::Set(df, 1.0f / std::sqrt(fold_lanes(sums) * scale + eps));
  for (std::size_t i = 0; i < n; i += kLanes) {
    const F32 normed = hn::Mul(hn::Sub(load_first(x + i, n - i), mean), factor);
    F32 value = hn::Mul(normed, load_first(weight + i, n - i));
    if (bias != nullptr) value = hn::Add(value, load_first(bias + i, n - i));
    store_first(value, out + i, n - i);
  }
}

void silu_mul_row(const float* gate, const float* up, std::size_t n, float* out) {
  const F32 one = hn::Set(DF(), 1.0f);
  for (std::size_t i = 0; i < n; i += kLanes) {
    const F32 g = load_first(gate + i, n - i);
    const F32 silu = hn::Div(g, hn::Add(one, exp_lanes(hn::Neg(g))));
    store_first(hn::Mul(silu, load_first(up + i, n - i)), out + i, n - i);
  }
}

HWY_INLINE F32 gelu_lanes(F32 g) {
  const DF df;
  const F32 linear = hn::Set(df, -2.0f * 0.79788456f);  // -2 sqrt(2 / pi)
  const F32 cubic = hn::Set(df, -2.0f * 0.79788456f * 0.044715f);
  const F32 exponent = hn::Mul(g, hn::MulAdd(hn::Mul(g, g), cubic, linear));
  return hn::Div(g, hn::Add(hn::Set(df, 1.0f), exp_lanes(exponent)));
}

void gelu_mul_row(const float* gate, const float* up, std::size_t n, float* out) {
  for (std::size_t i = 0; i < n; i += kLanes) {
    const F32 gelu = gelu_lanes(load_first(gate + i, n - i));
    store_first(hn::Mul(gelu, load_first(up + i, n - i)), out + i, n - i);
  }
}

void gelu_row(const float* x, std::size_t n, float* out) {
  for (std::size_t i = 0; i < n; i += kLanes) {
    store_first(gelu_lanes(load_first(x + i, n - i)), out + i, n - i);
  }
}

void clamped_swiglu_mul_row(const float* gate, const float* up, std::size_t n, float limit,
                            float* out) {
  const DF df;
  const F32 most = hn::Set(df, limit);
  const F32 least = hn::Set(df, -limit);
  const F32 one = hn::Set(df, 1.0f);
  const F32 steepness = hn::Set(df, -1.702f);
  for (std::size_t i = 0; i < n; i += kLanes) {
    const F32 g = hn::Min(load_first(gate + i, n - i), most);
    const F32 u = hn::Max(hn::Min(load_first(up + i, n - i), most), least);
    const F32 denominator = hn::Add(one, exp_lanes(hn::Mul(g, steepness)));
    store_first(hn::Mul(hn::Div(g, denominator), hn::Add(u, one)), out + i, n - i);
  }
}

void soft_cap_row(float* x, float cap, std::size_t n) {
  const F32 c = hn::Set(DF(), cap);
  for (std::size_t i = 0; i < n; i += kLanes)
    store_first(soft_cap_lanes(load_first(x + i, n - i), c), x + i, n - i);
}

void add_row(float* x, const float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; i += kLanes) {
    store_first(hn::Add(load_first(x + i, n - i), load_first(y + i, n - i)), x + i, n - i);
  }
}

void scale_row(float* x, float factor, std::size_t n) {
  const F32 f = hn::Set(DF(), factor);
  for (std::size_t i = 0; i < n; i += kLanes)
    store_first(hn::Mul(load_first(x + i, n - i), f), x + i, n - i);
}

void exp_row(const float* x, std::size_t n, float* out) {
  for (std::size_t i = 0; i < n; i += kLanes)
    store_first(exp_lanes(load_first(x + i, n - i)), out + i, n - i);
}

std::size_t argmax_row(const float* x, std::size_t n) {
  const DF df;
  F32 best = hn::Set(df, x[0]);
  for (std::size_t i = 0; i < n; i += kLanes) {
    const F32 value = i + kLanes <= n
                          ? hn::LoadU(df, x + i)
                          : hn::IfThenElse(hn::FirstN(df, n - i), load_first(x + i, n - i), best);
    best = hn::Max(best, value);
  }
  const float maximum = hn::GetLane(hn::MaxOfLanes(df, best));
  for (std::size_t i = 0; i < n; ++i) {
    if (x[i] == maximum) return i;
  }
  return 0;
}

// (a, b) -> (a cos - b sin, a sin + b cos), each one product and one FMA.
void rope_heads(float* x, std::size_t heads, std::size_t head_dim, bool neox, const float* cos,
                const float* sin, std::size_t pairs) {
  const DF df;
  for (std::size_t h = 0; h < heads; ++h) {
    float* head = x + h * head_dim;
    for (std::size_t i = 0; i < pairs; i += kLanes) {
      const std::size_t count = HWY_MIN(kLanes, pairs - i);
      const F32 c = load_first(cos + i, count);
      const F32 s = load_first(sin + i, count);
      F32 a;
      F32 b;
      if (neox) {
        a = load_first(head + i, count);
        b = load_first(head + pairs + i, count);
      } else if (count == kLanes) {
        hn::LoadInterleaved2(df, head + 2 * i, a, b);
      } else {
        alignas(64) float padded[2 * kLanes] = {};
        for (std::size_t k = 0; k < 2 * count; ++k) padded[k] = head[2 * i + k];
        hn::LoadInterleaved2(df, padded, a, b);
      }
      const F32 rotated_a = hn::NegMulAdd(b, s, hn::Mul(a, c));
      const F32 rotated_b = hn::MulAdd(a, s, hn::Mul(b, c));
      if (neox) {
        store_first(rotated_a, head + i, count);
        store_first(rotated_b, head + pairs + i, count);
      } else if (count == kLanes) {
        hn::StoreInterleaved2(rotated_a, rotated_b, df, head + 2 * i);
      } else {
        alignas(64) float padded[2 * kLanes];
        hn::StoreInterleaved2(rotated_a, rotated_b, df, padded);
        for (std::size_t k = 0; k < 2 * count; ++k) head[2 * i + k] = padded[k];
      }
    }
  }
}

// The 16-bit conversions finish a row in scalar code: conversions are exact or correctly rounded,
// so unlike sums and exp they cannot differ.
void f32_to_f16_row(const float* x, std::size_t n, uint16_t* out) {
  std::size_t i = 0;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  const hn::Rebind<hwy::float16_t, DF> dh;
  for (; i + kLanes <= n; i += kLanes) {
    hn::StoreU(hn::DemoteTo(dh, hn::LoadU(DF(), x + i)), dh,
               reinterpret_cast<hwy::float16_t*>(out + i));
  }
#endif
  for (; i < n; ++i) out[i] = float_to_half(x[i]);
}

void f16_to_f32_row(const uint16_t* x, std::size_t n, float* out) {
  std::size_t i = 0;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(LoadF16::load(x + i), DF(), out + i);
#endif
  for (; i < n; ++i) {
    uint16_t half;  // rows of a file may be unaligned
    __builtin_memcpy(&half, reinterpret_cast<const char*>(x) + 2 * i, sizeof(half));
    out[i] = half_to_float(half);
  }
}

void f32_to_bf16_row(const float* x, std::size_t n, uint16_t* out) {
  for (std::size_t i = 0; i < n; ++i) out[i] = float_to_bf16(x[i]);
}

void bf16_to_f32_row(const uint16_t* x, std::size_t n, float* out) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(LoadBF16::load(x + i), DF(), out + i);
  for (; i < n; ++i) {
    uint16_t bf16;
    __builtin_memcpy(&bf16, reinterpret_cast<const char*>(x) + 2 * i, sizeof(bf16));
    out[i] = bf16_to_float(bf16);
  }
}

const char* isa_name_of_target() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace pagewise::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagewise::kernels {

HWY_EXPORT(rms_norm_row);
HWY_EXPORT(layer_norm_row);
HWY_EXPORT(silu_mul_row);
HWY_EXPORT(gelu_mul_row);
HWY_EXPORT(clamped_swiglu_mul_row);
HWY_EXPORT(gelu_row);
HWY_EXPORT(soft_cap_row);
HWY_EXPORT(add_row);
HWY_EXPORT(scale_row);
HWY_EXPORT(exp_row);
HWY_EXPORT(argmax_row);
HWY_EXPORT(rope_heads);
HWY_EXPORT(f32_to_f16_row);
HWY_EXPORT(f16_to_f32_row);
HWY_EXPORT(f32_to_bf16_row);
HWY_EXPORT(bf16_to_f32_row);
HWY_EXPORT(isa_name_of_target);

void rms_norm(const float* x, const float* weight, std::size_t n, float eps, float* out) {
  HWY_DYNAMIC_DISPATCH(rms_norm_row)(x, weight, n, eps, out);
}

void layer_norm(const float* x, const float* weight, const float* bias, std::size_t n, float eps,
                float* out) {
  HWY_DYNAMIC_DISPATCH(layer_norm_row)(x, weight, bias, n, eps, out);
}

void silu_mul(const float* gate, const float* up, std::size_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(silu_mul_row)(gate, up, n, out);
}

void gelu_mul(const float* gate, const float* up, std::size_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(gelu_mul_row)(gate, up, n, out);
}

void clamped_swiglu_mul(const float* gate, const float* up, std::size_t n, float limit,
                        float* out) {
  HWY_DYNAMIC_DISPATCH(clamped_swiglu_mul_row)(gate, up, n, limit, out);
}

void gelu(const float* x, std::size_t n, float* out) { HWY_DYNAMIC_DISPATCH(gelu_row)(x, n, out); }

void soft_cap(float* x, float cap, std::size_t n) { HWY_DYNAMIC_DISPATCH(soft_cap_row)(x, cap, n); }

void add(float* x, const float* y, std::size_t n) { HWY_DYNAMIC_DISPATCH(add_row)(x, y, n); }

void scale(float* x, float factor, std::size_t n) { HWY_DYNAMIC_DISPATCH(scale_row)(x, factor, n); }

void exp(const float* x, std::size_t n, float* out) { HWY_DYNAMIC_DISPATCH(exp_row)(x, n, out); }

std::size_t argmax(const float* x, std::size_t n) { return HWY_DYNAMIC_DISPATCH(argmax_row)(x, n); }

RopeTable::RopeTable(std::size_t positions, std::span<const double> frequencies, double magnitude)
    : frequencies_(frequencies.begin(), frequencies.end()),
      magnitude_(magnitude),
      prepared_(positions),
      cos_(AlignedArray<float>::on_demand(positions * frequencies.size())),
      sin_(AlignedArray<float>::on_demand(positions * frequencies.size())) {}

void RopeTable::prepare(std::size_t position) {
  PW_CHECK(position < positions());
  if (prepared_[position]) return;
  for (std::size_t i = 0; i < pairs(); ++i) {
    const double angle = static_cast<double>(position) * frequencies_[i];
    cos_[position * pairs() + i] = static_cast<float>(std::cos(angle) * magnitude_);
    sin_[position * pairs() + i] = static_cast<float>(std::sin(angle) * magnitude_);
  }
  prepared_[position] = true;
}

void rope(float* x, std::size_t heads, std::size_t head_dim, RopeLayout layout,
          const RopeTable& table, std::size_t position) {
  PW_CHECK(position < table.positions() && table.is_prepared(position));
  PW_CHECK(2 * table.pairs() <= head_dim);
  HWY_DYNAMIC_DISPATCH(rope_heads)
  (x, heads, head_dim, layout == RopeLayout::kNeox, table.cos(position), table.sin(position),
   table.pairs());
}

void f32_to_f16(const float* x, std::size_t n, uint16_t* out) {
  HWY_DYNAMIC_DISPATCH(f32_to_f16_row)(x, n, out);
}
void f16_to_f32(const uint16_t* x, std::size_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(f16_to_f32_row)(x, n, out);
}
void f32_to_bf16(const float* x, std::size_t n, uint16_t* out) {
  HWY_DYNAMIC_DISPATCH(f32_to_bf16_row)(x, n, out);
}
void bf16_to_f32(const uint16_t* x, std::size_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(bf16_to_f32_row)(x, n, out);
}

std::string_view isa_name() { return HWY_DYNAMIC_DISPATCH(isa_name_of_target)(); }

}  // namespace pagewise::kernels
#endif  // HWY_ONCE
