// SPDX-License-Identifier: Apache-2.0
// Register tiles of attention: scores of some rows against keys, and values added to some rows,
// over every form in which keys and values are read. Compiled once per instruction set.
#if defined(PAGEWISE_KERNELS_TILES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEWISE_KERNELS_TILES_INL_H
#undef PAGEWISE_KERNELS_TILES_INL_H
#else
#define PAGEWISE_KERNELS_TILES_INL_H
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/dtype.h"
#include "kernels/attention/plan.h"
#include "kernels/half.h"
#include "kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagewise::kernels {
namespace HWY_NAMESPACE {

// Register tile: R rows times T vectors of tokens (scores) or channels (values). 6 x 4 sums, 4
// operands and a broadcast fill 32 registers; 6 x 2 and 3 x 4 fill 16.
inline constexpr std::size_t kTileR = 6;
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
inline constexpr std::size_t kTileT = 4;
#else
inline constexpr std::size_t kTileT = 2;
#endif
// Up to how many register tiles keys and values are widened in registers, by each tile anew, and
// not once into scratch for all. AVX2 converts halves beside the products at no cost; but values
// come a block at a time then, and outputs are loaded and stored with each, which outweighs many
// tiles' gain.
#if HWY_TARGET == HWY_AVX2
inline constexpr std::size_t kUnwidenedKeys = kTileRowsMax;
inline constexpr std::size_t kUnwidenedValues = 4;
#else
inline constexpr std::size_t kUnwidenedKeys = 1;
inline constexpr std::size_t kUnwidenedValues = 1;
#endif

// Blocks of one head lie apart, so hardware prefetchers see each of them as a new stream, and a few
// kilobytes are over before they have caught up. The loops below therefore ask for what is used
// next, a line in each iteration: asked for at once, it would fill the queue of outstanding misses
// and stop everything else. Nothing to ask for is the same line again and again, which is cheaper
// than a branch. The memory need not be valid.
struct Ahead {
  const char* base = nowhere;
  std::size_t step = 0;  // bytes from one iteration to the next
  bool empty() const { return base == nowhere; }

  // The first lines of an iteration's part.
  template <std::size_t kLines>
  HWY_INLINE void ask(std::size_t iteration) const {
    for (std::size_t i = 0; i < kLines; ++i) prefetch_line(base + iteration * step + i * 64);
  }

  static constexpr char nowhere[64] = {};
};

// `bytes` in a row, spread over `iterations`.
HWY_INLINE Ahead spread(const void* base, std::size_t bytes, std::size_t iterations) {
  return {static_cast<const char*>(base), (bytes / HWY_MAX(iterations, 1) + 63) / 64 * 64};
}

// The forms in which keys and values are read. A value of the cache is the same number in each of
// them: q8_0's code times its scale has 18 bits at most, so the product is exact.
//   load(t)  vector t of the present channel's tokens (keys) or token's channels (values)
//   scale    with kScaled, what load's codes are to be multiplied by
//   from(t)  the same, beginning with vector t
//   next()   the next channel or token
// kElementBytes is 0 for what is scratch already: only what comes from the cache is prefetched.
template <typename Load>
struct PlainKeys {
  static constexpr bool kScaled = false;
  static constexpr std::size_t kElementBytes = sizeof(typename Load::Element);
  const typename Load::Element* data;  // [key_dim][stride]
  std::size_t stride;

