// SPDX-License-Identifier: Apache-2.0
// The forward pass's latent attention: from the stream to the one row a token that is cached and to
// queries that read it, and from attention's sums of latents to the heads' values.
//
// With c the latent of a position, a head's key is A c and its value B c. Its score with a query q
// is q . A c = (A^T q) . c, and the weighted sum of its values is B (sum of weighted c): both
// products are taken once for each row of the step instead of once for each position, and the cache
// holds no heads at all. Whether a position was cached makes no difference to what is computed.
//
// Every product of a head is a function of its own row (contract rule 1); heads are divided among
// threads where rows are few.
#include <cstring>

#include "kernels/linear/linear.h"
#include "model/forward.h"
#include "model/forward_shares.h"

namespace pagewise::model {

using kernels::Activations;

void Forward::make_latent_scratch() {
  const LatentSpec& latent = spec_.latent;
  const std::size_t rows = positions_.capacity();
  latent_query_stride_ = shape_.latent_query;
  latent_attended_stride_ = shape_.latent_attended;
  latent_query_ = kernels::AlignedArray<float>(rows * latent_query_stride_);
  latent_attended_ = kernels::AlignedArray<float>(rows * latent_attended_stride_);
  query_latent_ = Activations(few_rows_max_, latent.query_rank);
  for (ThreadScratch& scratch : threads_) {
    scratch.query_latent = Activations(kTileRows, latent.query_rank);
    scratch.head_query = Activations(kTileRows, latent.plain_dims);
    scratch.head_latent = Activations(kTileRows, latent.rank);
  }
}

/// K and queries of the step's rows, in the few-rows schedule; a barrier must follow.
void Forward::latent_heads_few(std::size_t l, Normed in, const Context& context) {
  const LayerSpec& layer = spec_.layers[l];
  const LayerWeights& weights = weights_.layers[l];
  const bool down = spec_.latent.query_rank != 0;
  const auto share = [&](const Matrix& matrix) { return context.share(matrix.linear.panels()); };
  project_with_rest(weights.key, {}, in, rows_, share(weights.key), key_.data(), value_rest_.data(),
                    key_stride_);
  if (down) {
    project(weights.latent.query_down, {}, in.rows, rows_, share(weights.latent.query_down),
            query_latent_.row(0), stride_of(query_latent_));
  } else {
    project(weights.query, {}, in.rows, rows_, share(weights.query), latent_query_.data(),
            latent_query_stride_);
  }
  context.barrier();
  const Range mine = share_rows(context, rows_);
  place_latents(l, mine);
  if (down) {
    for (std::size_t r = mine.begin; r < mine.end; ++r) {
      float* const row = query_latent_.row(r);
      kernels::rms_norm(row, weights.query_norm.data(), spec_.latent.query_rank, spec_.norm_eps,
                        row);
    }
    query_latent_.quantize(mine);
    context.barrier();
    project(weights.query, {}, query_latent_, rows_, share(weights.query), latent_query_.data(),
            latent_query_stride_);
    context.barrier();
  }
  absorb_queries(l, {0, rows_}, context.share(layer.heads), threads_[context.index()]);
}

/// The same from scratch.embedding on, for one tile of rows, by one thread.
void Forward::latent_heads_tile(std::size_t l, Range rows, ThreadScratch& scratch) {
  const LayerWeights& weights = weights_.layers[l];
  const Normed in = {scratch.embedding, scratch.embedding_rest};
  const std::size_t count = rows.size();
  project_with_rest(weights.key, {}, in, count, all_panels(weights.key),
                    key_.data() + rows.begin * key_stride_, scratch.value_rest.data(), key_stride_);
  place_latents(l, rows);
  float* const queries = latent_query_.data() + rows.begin * latent_query_stride_;
  if (spec_.latent.query_rank != 0) {
    Activations& latents = scratch.query_latent;
    project(weights.latent.query_down, {}, in.rows, count, all_panels(weights.latent.query_down),
            latents.row(0), stride_of(latents));
    for (std::size_t r = 0; r < count; ++r) {
      kernels::rms_norm(latents.row(r), weights.query_norm.data(), spec_.latent.query_rank,
                        spec_.norm_eps, latents.row(r));
    }
    latents.quantize({0, count});
    project(weights.query, {}, latents, count, all_panels(weights.query), queries,
            latent_query_stride_);
  } else {
    project(weights.query, {}, in.rows, count, all_panels(weights.query), queries,
            latent_query_stride_);
  }
  absorb_queries(l, rows, {0, spec_.layers[l].heads}, scratch);
}

/// Norms the latents in key_, rotates the keys behind them, and stores both in the cache.
void Forward::place_latents(std::size_t l, Range rows) {
  const LayerSpec& layer = spec_.layers[l];
  const LatentSpec& latent = spec_.latent;
  for (std::size_t r = rows.begin; r < rows.end; ++r) {
    float* const row = key_.data() + r * key_stride_;
    kernels::rms_norm(row, weights_.layers[l].key_norm.data(), latent.rank, spec_.norm_eps, row);
    if (!layer.rope) continue;
    kernels::rope(row + latent.rank, 1, latent.rope_dims, layout_of(spec_.rope.kind), rope_,
                  positions_[r]);
  }
  store_rows(layer, rows, {0, 1});
}

/// Queries of `heads` as they were projected to queries that read latents, in query_.
void Forward::absorb_queries(std::size_t l, Range rows, Range heads, ThreadScratch& scratch) {
  const LayerSpec& layer = spec_.layers[l];
  const LatentSpec& latent = spec_.latent;
  for_tiles(rows, kTileRows, [&](Range tile) {
    for (std::size_t h = heads.begin; h < heads.end; ++h) {
      for (std::size_t r = tile.begin; r < tile.end; ++r) {
        const float* const projected =
            latent_query_.data() + r * latent_query_stride_ + h * latent.query_dim();
        std::memcpy(scratch.head_query.row(r - tile.begin), projected,
                    latent.plain_dims * sizeof(float));
        float* const rotated = query_.data() + r * query_stride_ + h * layer.key_dim + latent.rank;
        std::memcpy(rotated, projected + latent.plain_dims, latent.rope_dims * sizeof(float));
        if (!layer.rope) continue;
        kernels::rope(rotated, 1, latent.rope_dims, layout_of(spec_.rope.kind), rope_,
                      positions_[r]);
      }
      scratch.head_query.quantize({0, tile.size()});
      const Matrix& key_up = weights_.layers[l].latent.key_up[h];
      kernels::linear(key_up.linear, scratch.head_query, {0, tile.size()}, all_panels(key_up),
                      query_.data() + tile.begin * query_stride_ + h * layer.key_dim,
                      query_stride_);
    }
  });
}

/// What attention gave `heads`, sums of latents, to their values, in attended_; not quantised yet.
void Forward::expand_values(std::size_t l, Range rows, Range heads, ThreadScratch& scratch) {
  const LatentSpec& latent = spec_.latent;
  Activations& attended = attended_[spec_.layers[l].group];
  for_tiles(rows, kTileRows, [&](Range tile) {
    for (std::size_t h = heads.begin; h < heads.end; ++h) {
      for (std::size_t r = tile.begin; r < tile.end; ++r) {
        std::memcpy(scratch.head_latent.row(r - tile.begin),
                    latent_attended_.data() + r * latent_attended_stride_ + h * latent.rank,
                    latent.rank * sizeof(float));
      }
      scratch.head_latent.quantize({0, tile.size()});
      const Matrix& value_up = weights_.layers[l].latent.value_up[h];
      kernels::linear(value_up.linear, scratch.head_latent, {0, tile.size()}, all_panels(value_up),
                      attended.row(tile.begin) + h * latent.value_dim, stride_of(attended));
    }
  });
}

}  // namespace pagewise::model
