// SPDX-License-Identifier: Apache-2.0
// What a model is, as far as computing it goes: shapes, attention kinds, rope, norms. Read from a
// GGUF header by a small adaptor per architecture (adaptors/), checked tensor by tensor, then
// trusted.
//
// Planner and server read it too, without weights, which is why it includes nothing of kernels.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "gguf/gguf.h"
#include "kv/geometry.h"

namespace pagewise::model {

/// Which elements of a head rope rotates together. `kNormal`: neighbours (2i, 2i + 1), as GGUF
/// files of the llama architecture expect, whose Q and K rows are permuted for it. `kNeox`: halves
/// (i, i + dims / 2).
enum class RopeKind : uint8_t { kNormal, kNeox };

struct RopeSpec {
  RopeKind kind = RopeKind::kNormal;
  uint32_t dims = 0;  // leading elements of each head that rotate; even
  double base =
      10000.0;  // angle of pair i at position p: p * base^(-2i / dims) * position_scale / factor[i]
  double position_scale = 1.0;  // linear scaling: 1 / factor
  bool has_factors = false;  // tensor rope_freqs.weight: one divisor per pair (Llama 3.1 and later)
};

enum class AttentionKind : uint8_t { kFull, kSliding };
enum class Activation : uint8_t { kSilu, kGeluTanh };

struct LayerSpec {
  AttentionKind attention = AttentionKind::kFull;
  uint32_t window = 0;  // kSliding: the last `window` positions, the own one included
  uint32_t heads = 0;   // query heads; a multiple of kv_heads
  uint32_t kv_heads = 0;
  uint32_t key_dim = 0;      // per head
  uint32_t value_dim = 0;    // per head
  uint32_t ffn = 0;          // width of the feed-forward part
  uint32_t group = 0;        // KV group, an index into Geometry::groups
  uint32_t group_layer = 0;  // this layer's number within its group
  bool qkv_bias = false;     // tensors attn_q.bias, attn_k.bias, attn_v.bias
  bool output_bias = false;  // tensor attn_output.bias
  bool qk_norm = false;     // tensors attn_q_norm.weight, attn_k_norm.weight: RMS norm of each head
                            // before rope
  bool post_norms = false;  // tensors post_attention_norm.weight, post_ffw_norm.weight: RMS norm of
                            // what attention and feed-forward give, before it joins the stream
};

struct ModelSpec {
  std::string architecture;  // "llama", "gemma3"
  std::string name;          // general.name, or empty
  uint32_t vocab_size = 0;
  uint32_t embedding = 0;  // width of the residual stream
  uint32_t context = 0;    // positions the model was made for
  float norm_eps = 0.0F;
  Activation activation = Activation::kSilu;
  RopeSpec rope;
  std::optional<RopeSpec> sliding_rope;  // of sliding layers; empty: theirs is `rope`, too
  bool tied_head = false;                // the output head is token_embd.weight
  float embedding_scale = 1.0F;          // multiplies the embedding row
  float attention_scale = 0.0F;  // multiplies q.k before the softmax; 1 / sqrt(key_dim) unless told
  float residual_scale = 1.0F;   // multiplies what attention and feed-forward add to the stream
  float logit_scale = 1.0F;      // multiplies the logits
  std::vector<LayerSpec> layers;
  uint64_t parameters = 0;    // elements of all tensors the model uses
  uint64_t weight_bytes = 0;  // their bytes in the file

  uint32_t heads_max() const;
  const RopeSpec& rope_of(const LayerSpec& layer) const {
    return layer.attention == AttentionKind::kSliding && sliding_rope ? *sliding_rope : rope;
  }
};

/// Architectures that spec_from_gguf() knows.
std::vector<std::string_view> supported_architectures();

/// Reads metadata and the tensor list; tensor bytes are not touched (a file opened header_only will
/// do). Errors: kUnsupported naming the architecture or feature; kMalformed naming the key or
/// tensor, with the shape found and the one expected.
Result<ModelSpec> spec_from_gguf(const gguf::File& file);

/// The KV groups of a model: layers of the same attention kind, window and row sizes, in order of
/// first use. Errors: kInvalidArgument when a KV type does not fit the head dimension.
Result<kv::Geometry> make_geometry(const ModelSpec& spec, uint32_t block_tokens, KvType key_type,
                                   KvType value_type);

/// Fills LayerSpec::group and group_layer. Adaptors call it last.
void assign_groups(ModelSpec& spec);

}  // namespace pagewise::model
