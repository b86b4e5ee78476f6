// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
//
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <type_traits>

#include "base/check.h"
#include "kernels/attention/plan.h"
#include "kernels/half.h"
#include "kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagewise::kernels {
namespace HWY_NAMESPACE {

// Register tile: R rows times T vectors of tokens (scores) or channels (values). 6 x 4 sums, 4
// operands and a broadcast fill 32 registers; 6 x 2 fill 16.
inline constexpr std::size_t kTileR = 6;
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
inline constexpr std::size_t kTileT = 4;
#else
inline constexpr std::size_t kTileT = 2;
#endif

// One (row, head) of a tile within a segment: valid positions [begin, end), counted from the
// segment's start.
struct TileRow {
  uint32_t begin;
  uint32_t end;
  uint32_t row;   // of the step
  uint32_t head;  // query head
};

// A thread's working memory, carved out of the plan's scratch. Rows are tile rows, in the order in
// which they were gathered; register tile i holds rows split(count, i, tiles).
struct Tile {
  float* q;        // scaled queries, per register tile [key_dim][R]
  float* scores;   // [rows][kScoreStride]: scores, then weights
  float* widened;  // [key_dim][kChunkTokens] or [kChunkTokens][value_stride]
  float* acc;      // [rows][state_stride]: acc [value_stride], m, l
  float* running;  // likewise, of a streaming task
  std::size_t count = 0;
  TileRow rows[kTileRowsMax];
};

// Scratch that was widened before. Only what comes from the cache itself is prefetched.
struct LoadWidened : LoadF32 {};

// Asks for `bytes` at `p`, which need not be valid memory.
HWY_INLINE void prefetch(const void* p, std::size_t bytes) {
  const char* line = static_cast<const char*>(p);
  for (std::size_t i = 0; i < bytes; i += 64) hwy::Prefetch(line + i);
}

// Blocks of one head lie apart, so hardware prefetchers see each of them as a new stream, and a few
// kilobytes are over before they have caught up. The loops below therefore ask for what is used
// next, a little in each iteration: asked for at once, it would fill the queue of outstanding
// misses and stop everything else.
struct Ahead {
  const char* base = nullptr;
  std::size_t step = 0;   // bytes from one iteration to the next
  std::size_t bytes = 0;  // in each; 0: nothing

