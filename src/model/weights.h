// SPDX-License-Identifier: Apache-2.0
// A model's weights as the kernels want them: matrices packed once at load, small vectors as f32.
//
// Nothing here points into the model file afterwards: a file that is replaced or truncated while
// the model serves (an upgrade in place) must not reach a running process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "gguf/gguf.h"
#include "kernels/aligned.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/weight_arena.h"
#include "kernels/to_float.h"
#include "model/spec.h"

namespace pagewise::model {

/// A matrix of the file; its bytes stand in ModelWeights::arena, those of a head that is tied and
/// not packed in ModelWeights::embeddings.
struct Matrix {
  kernels::LinearWeights linear;
};

/// Weights of a norm of [embedding]. Without any, what is normed stays as it is.
struct Norm {
  kernels::AlignedArray<float> weight;
  kernels::AlignedArray<float> bias;  // empty without
  bool empty() const { return weight.size() == 0; }
};

/// One gated (or, with an empty gate, plainly activated) feed-forward part.
struct FeedForward {
  Matrix gate, up;                                             // [ffn][embedding]
  Matrix down;                                                 // [embedding][ffn]
  kernels::AlignedArray<float> gate_bias, up_bias, down_bias;  // empty without
};

/// Of a layer with experts.
struct ExpertWeights {
  Matrix router;                             // [count][embedding]
  kernels::AlignedArray<float> router_bias;  // empty without
  kernels::AlignedArray<float> bias;         // [count], for picking; empty without
  std::vector<FeedForward> experts;          // [count]
  FeedForward shared;                        // that every row takes; empty without
  Matrix shared_gate;  // [1][embedding]: sigmoid of its product scales `shared`; empty without
};

/// Of a layer with latent attention, beside what LayerWeights has.
struct LatentWeights {
  Matrix query_down;             // [query_rank][embedding]; empty without
  std::vector<Matrix> key_up;    // of each head, [rank][plain_dims]: from its query to a latent's
  std::vector<Matrix> value_up;  // of each head, [value_dim][rank]
};

/// With latent attention `query` is [heads * query_dim][query_rank or embedding], `key` gives the
/// latent and the key that rotates, `value` is empty, `output` reads heads * LatentSpec::value_dim,
/// and the norms of queries and keys are those of their latents.
struct LayerWeights {
  Norm attention_norm;
  Matrix query;  // [heads * key_dim][embedding]
  Matrix key;    // [kv_heads * key_dim][embedding]
  Matrix value;  // [kv_heads * value_dim][embedding]
  kernels::AlignedArray<float> query_bias, key_bias, value_bias;  // empty without
  Matrix output;                                                  // [embedding][heads * value_dim]
  kernels::AlignedArray<float> output_bias;                       // empty without
  kernels::AlignedArray<float> sinks;                             // [heads], empty without
  kernels::AlignedArray<float> query_norm, key_norm;  // [key_dim] or whole rows; empty without
  LatentWeights latent;                               // empty without
  Norm post_attention_norm, post_ffn_norm;
  Norm ffn_norm;
  FeedForward ffn;        // empty in a layer with experts
  ExpertWeights experts;  // empty in one without
};

/// Thread: immutable after load.
struct ModelWeights {
  kernels::WeightArena
      arena;  // of all matrices: the output head, then the layers in a step's order
  /// [vocab_size][embedding] in the file's own type, one row decoded at a time. Empty when the
  /// output head is tied to it and packed: rows are then read back from the panels, because of all
  /// tensors this is the one that is too large to hold twice.
  kernels::AlignedArray<std::byte> embeddings;
  uint64_t embedding_row_bytes = 0;
  kernels::ToFloat embedding_decoder = nullptr;
  std::vector<LayerWeights> layers;
  Norm output_norm;
  Matrix head;                       // [vocab_size][embedding]
  std::vector<double> rope_factors;  // [rope.dims / 2], empty without
  uint64_t bytes = 0;                // memory taken

  void embed(TokenId token, std::size_t columns, float* out) const {
    if (embeddings.size() == 0) {
      head.linear.decode_row(static_cast<std::size_t>(token.value), out);
      return;
    }
    embedding_decoder(embeddings.data() + static_cast<uint64_t>(token.value) * embedding_row_bytes,
                      out, static_cast<int64_t>(columns));
  }
};

/// Requires: `spec` was read from `file` (so every tensor is there in the right shape). `progress`
/// may be empty; it hears shares in [0, 1]. Errors: kUnsupported naming the tensor and its type;
/// kIo when there is not enough memory.
Result<ModelWeights> load_weights(const gguf::File& file, const ModelSpec& spec,
                                  const std::function<void(double)>& progress);

}  // namespace pagewise::model