  // Keys of a head's part of a block, from token `slot` on.
  static HWY_INLINE PlainKeys at(const std::byte* head, std::size_t slot, std::size_t block_tokens,
                                 std::size_t /*key_dim*/) {
    return {reinterpret_cast<const typename Load::Element*>(head) + slot, block_tokens};
  }
  HWY_INLINE PlainKeys from(std::size_t t) const { return {data + t * kLanes, stride}; }
  // The same, beginning with channel `d`.
  HWY_INLINE PlainKeys channel(std::size_t d) const { return {data + d * stride, stride}; }
  HWY_INLINE F32 load(std::size_t t) const { return Load::load(data + t * kLanes); }
  HWY_INLINE void next() { data += stride; }
};

struct WidenedKeys : PlainKeys<LoadF32> {
  static constexpr std::size_t kElementBytes = 0;
  HWY_INLINE WidenedKeys from(std::size_t t) const { return {{data + t * kLanes, stride}}; }
};

struct QuantKeys {
  static constexpr bool kScaled = true;
  static constexpr std::size_t kElementBytes = sizeof(int8_t);
  const int8_t* data;      // [key_dim][stride]
  const uint16_t* scales;  // [key_dim / 32][stride] f16
  std::size_t stride;

  static HWY_INLINE QuantKeys at(const std::byte* head, std::size_t slot, std::size_t block_tokens,
                                 std::size_t key_dim) {
    const std::byte* const scales = head + key_dim * block_tokens;
    return {reinterpret_cast<const int8_t*>(head) + slot,
            reinterpret_cast<const uint16_t*>(scales) + slot, block_tokens};
  }
  HWY_INLINE QuantKeys from(std::size_t t) const {
    return {data + t * kLanes, scales + t * kLanes, stride};
  }
  // Requires: a multiple of 32.
  HWY_INLINE QuantKeys channel(std::size_t d) const {
    return {data + d * stride, scales + d / kKvScaleGroup * stride, stride};
  }
  HWY_INLINE F32 load(std::size_t t) const { return LoadI8::load(data + t * kLanes); }
  HWY_INLINE F32 scale(std::size_t t) const { return LoadF16::load(scales + t * kLanes); }
  HWY_INLINE void next() { data += stride; }
  HWY_INLINE void next_scales() { scales += stride; }
};

template <typename Load>
struct PlainValues {
  static constexpr bool kScaled = false;
  static constexpr std::size_t kElementBytes = sizeof(typename Load::Element);
  const typename Load::Element* data;  // [tokens][stride]
  std::size_t stride;

  // Values of a head's part of a block, from token `slot` on.
  static HWY_INLINE PlainValues at(const std::byte* head, std::size_t slot,
                                   std::size_t /*block_tokens*/, std::size_t value_dim) {
    return {reinterpret_cast<const typename Load::Element*>(head) + slot * value_dim, value_dim};
  }
  HWY_INLINE PlainValues from(std::size_t t) const { return {data + t * kLanes, stride}; }
  HWY_INLINE PlainValues behind(std::size_t tokens) const {
    return {data + tokens * stride, stride};
  }
  HWY_INLINE F32 load(std::size_t t) const { return Load::load(data + t * kLanes); }
  HWY_INLINE void next() { data += stride; }
};

struct WidenedValues : PlainValues<LoadF32> {
  static constexpr std::size_t kElementBytes = 0;
  HWY_INLINE WidenedValues from(std::size_t t) const { return {{data + t * kLanes, stride}}; }
  HWY_INLINE WidenedValues behind(std::size_t tokens) const {
    return {{data + tokens * stride, stride}};
  }
};

struct QuantValues {
  static constexpr bool kScaled = true;
  static constexpr std::size_t kElementBytes = sizeof(int8_t);
  const int8_t* data;      // [tokens][stride]
  const uint16_t* halves;  // [tokens][stride / 32] f16: the scales as they are stored
  const float* scales;     // the same as f32, in scratch: see widen_scales
  std::size_t stride;
  std::size_t first = 0;  // channel of vector 0