  HWY_INLINE void ask(std::size_t iteration) const { prefetch(base + iteration * step, bytes); }
};

// `bytes` in a row, spread over `iterations`.
HWY_INLINE Ahead spread(const void* base, std::size_t bytes, std::size_t iterations) {
  const std::size_t step = (bytes / HWY_MAX(iterations, 1) + 63) / 64 * 64;
  return {static_cast<const char*>(base), step, step};
}

// scores[r][t] = sum over d, ascending, of key[d][t] * q[d][r], for T vectors of tokens.
template <std::size_t R, std::size_t T, typename Load>
HWY_INLINE void score_tile(const typename Load::Element* key, std::size_t key_stride,
                           const float* q, std::size_t key_dim, float* scores, const Ahead& ahead) {
  F32 acc[R][T];
  for (std::size_t r = 0; r < R; ++r) {
    for (std::size_t t = 0; t < T; ++t) acc[r][t] = hn::Zero(DF());
  }
  for (std::size_t d = 0; d < key_dim; ++d, key += key_stride, q += R) {
    ahead.ask(d);
    F32 k[T];
    for (std::size_t t = 0; t < T; ++t) k[t] = Load::load(key + t * kLanes);
    for (std::size_t r = 0; r < R; ++r) {
      const F32 x = hn::Set(DF(), q[r]);
      for (std::size_t t = 0; t < T; ++t) acc[r][t] = hn::MulAdd(k[t], x, acc[r][t]);
    }
  }
  for (std::size_t r = 0; r < R; ++r) {
    for (std::size_t t = 0; t < T; ++t)
      hn::StoreU(acc[r][t], DF(), scores + r * kScoreStride + t * kLanes);
  }
}

// What a tile of vectors [t, t + count) asks for: of the next piece, just as much as it reads
// itself; where the data is scratch, all of it with the first vectors.
template <typename Load>
HWY_INLINE Ahead part_of(const Ahead& ahead, std::size_t t, std::size_t count) {
  if constexpr (std::is_same_v<Load, LoadWidened>) return t == 0 ? ahead : Ahead{};
  constexpr std::size_t kBytes = kLanes * sizeof(typename Load::Element);
  return {ahead.base + t * kBytes, ahead.step, ahead.bytes == 0 ? 0 : count * kBytes};
}

template <std::size_t R, std::size_t T, typename Load>
HWY_INLINE std::size_t score_tiles(const typename Load::Element* key, std::size_t key_stride,
                                   const float* q, std::size_t key_dim, float* scores,
                                   std::size_t t, std::size_t vectors, const Ahead& ahead) {
  for (; t + T <= vectors; t += T) {
    score_tile<R, T, Load>(key + t * kLanes, key_stride, q, key_dim, scores + t * kLanes,
                           part_of<Load>(ahead, t, T));
  }
  return t;
}

template <std::size_t R, typename Load>
HWY_NOINLINE void score_vectors(const typename Load::Element* key, std::size_t key_stride,
                                const float* q, std::size_t key_dim, float* scores,
                                std::size_t vectors, const Ahead& ahead) {
  std::size_t t =
      score_tiles<R, kTileT, Load>(key, key_stride, q, key_dim, scores, 0, vectors, ahead);
  if constexpr (kTileT > 2)
    t = score_tiles<R, 2, Load>(key, key_stride, q, key_dim, scores, t, vectors, ahead);
  score_tiles<R, 1, Load>(key, key_stride, q, key_dim, scores, t, vectors, ahead);
}

template <typename Load>
void score_rows(std::size_t rows, const typename Load::Element* key, std::size_t key_stride,
                const float* q, std::size_t key_dim, float* scores, std::size_t vectors,
                const Ahead& ahead) {
  switch (rows) {
    case 1:
      return score_vectors<1, Load>(key, key_stride, q, key_dim, scores, vectors, ahead);
    case 2:
      return score_vectors<2, Load>(key, key_stride, q, key_dim, scores, vectors, ahead);
    case 3:
      return score_vectors<3, Load>(key, key_stride, q, key_dim, scores, vectors, ahead);
    case 4:
      return score_vectors<4, Load>(key, key_stride, q, key_dim, scores, vectors, ahead);
    case 5:
      return score_vectors<5, Load>(key, key_stride, q, key_dim, scores, vectors, ahead);
    default:
      return score_vectors<6, Load>(key, key_stride, q, key_dim, scores, vectors, ahead);
  }
}

// acc[r][j] += weights[r][t] * value[t][j] for t ascending in [0, tokens), T vectors of channels.
template <std::size_t R, std::size_t T, typename Load>
HWY_INLINE void value_tile(const typename Load::Element* value, std::size_t value_stride,
                           const float* weights, std::size_t tokens, float* acc_rows,
                           std::size_t acc_stride, const Ahead& ahead) {
  F32 acc[R][T];
  for (std::size_t r = 0; r < R; ++r) {
    for (std::size_t t = 0; t < T; ++t)
      acc[r][t] = hn::LoadU(DF(), acc_rows + r * acc_stride + t * kLanes);
  }
  for (std::size_t i = 0; i < tokens; ++i, value += value_stride, ++weights) {
    ahead.ask(i);
    F32 v[T];
    for (std::size_t t = 0; t < T; ++t) v[t] = Load::load(value + t * kLanes);
    for (std::size_t r = 0; r < R; ++r) {
      const F32 w = hn::Set(DF(), weights[r * kScoreStride]);
      for (std::size_t t = 0; t < T; ++t) acc[r][t] = hn::MulAdd(v[t], w, acc[r][t]);
    }
  }
  for (std::size_t r = 0; r < R; ++r) {
    for (std::size_t t = 0; t < T; ++t)
      hn::StoreU(acc[r][t], DF(), acc_rows + r * acc_stride + t * kLanes);
  }
}

template <std::size_t R, std::size_t T, typename Load>
HWY_INLINE std::size_t value_tiles(const typename Load::Element* value, std::size_t value_stride,
                                   const float* weights, std::size_t tokens, float* acc,
                                   std::size_t acc_stride, std::size_t t, std::size_t vectors,
                                   const Ahead& ahead) {
  for (; t + T <= vectors; t += T) {
    value_tile<R, T, Load>(value + t * kLanes, value_stride, weights, tokens, acc + t * kLanes,
                           acc_stride, part_of<Load>(ahead, t, T));
  }
  return t;
}

template <std::size_t R, typename Load>
HWY_NOINLINE void value_vectors(const typename Load::Element* value, std::size_t value_stride,
                                const float* weights, std::size_t tokens, float* acc,
                                std::size_t acc_stride, std::size_t vectors, const Ahead& ahead) {
  std::size_t t = value_tiles<R, kTileT, Load>(value, value_stride, weights, tokens, acc,
                                               acc_stride, 0, vectors, ahead);
  if constexpr (kTileT > 2) {
    t = value_tiles<R, 2, Load>(value, value_stride, weights, tokens, acc, acc_stride, t, vectors,
                                ahead);
  }
  value_tiles<R, 1, Load>(value, value_stride, weights, tokens, acc, acc_stride, t, vectors, ahead);
}

template <typename Load>
void value_rows(std::size_t rows, const typename Load::Element* value, std::size_t stride,
                const float* weights, std::size_t tokens, float* acc, std::size_t acc_stride,
                std::size_t vectors, const Ahead& ahead) {
  switch (rows) {
    case 1:
      return value_vectors<1, Load>(value, stride, weights, tokens, acc, acc_stride, vectors,
                                    ahead);
    case 2:
      return value_vectors<2, Load>(value, stride, weights, tokens, acc, acc_stride, vectors,
                                    ahead);
    case 3:
      return value_vectors<3, Load>(value, stride, weights, tokens, acc, acc_stride, vectors,
                                    ahead);
    case 4:
      return value_vectors<4, Load>(value, stride, weights, tokens, acc, acc_stride, vectors,
                                    ahead);
    case 5:
      return value_vectors<5, Load>(value, stride, weights, tokens, acc, acc_stride, vectors,
                                    ahead);
    default:
      return value_vectors<6, Load>(value, stride, weights, tokens, acc, acc_stride, vectors,
                                    ahead);
  }
}

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
    const F32 one = hn::Set(df, 1.0f);
    const F32 two = hn::Set(df, 2.0f);
    for (uint32_t t = first; t < end; t += kLanes) {
      const F32 e = exp_lanes(hn::Mul(two, hn::Div(hn::LoadU(df, scores + t), cap)));
      hn::StoreU(hn::Mul(cap, hn::Sub(one, hn::Div(two, hn::Add(e, one)))), df, scores + t);
    }
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

HWY_INLINE void write_output(const float* state, std::size_t value_dim, std::size_t value_stride,
                             float* out) {
  const F32 l = hn::Set(DF(), state[value_stride + 1]);
  for (std::size_t j = 0; j < value_dim; j += kLanes) {
    store_first(hn::Div(hn::LoadU(DF(), state + j), l), out + j, value_dim - j);
  }
}

HWY_INLINE float element_to_float(LoadF32, float x) { return x; }
HWY_INLINE float element_to_float(LoadF16, uint16_t x) { return half_to_float(x); }
HWY_INLINE float element_to_float(LoadBF16, uint16_t x) { return bf16_to_float(x); }

// `rows` rows of `count` elements to f32. Where `whole`, counts are rounded up to whole vectors,
// which the memory of a row must have; the lanes beyond are used by no score and no output. Columns
// of vectors, not rows, are the outer loop: rows are many and two to eight vectors long.
template <typename Load>
HWY_INLINE void widen(const typename Load::Element* from, std::size_t from_stride, std::size_t rows,
                      std::size_t count, bool whole, float* to, std::size_t to_stride) {
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
      to[r * to_stride + i] = element_to_float(Load(), from[r * from_stride + i]);
    }
  }
}

