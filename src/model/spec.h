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

/// Divisors of the pairs' angles that a file brings as tensors of [dims / 2] f32. `kOne`:
/// rope_freqs.weight (Llama 3.1 and later). `kShort`, `kLong`: rope_factors_short.weight and
/// rope_factors_long.weight (LongRoPE), of which one holds for all that a process computes.
enum class RopeFactors : uint8_t { kNone, kOne, kShort, kLong };

/// The angle of pair i at position p is p * frequency(i) / factor[i], with frequency(i) between
/// base^(-2i / dims) and the same times position_scale: see rope_frequency().
struct RopeSpec {
  RopeKind kind = RopeKind::kNormal;
  uint32_t dims = 0;  // leading elements of each head that rotate; even
  double base = 10000.0;
  double position_scale = 1.0;  // linear scaling and YaRN: 1 / factor
  double magnitude = 1.0;       // multiplies cos and sin (YaRN, LongRoPE)
  bool ramp = false;            // YaRN: pairs up to ramp_begin keep their frequency, those from
  double ramp_begin = 0;        // ramp_end on are scaled by position_scale, a line in between
  double ramp_end = 0;
  RopeFactors factors = RopeFactors::kNone;
  uint32_t short_context = 0;  // kShort, kLong: contexts up to this take the short factors

  bool operator==(const RopeSpec&) const = default;
};

/// Radians per position of pair `i`, before factors.
double rope_frequency(const RopeSpec& rope, uint32_t i);

enum class AttentionKind : uint8_t { kFull, kSliding };
/// `kSilu`, `kGeluTanh`: the gate's; the up projection is multiplied by it. `kGeluOnly`: there is
/// no gate, the up projection itself is activated. `kClampedSwiglu`: both are clamped at
/// activation_limit (kernels/ops.h, clamped_swiglu_mul).
enum class Activation : uint8_t { kSilu, kGeluTanh, kGeluOnly, kClampedSwiglu };
/// `kLayer` takes the mean away first; its biases are the tensors NAME.bias, where the file has
/// them.
enum class NormKind : uint8_t { kRms, kLayer };
/// What the RMS norm before rope spans: tensors attn_q_norm.weight and attn_k_norm.weight, of
/// [key_dim] or of [heads * key_dim] and [kv_heads * key_dim].
enum class QkNorm : uint8_t { kNone, kHead, kRow };

/// How the router's outputs become weights between 0 and 1: over all experts, or one by one.
enum class ExpertGate : uint8_t { kSoftmax, kSigmoid };

/// Feed-forward parts of which a router picks a few for each row (mixture of experts).
struct ExpertSpec {
  uint32_t count = 0;        // 0: one dense feed-forward part
  uint32_t used = 0;         // of each row
  uint32_t ffn = 0;          // width of one
  uint32_t shared_ffn = 0;   // width of the one that every row takes, too; 0: none
  bool shared_gate = false;  // sigmoid of ffn_gate_inp_shexp.weight's product scales its output
  bool normalize = false;    // the weights of those picked are divided by their sum
  bool biases = false;       // tensors ffn_gate_inp.bias, ffn_{gate,up,down}_exps.bias
  double scale = 1.0;        // multiplies those weights
  ExpertGate gate = ExpertGate::kSoftmax;
  bool bias = false;         // tensor exp_probs_b.bias is added to weights for picking, only there
  uint32_t groups = 1;       // of neighbours; divides count
  uint32_t groups_used = 1;  // of each row: the others' experts are not picked from. A group's rank
                             // is its best weight, with kSigmoid the sum of its best two
};

/// Latent attention (MLA). Of a token one row of rank + rope_dims values is kept, for all heads:
/// its latent, normed, and behind it a key that rotates. A head's keys and values are products of
/// the latent, and so the first of these products is taken on the query's side and the second
/// behind attention: in between, a head has a query of rank + rope_dims and gives back a sum of
/// latents. Source: DeepSeek-AI 2024 (arXiv 2405.04434), section 2.1 and appendix C.
struct LatentSpec {
  uint32_t rank = 0;        // of the latent: LayerSpec::value_dim
  uint32_t rope_dims = 0;   // rank + rope_dims: LayerSpec::key_dim
  uint32_t plain_dims = 0;  // of a head's query that do not rotate, in front of those that do
  uint32_t value_dim = 0;   // of a head, as the output projection reads it
  uint32_t query_rank = 0;  // queries come from a normed latent of their own; 0: from the stream
  bool fused = false;       // tensor attn_kv_b.weight instead of attn_k_b.weight, attn_v_b.weight

