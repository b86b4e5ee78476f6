// SPDX-License-Identifier: Apache-2.0
// What planning and running attention agree on. Not for other folders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/aligned.h"
#include "kernels/attention/attention.h"

namespace pagewise::kernels {

/// Some rows of one run: one token each.
struct AttentionSlice {
  uint32_t row = 0;       // first row among the step's rows
  uint32_t rows = 0;      // tokens
  uint32_t position = 0;  // of the first
  const BlockId* blocks = nullptr;
};

/// One KV head, some slices and some segments. A streaming task has one slice and merges its
/// segments; a split task leaves the state of each (row, head, segment) in scratch, and its slices
/// have equal blocks in its segments.
struct AttentionTask {
  uint32_t kv_head = 0;
  uint32_t slice_begin = 0;
  uint32_t slice_end = 0;
  uint32_t segment_begin = 0;
  uint32_t segment_end = 0;
  bool split = false;
  bool few_rows = false;  // a split task that waits for its keys and values
  // Of a split task, which has one segment: the task with the first segment of its rows, if tasks
  // of the same rows for all segments between stand between them in the order of tasks.
  uint32_t chain_begin = kNoChain;

  static constexpr uint32_t kNoChain = UINT32_MAX;
};

/// A row whose segments are merged after the barrier.
struct AttentionSplitRow {
  uint32_t row = 0;
  uint32_t segment_begin = 0;
  uint32_t segment_end = 0;
  std::size_t state = 0;  // index of (segment_begin, head 0); [segment][head] from there
};

/// Tile rows (tokens x heads of a group) of one task, at most.
inline constexpr uint32_t kTileRows = 96;
/// Unless one token has more: query heads of a KV head, at most.
inline constexpr uint32_t kTileRowsMax = 256;
/// Widened keys and values at a time: 64 tokens x 64 channels = 16 KiB.
inline constexpr uint32_t kChunkTokens = 64;
/// Distance of the rows of scores, in floats: a segment, and a cache line against equal low address
/// bits.
inline constexpr uint32_t kScoreStride = kSegmentTokens + 16;

struct AttentionPlanImpl {
  AttentionShape shape;
  AttentionLimits limits;

  uint32_t group = 0;              // query heads of a KV head
  uint32_t tile_rows_max = 0;      // max(kTileRows, group)
  uint32_t tile_tokens_max = 0;    // tile_rows_max / group
  std::size_t value_stride = 0;    // value_dim in whole vectors of 16
  std::size_t state_stride = 0;    // floats of a state: acc [value_stride], then m, l
  std::size_t states_max = 0;      // (row, head, segment) states that scratch holds
  std::size_t scratch_stride = 0;  // floats per thread
  AlignedArray<float> states;
  AlignedArray<float> scratch;

  // The plan.
  std::vector<AttentionSlice> slices;
  std::vector<AttentionTask> tasks;
  std::vector<uint64_t> cost_before;  // of all earlier tasks; one more entry than tasks
  std::vector<AttentionSplitRow> split_rows;
  std::vector<uint32_t> row_to_split;  // index into split_rows by step row
  // [KV head][split row]: how many of its segments are merged in the first one's place already.
  // Written by the thread that has the first one, read after the barrier.
  std::vector<uint32_t> merged;
  std::vector<uint32_t> order;  // slices being grouped

  Range segments_of(uint32_t position, uint32_t rows) const;
  bool add_split_rows(const AttentionSlice& slice);
  uint64_t cost(const AttentionTask& task) const;
  void chain_split_tasks();
  void arrange();
  void plan_streaming(const PagedRun& run);
  void plan_split(std::size_t slice_begin, std::size_t slice_end);
};

/// Positions that the row at `position` sees: [begin, position + 1).
inline uint32_t attention_begin(const AttentionShape& shape, uint32_t position) {
  return shape.window != 0 && position + 1 > shape.window ? position + 1 - shape.window : 0;
}

/// Floats of scratch that one thread's tile takes.
std::size_t attention_scratch_floats(const AttentionPlanImpl& impl);

}  // namespace pagewise::kernels