// One thread's walk through tasks: everything that does not change between them.
class Runner {
 public:
  Runner(const AttentionPlanImpl& plan, const PagedLayer& layer, const float* q,
         std::size_t q_stride, float* out, std::size_t out_stride, float* scratch, float* states)
      : plan_(plan),
        shape_(plan.shape),
        layer_(layer),
        q_(q),
        q_stride_(q_stride),
        out_(out),
        out_stride_(out_stride),
        states_(states) {
    const std::size_t rows = plan.tile_rows_max;
    tile_.q = scratch;
    tile_.scores = tile_.q + round_up16(rows * shape_.key_dim);
    tile_.widened = tile_.scores + rows * kScoreStride;
    tile_.acc =
        tile_.widened + kChunkTokens * std::max<std::size_t>(shape_.key_dim, plan.value_stride);
    tile_.running = tile_.acc + rows * plan.state_stride;
  }

  static constexpr std::size_t round_up16(std::size_t n) { return (n + 15) / 16 * 16; }

  // `next`: the task after this one, whose first block is asked for in time; may be null.
  void run(const AttentionTask& task, const AttentionTask* next) {
    if (task.split) {
      for (uint32_t s = task.segment_begin; s < task.segment_end; ++s) {
        gather(task, s);
        segment(task, s, next);
        for (std::size_t i = 0; i < tile_.count; ++i) {
          const TileRow& row = tile_.rows[i];
          const AttentionSplitRow& split = plan_.split_rows[plan_.row_to_split[row.row]];
          const std::size_t state =
              split.state + std::size_t{s - split.segment_begin} * shape_.heads + row.head;
          std::memcpy(states_ + state * plan_.state_stride, tile_.acc + i * plan_.state_stride,
                      plan_.state_stride * sizeof(float));
        }
      }
      return;
    }
    // Streaming: rows of one slice; the running state of (token, head) is at its place in the
    // slice.
    const AttentionSlice& slice = plan_.slices[task.slice_begin];
    bool started[kTileRowsMax] = {};
    for (uint32_t s = task.segment_begin; s < task.segment_end; ++s) {
      gather(task, s);
      if (tile_.count == 0) continue;
      segment(task, s, next);
      for (std::size_t i = 0; i < tile_.count; ++i) {
        const TileRow& row = tile_.rows[i];
        const std::size_t at = (row.row - slice.row) * plan_.group + row.head % plan_.group;
        float* running = tile_.running + at * plan_.state_stride;
        const float* state = tile_.acc + i * plan_.state_stride;
        if (started[at]) {
          merge_state(running, state, plan_.value_stride);
        } else {
          std::memcpy(running, state, plan_.state_stride * sizeof(float));
          started[at] = true;
        }
      }
    }
    for (uint32_t t = 0; t < slice.rows; ++t) {
      for (uint32_t g = 0; g < plan_.group; ++g) {
        write_output(tile_.running + (t * plan_.group + g) * plan_.state_stride, shape_.value_dim,
                     plan_.value_stride, output(slice.row + t, task.kv_head * plan_.group + g));
      }
    }
  }

