// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
//
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/check.h"
#include "kernels/attention/plan.h"
#include "kernels/attention/softmax-inl.h"
#include "kernels/attention/tiles-inl.h"
#include "kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagewise::kernels {
namespace HWY_NAMESPACE {

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

// One thread's walk through tasks: everything that does not change between them.
class Runner {
 public:
  Runner(AttentionPlanImpl& plan, const PagedLayer& layer, const float* q, std::size_t q_stride,
         const float* sinks, float* out, std::size_t out_stride, float* scratch, float* states)
      : plan_(plan),
        shape_(plan.shape),
        layer_(layer),
        q_(q),
        q_stride_(q_stride),
        sinks_(sinks),
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

  // Task `index` of this thread's `tasks`.
  void run(std::size_t index, Range tasks) {
    const AttentionTask& task = plan_.tasks[index];
    // Its first block is asked for in time.
    const AttentionTask* const next = index + 1 < tasks.end ? &plan_.tasks[index + 1] : nullptr;
    if (task.split) {
      chained_ = task.chain_begin != AttentionTask::kNoChain && task.chain_begin >= tasks.begin;
      gather(task, task.segment_begin);
      segment(task, task.segment_begin, next);
      for (std::size_t i = 0; i < tile_.count; ++i)
        keep_split_state(tile_.rows[i], task.segment_begin, tile_.acc + i * plan_.state_stride);
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
        finish(tile_.running + (t * plan_.group + g) * plan_.state_stride, slice.row + t,
               task.kv_head * plan_.group + g);
      }
    }
  }

  void merge_row(const AttentionSplitRow& row, uint32_t head) {
    float* const first = split_state(row, row.segment_begin, head);
    const uint32_t merged = merged_segments(row, head / plan_.group);
    for (uint32_t s = row.segment_begin + merged; s < row.segment_end; ++s)
      merge_state(first, split_state(row, s, head), plan_.value_stride);
    finish(first, row.row, head);
  }

 private:
  float* split_state(const AttentionSplitRow& row, uint32_t segment, uint32_t head) const {
    const std::size_t state =
        row.state + std::size_t{segment - row.segment_begin} * shape_.heads + head;
    return states_ + state * plan_.state_stride;
  }
  uint32_t& merged_segments(const AttentionSplitRow& row, uint32_t kv_head) const {
    const auto index = static_cast<std::size_t>(&row - plan_.split_rows.data());
    return plan_.merged[kv_head * plan_.split_rows.size() + index];
  }

  // A row's state of one segment: to its place, or where this thread has had all earlier ones,
  // merged into these while they are in its cache.
  void keep_split_state(const TileRow& tile_row, uint32_t segment, const float* state) {
    const AttentionSplitRow& row = plan_.split_rows[plan_.row_to_split[tile_row.row]];
    if (segment != row.segment_begin && chained_) {
      merge_state(split_state(row, row.segment_begin, tile_row.head), state, plan_.value_stride);
    } else {
      std::memcpy(split_state(row, segment, tile_row.head), state,
                  plan_.state_stride * sizeof(float));
      if (segment != row.segment_begin) return;
    }
    merged_segments(row, kv_head_) = segment + 1 - row.segment_begin;
  }

  // From the state of all its segments to a row's output.
  void finish(float* state, uint32_t row, uint32_t head) const {
    if (sinks_ != nullptr) merge_sink(state, sinks_[head], plan_.value_stride);
    write_output(state, shape_.value_dim, plan_.value_stride,
                 out_ + row * out_stride_ + head * shape_.value_dim);
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
    for (std::size_t i = 0; i < tiles; ++i) {
      const Range rows = split(count, i, tiles);
      const float* queries[kTileR] = {};
      for (std::size_t r = 0; r < rows.size(); ++r) {
        const TileRow& row = tile_.rows[rows.begin + r];
        queries[r] = q_ + row.row * q_stride_ + row.head * shape_.key_dim;
      }
      pack_queries(queries, rows.size(), shape_.key_dim, shape_.scale,
                   tile_.q + rows.begin * shape_.key_dim);
    }
  }

