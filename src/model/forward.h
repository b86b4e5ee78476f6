// SPDX-License-Identifier: Apache-2.0
// The forward pass of a decoder: embeddings, layers of attention and feed-forward, output head.
//
// One step is one parallel region, in one of two schedules over the same kernels:
//   few rows   every thread computes its share of each matrix's outputs, for all rows. What is
//   local to a row
//              (norms, quantising) is repeated by each thread for up to kSoloRows rows, because a
//              barrier costs more than 600 values, and divided by rows beyond that.
//   many rows  every thread carries its own rows, a tile at a time, from one layer's attention to
//   the next
//              one's K and V; a tile's activations stay in its core's cache, the weights pass by.
//              Threads meet twice a layer, around attention.
// Both give the same bits: an output is a function of its own row (contract rule 1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/aligned.h"
#include "kernels/attention/attention.h"
#include "kernels/linear/activations.h"
#include "kernels/ops.h"
#include "kernels/thread_pool.h"
#include "model/executor.h"
#include "model/forward_memory.h"
#include "model/kv_arena.h"
#include "model/spec.h"
#include "model/weights.h"

namespace pagewise::model {

/// Float memory that takes address space at once and pages when they are first written: logits of
/// every row of a step are possible, and never happen in serving.
class LazyFloats {
 public:
  explicit LazyFloats(std::size_t count);  // throws std::bad_alloc
  ~LazyFloats();
  LazyFloats(const LazyFloats&) = delete;
  LazyFloats& operator=(const LazyFloats&) = delete;
  float* data() { return data_; }

 private:
  float* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Thread: one at a time; all memory is taken by the constructor (which may throw std::bad_alloc).
class Forward {
 public:
  /// Everything must outlive the pass.
  Forward(const ModelSpec& spec, const ModelWeights& weights, KvArena& arena,
          kernels::ThreadPool& pool, ForwardLimits limits);

  /// Writes K and V of every row, returns the logits of the asked rows; valid until the next call.
  /// Requires: within the limits, token ids in the vocabulary, blocks committed.
  LogitsView run(std::span<const StepRun> runs);

  /// Bytes that are held from the start on, counted as they were allocated: forward_bytes().
  uint64_t scratch_bytes() const;

 private:
  using Context = kernels::ThreadPool::Context;
  using Range = kernels::Range;

  static constexpr uint32_t kTileRows = kForwardTileRows;
  static constexpr uint32_t kSoloRows = kForwardSoloRows;
  static constexpr uint32_t kFfnChunk = kForwardFfnChunk;

  /// What one thread works in.
  struct ThreadScratch {
    kernels::Activations embedding;              // [kTileRows][embedding]
    kernels::Activations embedding_rest;         // [kTileRows][embedding]
    kernels::Activations ffn;                    // [kTileRows][ffn]; empty with experts alone
    std::vector<kernels::Activations> attended;  // by group: [kSoloRows][attended_dim]
    kernels::AlignedArray<float> out;            // [kTileRows][embedding]
    kernels::AlignedArray<float> gate, up;       // [kTileRows][kFfnChunk]
    kernels::AlignedArray<float> value_rest;     // [kTileRows][rest_stride]
    // Of a model with latent attention.
    kernels::Activations query_latent;  // [kTileRows][query_rank]
    kernels::Activations head_query;    // [kTileRows][plain_dims]: one head's
    kernels::Activations head_latent;   // [kTileRows][rank]: what attention gave one head
    // Of a model with experts.
    kernels::Activations chosen;          // [kTileRows][embedding]: rows of one expert
    kernels::Activations expert, shared;  // [kTileRows][experts.ffn], [shared_ffn]
    kernels::AlignedArray<float> mixed;   // [kTileRows][embedding]
    kernels::AlignedArray<float> router;  // [experts.count]: weights
    kernels::AlignedArray<float> choice;  // [experts.count]: what experts are picked by
    kernels::AlignedArray<float> groups;  // [experts.groups]

    uint64_t bytes() const;
  };
  /// Normed rows, and what their int8 form leaves over, as int8 again: with both, an activation has
  /// 16 bits. V reads both. Of all weights V suffers most from 8-bit activations (with f32 ones for
  /// V alone, the mean divergence from the exact pass falls from 0.0020 to 0.0014 on SmolLM2; the
  /// same for Q, K, the output, gate and up, or down gives less or nothing), and it is a thirtieth
  /// of a layer.
  struct Normed {
    const kernels::Activations& rows;
    const kernels::Activations& rest;
  };
  /// The experts of a row in ascending order, which is also the order in which what they give is
  /// added up, and their weights.
  struct Route {
    uint32_t* experts;  // [experts.used]
    float* weights;     // [experts.used]
    float* shared;      // of the shared expert
  };
  /// Heads that one thread computes in the few-rows schedule.
  struct HeadShare {
    Range query_heads;
    Range kv_heads;
  };

  void few_rows(const Context& context);
  void many_rows(const Context& context);
  uint32_t attend(std::size_t layer, const Context& context);
  void finish_layer_few(std::size_t layer, uint32_t rows, const Context& context);
  void finish_layer_tile(std::size_t layer, Range rows, ThreadScratch& scratch);
  void output_head(const Context& context);