  static HWY_INLINE QuantValues at(const std::byte* head, std::size_t slot,
                                   std::size_t block_tokens, std::size_t value_dim) {
    const std::byte* const scales = head + block_tokens * value_dim;
    return {reinterpret_cast<const int8_t*>(head) + slot * value_dim,
            reinterpret_cast<const uint16_t*>(scales) + slot * (value_dim / kKvScaleGroup), nullptr,
            value_dim};
  }
  HWY_INLINE QuantValues from(std::size_t t) const {
    return {data + t * kLanes, halves, scales, stride, first + t * kLanes};
  }
  HWY_INLINE QuantValues behind(std::size_t tokens) const {
    const std::size_t groups = tokens * (stride / kKvScaleGroup);
    return {data + tokens * stride, halves + groups, scales + groups, stride, first};
  }
  HWY_INLINE F32 load(std::size_t t) const { return LoadI8::load(data + t * kLanes); }
  HWY_INLINE F32 scale(std::size_t t) const {
    return hn::Set(DF(), scales[(first + t * kLanes) / kKvScaleGroup]);
  }
  HWY_INLINE void next() {
    data += stride;
    scales += stride / kKvScaleGroup;
  }
};

// The scales of `tokens` tokens as f32, to `scratch`, which has room for whole vectors.
HWY_INLINE void widen_scales(QuantValues& values, std::size_t tokens, float* scratch) {
  const std::size_t count = tokens * (values.stride / kKvScaleGroup);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    hn::StoreU(LoadF16::load(values.halves + i), DF(), scratch + i);
  }
  for (; i < count; ++i) scratch[i] = half_to_float(values.halves[i]);
  values.scales = scratch;
}

// Rows of a register tile, side by side: out[d][r] = rows[r][d] * scale. Turned over in squares of
// four; more than four rows take two squares that overlap, fewer the same row several times, whose
// surplus the next channel overwrites.
HWY_INLINE void pack_queries(const float* const (&rows)[kTileR], std::size_t count,
                             std::size_t key_dim, float scale, float* out) {
  std::size_t d = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<float, 4> d4;
  const auto factor = hn::Set(d4, scale);
  const std::size_t whole = (count >= 4 ? key_dim : key_dim - 1) / 4 * 4;
  const std::size_t squares = count > 4 ? 2 : 1;
  for (; d < whole; d += 4) {
    for (std::size_t square = 0; square < squares; ++square) {
      const std::size_t first = square * (count - 4);
      const auto load = [&](std::size_t i) {
        return hn::Mul(hn::LoadU(d4, rows[HWY_MIN(first + i, count - 1)] + d), factor);
      };
      const auto row0 = load(0), row1 = load(1), row2 = load(2), row3 = load(3);
      const auto low01 = hn::InterleaveLower(d4, row0, row1);  // channels 0 and 1 of rows 0 and 1
      const auto high01 = hn::InterleaveUpper(d4, row0, row1);
      const auto low23 = hn::InterleaveLower(d4, row2, row3);
      const auto high23 = hn::InterleaveUpper(d4, row2, row3);
      float* const to = out + d * count + first;
      hn::StoreU(hn::ConcatLowerLower(d4, low23, low01), d4, to);
      hn::StoreU(hn::ConcatUpperUpper(d4, low23, low01), d4, to + count);
      hn::StoreU(hn::ConcatLowerLower(d4, high23, high01), d4, to + 2 * count);
      hn::StoreU(hn::ConcatUpperUpper(d4, high23, high01), d4, to + 3 * count);
    }
  }
#endif
  for (; d < key_dim; ++d) {
    for (std::size_t r = 0; r < count; ++r) out[d * count + r] = rows[r][d] * scale;
  }
}

// Vectors of a tile of R rows. Few rows have four: enough sums to hide how long one takes, and a
// line of halves is read in one pass. Scales would not fit beside them.
template <std::size_t R, typename Source>
inline constexpr std::size_t kTileVectors = R <= 3 && !Source::kScaled ? 4 : kTileT;

// Vector t of the present channel or token.
template <typename Source>
HWY_INLINE F32 vector_of(const Source& source, std::size_t t, F32 scale) {
  const F32 x = source.load(t);
  if constexpr (Source::kScaled) return hn::Mul(x, scale);
  return x;
}