  // States of all gathered rows for one segment, into tile_.acc.
  void segment(const AttentionTask& task, uint32_t segment, const AttentionTask* next) {
    if (tile_.count == 0) return;
    blocks_ = plan_.slices[task.slice_begin].blocks;  // slices of a task have equal ones here
    kv_head_ = task.kv_head;
    first_ = segment * kSegmentTokens;
    begin_ = tile_.rows[0].begin;
    end_ = tile_.rows[0].end;
    uniform_ = true;
    for (std::size_t i = 1; i < tile_.count; ++i) {
      const TileRow& row = tile_.rows[i];
      uniform_ = uniform_ && row.begin == begin_ && row.end == end_;
      begin_ = std::min(begin_, row.begin);
      end_ = std::max(end_, row.end);
    }
    next_keys_count_ = 0;
    if (segment + 1 < task.segment_end) {
      find_next_keys(task, segment + 1);
    } else if (next != nullptr) {
      find_next_keys(*next, next->segment_begin);
    }
    switch (layer_.key_type) {
      case KvType::kF16:
        scores<PlainKeys<LoadF16>>();
        break;
      case KvType::kBF16:
        scores<PlainKeys<LoadBF16>>();
        break;
      case KvType::kF32:
        scores<PlainKeys<LoadF32>>();
        break;
      case KvType::kQ8_0:
        scores<QuantKeys>();
        break;
    }
    for (std::size_t i = 0; i < tile_.count; ++i) {
      float* state = tile_.acc + i * plan_.state_stride;
      std::memset(state, 0, plan_.value_stride * sizeof(float));
      softmax_row(tile_.scores + i * kScoreStride, tile_.rows[i].begin, tile_.rows[i].end,
                  shape_.logit_softcap, state + plan_.value_stride, state + plan_.value_stride + 1);
    }
    switch (layer_.value_type) {
      case KvType::kF16:
        values<PlainValues<LoadF16>, PlainKeys<LoadF16>>();
        break;
      case KvType::kBF16:
        values<PlainValues<LoadBF16>, PlainKeys<LoadBF16>>();
        break;
      case KvType::kF32:
        values<PlainValues<LoadF32>, PlainKeys<LoadF32>>();
        break;
      case KvType::kQ8_0:
        values<QuantValues, QuantKeys>();
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

  template <typename Keys>
  Keys key_at(const Piece& p) const {
    return Keys::at(layer_.key(p.block, kv_head_), p.slot, shape_.block_tokens, shape_.key_dim);
  }
  template <typename Values>
  Values value_at(const Piece& p) const {
    return Values::at(layer_.value(p.block, kv_head_), p.slot, shape_.block_tokens,
                      shape_.value_dim);
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

  // What is read two pieces after the one in front of `at`: keys, then values, then the next
  // segment's keys. One piece, 4 KiB of f16 at 64 channels, is over sooner than memory answers (100
  // ns x 40 GB/s).
  Ahead after_keys(uint32_t at) const {
    const Ahead ahead = keys_ahead(at, end_, 1);
    return !ahead.empty() ? ahead : values_ahead(begin_, end_, at < end_ ? 0 : 1, shape_.key_dim);
  }
  Ahead after_values(uint32_t at, uint32_t iterations) const {
    const Ahead ahead = values_ahead(at, end_, 1, iterations);
    return !ahead.empty() ? ahead : next_ahead(at < end_ ? 0 : 1, iterations);
  }

  // Piece `index` of the keys of [at, end), a channel an iteration.
  Ahead keys_ahead(uint32_t at, uint32_t end, std::size_t index) const {
    for (; at < end; --index) {
      const Piece p = piece(at, end);
      if (index == 0) {
        return {reinterpret_cast<const char*>(layer_.key(p.block, kv_head_)) + p.slot * key_bytes_,
                shape_.block_tokens * key_bytes_};
      }
      at += p.count;
    }
    return {};
  }
  // Piece `index` of the values of [at, end).
  Ahead values_ahead(uint32_t at, uint32_t end, std::size_t index, std::size_t iterations) const {
    for (; at < end; --index) {
      const Piece p = piece(at, end);
      if (index == 0) {
        return spread(layer_.value(p.block, kv_head_) + p.slot * shape_.value_dim * value_bytes_,
                      p.count * value_row_bytes_, iterations);
      }
      at += p.count;
    }
    return {};
  }
  // Block `index` of the keys that come after this segment.
  Ahead next_ahead(std::size_t index, std::size_t iterations) const {
    if (index >= next_keys_count_) return {};
    const std::size_t bytes = std::min(shape_.block_tokens, kChunkTokens) * key_row_bytes_;
    return spread(next_keys_[index], bytes, iterations);
  }

  // Register tiles up to which `Source` is read as it is stored. Scales are worth undoing once.
  template <typename Source>
  static constexpr std::size_t unwidened_tiles(std::size_t plain) {
    return Source::kScaled ? 1 : plain;
  }

  template <typename Keys>
  void scores() {
    const std::size_t tiles = register_tiles(tile_.count);
    const uint32_t begin = begin_ / 16 * 16;
    // Blocks of whole vectors: keys may be widened in registers.
    if (tiles <= unwidened_tiles<Keys>(kUnwidenedKeys) && shape_.block_tokens % 16 == 0) {
      for (uint32_t at = begin; at < end_;) {
        const Piece p = piece(at, end_);
        const Keys keys = key_at<Keys>(p);
        for (std::size_t i = 0; i < tiles; ++i) {
          const Range rows = split(tile_.count, i, tiles);
          const Range span = span_of(rows, at, at + p.count);
          if (span.empty()) continue;
          score_rows(rows.size(), keys, tile_.q + rows.begin * shape_.key_dim, shape_.key_dim,
                     tile_.scores + rows.begin * kScoreStride + at,
                     (span.end - at + kLanes - 1) / kLanes,
                     i == 0 ? after_keys(at + p.count) : Ahead());
        }
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
        // Blocks of whole vectors begin on one in the chunk, too, or behind a window's start in the
        // block.
        widen_keys(
            key_at<Keys>(p), shape_.key_dim, p.count,
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
        score_rows(rows.size(), WidenedKeys{{tile_.widened, kChunkTokens}},
                   tile_.q + rows.begin * shape_.key_dim, shape_.key_dim,
                   tile_.scores + rows.begin * kScoreStride + chunk, vectors_seen, ahead);
      }
    }
  }

  // Positions in [from, to) that at least one of the rows sees.
  Range span_of(Range rows, uint32_t from, uint32_t to) const {
    if (uniform_) return {std::max(from, begin_), std::min(to, end_)};
    uint32_t begin = to;
    uint32_t end = from;
    for (std::size_t i = rows.begin; i < rows.end; ++i) {
      begin = std::min(begin, std::max(tile_.rows[i].begin, from));
      end = std::max(end, std::min(tile_.rows[i].end, to));
    }
    return {begin, end};
  }

  // `Keys`: how values are read that are a part of the keys. These lie by channel, so they are
  // always turned over into scratch: latent attention has all query heads on one KV head, which
  // share that.
  template <typename Values, typename Keys>
  void values() {
    const std::size_t tiles = register_tiles(tile_.count);
    if (!layer_.latent && tiles <= unwidened_tiles<Values>(kUnwidenedValues) &&
        shape_.value_dim % 16 == 0) {
      for (uint32_t at = begin_; at < end_;) {
        const Piece p = piece(at, end_);
        Values values = value_at<Values>(p);
        if constexpr (Values::kScaled) widen_scales(values, p.count, tile_.widened);
        for (std::size_t i = 0; i < tiles; ++i) {
          value_span(split(tile_.count, i, tiles), values, at, at + p.count,
                     i == 0 ? after_values(at + p.count, p.count) : Ahead());
        }
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
        if (layer_.latent) {
          widen_values_of_keys(key_at<Keys>(p), shape_.value_dim, p.count, wide,
                               plan_.value_stride);
        } else {
          widen_values(value_at<Values>(p), shape_.value_dim, p.count, wide, plan_.value_stride);
        }
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
        value_span(split(tile_.count, i, tiles), WidenedValues{{tile_.widened, plan_.value_stride}},
                   from, to, ahead);
      }
    }
  }

  // Adds the positions [from, to) to the rows' outputs; `values` begin with position `from`.
  // Positions that only some of the rows see go row by row: a weight of 0 would not hide a value
  // that is not finite.
  template <typename Values>
  void value_span(Range rows, const Values& values, uint32_t from, uint32_t to,
                  const Ahead& ahead) {
    uint32_t common_begin = from;
    uint32_t common_end = to;
    for (std::size_t i = rows.begin; i < rows.end && !uniform_; ++i) {
      common_begin = std::max(common_begin, tile_.rows[i].begin);
      common_end = std::min(common_end, tile_.rows[i].end);
    }
    const std::size_t vectors = plan_.value_stride / kLanes;
    const auto add = [&](Range some, uint32_t begin, uint32_t end, const Ahead& next) {
      if (begin >= end) return;
      value_rows(some.size(), values.behind(begin - from),
                 tile_.scores + some.begin * kScoreStride + begin, end - begin,
                 tile_.acc + some.begin * plan_.state_stride, plan_.state_stride, vectors, next);
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

  AttentionPlanImpl& plan_;
  const AttentionShape& shape_;
  const PagedLayer& layer_;
  const float* q_;
  std::size_t q_stride_;
  const float* sinks_;  // [heads], or null
  float* out_;
  std::size_t out_stride_;
  float* states_;
  Tile tile_;
  bool chained_ = false;  // this thread has had all earlier segments of the split task's rows
  // Of the present segment:
  const BlockId* blocks_ = nullptr;
  uint32_t kv_head_ = 0;
  uint32_t first_ = 0;  // its first position
  uint32_t begin_ = 0;  // positions that any row sees, counted from first_
  uint32_t end_ = 0;
  bool uniform_ = false;  // all rows see these
  // Of the cache types: an element, and a whole row with its scales.
  std::size_t key_bytes_ = kv_element_bytes(layer_.key_type);
  std::size_t value_bytes_ = kv_element_bytes(layer_.value_type);
  std::size_t key_row_bytes_ = kv_row_bytes(layer_.key_type, layer_.key_dim);
  std::size_t value_row_bytes_ = kv_row_bytes(layer_.value_type, layer_.value_dim);
  const char* next_keys_[4] = {};  // blocks whose keys are read after this segment
  std::size_t next_keys_count_ = 0;
};

void run_tasks(AttentionPlanImpl& plan, const PagedLayer& layer, const float* q,
               std::size_t q_stride, const float* sinks, float* out, std::size_t out_stride,
               std::size_t thread, Range tasks) {
  Runner runner(plan, layer, q, q_stride, sinks, out, out_stride,
                plan.scratch.data() + thread * plan.scratch_stride, plan.states.data());
  for (std::size_t i = tasks.begin; i < tasks.end; ++i) runner.run(i, tasks);
}

void merge_rows(AttentionPlanImpl& plan, const PagedLayer& layer, const float* sinks, float* out,
                std::size_t out_stride, std::size_t thread, Range rows_and_heads) {
  Runner runner(plan, layer, nullptr, 0, sinks, out, out_stride,
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
               float* out, std::size_t out_stride, const ThreadPool::Context& context,
               const float* sinks) {
  AttentionPlanImpl& impl = plan.impl();
  const AttentionShape& shape = impl.shape;
  PW_CHECK(layer.kv_heads == shape.kv_heads && layer.key_dim == shape.key_dim &&
           layer.value_dim == shape.value_dim && layer.block_tokens == shape.block_tokens);
  PW_CHECK(!layer.latent ||
           (layer.value_dim <= layer.key_dim && layer.value_type == layer.key_type));
  PW_CHECK(context.threads() <= impl.limits.threads);
  // Thread i begins with the task that is nearest to the i-th part of the total cost.
  const auto first_task = [&](std::size_t i) {
    const uint64_t from = impl.cost_before.back() * i / context.threads();
    auto task = std::lower_bound(impl.cost_before.begin(), impl.cost_before.end() - 1, from);
    if (task != impl.cost_before.begin() && from - task[-1] < *task - from) --task;
    return static_cast<std::size_t>(task - impl.cost_before.begin());
  };
  const Range tasks{first_task(context.index()), context.index() + 1 == context.threads()
                                                     ? impl.tasks.size()
                                                     : first_task(context.index() + 1)};
  HWY_DYNAMIC_DISPATCH(run_tasks)
  (impl, layer, q, q_stride, sinks, out, out_stride, context.index(), tasks);
  if (impl.split_rows.empty()) return;
  context.barrier();
  HWY_DYNAMIC_DISPATCH(merge_rows)
  (impl, layer, sinks, out, out_stride, context.index(),
   context.share(impl.split_rows.size() * shape.heads));
}

}  // namespace pagewise::kernels
#endif  // HWY_ONCE
