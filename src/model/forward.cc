// SPDX-License-Identifier: Apache-2.0
#include "model/forward.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

#include "base/check.h"
#include "kernels/linear/linear.h"
#include "kernels/paged_view.h"
#include "model/forward_shares.h"

namespace pagewise::model {
namespace {

using kernels::Activations;
using kernels::kPanelOutputs;
using kernels::Range;

/// As they are allocated, by the sizes they were made with.
uint64_t bytes_of(const Activations& rows) {
  if (rows.rows() == 0 || rows.blocks() == 0) return 0;
  const std::size_t groups = (rows.rows() + kernels::kQuantRows - 1) / kernels::kQuantRows;
  return rows.rows() * rows.blocks() * kernels::kQuantBlock * sizeof(float) +
         groups * rows.blocks() * sizeof(kernels::QuantGroup);
}

/// The panels that `heads` of `dim` outputs each lie in. All heads may end within a panel; a part
/// of them never does (few_rows checks).
Range panels_of(Range heads, std::size_t dim) {
  return {heads.begin * dim / kPanelOutputs, (heads.end * dim + kPanelOutputs - 1) / kPanelOutputs};
}

kernels::RopeTable make_rope(const RopeSpec& rope, const ModelWeights& weights,
                             uint32_t context_max) {
  std::vector<double> frequencies;
  for (uint32_t i = 0; i < rope.dims / 2; ++i) {
    double frequency = rope_frequency(rope, i);
    if (rope.factors != RopeFactors::kNone) frequency /= weights.rope_factors[i];
    frequencies.push_back(frequency);
  }
  return {context_max, frequencies, rope.magnitude};
}

}  // namespace

LazyFloats::LazyFloats(std::size_t count)
    : bytes_(std::max<std::size_t>(count, 1) * sizeof(float)) {
  void* const memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<float*>(memory);
}

LazyFloats::~LazyFloats() { munmap(data_, bytes_); }

Forward::Forward(const ModelSpec& spec, const ModelWeights& weights, KvArena& arena,
                 kernels::ThreadPool& pool, ForwardLimits limits)
    : spec_(spec),
      weights_(weights),
      arena_(arena),
      pool_(pool),
      shape_(forward_shape(spec, limits, static_cast<uint32_t>(pool.threads()))),
      embedding_(shape_.embedding),
      ffn_(shape_.ffn),
      few_rows_max_(shape_.few_rows_max),
      rope_(make_rope(spec.rope, weights, limits.context_max)),
      sliding_rope_(spec.sliding_rope ? make_rope(*spec.sliding_rope, weights, limits.context_max)
                                      : kernels::RopeTable()),
      logits_(std::size_t{limits.rows_max} * spec.vocab_size) {
  for (const LayerSpec& layer : spec.layers) {
    PW_CHECK(layer.ffn == spec.layers[0].ffn && layer.latent == spec.layers[0].latent);
    PW_CHECK(!spec.has_experts(layer) || !layer.post_norms);
    PW_CHECK(!layer.latent || !(layer.parallel || spec.sliding_rope));
    PW_CHECK(shape_.groups[layer.group].heads == layer.heads);
  }
  PW_CHECK(shape_.groups.size() == arena.geometry().groups.size());
  query_stride_ = shape_.query;
  key_stride_ = shape_.key;
  value_stride_ = shape_.value;
  rest_stride_ = shape_.rest;
  const std::size_t rows = limits.rows_max;
  tokens_.reserve(rows);
  positions_.reserve(rows);
  logits_rows_.reserve(rows);
  stream_ = kernels::AlignedArray<float>(rows * embedding_);
  query_ = kernels::AlignedArray<float>(rows * query_stride_);
  key_ = kernels::AlignedArray<float>(rows * key_stride_);
  value_ = kernels::AlignedArray<float>(rows * value_stride_);
  normed_ = Activations(few_rows_max_, embedding_);
  normed_rest_ = Activations(few_rows_max_, embedding_);
  value_rest_ = kernels::AlignedArray<float>(std::size_t{few_rows_max_} * rest_stride_);
  activated_ = Activations(few_rows_max_, shape_.dense_ffn);
  gate_ = kernels::AlignedArray<float>(std::size_t{few_rows_max_} * ffn_);
  up_ = kernels::AlignedArray<float>(std::size_t{few_rows_max_} * ffn_);
  out_ = kernels::AlignedArray<float>(std::size_t{few_rows_max_} * embedding_);
  make_attention_scratch();
  runs_.resize(shape_.groups.size());
  for (auto& runs : runs_) runs.reserve(limits.runs_max);
  for (std::size_t t = 0; t < pool.threads(); ++t) {
    ThreadScratch& scratch = threads_.emplace_back();
    scratch.embedding = Activations(kTileRows, embedding_);
    scratch.embedding_rest = Activations(kTileRows, embedding_);
    scratch.ffn = Activations(kTileRows, shape_.dense_ffn);
    scratch.out = kernels::AlignedArray<float>(std::size_t{kTileRows} * embedding_);
    scratch.gate = kernels::AlignedArray<float>(std::size_t{kTileRows} * kFfnChunk);
    scratch.up = kernels::AlignedArray<float>(std::size_t{kTileRows} * kFfnChunk);
    scratch.value_rest = kernels::AlignedArray<float>(std::size_t{kTileRows} * rest_stride_);
    for (const Activations& attended : attended_) {
      scratch.attended.emplace_back(kSoloRows, attended.columns());
    }
  }
  if (spec.layers[0].latent) make_latent_scratch();
  if (spec.experts.count != 0) make_expert_scratch();
}

void Forward::make_attention_scratch() {
  const ForwardLimits& limits = shape_.limits;
  for (std::size_t g = 0; g < shape_.groups.size(); ++g) {
    const LayerSpec& layer = shape_.groups[g];
    attended_.emplace_back(limits.rows_max, shape_.attended[g]);
    const kernels::AttentionShape shape = {.heads = layer.heads,
                                           .kv_heads = layer.kv_heads,
                                           .key_dim = layer.key_dim,
                                           .value_dim = layer.value_dim,
                                           .block_tokens = arena_.geometry().block_tokens,
                                           .window = layer.window,
                                           .scale = spec_.attention_scale,
                                           .logit_softcap = spec_.attention_softcap};
    plans_.emplace_back(shape, kernels::AttentionLimits{.rows_max = limits.rows_max,
                                                        .runs_max = limits.runs_max,
                                                        .context_max = limits.context_max,
                                                        .threads = shape_.threads});
  }
}

uint64_t Forward::ThreadScratch::bytes() const {
  uint64_t sum = 0;
  for (const Activations* rows : {&embedding, &embedding_rest, &ffn, &query_latent, &head_query,
                                  &head_latent, &chosen, &expert, &shared}) {
    sum += bytes_of(*rows);
  }
  for (const Activations& rows : attended) sum += bytes_of(rows);
  for (const auto* array : {&out, &gate, &up, &value_rest, &mixed, &router, &choice, &groups}) {
    sum += array->size() * sizeof(float);
  }
  return sum;
}

uint64_t Forward::scratch_bytes() const {
  uint64_t sum = 0;
  for (const auto* array : {&stream_, &query_, &key_, &value_, &latent_query_, &latent_attended_,
                            &gate_, &up_, &out_, &value_rest_}) {
    sum += array->size() * sizeof(float);
  }
  for (const Activations* rows : {&normed_, &normed_rest_, &activated_, &query_latent_,
                                  &expert_activated_, &shared_activated_}) {
    sum += bytes_of(*rows);
  }
  for (const Activations& rows : attended_) sum += bytes_of(rows);
  for (const kernels::AttentionPlan& plan : plans_) sum += plan.bytes();
  for (const ThreadScratch& thread : threads_) sum += thread.bytes();
  return sum;
}

LogitsView Forward::run(std::span<const StepRun> runs) {
  tokens_.clear();
  positions_.clear();
  logits_rows_.clear();
  for (auto& group : runs_) group.clear();
  for (const StepRun& run : runs) {
    const auto first = static_cast<uint32_t>(tokens_.size());
    for (uint32_t i = 0; i < run.tokens.size(); ++i) {
      tokens_.push_back(run.tokens[i]);
      positions_.push_back(run.position + i);
      rope_.prepare(run.position + i);
      if (spec_.sliding_rope) sliding_rope_.prepare(run.position + i);
    }
    for (const uint32_t row : run.logits_rows) logits_rows_.push_back(first + row);
    for (std::size_t g = 0; g < runs_.size(); ++g) {
      runs_[g].push_back({.row_begin = first,
                          .rows = static_cast<uint32_t>(run.tokens.size()),
                          .position = run.position,
                          .blocks = run.tables[g]});
    }
  }
  rows_ = static_cast<uint32_t>(tokens_.size());
  for (std::size_t g = 0; g < runs_.size(); ++g) plans_[g].build(runs_[g]);
  pool_.run([this](const Context& context) {
    if (rows_ <= few_rows_max_) {
      few_rows(context);
    } else {
      many_rows(context);
    }
    output_head(context);
  });
  return {logits_.data(), static_cast<uint32_t>(logits_rows_.size()), spec_.vocab_size};
}

void Forward::few_rows(const Context& context) {
  embed(share_rows(context, rows_));
  context.barrier();
  for (std::size_t l = 0; l < spec_.layers.size(); ++l) {
    const LayerSpec& layer = spec_.layers[l];
    const LayerWeights& weights = weights_.layers[l];
    // Heads are whole panels: who computes a head also rotates and stores it.
    const bool by_heads = !layer.latent && layer.key_dim % kPanelOutputs == 0 &&
                          layer.value_dim % kPanelOutputs == 0 && layer.qk_norm != QkNorm::kRow;
    const HeadShare share = by_heads ? head_share(layer, weights, context) : HeadShare();
    if (by_heads) {
      fetch(weights.query, rows_, panels_of(share.query_heads, layer.key_dim));
      fetch(weights.key, rows_, panels_of(share.kv_heads, layer.key_dim));
    }
    const Normed in = norm(weights.attention_norm, rows_, true, context);
    if (layer.latent) {
      latent_heads_few(l, in, context);
    } else if (by_heads) {
      project_heads(layer, weights, in, {0, rows_}, share, value_rest_.data());
      place_heads(layer, weights, {0, rows_}, share);
    } else {
      project_panels(weights, in, context);
      context.barrier();
      place_heads(layer, weights, share_rows(context, rows_),
                  {{0, layer.heads}, {0, layer.kv_heads}});
    }
    context.barrier();
    const uint32_t rows = attend(l, context);
    finish_layer_few(l, rows, context);
  }
}

void Forward::many_rows(const Context& context) {
  ThreadScratch& scratch = threads_[context.index()];
  const Range mine = share_rows(context, rows_);
  // From the residual stream to K, V and the queries of layer `l`.
  const auto to_heads = [&](std::size_t l, Range rows) {
    for (std::size_t r = rows.begin; r < rows.end; ++r) {
      apply_norm(weights_.layers[l].attention_norm, stream_row(r),
                 scratch.embedding.row(r - rows.begin));
    }
    scratch.embedding.quantize({0, rows.size()}, &scratch.embedding_rest);
    const LayerSpec& layer = spec_.layers[l];
    if (layer.latent) {
      latent_heads_tile(l, rows, scratch);
      return;
    }
    const HeadShare all = {{0, layer.heads}, {0, layer.kv_heads}};
    project_heads(layer, weights_.layers[l], {scratch.embedding, scratch.embedding_rest}, rows, all,
                  scratch.value_rest.data());
    place_heads(layer, weights_.layers[l], rows, all);
  };

  for_tiles(mine, kTileRows, [&](Range rows) {
    embed(rows);
    to_heads(0, rows);
  });
  context.barrier();
  const std::size_t last = spec_.layers.size() - 1;
  for (std::size_t l = 0; l < last; ++l) {
    attend(l, context);
    for_tiles(mine, kTileRows, [&](Range rows) {
      finish_layer_tile(l, rows, scratch);
      to_heads(l + 1, rows);
    });
    context.barrier();
  }
  const uint32_t rows = attend(last, context);
  if (rows <= few_rows_max_) {
    finish_layer_few(last, rows, context);
  } else {
    for_tiles(share_rows(context, rows), kTileRows,
              [&](Range tile) { finish_layer_tile(last, tile, scratch); });
    context.barrier();
  }
}

/// Attention of layer `l` for all rows, between barriers. Returns how many rows go on: behind the
/// last layer's K and V only those whose logits are asked for, moved to the front.
uint32_t Forward::attend(std::size_t l, const Context& context) {
  const bool is_last = l + 1 == spec_.layers.size();
  const auto going_on = static_cast<uint32_t>(is_last ? logits_rows_.size() : rows_);
  if (going_on == 0) return 0;
  const LayerSpec& layer = spec_.layers[l];
  Activations& attended = attended_[layer.group];
  float* const out = layer.latent ? latent_attended_.data() : attended.row(0);
  const std::size_t out_stride = layer.latent ? latent_attended_stride_ : stride_of(attended);
  const std::size_t out_width = std::size_t{layer.heads} * layer.value_dim;
  kernels::attention(plans_[layer.group], paged_layer(layer), query_.data(), query_stride_, out,
                     out_stride, context, weights_.layers[l].sinks.data());
  context.barrier();
  if (going_on == rows_) return rows_;
  if (context.index() == 0) {
    // Ascending, so a row never lands on one that is still to move.
    for (std::size_t i = 0; i < logits_rows_.size(); ++i) {
      const std::size_t from = logits_rows_[i];
      if (from == i) continue;
      std::memcpy(stream_row(i), stream_row(from), embedding_ * sizeof(float));
      std::memcpy(out + i * out_stride, out + from * out_stride, out_width * sizeof(float));
    }
  }
  context.barrier();
  return going_on;
}

/// From attention's output to the end of layer `l`, for the step's first `rows` rows; ends with a
/// barrier.
void Forward::finish_layer_few(std::size_t l, uint32_t rows, const Context& context) {
  if (rows == 0) return;
  const LayerSpec& layer = spec_.layers[l];
  const LayerWeights& weights = weights_.layers[l];
  // Side by side, feed-forward reads the stream before anything joins it.
  if (!layer.parallel) attention_out_few(l, rows, context);
  const Matrix& first = weights.ffn.gate.linear.outputs() != 0 ? weights.ffn.gate : weights.ffn.up;
  fetch(first, rows, context.share(first.linear.panels()));
  const Activations& in = norm(weights.ffn_norm, rows, false, context).rows;
  if (spec_.has_experts(layer)) {
    activate_experts_few(weights.experts, in, rows, context);
    if (layer.parallel) attention_out_few(l, rows, context);
    mix_experts_few(weights.experts, rows, context);
    return;
  }
  activate_few(weights.ffn, in, {0, rows}, context.share(weights.ffn.up.linear.panels()), 0,
               activated_, 0);
  fetch(weights.ffn.down, rows, context.share(weights.ffn.down.linear.panels()));
  context.barrier();
  if (layer.parallel) attention_out_few(l, rows, context);
  add_product(weights.ffn.down, {},
              quantized(activated_, threads_[context.index()].ffn, rows, context), 0, {0, rows},
              context.share(weights.ffn.down.linear.panels()), layer.post_norms, out_.data());
  meet_and_norm(weights.post_ffn_norm, rows, context);
}

void Forward::attention_out_few(std::size_t l, uint32_t rows, const Context& context) {
  const LayerWeights& weights = weights_.layers[l];
  const uint32_t group = spec_.layers[l].group;
  if (spec_.layers[l].latent) {
    expand_values(l, {0, rows}, context.share(spec_.layers[l].heads), threads_[context.index()]);
    context.barrier();
  }
  fetch(weights.output, rows, context.share(weights.output.linear.panels()));
  add_product(weights.output, weights.output_bias,
              quantized(attended_[group], threads_[context.index()].attended[group], rows, context),
              0, {0, rows}, context.share(weights.output.linear.panels()),
              spec_.layers[l].post_norms, out_.data());
  meet_and_norm(weights.post_attention_norm, rows, context);
}

/// Rows in their quantised form, made by every thread for itself, or by one thread for all.
const Activations& Forward::quantized(Activations& shared, Activations& own, uint32_t rows,
                                      const Context& context) const {
  if (rows <= kSoloRows) {
    for (std::size_t r = 0; r < rows; ++r)
      std::memcpy(own.row(r), shared.row(r), shared.columns() * sizeof(float));
    own.quantize({0, rows});
    return own;
  }
  shared.quantize(share_rows(context, rows));
  context.barrier();
  return shared;
}

/// Few rows are done as fast as weights can be read, and while no product runs none are: asks for
/// the first of those that come next.
void Forward::fetch(const Matrix& matrix, uint32_t rows, Range panels) const {
  if (rows <= kSoloRows) kernels::prefetch(matrix.linear, panels);
}

/// The barrier behind a product. A norm behind it needs whole rows, so one meeting more.
void Forward::meet_and_norm(const Norm& post_norm, uint32_t rows, const Context& context) {
  context.barrier();
  if (post_norm.empty()) return;
  const Range mine = share_rows(context, rows);
  add_normed(post_norm, mine, out_.data() + mine.begin * embedding_);
  context.barrier();
}

/// From attention's output to the end of layer `l`, for one tile of rows, by one thread.
void Forward::finish_layer_tile(std::size_t l, Range rows, ThreadScratch& scratch) {
  const LayerSpec& layer = spec_.layers[l];
  const LayerWeights& weights = weights_.layers[l];
  const auto attention_out = [&] {
    Activations& attended = attended_[layer.group];
    if (layer.latent) expand_values(l, rows, {0, layer.heads}, scratch);
    attended.quantize(rows);
    add_product(weights.output, weights.output_bias, attended, static_cast<uint32_t>(rows.begin),
                rows, all_panels(weights.output), layer.post_norms, scratch.out.data());
    if (layer.post_norms) add_normed(weights.post_attention_norm, rows, scratch.out.data());
  };
  if (!layer.parallel) attention_out();
  for (std::size_t r = rows.begin; r < rows.end; ++r) {
    apply_norm(weights.ffn_norm, stream_row(r), scratch.embedding.row(r - rows.begin));
  }
  scratch.embedding.quantize({0, rows.size()});
  if (spec_.has_experts(layer)) {
    if (layer.parallel) attention_out();
    mix_experts_tile(weights.experts, rows, scratch);
    return;
  }
  ffn_tile(weights.ffn, scratch.embedding, static_cast<uint32_t>(rows.size()), scratch,
           scratch.ffn);
  if (layer.parallel) attention_out();
  add_product(weights.ffn.down, {}, scratch.ffn, 0, rows, all_panels(weights.ffn.down),
              layer.post_norms, scratch.out.data());
  if (layer.post_norms) add_normed(weights.post_ffn_norm, rows, scratch.out.data());
}

void Forward::output_head(const Context& context) {
  // The rows in question stand in front (attend). The final norm of a few rows is cheaper to repeat
  // than to share.
  Activations& normed = threads_[context.index()].embedding;
  const Range panels = context.share(weights_.head.linear.panels());
  const Range outputs = outputs_of(panels, spec_.vocab_size);
  if (outputs.empty()) return;
  for (std::size_t first = 0; first < logits_rows_.size(); first += kTileRows) {
    const std::size_t count = std::min<std::size_t>(kTileRows, logits_rows_.size() - first);
    for (std::size_t r = 0; r < count; ++r) {
      apply_norm(weights_.output_norm, stream_row(first + r), normed.row(r));
    }
    normed.quantize({0, count});
    float* const logits = logits_.data() + first * spec_.vocab_size;
    kernels::linear(weights_.head.linear, normed, {0, count}, panels, logits, spec_.vocab_size);
    for (std::size_t r = 0; r < count; ++r) {
      float* const own = logits + r * spec_.vocab_size + outputs.begin;
      if (spec_.logit_scale != 1.0F) kernels::scale(own, spec_.logit_scale, outputs.size());
      if (spec_.logit_softcap > 0) kernels::soft_cap(own, spec_.logit_softcap, outputs.size());
    }
  }
}

void Forward::embed(Range rows) {
  for (std::size_t r = rows.begin; r < rows.end; ++r) {
    weights_.embed(tokens_[r], embedding_, stream_row(r));
    if (spec_.embedding_scale != 1.0F) {
      kernels::scale(stream_row(r), spec_.embedding_scale, embedding_);
    }
  }
}

/// Row i of `in` is row rows.begin + i of the step. `value_rest` is scratch for rows.size() rows.
void Forward::project_heads(const LayerSpec& spec, const LayerWeights& weights, Normed in,
                            Range rows, HeadShare share, float* value_rest) {
  if (!share.query_heads.empty()) {
    project(weights.query, weights.query_bias, in.rows, rows.size(),
            panels_of(share.query_heads, spec.key_dim), query_.data() + rows.begin * query_stride_,
            query_stride_);
  }
  if (!share.kv_heads.empty()) {
    project(weights.key, weights.key_bias, in.rows, rows.size(),
            panels_of(share.kv_heads, spec.key_dim), key_.data() + rows.begin * key_stride_,
            key_stride_);
    project_with_rest(weights.value, weights.value_bias, in, rows.size(),
                      panels_of(share.kv_heads, spec.value_dim),
                      value_.data() + rows.begin * value_stride_, value_rest, value_stride_);
  }
}

/// For head sizes that are no multiple of a panel: panels of Q, K and V dealt out without regard to
/// heads.
void Forward::project_panels(const LayerWeights& weights, Normed in, const Context& context) {
  project(weights.query, weights.query_bias, in.rows, rows_,
          context.share(weights.query.linear.panels()), query_.data(), query_stride_);
  project(weights.key, weights.key_bias, in.rows, rows_, context.share(weights.key.linear.panels()),
          key_.data(), key_stride_);
  project_with_rest(weights.value, weights.value_bias, in, rows_,
                    context.share(weights.value.linear.panels()), value_.data(), value_rest_.data(),
                    value_stride_);
}

/// out = matrix * in + bias, for the first `rows` rows and the outputs of `panels`.
void Forward::project(const Matrix& matrix, const kernels::AlignedArray<float>& bias,
                      const Activations& in, std::size_t rows, Range panels, float* out,
                      std::size_t stride) {
  if (panels.empty()) return;
  kernels::linear(matrix.linear, in, {0, rows}, panels, out, stride);
  add_bias(out, rows, stride, outputs_of(panels, matrix.linear.outputs()), bias);
}

/// V, and a latent that it is made of, from both halves of its activations; the f32 family has no
/// need of the second.
void Forward::project_with_rest(const Matrix& matrix, const kernels::AlignedArray<float>& bias,
                                Normed in, std::size_t rows, Range panels, float* out,
                                float* rest_out, std::size_t stride) {
  if (panels.empty()) return;
  project(matrix, bias, in.rows, rows, panels, out, stride);
  if (matrix.linear.family() == kernels::LinearFamily::kF32) return;
  kernels::linear(matrix.linear, in.rest, {0, rows}, panels, rest_out, stride);
  const Range outputs = outputs_of(panels, matrix.linear.outputs());
  for (std::size_t r = 0; r < rows; ++r) {
    const std::size_t at = r * stride + outputs.begin;
    kernels::add(out + at, rest_out + at, outputs.size());
  }
}

/// Norms and rotates queries and keys, and stores keys and values in the cache.
void Forward::place_heads(const LayerSpec& spec, const LayerWeights& weights, Range rows,
                          HeadShare share) {
  const RopeSpec& rope = spec_.rope_of(spec);
  const kernels::RopeLayout layout = layout_of(rope.kind);
  const kernels::RopeTable& table = &rope == &spec_.rope ? rope_ : sliding_rope_;
  const auto place = [&](float* x, std::size_t heads, const kernels::AlignedArray<float>& norm,
                         std::size_t row) {
    if (spec.qk_norm == QkNorm::kRow) {  // all heads are here: few_rows() sees to it
      kernels::rms_norm(x, norm.data(), heads * spec.key_dim, spec_.norm_eps, x);
    }
    for (std::size_t h = 0; spec.qk_norm == QkNorm::kHead && h < heads; ++h) {
      float* const head = x + h * spec.key_dim;
      kernels::rms_norm(head, norm.data(), spec.key_dim, spec_.norm_eps, head);
    }
    if (spec.rope) kernels::rope(x, heads, spec.key_dim, layout, table, positions_[row]);
  };
  for (std::size_t r = rows.begin; r < rows.end; ++r) {
    place(query_.data() + r * query_stride_ + share.query_heads.begin * spec.key_dim,
          share.query_heads.size(), weights.query_norm, r);
    place(key_.data() + r * key_stride_ + share.kv_heads.begin * spec.key_dim,
          share.kv_heads.size(), weights.key_norm, r);
  }
  store_rows(spec, rows, share.kv_heads);
}

/// Stores rows of key_ and value_ in the cache.
void Forward::store_rows(const LayerSpec& spec, Range rows, Range kv_heads) {
  if (kv_heads.empty()) return;
  kernels::PagedLayer layer = paged_layer(spec);
  layer.base += kv_heads.begin * layer.head_stride;
  layer.kv_heads = static_cast<uint32_t>(kv_heads.size());
  for (const kernels::PagedRun& run : runs_[spec.group]) {
    const std::size_t begin = std::max<std::size_t>(rows.begin, run.row_begin);
    const std::size_t end = std::min<std::size_t>(rows.end, run.row_begin + run.rows);
    if (begin >= end) continue;
    kernels::store_kv(
        layer, run, {begin - run.row_begin, end - run.row_begin},
        key_.data() + std::size_t{run.row_begin} * key_stride_ + kv_heads.begin * spec.key_dim,
        key_stride_,
        value_.data() + std::size_t{run.row_begin} * value_stride_ +
            kv_heads.begin * spec.value_dim,
        value_stride_);
  }
}

/// Adds `matrix * in` (outputs of `panels` only) to the residual stream's rows `rows`, by way of
/// `out`, rows.size() rows of the stream's width; with `normed_later` it stays there for
/// add_normed().
void Forward::add_product(const Matrix& matrix, const kernels::AlignedArray<float>& bias,
                          const Activations& in, uint32_t in_row, Range rows, Range panels,
                          bool normed_later, float* out) {
  const Range outputs = outputs_of(panels, embedding_);
  if (outputs.empty()) return;
  kernels::linear(matrix.linear, in, {in_row, in_row + rows.size()}, panels, out, embedding_);
  add_bias(out, rows.size(), embedding_, outputs, bias);
  if (!normed_later) join_stream(rows, outputs, out);
}

/// Adds the outputs `outputs` of finished rows to the stream's rows `rows`; `out` begins with the
/// row of rows.begin.
void Forward::join_stream(Range rows, Range outputs, float* out) {
  for (std::size_t r = 0; r < rows.size(); ++r) {
    float* const row = out + r * embedding_ + outputs.begin;
    if (spec_.residual_scale != 1.0F) kernels::scale(row, spec_.residual_scale, outputs.size());
    kernels::add(stream_row(rows.begin + r) + outputs.begin, row, outputs.size());
  }
}

/// Norms the rows of a finished product, which join the stream's rows `rows`; `out` begins with the
/// product of rows.begin.
void Forward::add_normed(const Norm& post_norm, Range rows, float* out) {
  for (std::size_t r = 0; r < rows.size(); ++r) {
    apply_norm(post_norm, out + r * embedding_, out + r * embedding_);
  }
  join_stream(rows, {0, embedding_}, out);
}

/// The few-rows schedule's norm: by each thread for itself, or divided with a barrier behind.
Forward::Normed Forward::norm(const Norm& norm, uint32_t row_count, bool with_rest,
                              const Context& context) {
  const bool solo = row_count <= kSoloRows;
  ThreadScratch& own = threads_[context.index()];
  Activations& out = solo ? own.embedding : normed_;
  Activations& rest = solo ? own.embedding_rest : normed_rest_;
  const Range rows = solo ? Range{0, row_count} : share_rows(context, row_count);
  for (std::size_t r = rows.begin; r < rows.end; ++r) apply_norm(norm, stream_row(r), out.row(r));
  out.quantize(rows, with_rest ? &rest : nullptr);
  if (!solo) context.barrier();
  return {out, rest};
}

/// KV heads first, then query heads, as units of whole panels, dealt out by their cumulative cost:
/// the unit that straddles a border goes where its middle lies. V's weights are multiplied twice
/// (Normed); few rows hide that behind reading them, which happens once.
Forward::HeadShare Forward::head_share(const LayerSpec& spec, const LayerWeights& weights,
                                       const Context& context) const {
  const bool twice =
      rows_ > kSoloRows && weights.value.linear.family() == kernels::LinearFamily::kInteger;
  const std::size_t value_passes = twice ? 2 : 1;
  const std::size_t kv_cost = spec.key_dim + value_passes * spec.value_dim;
  const std::size_t total = spec.kv_heads * kv_cost + std::size_t{spec.heads} * spec.key_dim;
  const auto owner = [&](std::size_t begin, std::size_t cost) {
    return (2 * begin + cost) * context.threads() / (2 * total);
  };
  HeadShare share;
  const auto take = [&](Range& heads, std::size_t count, std::size_t cost, std::size_t offset) {
    for (std::size_t h = 0; h < count; ++h) {
      if (owner(offset + h * cost, cost) != context.index()) continue;
      if (heads.empty()) heads = {h, h};
      heads.end = h + 1;
    }
  };
  take(share.kv_heads, spec.kv_heads, kv_cost, 0);
  take(share.query_heads, spec.heads, spec.key_dim, spec.kv_heads * kv_cost);
  return share;
}

kernels::PagedLayer Forward::paged_layer(const LayerSpec& spec) const {
  const kv::Geometry& geometry = arena_.geometry();
  const kv::GroupGeometry& group = geometry.groups[spec.group];
  const uint64_t key_offset = arena_.key_offset(spec.group, spec.group_layer, 0);
  return {.base = arena_.base(spec.group) + key_offset,
          .block_stride = geometry.block_stride(spec.group),
          .head_stride = arena_.key_offset(spec.group, 0, 1),
          .value_offset = arena_.value_offset(spec.group, spec.group_layer, 0) - key_offset,
          .block_tokens = geometry.block_tokens,
          .kv_heads = group.kv_heads,
          .key_dim = group.key_dim,
          .value_dim = group.value_dim,
          .key_type = group.key_type,
          .value_type = group.value_type,
          .latent = group.latent};
}

}  // namespace pagewise::model
