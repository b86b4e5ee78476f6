// SPDX-License-Identifier: Apache-2.0
// Attention of a step's query rows over paged KV.
//
// Arithmetic (contract rules 3 to 6), for one query row at position p and one head:
//   Positions [p - window + 1, p] (or [0, p]) are cut at absolute multiples of 256 into segments.
//   In a segment: s[t] = sum over d, ascending, of (q[d] * scale) * k[t][d], one FMA chain; m = max
//   s over the valid positions; w[t] = exp(s[t] - m), exactly 0 for the others; l = sum of w in a
//   fixed tree by position; acc[j] = FMA chain over t, ascending, of w[t] * v[t][j]. Segment states
//   (m, l, acc) merge left to right; out = acc / l.
//   A head's sink, a score without a position and without a value, merges behind the last segment:
//   as (sink, 1, 0). Source: OpenAI 2025 (arXiv 2508.10925).
// Tile, thread, batch, block size and who shares which block do not enter, so they cannot show.
//
// Work: AttentionPlan turns a step's runs into tasks once; every layer of the group then uses it.
// Rows of all runs that have the same blocks in a segment are one task (shared-prefix attention):
// their keys and values are read from memory, and widened to f32, once. The query heads of a KV
// head always share them.
//   streaming task   (KV head, tile of rows): walks its segments left to right with a running state
//   split task       (KV head, rows with the same blocks, segment): leaves the segment's state in
//   scratch;
//                    after a barrier each row's states are merged left to right
// Split tasks serve short runs over long contexts, where there are too few tiles for the threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "kernels/paged_view.h"
#include "kernels/thread_pool.h"

namespace pagewise::kernels {

inline constexpr uint32_t kSegmentTokens = 256;

struct AttentionShape {
  uint32_t heads = 0;  // query heads; a multiple of kv_heads
  uint32_t kv_heads = 0;
  uint32_t key_dim = 0;
  uint32_t value_dim = 0;
  uint32_t block_tokens = 0;
  uint32_t window = 0;      // 0: all positions up to the row's own; else the last `window` of them
  float scale = 1.0f;       // on q before the dot product, usually 1 / sqrt(key_dim)
  float logit_softcap = 0;  // c > 0: s = c * tanh(s / c); 0: none
};

/// Whether attention offers the shape. Errors: kUnsupported saying which numbers it cannot do (no
/// file's numbers reach a PW_CHECK after this).
Status check_attention_shape(const AttentionShape& shape);

struct AttentionLimits {
  uint32_t rows_max = 0;  // of a step, all runs together
  uint32_t runs_max = 0;
  uint32_t context_max = 0;  // positions of one sequence
  uint32_t threads = 1;
};

struct AttentionPlanImpl;  // attention/plan.h

/// Tasks of one step for one group of layers, and the scratch memory to run them.
/// Thread: build() from one thread, then attention() from all threads of a region.
/// Memory: all of it in the constructor: thread_bytes() for each thread, and address space for
/// states of split tasks, whose pages come when they are first written.
class AttentionPlan {
 public:
  /// Requires: check_attention_shape passes.
  AttentionPlan(const AttentionShape& shape, const AttentionLimits& limits);

  /// Bytes that each thread works in, for capacity planning. Requires: as the constructor.
  static std::size_t thread_bytes(const AttentionShape& shape);
  /// The same of all threads of this plan, as allocated.
  std::size_t bytes() const;

  /// Plans a step. `runs` and the block lists must stay valid until the step's last attention().
  /// Requires: within the limits; runs' rows disjoint.
  void build(std::span<const PagedRun> runs);

  ~AttentionPlan();
  AttentionPlan(AttentionPlan&&) noexcept;
  AttentionPlan& operator=(AttentionPlan&&) noexcept;

  AttentionPlanImpl& impl() { return *impl_; }  // for kernels

 private:
  std::unique_ptr<AttentionPlanImpl> impl_;
};

/// Computes out[row] for every row of the planned runs. q: [rows][heads * key_dim] after RoPE, out:
/// [rows][heads * value_dim]; strides in floats. Where the layer's V is a part of K (latent), the
/// same bits as if it were stored apart. Called by all threads of a region with their own context,
/// after a barrier that follows store_kv. Contains a barrier of its own when the plan has split
/// tasks; the caller needs one after it. Requires: `layer` has the shape the plan was made for.
/// `sinks`: [heads], finite; null: there are none.
void attention(AttentionPlan& plan, const PagedLayer& layer, const float* q, std::size_t q_stride,
               float* out, std::size_t out_stride, const ThreadPool::Context& context,
               const float* sinks = nullptr);

}  // namespace pagewise::kernels
