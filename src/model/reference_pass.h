// SPDX-License-Identifier: Apache-2.0
// For tests only: the forward pass of a decoder as the papers write it, in doubles, over weights
// given as plain floats. No cache, no blocks, no threads; what the executor computes must come
// close to this. It knows what the architectures llama and gemma3 have; the others are held against
// a published implementation's logits (tests/golden/architectures_test.cc). Source: Vaswani et al.
// 2017, section 3.2; Touvron et al. 2023; Su et al. 2021 (rope); Gemma Team 2025 (norms of heads
// and behind a layer's parts).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/check.h"
#include "model/spec.h"

namespace pagewise::model::testing {

/// The tensor's elements in file order, decoded to float; empty when the file has none of that
/// name.
using WeightLookup = std::function<const std::vector<float>&(const std::string&)>;

using Row = std::vector<double>;

/// weights [rows][x.size()], row-major.
inline Row product(const std::vector<float>& weights, const Row& x) {
  PW_CHECK(!x.empty() && weights.size() % x.size() == 0);
  Row out(weights.size() / x.size());
  for (std::size_t r = 0; r < out.size(); ++r) {
    for (std::size_t c = 0; c < x.size(); ++c) out[r] += double{weights[r * x.size() + c]} * x[c];
  }
  return out;
}

inline Row rms_norm(const Row& x, const std::vector<float>& weight, double eps) {
  double square = 0;
  for (const double value : x) square += value * value;
  const double scale = 1.0 / std::sqrt(square / static_cast<double>(x.size()) + eps);
  Row out(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) out[i] = x[i] * scale * double{weight[i]};
  return out;
}

/// Rotates each head of `x` ([heads * dim]) for an absolute position.
inline void rotate(Row& x, uint32_t dim, const RopeSpec& rope, const std::vector<float>& factors,
                   uint32_t position) {
  for (std::size_t head = 0; head < x.size(); head += dim) {
    for (uint32_t i = 0; i < rope.dims / 2; ++i) {
      double angle = std::pow(rope.base, -2.0 * i / rope.dims) * rope.position_scale * position;
      if (rope.factors == RopeFactors::kOne) angle /= double{factors[i]};
      const bool neox = rope.kind == RopeKind::kNeox;
      double& a = x[head + (neox ? i : 2 * i)];
      double& b = x[head + (neox ? i + rope.dims / 2 : 2 * i + 1)];
      const double turned = a * std::cos(angle) - b * std::sin(angle);
      b = a * std::sin(angle) + b * std::cos(angle);
      a = turned;
    }
  }
}

/// RMS norm of each head of `x` ([heads * weight.size()]).
inline void norm_heads(Row& x, const std::vector<float>& weight, double eps) {
  for (auto head = x.begin(); head != x.end(); head += static_cast<std::ptrdiff_t>(weight.size())) {
    const Row normed =
        rms_norm(Row(head, head + static_cast<std::ptrdiff_t>(weight.size())), weight, eps);
    std::copy(normed.begin(), normed.end(), head);
  }
}

inline double activated(Activation activation, double gate) {
  if (activation == Activation::kSilu) return gate / (1 + std::exp(-gate));
  const double inner = std::sqrt(2 / std::acos(-1.0)) * (gate + 0.044715 * gate * gate * gate);
  return gate / 2 * (1 + std::tanh(inner));
}

inline void add(Row& x, const std::vector<float>& bias) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += double{bias[i]};
}

