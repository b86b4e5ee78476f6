// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/half.h"
#include "kernels/k_quants.h"
#include "kernels/linear/linear.h"
#include "kernels/to_float.h"

namespace pagewise::kernels::ref {
namespace {

// 16 lanes to one: the upper half is added to the lower, four times.
float fold(float (&lanes)[16]) {
  for (std::size_t width = 8; width > 0; width /= 2) {
    for (std::size_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

}  // namespace

float exp(float x) {
  if (x < -87.3f) return 0.0f;
  x = std::min(x, 88.3f);
  const float n = std::fma(x, 1.44269504f, 0x1.8p23f) - 0x1.8p23f;
  float r = std::fma(-n, 0x1.62e4p-1f, x);
  r = std::fma(-n, 0x1.7f7d1cp-20f, r);
  float p = 1.0f / 5040.0f;
  for (const float c : {1.0f / 720.0f, 1.0f / 120.0f, 1.0f / 24.0f, 1.0f / 6.0f, 0.5f})
    p = std::fma(p, r, c);
  return std::ldexp(std::fma(p, r * r, r) + 1.0f, static_cast<int>(n));
}

float tree_sum(const float* x, std::size_t n) {
  float lanes[16] = {};
  for (std::size_t i = 0; i < n; ++i) lanes[i % 16] += x[i];
  return fold(lanes);
}

void rms_norm(const float* x, const float* weight, std::size_t n, float eps, float* out) {
  float lanes[16] = {};
  for (std::size_t i = 0; i < n; ++i) lanes[i % 16] = std::fma(x[i], x[i], lanes[i % 16]);
  const float factor = 1.0f / std::sqrt(fold(lanes) / static_cast<float>(n) + eps);
  for (std::size_t i = 0; i < n; ++i) out[i] = x[i] * factor * weight[i];
}

void layer_norm(const float* x, const float* weight, const float* bias, std::size_t n, float eps,
                float* out) {
  const float scale = 1.0f / static_cast<float>(n);
  const float mean = tree_sum(x, n) * scale;
  float lanes[16] = {};
  for (std::size_t i = 0; i < n; ++i) {
    const float apart = x[i] - mean;
    lanes[i % 16] = std::fma(apart, apart, lanes[i % 16]);
  }
  const float factor = 1.0f / std::sqrt(fold(lanes) * scale + eps);
  for (std::size_t i = 0; i < n; ++i) {
    out[i] = (x[i] - mean) * factor * weight[i];
    if (bias != nullptr) out[i] += bias[i];
  }
}

void silu_mul(const float* gate, const float* up, std::size_t n, float* out) {
  for (std::size_t i = 0; i < n; ++i) out[i] = gate[i] / (1.0f + exp(-gate[i])) * up[i];
}

void gelu(const float* x, std::size_t n, float* out) {
  constexpr float kLinear = -2.0f * 0.79788456f;
  constexpr float kCubic = -2.0f * 0.79788456f * 0.044715f;
  for (std::size_t i = 0; i < n; ++i) {
    const float g = x[i];
    out[i] = g / (1.0f + exp(g * std::fma(g * g, kCubic, kLinear)));
  }
}

void gelu_mul(const float* gate, const float* up, std::size_t n, float* out) {
  for (std::size_t i = 0; i < n; ++i) {
    float value;
    gelu(&gate[i], 1, &value);
    out[i] = value * up[i];
  }
}

void clamped_swiglu_mul(const float* gate, const float* up, std::size_t n, float limit,
                        float* out) {
  for (std::size_t i = 0; i < n; ++i) {
    const float g = std::min(gate[i], limit);
    const float u = std::max(std::min(up[i], limit), -limit);
    out[i] = g / (1.0f + exp(g * -1.702f)) * (u + 1.0f);
  }
}

void soft_cap(float* x, float cap, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    x[i] = cap * (1.0f - 2.0f / (exp(2.0f * (x[i] / cap)) + 1.0f));
  }
}

void rope(float* x, std::size_t heads, std::size_t head_dim, RopeLayout layout,
          const RopeTable& table, std::size_t position) {
  const std::size_t pairs = table.pairs();
  for (std::size_t h = 0; h < heads; ++h) {
    float* head = x + h * head_dim;
    for (std::size_t i = 0; i < pairs; ++i) {
      float& a = layout == RopeLayout::kNeox ? head[i] : head[2 * i];
      float& b = layout == RopeLayout::kNeox ? head[pairs + i] : head[2 * i + 1];
      const float cos = table.cos(position)[i];
      const float sin = table.sin(position)[i];
      const float rotated_a = std::fma(-b, sin, a * cos);
      const float rotated_b = std::fma(a, sin, b * cos);
      a = rotated_a;
      b = rotated_b;
    }
  }
}

QuantizedBlock quantize_block(const float* x) {
  QuantizedBlock block{};
  float amax = 0.0f;
  for (std::size_t i = 0; i < kQuantBlock; ++i) amax = std::max(amax, std::fabs(x[i]));
  if (!(amax >= 1e-30f)) return block;
  const float inverse = 127.0f / amax;
  block.scale = amax / 127.0f;
  for (std::size_t i = 0; i < kQuantBlock; ++i) {
    block.quants[i] =
        static_cast<int8_t>(std::nearbyint(std::clamp(x[i] * inverse, -127.0f, 127.0f)));
  }
  return block;
}

KvGroup quantize_kv(const float* x) {
  KvGroup group{};
  float amax = 0.0f;
  for (std::size_t i = 0; i < kKvScaleGroup; ++i) amax = std::max(amax, std::fabs(x[i]));
  group.scale = float_to_half(std::min(amax / 127.0f, 65504.0f));
  const float scale = half_to_float(group.scale);
  for (std::size_t i = 0; i < kKvScaleGroup && scale > 0; ++i) {
    const float code = std::nearbyint(x[i] * (1.0f / scale));
    group.codes[i] = static_cast<int8_t>(std::clamp(code, -127.0f, 127.0f));
  }
  return group;
}

namespace {

/// One block of 32 weights of the integer family: w = d * (integer scale of its half) * code + m.
struct WeightBlock {
  int codes[kQuantBlock];  // offset taken off
  int scales[2] = {1, 1};
  float d = 0.0f;
  float m = 0.0f;
  bool has_minimum = false;
};

WeightBlock read_block(TensorType type, const uint8_t* row, std::size_t b) {
  WeightBlock out;
  const auto half_at = [](const uint8_t* p) {
    uint16_t half;
    std::memcpy(&half, p, sizeof(half));
    return half_to_float(half);
  };
  // Blocks of 32, or the part of 32 values of a block of 256.
  const bool is_super = tensor_type_info(type)->block_elements == kSuperBlock;
  const std::size_t in_super = is_super ? kQuantBlock * (b % (kSuperBlock / kQuantBlock)) : 0;
  const uint8_t* block = row + row_bytes(type, kQuantBlock * b - in_super);
  const auto nibble = [&](std::size_t first, std::size_t i) {
    return i < 16 ? block[first + i] & 15 : block[first + i - 16] >> 4;
  };
  const auto fifth = [&](std::size_t first, std::size_t i) {
    return 16 * (block[first + i / 8] >> (i % 8) & 1);
  };
  for (std::size_t i = 0; i < kQuantBlock; ++i) {
    int& code = out.codes[i];
    switch (type) {
      case TensorType::kQ4_0:
        code = nibble(2, i) - 8;
        break;
      case TensorType::kQ4_1:
        code = nibble(4, i);
        break;
      case TensorType::kQ5_0:
        code = nibble(6, i) + fifth(2, i) - 16;
        break;
      case TensorType::kQ5_1:
        code = nibble(8, i) + fifth(4, i);
        break;
      case TensorType::kIQ4_NL:
        code = kIq4NlValues[nibble(2, i)];
        break;
      case TensorType::kMXFP4:
        code = kMxfp4Values[nibble(1, i)];
        break;
      case TensorType::kQ4_K:
        code = q4_k_code(block, in_super + i);
        break;
      case TensorType::kQ5_K:
        code = q5_k_code(block, in_super + i);
        break;
      case TensorType::kQ6_K:
        code = q6_k_code(block, in_super + i) - 32;
        break;
      default:
        code = static_cast<int8_t>(block[2 + i]);
        break;
    }
  }
  out.d = type == TensorType::kMXFP4 ? mxfp4_scale(block[0])
                                     : half_at(type == TensorType::kQ6_K ? block + 208 : block);
  if (type == TensorType::kQ4_1 || type == TensorType::kQ5_1) {
    out.m = half_at(block + 2);
    out.has_minimum = true;
  } else if (type == TensorType::kQ4_K || type == TensorType::kQ5_K) {
    const ScaleMin sm = scale_min_k(block + 4, static_cast<int>(in_super / kQuantBlock));
    out.d *= static_cast<float>(sm.scale);
    out.m = -(half_at(block + 2) * static_cast<float>(sm.min));
    out.has_minimum = true;
  } else if (type == TensorType::kQ6_K) {
    for (std::size_t half = 0; half < 2; ++half) {
      out.scales[half] = static_cast<int8_t>(block[192 + in_super / 16 + half]);
    }
  }
  return out;
}

}  // namespace

float linear(TensorType type, const std::byte* row, const float* x, std::size_t columns) {
  float sum = 0.0f;
  if (linear_family(type) == LinearFamily::kF32) {
    std::vector<float> weights(columns);
    find_to_float(type).value()(row, weights.data(), static_cast<int64_t>(columns));
    for (std::size_t k = 0; k < columns; ++k) sum = std::fma(weights[k], x[k], sum);
    return sum;
  }
  for (std::size_t b = 0; b < columns / kQuantBlock; ++b) {
    const QuantizedBlock q = quantize_block(x + b * kQuantBlock);
    const WeightBlock w = read_block(type, reinterpret_cast<const uint8_t*>(row), b);
    int32_t products = 0;
    int32_t total = 0;
    for (std::size_t i = 0; i < kQuantBlock; ++i) {
      products += w.scales[i / 16] * w.codes[i] * q.quants[i];
      total += q.quants[i];
    }
    sum = std::fma(static_cast<float>(products), w.d * q.scale, sum);
    if (w.has_minimum) sum = std::fma(w.m, q.scale * static_cast<float>(total), sum);
  }
  return sum;
}

void attention(const AttentionShape& shape, const PagedLayer& layer,
               std::span<const BlockId> blocks, uint32_t position, const float* q, float* out,
               const float* sinks) {
  const uint32_t end = position + 1;
  const uint32_t begin = shape.window != 0 && end > shape.window ? end - shape.window : 0;
  std::vector<float> k(shape.key_dim);
  std::vector<float> v(shape.value_dim);
  for (uint32_t h = 0; h < shape.heads; ++h) {
    const uint32_t kv_head = h / (shape.heads / shape.kv_heads);
    std::vector<float> q_scaled(q + h * shape.key_dim, q + (h + 1) * shape.key_dim);
    for (float& x : q_scaled) x *= shape.scale;
    bool started = false;
    float m = 0.0f;
    float l = 0.0f;
    std::vector<float> acc(shape.value_dim);
    for (uint32_t segment = begin / kSegmentTokens; segment * kSegmentTokens < end; ++segment) {
      const uint32_t first = segment * kSegmentTokens;
      std::vector<float> w(kSegmentTokens, -std::numeric_limits<float>::infinity());
      float segment_m = -std::numeric_limits<float>::infinity();
      std::vector<std::vector<float>> values(kSegmentTokens);
      for (uint32_t t = std::max(begin, first); t < std::min(end, first + kSegmentTokens); ++t) {
        load_kv(layer, blocks, t, kv_head, k.data(), v.data());
        float s = 0.0f;
        for (uint32_t d = 0; d < shape.key_dim; ++d) s = std::fma(k[d], q_scaled[d], s);
        if (shape.logit_softcap > 0) soft_cap(&s, shape.logit_softcap, 1);
        w[t - first] = s;
        segment_m = std::max(segment_m, s);
        values[t - first] = v;
      }
      std::vector<float> segment_acc(shape.value_dim);
      for (uint32_t t = 0; t < kSegmentTokens; ++t) {
        w[t] = values[t].empty() ? 0.0f : exp(w[t] - segment_m);
        for (uint32_t j = 0; j < values[t].size(); ++j) {
          segment_acc[j] = std::fma(w[t], values[t][j], segment_acc[j]);
        }
      }
      const float segment_l = tree_sum(w.data(), w.size());
      if (!started) {
        m = segment_m;
        l = segment_l;
        acc = segment_acc;
        started = true;
        continue;
      }
      const float merged_m = std::max(m, segment_m);
      const float left = exp(m - merged_m);
      const float right = exp(segment_m - merged_m);
      m = merged_m;
      l = std::fma(segment_l, right, l * left);
      for (uint32_t j = 0; j < shape.value_dim; ++j)
        acc[j] = std::fma(segment_acc[j], right, acc[j] * left);
    }
    if (sinks != nullptr) {
      const float merged_m = std::max(m, sinks[h]);
      const float left = exp(m - merged_m);
      l = exp(sinks[h] - merged_m) + l * left;
      for (float& x : acc) x *= left;
    }
    for (uint32_t j = 0; j < shape.value_dim; ++j) out[h * shape.value_dim + j] = acc[j] / l;
  }
}

}  // namespace pagewise::kernels::ref