  void merge_row(const AttentionSplitRow& row, uint32_t head) {
    float* first = states_ + (row.state + head) * plan_.state_stride;
    for (uint32_t s = row.segment_begin + 1; s < row.segment_end; ++s) {
      const std::size_t state =
          row.state + std::size_t{s - row.segment_begin} * shape_.heads + head;
      merge_state(first, states_ + state * plan_.state_stride, plan_.value_stride);
    }
    write_output(first, shape_.value_dim, plan_.value_stride, output(row.row, head));
  }

 private:
  float* output(uint32_t row, uint32_t head) const {
    return out_ + row * out_stride_ + head * shape_.value_dim;
  }

  // Register tiles of `count` rows: as even as they can be.
  static std::size_t register_tiles(std::size_t count) { return (count + kTileR - 1) / kTileR; }

  // Lists the rows of the task that see something of the segment, and packs their queries.
  void gather(const AttentionTask& task, uint32_t segment) {
    const uint32_t first = segment * kSegmentTokens;
    std::size_t count = 0;
    bool packed = true;  // the same rows as before: their queries are in place
    for (uint32_t i = task.slice_begin; i < task.slice_end; ++i) {
      const AttentionSlice& slice = plan_.slices[i];
      for (uint32_t t = 0; t < slice.rows; ++t) {
        const uint32_t position = slice.position + t;
        const uint32_t begin = std::max(attention_begin(shape_, position), first);
        const uint32_t end = std::min(position + 1, first + kSegmentTokens);
        if (begin >= end) continue;
        for (uint32_t g = 0; g < plan_.group; ++g, ++count) {
          TileRow& row = tile_.rows[count];
          const uint32_t head = task.kv_head * plan_.group + g;
          packed = packed && count < tile_.count && row.row == slice.row + t && row.head == head;
          row = {begin - first, end - first, slice.row + t, head};
        }
      }
    }
    packed = packed && count == tile_.count;
    tile_.count = count;
    if (packed) return;
    const std::size_t tiles = register_tiles(count);
    const F32 scale = hn::Set(DF(), shape_.scale);
    for (std::size_t i = 0; i < tiles; ++i) {
      const Range rows = split(count, i, tiles);
      float* packed = tile_.q + rows.begin * shape_.key_dim;
      for (std::size_t r = 0; r < rows.size(); ++r) {
        const TileRow& row = tile_.rows[rows.begin + r];
        const float* from = q_ + row.row * q_stride_ + row.head * shape_.key_dim;
        for (std::size_t d = 0; d < shape_.key_dim; d += kLanes) {
          const std::size_t lanes = HWY_MIN(kLanes, shape_.key_dim - d);
          alignas(64) float scaled[kLanes];
          hn::Store(hn::Mul(load_first(from + d, lanes), scale), DF(), scaled);
          for (std::size_t k = 0; k < lanes; ++k) packed[(d + k) * rows.size() + r] = scaled[k];
        }
      }
    }
  }