// sums[r][t] += vector t * factors[r * stride]. What there is less of, rows or vectors, stays in
// registers.
template <std::size_t R, std::size_t T, typename Source>
HWY_INLINE void add_products(F32 (&sums)[R][T], const Source& source, const F32 (&scale)[T],
                             const float* factors, std::size_t stride) {
  const DF df;
  if constexpr (R < T) {
    F32 x[R];
    for (std::size_t r = 0; r < R; ++r) x[r] = hn::Set(df, factors[r * stride]);
    for (std::size_t t = 0; t < T; ++t) {
      const F32 v = vector_of(source, t, scale[t]);
      for (std::size_t r = 0; r < R; ++r) sums[r][t] = hn::MulAdd(v, x[r], sums[r][t]);
    }
  } else {
    F32 v[T];
    for (std::size_t t = 0; t < T; ++t) v[t] = vector_of(source, t, scale[t]);
    for (std::size_t r = 0; r < R; ++r) {
      const F32 x = hn::Set(df, factors[r * stride]);
      for (std::size_t t = 0; t < T; ++t) sums[r][t] = hn::MulAdd(v[t], x, sums[r][t]);
    }
  }
}

// What a tile of vectors [t, t + count) asks for: of the next piece, just as much as it reads
// itself; where the data is scratch, or has scales beside it, all of it with the first vectors.
template <typename Source>
HWY_INLINE Ahead part_of(const Ahead& ahead, std::size_t t) {
  if constexpr (Source::kElementBytes == 0 || Source::kScaled) return t == 0 ? ahead : Ahead();
  return {ahead.base + t * kLanes * Source::kElementBytes, ahead.step};
}
// Lines of it in an iteration.
template <typename Source>
constexpr std::size_t lines_of(std::size_t count) {
  return Source::kScaled ? 1 : HWY_MAX((count * kLanes * Source::kElementBytes + 63) / 64, 1);
}

// scores[r][t] = sum over d, ascending, of key[d][t] * q[d][r], for T vectors of tokens.
template <std::size_t R, std::size_t T, typename Keys>
HWY_INLINE void score_tile(Keys keys, const float* q, std::size_t key_dim, float* scores,
                           const Ahead& ahead) {
  F32 acc[R][T];
  for (std::size_t r = 0; r < R; ++r) {
    for (std::size_t t = 0; t < T; ++t) acc[r][t] = hn::Zero(DF());
  }
  F32 scale[T] = {};
  // Channels that share scales; without scales all of them.
  const std::size_t group = Keys::kScaled ? kKvScaleGroup : key_dim;
  for (std::size_t begin = 0; begin < key_dim; begin += group) {
    if constexpr (Keys::kScaled) {
      for (std::size_t t = 0; t < T; ++t) scale[t] = keys.scale(t);
      keys.next_scales();
    }
    for (std::size_t d = begin; d < begin + group; ++d, keys.next(), q += R) {
      ahead.template ask<lines_of<Keys>(T)>(d);
      add_products<R, T>(acc, keys, scale, q, 1);
    }
  }
  for (std::size_t r = 0; r < R; ++r) {
    for (std::size_t t = 0; t < T; ++t)
      hn::StoreU(acc[r][t], DF(), scores + r * kScoreStride + t * kLanes);
  }
}

template <std::size_t R, std::size_t T, typename Keys>
HWY_INLINE std::size_t score_tiles(const Keys& keys, const float* q, std::size_t key_dim,
                                   float* scores, std::size_t t, std::size_t vectors,
                                   const Ahead& ahead) {
  for (; t + T <= vectors; t += T) {
    score_tile<R, T, Keys>(keys.from(t), q, key_dim, scores + t * kLanes, part_of<Keys>(ahead, t));
  }
  return t;
}

