// SPDX-License-Identifier: Apache-2.0
// The element-wise and row-wise operations of a decoder. Every result is a function of its own row
// (contract rule 1); sums run in a fixed tree of 16 lanes whatever the vector width; there is one
// exp (rule 6), and tails of rows are padded into full vectors instead of falling back to the C
// library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/aligned.h"

namespace pagewise::kernels {

/// out[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i], i in [0, n). `out` may be `x`.
void rms_norm(const float* x, const float* weight, std::size_t n, float eps, float* out);

/// out[i] = (x[i] - m) / sqrt(mean((x - m)^2) + eps) * weight[i] + bias[i], with m = mean(x); no
/// bias when it is null. `out` may be `x`. Source: Ba et al. 2016 (arXiv 1607.06450).
void layer_norm(const float* x, const float* weight, const float* bias, std::size_t n, float eps,
                float* out);

/// out[i] = gate[i] / (1 + exp(-gate[i])) * up[i]. `out` may be either input.
void silu_mul(const float* gate, const float* up, std::size_t n, float* out);

/// out[i] = gelu(gate[i]) * up[i], gelu by its tanh form: gelu(g) = g / 2 (1 + tanh(sqrt(2 / pi) (g
/// + 0.044715 g^3))) = g / (1 + exp(-2 sqrt(2 / pi) (g + 0.044715 g^3))). `out` may be either
/// input. Source: Hendrycks and Gimpel 2016 (arXiv 1606.08415).
void gelu_mul(const float* gate, const float* up, std::size_t n, float* out);

/// out[i] = gelu(x[i]), in the same form. `out` may be `x`.
void gelu(const float* x, std::size_t n, float* out);

/// out[i] = g / (1 + exp(-1.702 g)) * (u + 1), with g = gate[i], at most `limit`, and u = up[i],
/// within [-limit, limit]: the gate that gpt-oss has. `out` may be either input. Source: gpt-oss's
/// published model code; 1.702 from Hendrycks and Gimpel 2016, section 2.
void clamped_swiglu_mul(const float* gate, const float* up, std::size_t n, float limit, float* out);

/// x[i] = cap * tanh(x[i] / cap), as cap * (1 - 2 / (exp(2 x[i] / cap) + 1)). Requires: cap > 0.
void soft_cap(float* x, float cap, std::size_t n);

/// x[i] += y[i].
void add(float* x, const float* y, std::size_t n);

/// x[i] *= factor.
void scale(float* x, float factor, std::size_t n);

/// out[i] = exp(x[i]), the one exp of all kernels: relative error under 2 ulp; exp(0) == 1 exactly;
/// below -87.33 gives 0, above 88.7 clamps to the largest finite result. `out` may be `x`.
void exp(const float* x, std::size_t n, float* out);

/// max of x[0..n), lowest index on ties: greedy sampling and logit maxima. Requires: n >= 1, no
/// NaN.
std::size_t argmax(const float* x, std::size_t n);

/// How RoPE pairs the values of a head.
enum class RopeLayout : uint8_t {
  kNormal,  // (0,1), (2,3), ...: llama
  kNeox,    // (0, n/2), (1, n/2 + 1), ...
};

/// cos and sin of (position, pair), computed in double and rounded once, so that an angle is a
/// function of the absolute position alone: no incremental products. Rows are computed when they
/// are first prepared: a context of 128k positions would take a second and 64 MiB at start, and
/// most processes never see the end of it. Address space: positions * pairs * 8 bytes; memory: of
/// prepared rows. Thread: prepare() from one thread, while nobody else uses the table.
class RopeTable {
 public:
  RopeTable() = default;
  /// `frequencies[i]`: radians per position of pair i (base^(-2i/n), after any long-context
  /// scaling); `magnitude` multiplies both (YaRN), 1 elsewhere.
  RopeTable(std::size_t positions, std::span<const double> frequencies, double magnitude = 1.0);

  std::size_t positions() const { return prepared_.size(); }
  std::size_t pairs() const { return frequencies_.size(); }
  /// Makes a position's row usable. Requires: position < positions(). Cost: a sine and a cosine a
  /// pair the first time, no allocation.
  void prepare(std::size_t position);
  bool is_prepared(std::size_t position) const { return prepared_[position]; }

  const float* cos(std::size_t position) const { return cos_.data() + position * pairs(); }
  const float* sin(std::size_t position) const { return sin_.data() + position * pairs(); }

 private:
  std::vector<double> frequencies_;
  double magnitude_ = 1.0;
  std::vector<bool> prepared_;
  AlignedArray<float> cos_;
  AlignedArray<float> sin_;
};

/// Rotates the first 2 * table.pairs() values of each of `heads` heads in place: head h at x + h *
/// head_dim. (a, b) -> (a cos - b sin, a sin + b cos). Requires: the position is prepared.
void rope(float* x, std::size_t heads, std::size_t head_dim, RopeLayout layout,
          const RopeTable& table, std::size_t position);

/// IEEE conversions, round to nearest even; overflow gives infinity, NaN stays NaN.
void f32_to_f16(const float* x, std::size_t n, uint16_t* out);
void f16_to_f32(const uint16_t* x, std::size_t n, float* out);
void f32_to_bf16(const float* x, std::size_t n, uint16_t* out);
void bf16_to_f32(const uint16_t* x, std::size_t n, float* out);

}  // namespace pagewise::kernels