  uint32_t query_dim() const { return plain_dims + rope_dims; }  // of a head, as projected
};

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
  bool fused_qkv = false;    // attn_qkv.weight and .bias instead: rows of Q, then K, then V
  bool fused_gate = false;   // ffn_up.weight has 2 * ffn rows: the gate's, then its own
  bool rope = true;          // false: Q and K do not rotate (NoPE)
  bool sinks = false;        // tensor attn_sinks.weight: of each head, a score without a value
  QkNorm qk_norm = QkNorm::kNone;
  bool latent = false;            // as ModelSpec::latent says; one KV head
  bool dense = false;             // of a model with experts: a layer without
  bool pre_norms = true;          // tensors attn_norm.weight, ffn_norm.weight
  bool ffn_norm_renamed = false;  // the latter is called post_attention_norm.weight (gpt-oss)
  bool post_norms = false;  // tensors post_attention_norm.weight, post_ffw_norm.weight: RMS norm of
                            // what attention and feed-forward give, before it joins the stream
  bool parallel = false;    // attention and feed-forward read the same stream, and both join it
  bool parallel_norm = false;  // parallel: feed-forward has a norm of its own, and attention reads
                               // attn_norm_2.weight (Falcon); else both read attn_norm.weight

  /// The name of feed-forward's norm, without its block and ".weight".
  std::string_view ffn_norm_name() const {
    return parallel ? "attn_norm" : ffn_norm_renamed ? "post_attention_norm" : "ffn_norm";
  }
};

struct ModelSpec {
  std::string architecture;  // as supported_architectures() has it
  std::string name;          // general.name, or empty
  uint32_t vocab_size = 0;
  uint32_t embedding = 0;  // width of the residual stream
  uint32_t context = 0;    // positions the model was made for
  NormKind norm = NormKind::kRms;
  bool norm_bias = false;  // kLayer: with biases
  float norm_eps = 0.0F;
  Activation activation = Activation::kSilu;
  float activation_limit = 0.0F;  // kClampedSwiglu's
  RopeSpec rope;
  std::optional<RopeSpec> sliding_rope;  // of sliding layers; empty: theirs is `rope`, too
  bool tied_head = false;                // the output head is token_embd.weight
  float embedding_scale = 1.0F;          // multiplies the embedding row
  float attention_scale = 0.0F;  // multiplies q.k before the softmax; 1 / sqrt(key_dim) unless told
  float residual_scale = 1.0F;   // multiplies what attention and feed-forward add to the stream
  float attention_softcap = 0.0F;  // c > 0: scores become c * tanh(score / c)
  float logit_scale = 1.0F;        // multiplies the logits
  float logit_softcap = 0.0F;      // c > 0: logits become c * tanh(logit / c)
  ExpertSpec experts;
  LatentSpec latent;
  std::vector<LayerSpec> layers;
  uint64_t parameters = 0;    // elements of all tensors the model uses
  uint64_t weight_bytes = 0;  // their bytes in the file

  uint32_t heads_max() const;
  bool has_experts(const LayerSpec& layer) const { return experts.count != 0 && !layer.dense; }
  /// What the output projection reads of a row.
  uint32_t attended_dim(const LayerSpec& layer) const {
    return layer.heads * (layer.latent ? latent.value_dim : layer.value_dim);
  }
  const RopeSpec& rope_of(const LayerSpec& layer) const {
    return layer.attention == AttentionKind::kSliding && sliding_rope ? *sliding_rope : rope;
  }
};

/// Architectures that spec_from_gguf() knows.
std::vector<std::string_view> supported_architectures();

/// For a process that uses at most `context` positions: some models have rope factors of their own
/// for short contexts. To be called before weights are loaded.
void limit_context(ModelSpec& spec, uint32_t context);

/// Reads metadata and the tensor list; tensor bytes are not touched (a file opened header_only will
/// do). Errors: kUnsupported naming the architecture or feature; kMalformed naming the key or
/// tensor, with the shape found and the one expected.
Result<ModelSpec> spec_from_gguf(const gguf::File& file);

/// The KV groups of a model: layers of the same attention kind, window and row sizes, in order of
/// first use. Errors: kInvalidArgument when a KV type does not fit the head dimension, or K's is
/// not V's where both are one row.
Result<kv::Geometry> make_geometry(const ModelSpec& spec, uint32_t block_tokens, KvType key_type,
                                   KvType value_type);

/// Fills LayerSpec::group and group_layer. Adaptors call it last.
void assign_groups(ModelSpec& spec);

}  // namespace pagewise::model
