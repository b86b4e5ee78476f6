// SPDX-License-Identifier: Apache-2.0
// Every kernel once more in plain scalar code: the truth that tests compare each instruction set
// with. Same arithmetic, operation by operation, with std::fma for each FMA, so on instruction sets
// with FMA the comparison is bit for bit. Slow on purpose; not for serving.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/attention/attention.h"
#include "kernels/linear/activations.h"
#include "kernels/ops.h"
#include "kernels/paged_view.h"

namespace pagewise::kernels::ref {

float exp(float x);
/// Sum in the fixed tree: 16 lanes, lane i takes elements i, i + 16, ... ascending; then halves are
/// folded.
float tree_sum(const float* x, std::size_t n);

void rms_norm(const float* x, const float* weight, std::size_t n, float eps, float* out);
void layer_norm(const float* x, const float* weight, const float* bias, std::size_t n, float eps,
                float* out);
void silu_mul(const float* gate, const float* up, std::size_t n, float* out);
void gelu_mul(const float* gate, const float* up, std::size_t n, float* out);
void gelu(const float* x, std::size_t n, float* out);
void clamped_swiglu_mul(const float* gate, const float* up, std::size_t n, float limit, float* out);
void soft_cap(float* x, float cap, std::size_t n);
void rope(float* x, std::size_t heads, std::size_t head_dim, RopeLayout layout,
          const RopeTable& table, std::size_t position);

struct QuantizedBlock {
  int8_t quants[kQuantBlock];
  float scale;
};
/// The int8 form of 32 values.
QuantizedBlock quantize_block(const float* x);

struct KvGroup {
  int8_t codes[kKvScaleGroup];
  uint16_t scale;  // f16 bits
};
/// 32 values as the KV type q8_0 keeps them.
KvGroup quantize_kv(const float* x);

/// One output of a linear layer: `row` is the weights' row in `type`, `x` the f32 activations.
float linear(TensorType type, const std::byte* row, const float* x, std::size_t columns);

/// One row, all heads: q [heads * key_dim], out [heads * value_dim]; sinks [heads], or null.
void attention(const AttentionShape& shape, const PagedLayer& layer,
               std::span<const BlockId> blocks, uint32_t position, const float* q, float* out,
               const float* sinks = nullptr);

}  // namespace pagewise::kernels::ref
