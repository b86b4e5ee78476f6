// SPDX-License-Identifier: Apache-2.0
// The part of attention between scores and outputs, for one row: weights of a segment, and the
// merging of segment states (acc [value_stride], m, l). Compiled once per instruction set.
#if defined(PAGEWISE_KERNELS_SOFTMAX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEWISE_KERNELS_SOFTMAX_INL_H
#undef PAGEWISE_KERNELS_SOFTMAX_INL_H
#else
#define PAGEWISE_KERNELS_SOFTMAX_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagewise::kernels {
namespace HWY_NAMESPACE {

// Scores of one row to weights: exp(s - max), exactly 0 outside [begin, end), and their sum in the
// fixed tree. Vectors that hold no valid position are left alone: their weights are 0 and nobody
// reads them.
HWY_INLINE void softmax_row(float* scores, uint32_t begin, uint32_t end, float softcap, float* m,
                            float* l) {
  const DF df;
  const DU du;
  const uint32_t first = begin / 16 * 16;
  const U32 lanes = hn::Iota(du, 0);
  const auto valid = [&](uint32_t t) {
    const U32 position = hn::Add(lanes, hn::Set(du, t));
    const auto from =
        hn::Gt(hn::BitCast(DI(), position), hn::Set(DI(), static_cast<int32_t>(begin) - 1));
    const auto below =
        hn::Lt(hn::BitCast(DI(), position), hn::Set(DI(), static_cast<int32_t>(end)));
    return hn::RebindMask(df, hn::And(from, below));
  };
  if (softcap > 0) {
    const F32 cap = hn::Set(df, softcap);
    for (uint32_t t = first; t < end; t += kLanes)
      hn::StoreU(soft_cap_lanes(hn::LoadU(df, scores + t), cap), df, scores + t);
  }
  // Groups of 16 that are valid as a whole need no masks: all but the first and last.
  const uint32_t whole_begin = begin == first ? first : first + 16;
  const uint32_t whole_end = std::max(whole_begin, end / 16 * 16);
  const F32 lowest = hn::Set(df, -3.402823466e38f);
  F32 maximum = lowest;
  const auto masked_maximum = [&](uint32_t t) {
    for (std::size_t v = 0; v < kVectors; ++v, t += kLanes) {
      maximum = hn::Max(maximum, hn::IfThenElse(valid(t), hn::LoadU(df, scores + t), lowest));
    }
  };
  if (whole_begin != first) masked_maximum(first);
  for (uint32_t t = whole_begin; t < whole_end; t += kLanes)
    maximum = hn::Max(maximum, hn::LoadU(df, scores + t));
  if (whole_end < end) masked_maximum(whole_end);
  *m = hn::GetLane(hn::MaxOfLanes(df, maximum));
  const F32 top = hn::Set(df, *m);
  F32 sums[kVectors];
  for (F32& sum : sums) sum = hn::Zero(df);
  const auto masked_weights = [&](uint32_t t) {
    for (std::size_t v = 0; v < kVectors; ++v, t += kLanes) {
      const F32 e = exp_lanes(hn::Sub(hn::LoadU(df, scores + t), top));
      const F32 weight = hn::IfThenElseZero(valid(t), e);
      hn::StoreU(weight, df, scores + t);
      sums[v] = hn::Add(sums[v], weight);
    }
  };
  if (whole_begin != first) masked_weights(first);
  for (uint32_t t = whole_begin; t < whole_end; t += 16) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      float* at = scores + t + v * kLanes;
      const F32 weight = exp_lanes(hn::Sub(hn::LoadU(df, at), top));
      hn::StoreU(weight, df, at);
      sums[v] = hn::Add(sums[v], weight);
    }
  }
  if (whole_end < end) masked_weights(whole_end);
  *l = fold_lanes(sums);
}

// a <- a merged with b, b to the right of a. Both have seen at least one position.
HWY_INLINE void merge_state(float* a, const float* b, std::size_t value_stride) {
  const DF df;
  float& m_a = a[value_stride];
  float& l_a = a[value_stride + 1];
  const float m_b = b[value_stride];
  const float m = HWY_MAX(m_a, m_b);
  const F32 left = exp_lanes(hn::Set(df, m_a - m));
  const F32 right = exp_lanes(hn::Set(df, m_b - m));
  l_a = hn::GetLane(
      hn::MulAdd(hn::Set(df, b[value_stride + 1]), right, hn::Mul(hn::Set(df, l_a), left)));
  m_a = m;
  for (std::size_t j = 0; j < value_stride; j += kLanes) {
    const F32 kept = hn::Mul(hn::LoadU(df, a + j), left);
    hn::StoreU(hn::MulAdd(hn::LoadU(df, b + j), right, kept), df, a + j);
  }
}

// merge_state() with (sink, 1, 0) on the right.
HWY_INLINE void merge_sink(float* a, float sink, std::size_t value_stride) {
  const DF df;
  float& m_a = a[value_stride];
  float& l_a = a[value_stride + 1];
  const float m = HWY_MAX(m_a, sink);
  const F32 left = exp_lanes(hn::Set(df, m_a - m));
  const F32 right = exp_lanes(hn::Set(df, sink - m));
  l_a = hn::GetLane(hn::Add(right, hn::Mul(hn::Set(df, l_a), left)));
  m_a = m;
  for (std::size_t j = 0; j < value_stride; j += kLanes)
    hn::StoreU(hn::Mul(hn::LoadU(df, a + j), left), df, a + j);
}

HWY_INLINE void write_output(const float* state, std::size_t value_dim, std::size_t value_stride,
                             float* out) {
  const F32 l = hn::Set(DF(), state[value_stride + 1]);
  for (std::size_t j = 0; j < value_dim; j += kLanes) {
    store_first(hn::Div(hn::LoadU(DF(), state + j), l), out + j, value_dim - j);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pagewise::kernels
HWY_AFTER_NAMESPACE();

#endif  // PAGEWISE_KERNELS_SOFTMAX_INL_H