/// Logits of every position of `tokens`: [tokens][vocab_size].
inline std::vector<Row> reference_logits(const ModelSpec& spec, const WeightLookup& weights,
                                         const std::vector<int32_t>& tokens) {
  const std::vector<float>& embeddings = weights("token_embd.weight");
  std::vector<Row> stream;
  for (const int32_t token : tokens) {
    const auto row = embeddings.begin() + std::ptrdiff_t{token} * spec.embedding;
    stream.emplace_back(row, row + spec.embedding);
    for (double& value : stream.back()) value *= double{spec.embedding_scale};
  }
  for (std::size_t l = 0; l < spec.layers.size(); ++l) {
    const LayerSpec& layer = spec.layers[l];
    const auto tensor = [&](const char* name) -> const std::vector<float>& {
      return weights("blk." + std::to_string(l) + "." + name);
    };
    std::vector<Row> keys, values;
    for (uint32_t t = 0; t < tokens.size(); ++t) {
      const Row normed = rms_norm(stream[t], tensor("attn_norm.weight"), double{spec.norm_eps});
      Row query = product(tensor("attn_q.weight"), normed);
      keys.push_back(product(tensor("attn_k.weight"), normed));
      values.push_back(product(tensor("attn_v.weight"), normed));
      if (layer.qkv_bias) {
        add(query, tensor("attn_q.bias"));
        add(keys[t], tensor("attn_k.bias"));
        add(values[t], tensor("attn_v.bias"));
      }
      if (layer.qk_norm == QkNorm::kHead) {
        norm_heads(query, tensor("attn_q_norm.weight"), double{spec.norm_eps});
        norm_heads(keys[t], tensor("attn_k_norm.weight"), double{spec.norm_eps});
      }
      const RopeSpec& rope = spec.rope_of(layer);
      rotate(query, layer.key_dim, rope, weights("rope_freqs.weight"), t);
      rotate(keys[t], layer.key_dim, rope, weights("rope_freqs.weight"), t);

      const uint32_t first = layer.attention == AttentionKind::kSliding && t + 1 > layer.window
                                 ? t + 1 - layer.window
                                 : 0;
      Row attended(std::size_t{layer.heads} * layer.value_dim);
      for (uint32_t h = 0; h < layer.heads; ++h) {
        const uint32_t kv_head = h / (layer.heads / layer.kv_heads);
        Row scores(t + 1, 0.0);
        double max = -INFINITY;
        for (uint32_t s = first; s <= t; ++s) {
          for (uint32_t d = 0; d < layer.key_dim; ++d) {
            scores[s] += query[h * layer.key_dim + d] * keys[s][kv_head * layer.key_dim + d];
          }
          scores[s] *= double{spec.attention_scale};
          max = std::max(max, scores[s]);
        }
        double sum = 0;
        for (uint32_t s = first; s <= t; ++s) sum += scores[s] = std::exp(scores[s] - max);
        for (uint32_t s = first; s <= t; ++s) {
          for (uint32_t d = 0; d < layer.value_dim; ++d) {
            attended[h * layer.value_dim + d] +=
                scores[s] / sum * values[s][kv_head * layer.value_dim + d];
          }
        }
      }
      Row out = product(tensor("attn_output.weight"), attended);
      if (layer.output_bias) add(out, tensor("attn_output.bias"));
      if (layer.post_norms) {
        out = rms_norm(out, tensor("post_attention_norm.weight"), double{spec.norm_eps});
      }
      for (std::size_t i = 0; i < out.size(); ++i) stream[t][i] += out[i];
    }
    for (Row& row : stream) {
      const Row normed = rms_norm(row, tensor("ffn_norm.weight"), double{spec.norm_eps});
      Row gate = product(tensor("ffn_gate.weight"), normed);
      const Row up = product(tensor("ffn_up.weight"), normed);
      for (std::size_t i = 0; i < gate.size(); ++i) {
        gate[i] = activated(spec.activation, gate[i]) * up[i];
      }
      Row down = product(tensor("ffn_down.weight"), gate);
      if (layer.post_norms) {
        down = rms_norm(down, tensor("post_ffw_norm.weight"), double{spec.norm_eps});
      }
      for (std::size_t i = 0; i < down.size(); ++i) row[i] += down[i];
    }
  }
  std::vector<Row> logits;
  const std::vector<float>& head = weights(spec.tied_head ? "token_embd.weight" : "output.weight");
  for (const Row& row : stream) {
    logits.push_back(
        product(head, rms_norm(row, weights("output_norm.weight"), double{spec.norm_eps})));
  }
  return logits;
}

}  // namespace pagewise::model::testing