  // The steps of a layer. `rows` are rows of the step.
  void embed(Range rows);
  void project_heads(const LayerSpec& spec, const LayerWeights& weights, Normed in, Range rows,
                     HeadShare share, float* value_rest);
  void project_panels(const LayerWeights& weights, Normed in, const Context& context);
  void project(const Matrix& matrix, const kernels::AlignedArray<float>& bias,
               const kernels::Activations& in, std::size_t rows, Range panels, float* out,
               std::size_t stride);
  void project_with_rest(const Matrix& matrix, const kernels::AlignedArray<float>& bias, Normed in,
                         std::size_t rows, Range panels, float* out, float* rest_out,
                         std::size_t stride);
  void place_heads(const LayerSpec& spec, const LayerWeights& weights, Range rows, HeadShare share);
  void add_product(const Matrix& matrix, const kernels::AlignedArray<float>& bias,
                   const kernels::Activations& in, uint32_t in_row, Range rows, Range panels,
                   bool normed_later, float* out);
  void join_stream(Range rows, Range outputs, float* out);
  void add_normed(const Norm& post_norm, Range rows, float* out);
  void activate(const float* gate, const float* up, std::size_t n, float* out) const;
  void apply_norm(const Norm& norm, const float* x, float* out) const;
  Normed norm(const Norm& norm, uint32_t row_count, bool with_rest, const Context& context);
  void attention_out_few(std::size_t layer, uint32_t rows, const Context& context);
  void activate_few(const FeedForward& ffn, const kernels::Activations& in, Range in_rows,
                    Range panels, std::size_t scratch_at, kernels::Activations& out,
                    std::size_t out_row);
  const kernels::Activations& quantized(kernels::Activations& shared, kernels::Activations& own,
                                        uint32_t rows, const Context& context) const;
  void fetch(const Matrix& matrix, uint32_t rows, Range panels) const;
  void meet_and_norm(const Norm& post_norm, uint32_t rows, const Context& context);
  void ffn_tile(const FeedForward& ffn, const kernels::Activations& in, uint32_t rows,
                ThreadScratch& scratch, kernels::Activations& out);

  void make_attention_scratch();
  void make_latent_scratch();
  void latent_heads_few(std::size_t l, Normed in, const Context& context);
  void latent_heads_tile(std::size_t l, Range rows, ThreadScratch& scratch);
  void place_latents(std::size_t l, Range rows);
  void store_rows(const LayerSpec& spec, Range rows, Range kv_heads);
  void absorb_queries(std::size_t l, Range rows, Range heads, ThreadScratch& scratch);
  void expand_values(std::size_t l, Range rows, Range heads, ThreadScratch& scratch);

  void make_expert_scratch();
  Route route_of(std::size_t row);
  void choose_experts(const ExpertWeights& weights, const kernels::Activations& in,
                      std::size_t in_row, ThreadScratch& scratch, Route route) const;
  void keep_best_groups(ThreadScratch& scratch) const;
  void activate_experts_few(const ExpertWeights& weights, const kernels::Activations& in,
                            uint32_t rows, const Context& context);
  void mix_experts_few(const ExpertWeights& weights, uint32_t rows, const Context& context);
  void mix_experts_tile(const ExpertWeights& weights, Range rows, ThreadScratch& scratch);
  HeadShare head_share(const LayerSpec& spec, const LayerWeights& weights,
                       const Context& context) const;
  kernels::PagedLayer paged_layer(const LayerSpec& spec) const;
  float* stream_row(std::size_t row) { return stream_.data() + row * spec_.embedding; }

  const ModelSpec& spec_;
  const ModelWeights& weights_;
  KvArena& arena_;
  kernels::ThreadPool& pool_;
  const ForwardShape shape_;
  const uint32_t embedding_;
  const uint32_t ffn_;
  const uint32_t few_rows_max_;  // more rows than this take the many-rows schedule

  // The step at hand, written by run() before the region starts.
  uint32_t rows_ = 0;
  std::vector<TokenId> tokens_;                       // [rows]
  std::vector<uint32_t> positions_;                   // [rows]
  std::vector<uint32_t> logits_rows_;                 // rows of the step
  std::vector<std::vector<kernels::PagedRun>> runs_;  // [group][run]
  std::vector<kernels::AttentionPlan> plans_;         // [group]

  kernels::RopeTable rope_;
  kernels::RopeTable sliding_rope_;  // empty where sliding layers use the other
  uint32_t query_stride_ = 0, key_stride_ = 0, value_stride_ = 0;  // floats
  uint32_t rest_stride_ = 0;  // of what is projected with the rest of its activations, too
  kernels::AlignedArray<float> stream_;               // [rows][embedding]: the residual stream
  kernels::AlignedArray<float> query_, key_, value_;  // [rows][heads * dim]
  std::vector<kernels::Activations> attended_;        // by group: [rows][attended_dim]
  // Latent attention: queries as projected, and what attention gives, before the heads' values are
  // made of it.
  kernels::AlignedArray<float> latent_query_;                         // [rows][heads * query_dim]
  kernels::AlignedArray<float> latent_attended_;                      // [rows][heads * rank]
  std::size_t latent_query_stride_ = 0, latent_attended_stride_ = 0;  // floats
  kernels::Activations query_latent_;                                 // [few rows][query_rank]
  // Few-rows schedule.
  kernels::Activations normed_, normed_rest_;     // [few rows][embedding]
  kernels::Activations activated_;                // [few rows][ffn]
  kernels::AlignedArray<float> gate_, up_, out_;  // [few rows][ffn], [few rows][embedding]
  kernels::AlignedArray<float> value_rest_;       // [few rows][rest_stride]
  // Experts: routes of rows of the step; what the few-rows schedule's rows activate.
  std::vector<uint32_t> route_experts_;    // [rows_max][experts.used]
  std::vector<float> route_weights_;       // [rows_max][experts.used]
  std::vector<float> route_shared_;        // [rows_max]
  kernels::Activations expert_activated_;  // [few rows * experts.used][experts.ffn]
  kernels::Activations shared_activated_;  // [few rows][shared_ffn]

  std::vector<ThreadScratch> threads_;
  LazyFloats logits_;  // [rows_max][vocab_size]
};

}  // namespace pagewise::model
