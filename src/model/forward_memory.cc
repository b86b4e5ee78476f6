// SPDX-License-Identifier: Apache-2.0
#include "model/forward_memory.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"
#include "kernels/attention/attention.h"
#include "kernels/linear/activations.h"

namespace pagewise::model {
namespace {

uint64_t floats(uint64_t rows, uint64_t columns) { return rows * columns * sizeof(float); }

/// A row's values in f32, and four rows' in int8, both in whole blocks.
uint64_t activations(uint64_t rows, uint64_t columns) {
  const uint64_t blocks = ceil_div(columns, kernels::kQuantBlock);
  return floats(rows, blocks * kernels::kQuantBlock) +
         ceil_div(rows, kernels::kQuantRows) * blocks * sizeof(kernels::QuantGroup);
}

uint64_t rows_bytes(const ForwardShape& shape) {
  const uint64_t rows = shape.limits.rows_max;
  uint64_t sum = floats(rows, shape.embedding) + floats(rows, shape.query) +
                 floats(rows, shape.key) + floats(rows, shape.value) +
                 floats(rows, shape.latent_query) + floats(rows, shape.latent_attended);
  for (const uint32_t attended : shape.attended) sum += activations(rows, attended);
  return sum;
}

uint64_t few_rows_bytes(const ForwardShape& shape) {
  const uint64_t rows = shape.few_rows_max;
  return 2 * activations(rows, shape.embedding) + activations(rows, shape.dense_ffn) +
         2 * floats(rows, shape.ffn) + floats(rows, shape.embedding) + floats(rows, shape.rest) +
         activations(rows, shape.latent.query_rank) +
         activations(rows * shape.experts.used, shape.experts.ffn) +
         activations(rows, shape.experts.shared_ffn);
}

uint64_t thread_bytes(const ForwardShape& shape) {
  constexpr uint64_t kRows = kForwardTileRows;
  uint64_t sum = 2 * activations(kRows, shape.embedding) + activations(kRows, shape.dense_ffn) +
                 floats(kRows, shape.embedding) + 2 * floats(kRows, kForwardFfnChunk) +
                 floats(kRows, shape.rest);
  for (const uint32_t attended : shape.attended) sum += activations(kForwardSoloRows, attended);
  if (shape.latent.rank != 0) {
    sum += activations(kRows, shape.latent.query_rank) +
           activations(kRows, shape.latent.plain_dims) + activations(kRows, shape.latent.rank);
  }
  if (shape.experts.count != 0) {
    sum += activations(kRows, shape.embedding) + activations(kRows, shape.experts.ffn) +
           activations(kRows, shape.experts.shared_ffn) + floats(kRows, shape.embedding) +
           floats(2, shape.experts.count) + floats(1, shape.experts.groups);
  }
  return sum;
}

}  // namespace

ForwardShape forward_shape(const ModelSpec& spec, const ForwardLimits& limits, uint32_t threads) {
  PW_CHECK(!spec.layers.empty() && threads > 0);
  ForwardShape shape{.limits = limits, .threads = threads, .embedding = spec.embedding};
  shape.few_rows_max = std::min<uint32_t>(limits.rows_max, kForwardTileRows * threads - 1);
  const bool latent = spec.layers[0].latent;
  for (const LayerSpec& layer : spec.layers) {
    const bool experts = spec.has_experts(layer);
    if (!experts) shape.dense_ffn = std::max(shape.dense_ffn, layer.ffn);
    shape.ffn =
        std::max(shape.ffn, experts ? spec.experts.ffn + spec.experts.shared_ffn : layer.ffn);
    if (layer.group >= shape.groups.size()) shape.groups.resize(layer.group + 1);
    if (shape.groups[layer.group].heads == 0) shape.groups[layer.group] = layer;
    shape.query = std::max(shape.query, layer.heads * layer.key_dim);
    shape.key = std::max(shape.key, layer.kv_heads * layer.key_dim);
    if (!layer.latent) shape.value = std::max(shape.value, layer.kv_heads * layer.value_dim);
  }
  shape.rest = latent ? shape.key : shape.value;
  for (const LayerSpec& layer : shape.groups) shape.attended.push_back(spec.attended_dim(layer));
  if (latent) {
    shape.latent = spec.latent;
    shape.latent_query = spec.heads_max() * spec.latent.query_dim();
    shape.latent_attended = spec.heads_max() * spec.latent.rank;
  }
  if (spec.experts.count != 0) shape.experts = spec.experts;
  return shape;
}

uint64_t forward_bytes(const ForwardShape& shape) {
  uint64_t sum = rows_bytes(shape) + few_rows_bytes(shape) + shape.threads * thread_bytes(shape);
  for (const LayerSpec& layer : shape.groups) {
    sum += shape.threads * kernels::AttentionPlan::thread_bytes({.heads = layer.heads,
                                                                 .kv_heads = layer.kv_heads,
                                                                 .key_dim = layer.key_dim,
                                                                 .value_dim = layer.value_dim});
  }
  return sum;
}

}  // namespace pagewise::model