  // States of all gathered rows for one segment, into tile_.acc.
  void segment(const AttentionTask& task, uint32_t segment, const AttentionTask* next) {
    if (tile_.count == 0) return;
    blocks_ = plan_.slices[task.slice_begin].blocks;  // slices of a task have equal ones here
    kv_head_ = task.kv_head;
    first_ = segment * kSegmentTokens;
    begin_ = kSegmentTokens;
    end_ = 0;
    for (std::size_t i = 0; i < tile_.count; ++i) {
      begin_ = std::min(begin_, tile_.rows[i].begin);
      end_ = std::max(end_, tile_.rows[i].end);
    }
    next_keys_count_ = 0;
    if (segment + 1 < task.segment_end) {
      find_next_keys(task, segment + 1);
    } else if (next != nullptr) {
      find_next_keys(*next, next->segment_begin);
    }
    switch (layer_.key_type) {
      case KvType::kF32:
        scores<LoadF32>();
        break;
      case KvType::kBF16:
        scores<LoadBF16>();
        break;
      default:
        scores<LoadF16>();
        break;
    }
    for (std::size_t i = 0; i < tile_.count; ++i) {
      float* state = tile_.acc + i * plan_.state_stride;
      std::memset(state, 0, plan_.value_stride * sizeof(float));
      softmax_row(tile_.scores + i * kScoreStride, tile_.rows[i].begin, tile_.rows[i].end,
                  shape_.logit_softcap, state + plan_.value_stride, state + plan_.value_stride + 1);
    }
    switch (layer_.value_type) {
      case KvType::kF32:
        values<LoadF32>();
        break;
      case KvType::kBF16:
        values<LoadBF16>();
        break;
      default:
        values<LoadF16>();
        break;
    }
  }

  // The part of [at, end) that lies in one block: its block, first slot and length.
  struct Piece {
    BlockId block;
    uint32_t slot;
    uint32_t count;
  };
  Piece piece(uint32_t at, uint32_t end) const {
    const uint32_t position = first_ + at;
    const uint32_t slot = position % shape_.block_tokens;
    return {blocks_[position / shape_.block_tokens], slot,
            std::min(shape_.block_tokens - slot, end - at)};
  }

  template <typename Load>
  const typename Load::Element* key_at(const Piece& p) const {
    return reinterpret_cast<const typename Load::Element*>(layer_.key(p.block, kv_head_)) + p.slot;
  }
  template <typename Load>
  const typename Load::Element* value_at(const Piece& p) const {
    return reinterpret_cast<const typename Load::Element*>(layer_.value(p.block, kv_head_)) +
           std::size_t{p.slot} * shape_.value_dim;
  }

  // The blocks of the first chunk of a task's segment.
  void find_next_keys(const AttentionTask& task, uint32_t segment) {
    const AttentionSlice& slice = plan_.slices[task.slice_begin];
    const uint32_t begin =
        std::max(attention_begin(shape_, slice.position), segment * kSegmentTokens);
    const uint32_t end = std::min(slice.position + slice.rows, begin + kChunkTokens);
    for (uint32_t at = begin; at < end && next_keys_count_ < std::size(next_keys_);) {
      const BlockId block = slice.blocks[at / shape_.block_tokens];
      next_keys_[next_keys_count_++] =
          reinterpret_cast<const char*>(layer_.key(block, task.kv_head));
      at += shape_.block_tokens - at % shape_.block_tokens;
    }
  }