template <std::size_t R, typename Keys>
HWY_NOINLINE void score_vectors(const Keys& keys, const float* q, std::size_t key_dim,
                                float* scores, std::size_t vectors, const Ahead& ahead) {
  constexpr std::size_t kT = kTileVectors<R, Keys>;
  std::size_t t = score_tiles<R, kT, Keys>(keys, q, key_dim, scores, 0, vectors, ahead);
  if constexpr (kT > 2) t = score_tiles<R, 2, Keys>(keys, q, key_dim, scores, t, vectors, ahead);
  score_tiles<R, 1, Keys>(keys, q, key_dim, scores, t, vectors, ahead);
}

template <typename Keys>
void score_rows(std::size_t rows, const Keys& keys, const float* q, std::size_t key_dim,
                float* scores, std::size_t vectors, const Ahead& ahead) {
  switch (rows) {
    case 1:
      return score_vectors<1, Keys>(keys, q, key_dim, scores, vectors, ahead);
    case 2:
      return score_vectors<2, Keys>(keys, q, key_dim, scores, vectors, ahead);
    case 3:
      return score_vectors<3, Keys>(keys, q, key_dim, scores, vectors, ahead);
    case 4:
      return score_vectors<4, Keys>(keys, q, key_dim, scores, vectors, ahead);
    case 5:
      return score_vectors<5, Keys>(keys, q, key_dim, scores, vectors, ahead);
    default:
      return score_vectors<6, Keys>(keys, q, key_dim, scores, vectors, ahead);
  }
}

// acc[r][j] += weights[r][t] * value[t][j] for t ascending in [0, tokens), T vectors of channels.
template <std::size_t R, std::size_t T, typename Values>
HWY_INLINE void value_tile(Values values, const float* weights, std::size_t tokens, float* acc_rows,
                           std::size_t acc_stride, const Ahead& ahead) {
  F32 acc[R][T];
  for (std::size_t r = 0; r < R; ++r) {
    for (std::size_t t = 0; t < T; ++t)
      acc[r][t] = hn::LoadU(DF(), acc_rows + r * acc_stride + t * kLanes);
  }
  for (std::size_t i = 0; i < tokens; ++i, values.next(), ++weights) {
    ahead.template ask<lines_of<Values>(T)>(i);
    F32 scale[T] = {};
    if constexpr (Values::kScaled) {
      for (std::size_t t = 0; t < T; ++t) scale[t] = values.scale(t);
    }
    add_products<R, T>(acc, values, scale, weights, kScoreStride);
  }
  for (std::size_t r = 0; r < R; ++r) {
    for (std::size_t t = 0; t < T; ++t)
      hn::StoreU(acc[r][t], DF(), acc_rows + r * acc_stride + t * kLanes);
  }
}

template <std::size_t R, std::size_t T, typename Values>
HWY_INLINE std::size_t value_tiles(const Values& values, const float* weights, std::size_t tokens,
                                   float* acc, std::size_t acc_stride, std::size_t t,
                                   std::size_t vectors, const Ahead& ahead) {
  for (; t + T <= vectors; t += T) {
    value_tile<R, T, Values>(values.from(t), weights, tokens, acc + t * kLanes, acc_stride,
                             part_of<Values>(ahead, t));
  }
  return t;
}

template <std::size_t R, typename Values>
HWY_NOINLINE void value_vectors(const Values& values, const float* weights, std::size_t tokens,
                                float* acc, std::size_t acc_stride, std::size_t vectors,
                                const Ahead& ahead) {
  constexpr std::size_t kT = kTileVectors<R, Values>;
  std::size_t t =
      value_tiles<R, kT, Values>(values, weights, tokens, acc, acc_stride, 0, vectors, ahead);
  if constexpr (kT > 2) {
    t = value_tiles<R, 2, Values>(values, weights, tokens, acc, acc_stride, t, vectors, ahead);
  }
  value_tiles<R, 1, Values>(values, weights, tokens, acc, acc_stride, t, vectors, ahead);
}