  std::size_t key_bytes() const { return layer_.key_type == KvType::kF32 ? 4 : 2; }
  std::size_t value_bytes() const { return layer_.value_type == KvType::kF32 ? 4 : 2; }

  // What is read two pieces after the one in front of `at`: keys, then values, then the next
  // segment's keys. One piece, 4 KiB of f16 at 64 channels, is over sooner than memory answers (100
  // ns x 40 GB/s).
  Ahead after_keys(uint32_t at) const {
    const Ahead ahead = keys_ahead(at, end_, 1);
    return ahead.bytes != 0 ? ahead : values_ahead(begin_, end_, at < end_ ? 0 : 1, shape_.key_dim);
  }
  Ahead after_values(uint32_t at, uint32_t iterations) const {
    const Ahead ahead = values_ahead(at, end_, 1, iterations);
    return ahead.bytes != 0 ? ahead : next_ahead(at < end_ ? 0 : 1, iterations);
  }

  // Piece `index` of the keys of [at, end), a channel an iteration.
  Ahead keys_ahead(uint32_t at, uint32_t end, std::size_t index) const {
    for (; at < end; --index) {
      const Piece p = piece(at, end);
      if (index == 0) {
        return {reinterpret_cast<const char*>(layer_.key(p.block, kv_head_)) + p.slot * key_bytes(),
                shape_.block_tokens * key_bytes(), p.count * key_bytes()};
      }
      at += p.count;
    }
    return {};
  }
  // Piece `index` of the values of [at, end).
  Ahead values_ahead(uint32_t at, uint32_t end, std::size_t index, std::size_t iterations) const {
    const std::size_t row = shape_.value_dim * value_bytes();
    for (; at < end; --index) {
      const Piece p = piece(at, end);
      if (index == 0)
        return spread(layer_.value(p.block, kv_head_) + p.slot * row, p.count * row, iterations);
      at += p.count;
    }
    return {};
  }
  // Block `index` of the keys that come after this segment.
  Ahead next_ahead(std::size_t index, std::size_t iterations) const {
    if (index >= next_keys_count_) return {};
    const std::size_t bytes =
        std::min(shape_.block_tokens, kChunkTokens) * shape_.key_dim * key_bytes();
    return spread(next_keys_[index], bytes, iterations);
  }

  template <typename Load>
  void scores() {
    const std::size_t tiles = register_tiles(tile_.count);
    const uint32_t begin = begin_ / 16 * 16;
    // Blocks of whole vectors and few rows: keys are widened in registers, each once.
    if (tiles == 1 && shape_.block_tokens % 16 == 0) {
      for (uint32_t at = begin; at < end_;) {
        const Piece p = piece(at, end_);
        score_rows<Load>(tile_.count, key_at<Load>(p), shape_.block_tokens, tile_.q, shape_.key_dim,
                         tile_.scores + at, (p.count + kLanes - 1) / kLanes,
                         after_keys(at + p.count));
        at += p.count;
      }
      return;
    }
    for (uint32_t chunk = begin; chunk < end_; chunk += kChunkTokens) {
      const uint32_t chunk_end = std::min(chunk + kChunkTokens, end_);
      // Lanes in front of begin_ belong to positions behind the window, whose block may be gone.
      const uint32_t from = std::max(chunk, begin_);
      const std::size_t vectors = (chunk_end - chunk + kLanes - 1) / kLanes;
      if (from != chunk || (chunk_end - chunk) % kLanes != 0 || shape_.block_tokens % 16 != 0) {
        for (std::size_t d = 0; d < shape_.key_dim; ++d) {
          std::memset(tile_.widened + d * kChunkTokens, 0, vectors * kLanes * sizeof(float));
        }
      }
      for (uint32_t at = from; at < chunk_end;) {
        const Piece p = piece(at, chunk_end);
        const auto* key = key_at<Load>(p);
        // Blocks of whole vectors begin on one in the chunk, too, or behind a window's start in the
        // block.
        widen<Load>(
            key, shape_.block_tokens, shape_.key_dim, p.count,
            shape_.block_tokens % 16 == 0 && p.slot % kLanes == 0 && (at - chunk) % kLanes == 0,
            tile_.widened + (at - chunk), kChunkTokens);
        at += p.count;
      }
      for (std::size_t i = 0; i < tiles; ++i) {
        const Range rows = split(tile_.count, i, tiles);
        const Range span = span_of(rows, chunk, chunk_end);
        if (span.empty()) continue;
        const std::size_t vectors_seen = (span.end - chunk + kLanes - 1) / kLanes;
        const Ahead ahead =
            chunk_end < end_
                ? keys_ahead(chunk_end, std::min(chunk_end + kChunkTokens, end_), i)
                : values_ahead(begin_,
                               std::min(begin_ / kChunkTokens * kChunkTokens + kChunkTokens, end_),
                               i, shape_.key_dim);
        score_rows<LoadWidened>(
            rows.size(), tile_.widened, kChunkTokens, tile_.q + rows.begin * shape_.key_dim,
            shape_.key_dim, tile_.scores + rows.begin * kScoreStride + chunk, vectors_seen, ahead);
      }
    }
  }

  // Positions in [from, to) that at least one of the rows sees.
  Range span_of(Range rows, uint32_t from, uint32_t to) const {
    uint32_t begin = to;
    uint32_t end = from;
    for (std::size_t i = rows.begin; i < rows.end; ++i) {
      begin = std::min(begin, std::max(tile_.rows[i].begin, from));
      end = std::max(end, std::min(tile_.rows[i].end, to));
    }
    return {begin, end};
  }

  template <typename Load>
  void values() {
    const std::size_t tiles = register_tiles(tile_.count);
    if (tiles == 1 && shape_.value_dim % 16 == 0) {
      for (uint32_t at = begin_; at < end_;) {
        const Piece p = piece(at, end_);
        value_span<Load>({0, tile_.count}, value_at<Load>(p), shape_.value_dim, at, at + p.count,
                         after_values(at + p.count, p.count));
        at += p.count;
      }
      return;
    }
    for (uint32_t chunk = begin_ / kChunkTokens * kChunkTokens; chunk < end_;
         chunk += kChunkTokens) {
      const uint32_t from = std::max(chunk, begin_);
      const uint32_t to = std::min(chunk + kChunkTokens, end_);
      for (uint32_t at = from; at < to;) {
        const Piece p = piece(at, to);
        float* wide = tile_.widened + (at - from) * plan_.value_stride;
        widen<Load>(value_at<Load>(p), shape_.value_dim, p.count, shape_.value_dim, false, wide,
                    plan_.value_stride);
        for (uint32_t t = 0; t < p.count && shape_.value_dim < plan_.value_stride; ++t) {
          std::fill(wide + t * plan_.value_stride + shape_.value_dim,
                    wide + (t + 1) * plan_.value_stride, 0.0f);
        }
        at += p.count;
      }
      for (std::size_t i = 0; i < tiles; ++i) {
        const Ahead ahead = to < end_
                                ? values_ahead(to, std::min(to + kChunkTokens, end_), i, to - from)
                                : next_ahead(i, to - from);
        value_span<LoadWidened>(split(tile_.count, i, tiles), tile_.widened, plan_.value_stride,
                                from, to, ahead);
      }
    }
  }

  // Adds the positions [from, to) to the rows' outputs; `value` holds position `from`. Positions
  // that only some of the rows see go row by row: a weight of 0 would not hide a value that is not
  // finite.
  template <typename Load>
  void value_span(Range rows, const typename Load::Element* value, std::size_t stride,
                  uint32_t from, uint32_t to, const Ahead& ahead) {
    uint32_t common_begin = from;
    uint32_t common_end = to;
    for (std::size_t i = rows.begin; i < rows.end; ++i) {
      common_begin = std::max(common_begin, tile_.rows[i].begin);
      common_end = std::min(common_end, tile_.rows[i].end);
    }
    const std::size_t vectors = plan_.value_stride / kLanes;
    const auto add = [&](Range some, uint32_t begin, uint32_t end, const Ahead& next) {
      if (begin >= end) return;
      value_rows<Load>(some.size(), value + (begin - from) * stride, stride,
                       tile_.scores + some.begin * kScoreStride + begin, end - begin,
                       tile_.acc + some.begin * plan_.state_stride, plan_.state_stride, vectors,
                       next);
    };
    if (common_begin >= common_end) {
      for (std::size_t i = rows.begin; i < rows.end; ++i) {
        add({i, i + 1}, std::max(from, tile_.rows[i].begin), std::min(to, tile_.rows[i].end), {});
      }
      return;
    }
    for (std::size_t i = rows.begin; i < rows.end; ++i) {
      add({i, i + 1}, std::max(from, tile_.rows[i].begin), common_begin, {});
    }
    add(rows, common_begin, common_end, ahead);
    for (std::size_t i = rows.begin; i < rows.end; ++i) {
      add({i, i + 1}, common_end, std::min(to, tile_.rows[i].end), {});
    }
  }