template <typename Values>
void value_rows(std::size_t rows, const Values& values, const float* weights, std::size_t tokens,
                float* acc, std::size_t acc_stride, std::size_t vectors, const Ahead& ahead) {
  switch (rows) {
    case 1:
      return value_vectors<1, Values>(values, weights, tokens, acc, acc_stride, vectors, ahead);
    case 2:
      return value_vectors<2, Values>(values, weights, tokens, acc, acc_stride, vectors, ahead);
    case 3:
      return value_vectors<3, Values>(values, weights, tokens, acc, acc_stride, vectors, ahead);
    case 4:
      return value_vectors<4, Values>(values, weights, tokens, acc, acc_stride, vectors, ahead);
    case 5:
      return value_vectors<5, Values>(values, weights, tokens, acc, acc_stride, vectors, ahead);
    default:
      return value_vectors<6, Values>(values, weights, tokens, acc, acc_stride, vectors, ahead);
  }
}

// Elements one by one; f32 ones need not be aligned where another type's plane stands before them.
HWY_INLINE float element_to_float(LoadF32, const float* p) {
  float x;
  std::memcpy(&x, p, sizeof(x));
  return x;
}
HWY_INLINE float element_to_float(LoadF16, const uint16_t* p) { return half_to_float(*p); }
HWY_INLINE float element_to_float(LoadBF16, const uint16_t* p) { return bf16_to_float(*p); }

// `rows` rows of `count` elements to f32. Where `whole`, counts are rounded up to whole vectors,
// which the memory of a row must have; the lanes beyond are used by no score and no output. Columns
// of vectors, not rows, are the outer loop: rows are many and two to eight vectors long.
template <typename Load>
HWY_INLINE void widen_plain(const typename Load::Element* from, std::size_t from_stride,
                            std::size_t rows, std::size_t count, bool whole, float* to,
                            std::size_t to_stride) {
  const std::size_t vectors = whole ? (count + kLanes - 1) / kLanes : count / kLanes;
  for (std::size_t v = 0; v < vectors; ++v) {
    const typename Load::Element* in = from + v * kLanes;
    float* out = to + v * kLanes;
    for (std::size_t r = 0; r < rows; ++r, in += from_stride, out += to_stride)
      hn::StoreU(Load::load(in), DF(), out);
  }
  if (vectors * kLanes >= count) return;
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t i = vectors * kLanes; i < count; ++i) {
      to[r * to_stride + i] = element_to_float(Load(), from + r * from_stride + i);
    }
  }
}

// Keys of `tokens` tokens, [key_dim] rows; `whole` as above.
template <typename Load>
HWY_INLINE void widen_keys(const PlainKeys<Load>& keys, std::size_t key_dim, std::size_t tokens,
                           bool whole, float* to, std::size_t to_stride) {
  widen_plain<Load>(keys.data, keys.stride, key_dim, tokens, whole, to, to_stride);
}
HWY_INLINE void widen_keys(QuantKeys keys, std::size_t key_dim, std::size_t tokens, bool whole,
                           float* to, std::size_t to_stride) {
  const std::size_t vectors = whole ? (tokens + kLanes - 1) / kLanes : tokens / kLanes;
  for (std::size_t d = 0; d < key_dim; d += kKvScaleGroup, keys.next_scales()) {
    for (std::size_t v = 0; v < vectors; ++v) {
      const F32 scale = keys.scale(v);
      const int8_t* in = keys.data + d * keys.stride + v * kLanes;
      float* out = to + d * to_stride + v * kLanes;
      for (std::size_t i = 0; i < kKvScaleGroup; ++i, in += keys.stride, out += to_stride) {
        hn::StoreU(hn::Mul(LoadI8::load(in), scale), DF(), out);
      }
    }
    for (std::size_t t = vectors * kLanes; t < tokens; ++t) {
      const float scale = half_to_float(keys.scales[t]);
      for (std::size_t i = d; i < d + kKvScaleGroup; ++i) {
        to[i * to_stride + t] = static_cast<float>(keys.data[i * keys.stride + t]) * scale;
      }
    }
  }
}