  const AttentionPlanImpl& plan_;
  const AttentionShape& shape_;
  const PagedLayer& layer_;
  const float* q_;
  std::size_t q_stride_;
  float* out_;
  std::size_t out_stride_;
  float* states_;
  Tile tile_;
  // Of the present segment:
  const BlockId* blocks_ = nullptr;
  uint32_t kv_head_ = 0;
  uint32_t first_ = 0;  // its first position
  uint32_t begin_ = 0;  // positions that any row sees, counted from first_
  uint32_t end_ = 0;
  const char* next_keys_[4] = {};  // blocks whose keys are read after this segment
  std::size_t next_keys_count_ = 0;
};

void run_tasks(AttentionPlanImpl& plan, const PagedLayer& layer, const float* q,
               std::size_t q_stride, float* out, std::size_t out_stride, std::size_t thread,
               Range tasks) {
  Runner runner(plan, layer, q, q_stride, out, out_stride,
                plan.scratch.data() + thread * plan.scratch_stride, plan.states.data());
  for (std::size_t i = tasks.begin; i < tasks.end; ++i) {
    runner.run(plan.tasks[i], i + 1 < tasks.end ? &plan.tasks[i + 1] : nullptr);
  }
}

void merge_rows(AttentionPlanImpl& plan, const PagedLayer& layer, float* out,
                std::size_t out_stride, std::size_t thread, Range rows_and_heads) {
  Runner runner(plan, layer, nullptr, 0, out, out_stride,
                plan.scratch.data() + thread * plan.scratch_stride, plan.states.data());
  const std::size_t heads = plan.shape.heads;
  for (std::size_t i = rows_and_heads.begin; i < rows_and_heads.end; ++i) {
    runner.merge_row(plan.split_rows[i / heads], static_cast<uint32_t>(i % heads));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pagewise::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagewise::kernels {

HWY_EXPORT(run_tasks);
HWY_EXPORT(merge_rows);

void attention(AttentionPlan& plan, const PagedLayer& layer, const float* q, std::size_t q_stride,
               float* out, std::size_t out_stride, const ThreadPool::Context& context) {
  AttentionPlanImpl& impl = plan.impl();
  const AttentionShape& shape = impl.shape;
  PW_CHECK(layer.kv_heads == shape.kv_heads && layer.key_dim == shape.key_dim &&
           layer.value_dim == shape.value_dim && layer.block_tokens == shape.block_tokens);
  PW_CHECK(context.threads() <= impl.limits.threads);
  // Thread i takes the tasks that begin in the i-th part of the total cost.
  const auto first_task = [&](std::size_t i) {
    const uint64_t from = impl.cost_before.back() * i / context.threads();
    return static_cast<std::size_t>(
        std::lower_bound(impl.cost_before.begin(), impl.cost_before.end() - 1, from) -
        impl.cost_before.begin());
  };
  const Range tasks{first_task(context.index()), context.index() + 1 == context.threads()
                                                     ? impl.tasks.size()
                                                     : first_task(context.index() + 1)};
  HWY_DYNAMIC_DISPATCH(run_tasks)
  (impl, layer, q, q_stride, out, out_stride, context.index(), tasks);
  if (impl.split_rows.empty()) return;
  context.barrier();
  HWY_DYNAMIC_DISPATCH(merge_rows)
  (impl, layer, out, out_stride, context.index(),
   context.share(impl.split_rows.size() * shape.heads));
}

}  // namespace pagewise::kernels
#endif  // HWY_ONCE