// Values of `tokens` tokens, one row each.
template <typename Load>
HWY_INLINE void widen_values(const PlainValues<Load>& values, std::size_t value_dim,
                             std::size_t tokens, float* to, std::size_t to_stride) {
  widen_plain<Load>(values.data, values.stride, tokens, value_dim, false, to, to_stride);
}
HWY_INLINE void widen_values(const QuantValues& values, std::size_t value_dim, std::size_t tokens,
                             float* to, std::size_t to_stride) {
  const std::size_t groups = value_dim / kKvScaleGroup;
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::size_t g = 0; g < groups; ++g) {
      const F32 scale = hn::Set(DF(), half_to_float(values.halves[t * groups + g]));
      const std::size_t first = g * kKvScaleGroup;
      for (std::size_t j = first; j < first + kKvScaleGroup; j += kLanes) {
        const F32 codes = LoadI8::load(values.data + t * values.stride + j);
        hn::StoreU(hn::Mul(codes, scale), DF(), to + t * to_stride + j);
      }
    }
  }
}

// `rows` lines of `columns` floats, turned over: out[c][r] = lines[r][c].
HWY_INLINE void turn(const float* lines, std::size_t stride, std::size_t rows, std::size_t columns,
                     float* out, std::size_t out_stride) {
#if HWY_TARGET == HWY_SCALAR
  constexpr std::size_t whole_rows = 0, whole_columns = 0;  // vectors of one lane
#else
  const hn::FixedTag<float, 4> d4;
  const std::size_t whole_rows = rows / 4 * 4;
  const std::size_t whole_columns = columns / 4 * 4;
  for (std::size_t c = 0; c < whole_columns; c += 4) {
    for (std::size_t r = 0; r < whole_rows; r += 4) {
      const float* const in = lines + r * stride + c;
      const auto row0 = hn::LoadU(d4, in);
      const auto row1 = hn::LoadU(d4, in + stride);
      const auto row2 = hn::LoadU(d4, in + 2 * stride);
      const auto row3 = hn::LoadU(d4, in + 3 * stride);
      const auto low01 = hn::InterleaveLower(d4, row0, row1);  // columns 0 and 1 of rows 0 and 1
      const auto high01 = hn::InterleaveUpper(d4, row0, row1);
      const auto low23 = hn::InterleaveLower(d4, row2, row3);
      const auto high23 = hn::InterleaveUpper(d4, row2, row3);
      float* const to = out + c * out_stride + r;
      hn::StoreU(hn::ConcatLowerLower(d4, low23, low01), d4, to);
      hn::StoreU(hn::ConcatUpperUpper(d4, low23, low01), d4, to + out_stride);
      hn::StoreU(hn::ConcatLowerLower(d4, high23, high01), d4, to + 2 * out_stride);
      hn::StoreU(hn::ConcatUpperUpper(d4, high23, high01), d4, to + 3 * out_stride);
    }
  }
#endif
  for (std::size_t c = 0; c < columns; ++c) {
    for (std::size_t r = c < whole_columns ? whole_rows : 0; r < rows; ++r)
      out[c * out_stride + r] = lines[r * stride + c];
  }
}

// Values of `tokens` tokens, at most kChunkTokens, one row each, where they are the first
// `value_dim` channels of the keys.
template <typename Keys>
HWY_INLINE void widen_values_of_keys(const Keys& keys, std::size_t value_dim, std::size_t tokens,
                                     float* to, std::size_t to_stride) {
  alignas(64) float lines[kKvScaleGroup * kChunkTokens];  // 8 KiB, a group of q8_0's channels
  for (std::size_t d = 0; d < value_dim; d += kKvScaleGroup) {
    const std::size_t channels = HWY_MIN(kKvScaleGroup, value_dim - d);
    widen_keys(keys.channel(d), channels, tokens, false, lines, kChunkTokens);
    turn(lines, kChunkTokens, channels, tokens, to + d, to_stride);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pagewise::kernels
HWY_AFTER_NAMESPACE();

#endif  // PAGEWISE_KERNELS_TILES_INL_H
