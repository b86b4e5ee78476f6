// SPDX-License-Identifier: Apache-2.0
// The forward pass's norms and feed-forward parts, dense ones and experts.
//
// A row's experts are those of its highest weights (the lower index of equal ones), from its best
// groups of experts where there are groups, and what they give is added up in ascending order of
// their index: a function of the row alone (contract rule 1). The few-rows schedule takes each
// row's experts one by one, their outputs divided among threads; the many-rows schedule gathers a
// tile's rows of one expert.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "kernels/linear/linear.h"
#include "model/forward.h"
#include "model/forward_shares.h"

namespace pagewise::model {

using kernels::Activations;
using kernels::kPanelOutputs;

namespace {

/// No weight is as low, and no weight with a bias.
constexpr float kTaken = -std::numeric_limits<float>::infinity();

/// Index of the highest value, the lower one of equal values, which is then marked as taken.
/// Whatever they are (NaN, too), asked again it finds another one. Requires one that is not taken.
uint32_t take_best(float* values, uint32_t count) {
  uint32_t best = count;
  for (uint32_t i = 0; i < count; ++i) {
    if (values[i] == kTaken) continue;
    if (best == count || values[i] > values[best]) best = i;
  }
  PW_CHECK(best != count);
  values[best] = kTaken;
  return best;
}

void sigmoid(float* x, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) x[i] = -x[i];
  kernels::exp(x, n, x);
  for (std::size_t i = 0; i < n; ++i) x[i] = 1.0F / (1.0F + x[i]);
}

}  // namespace

/// `x` and `out`, which may be one, are rows of the stream's width.
void Forward::apply_norm(const Norm& norm, const float* x, float* out) const {
  if (norm.empty()) {
    if (out != x) std::memcpy(out, x, embedding_ * sizeof(float));
    return;
  }
  switch (spec_.norm) {
    case NormKind::kRms:
      kernels::rms_norm(x, norm.weight.data(), embedding_, spec_.norm_eps, out);
      break;
    case NormKind::kLayer:
      kernels::layer_norm(x, norm.weight.data(), norm.bias.size() == 0 ? nullptr : norm.bias.data(),
                          embedding_, spec_.norm_eps, out);
      break;
  }
}

void Forward::activate(const float* gate, const float* up, std::size_t n, float* out) const {
  switch (spec_.activation) {
    case Activation::kSilu:
      kernels::silu_mul(gate, up, n, out);
      break;
    case Activation::kGeluTanh:
      kernels::gelu_mul(gate, up, n, out);
      break;
    case Activation::kGeluOnly:
      kernels::gelu(up, n, out);
      break;
    case Activation::kClampedSwiglu:
      kernels::clamped_swiglu_mul(gate, up, n, spec_.activation_limit, out);
      break;
  }
}

/// Rows `in_rows` of `in` through the outputs `panels` of gate and up, into rows of `out` from
/// `out_row` on; not quantised yet. Their products stand in gate_ and up_ from float `scratch_at`
/// on: threads are not at the same matrix at the same time, so those of different widths must not
/// share floats.
void Forward::activate_few(const FeedForward& ffn, const Activations& in, Range in_rows,
                           Range panels, std::size_t scratch_at, Activations& out,
                           std::size_t out_row) {
  const std::size_t width = ffn.up.linear.outputs();
  const Range outputs = outputs_of(panels, width);
  if (outputs.empty()) return;
  const bool gated = ffn.gate.linear.outputs() != 0;
  float* const gate = gate_.data() + scratch_at;
  float* const up = up_.data() + scratch_at;
  if (gated) kernels::linear(ffn.gate.linear, in, in_rows, panels, gate, width);
  kernels::linear(ffn.up.linear, in, in_rows, panels, up, width);
  add_bias(gate, in_rows.size(), width, outputs, ffn.gate_bias);
  add_bias(up, in_rows.size(), width, outputs, ffn.up_bias);
  for (std::size_t r = 0; r < in_rows.size(); ++r) {
    const std::size_t at = r * width + outputs.begin;
    activate(gate + at, up + at, outputs.size(), out.row(out_row + r) + outputs.begin);
  }
}

/// out = quantised act(gate) * up of the first `rows` rows of `in`.
void Forward::ffn_tile(const FeedForward& ffn, const Activations& in, uint32_t rows,
                       ThreadScratch& scratch, Activations& out) {
  constexpr std::size_t kChunkPanels = kFfnChunk / kPanelOutputs;
  const std::size_t panels = ffn.up.linear.panels();
  const bool gated = ffn.gate.linear.outputs() != 0;
  for (std::size_t first = 0; first < panels; first += kChunkPanels) {
    const Range chunk = {first, std::min(first + kChunkPanels, panels)};
    const Range outputs = outputs_of(chunk, ffn.up.linear.outputs());
    // linear() places output o at out + o: shift so that the chunk's first output comes first.
    float* const gate = scratch.gate.data() - outputs.begin;
    float* const up = scratch.up.data() - outputs.begin;
    if (gated) kernels::linear(ffn.gate.linear, in, {0, rows}, chunk, gate, kFfnChunk);
    kernels::linear(ffn.up.linear, in, {0, rows}, chunk, up, kFfnChunk);
    add_bias(gate, rows, kFfnChunk, outputs, ffn.gate_bias);
    add_bias(up, rows, kFfnChunk, outputs, ffn.up_bias);
    for (std::size_t r = 0; r < rows; ++r) {
      activate(scratch.gate.data() + r * kFfnChunk, scratch.up.data() + r * kFfnChunk,
               outputs.size(), out.row(r) + outputs.begin);
    }
  }
  out.quantize({0, rows});
}

void Forward::make_expert_scratch() {
  const ExpertSpec& experts = spec_.experts;
  const std::size_t rows = positions_.capacity();
  route_experts_.resize(rows * experts.used);
  route_weights_.resize(rows * experts.used);
  route_shared_.resize(rows);
  const std::size_t few = std::size_t{few_rows_max_} * experts.used;
  expert_activated_ = Activations(few, experts.ffn);
  shared_activated_ = Activations(few_rows_max_, experts.shared_ffn);
  for (ThreadScratch& scratch : threads_) {
    scratch.chosen = Activations(kTileRows, embedding_);
    scratch.expert = Activations(kTileRows, experts.ffn);
    scratch.shared = Activations(kTileRows, experts.shared_ffn);
    scratch.mixed = kernels::AlignedArray<float>(std::size_t{kTileRows} * embedding_);
    scratch.router = kernels::AlignedArray<float>(experts.count);
    scratch.choice = kernels::AlignedArray<float>(experts.count);
    scratch.groups = kernels::AlignedArray<float>(experts.groups);
  }
}

Forward::Route Forward::route_of(std::size_t row) {
  const std::size_t at = row * spec_.experts.used;
  return {route_experts_.data() + at, route_weights_.data() + at, route_shared_.data() + row};
}

/// Row `in_row` of `in`, which is normed, through the router.
void Forward::choose_experts(const ExpertWeights& weights, const Activations& in,
                             std::size_t in_row, ThreadScratch& scratch, Route route) const {
  const ExpertSpec& experts = spec_.experts;
  const Range row = {in_row, in_row + 1};
  float* const shares = scratch.router.data();
  kernels::linear(weights.router.linear, in, row, all_panels(weights.router), shares,
                  experts.count);
  add_bias(shares, 1, experts.count, {0, experts.count}, weights.router_bias);
  float sum = 1;
  if (experts.gate == ExpertGate::kSigmoid) {
    sigmoid(shares, experts.count);
  } else {
    const float most = shares[kernels::argmax(shares, experts.count)];
    for (uint32_t e = 0; e < experts.count; ++e) shares[e] -= most;
    kernels::exp(shares, experts.count, shares);
    sum = 0;
    for (uint32_t e = 0; e < experts.count; ++e) sum += shares[e];
  }
  float* const choice = scratch.choice.data();
  std::memcpy(choice, shares, experts.count * sizeof(float));
  if (experts.bias) kernels::add(choice, weights.bias.data(), experts.count);
  if (experts.groups > 1) keep_best_groups(scratch);

  for (uint32_t k = 0; k < experts.used; ++k) {
    const uint32_t best = take_best(choice, experts.count);
    uint32_t at = k;  // kept in ascending order of the index
    for (; at > 0 && route.experts[at - 1] > best; --at) {
      route.experts[at] = route.experts[at - 1];
      route.weights[at] = route.weights[at - 1];
    }
    route.experts[at] = best;
    route.weights[at] = shares[best];
  }
  if (experts.normalize) {
    sum = 0;
    for (uint32_t k = 0; k < experts.used; ++k) sum += route.weights[k];
    if (sum == 0) sum = 1;  // of sigmoids all may be 0, and then the experts give nothing
  }
  for (uint32_t k = 0; k < experts.used; ++k) route.weights[k] /= sum;
  if (experts.scale != 1.0) {
    kernels::scale(route.weights, static_cast<float>(experts.scale), experts.used);
  }

  if (experts.shared_ffn == 0) return;
  *route.shared = 1;
  if (!experts.shared_gate) return;
  kernels::linear(weights.shared_gate.linear, in, row, {0, 1}, route.shared, 1);
  sigmoid(route.shared, 1);
}

/// Takes all experts of groups that are not among the row's best from scratch.choice.
void Forward::keep_best_groups(ThreadScratch& scratch) const {
  const ExpertSpec& experts = spec_.experts;
  const uint32_t size = experts.count / experts.groups;
  float* const choice = scratch.choice.data();
  float* const ranks = scratch.groups.data();
  for (uint32_t g = 0; g < experts.groups; ++g) {
    float best = kTaken, second = kTaken;
    for (uint32_t e = g * size; e < (g + 1) * size; ++e) {
      second = std::max(second, std::min(best, choice[e]));
      best = std::max(best, choice[e]);
    }
    const bool two = experts.gate == ExpertGate::kSigmoid && size > 1;
    // A group of numbers that are none (of a model whose sums overflow) ranks last, and is there.
    ranks[g] = std::max(std::numeric_limits<float>::lowest(), two ? best + second : best);
  }
  for (uint32_t k = 0; k < experts.groups_used; ++k) take_best(ranks, experts.groups);
  for (uint32_t g = 0; g < experts.groups; ++g) {
    if (ranks[g] == kTaken) continue;
    std::fill_n(choice + std::size_t{g} * size, size, kTaken);
  }
}

/// Routes of the step's first `rows` rows, and what their experts activate; ends with a barrier.
void Forward::activate_experts_few(const ExpertWeights& weights, const Activations& in,
                                   uint32_t rows, const Context& context) {
  const uint32_t used = spec_.experts.used;
  ThreadScratch& scratch = threads_[context.index()];
  const Range mine = share_rows(context, rows);
  for (std::size_t r = mine.begin; r < mine.end; ++r) {
    choose_experts(weights, in, r, scratch, route_of(r));
  }
  context.barrier();
  for (std::size_t r = 0; r < rows; ++r) {
    const Route route = route_of(r);
    for (uint32_t k = 0; k < used; ++k) {
      const FeedForward& expert = weights.experts[route.experts[k]];
      activate_few(expert, in, {r, r + 1}, context.share(expert.up.linear.panels()),
                   r * spec_.experts.ffn, expert_activated_, r * used + k);
    }
  }
  const bool shared = spec_.experts.shared_ffn != 0;
  if (shared) {
    activate_few(weights.shared, in, {0, rows}, context.share(weights.shared.up.linear.panels()),
                 std::size_t{few_rows_max_} * spec_.experts.ffn, shared_activated_, 0);
  }
  context.barrier();
  expert_activated_.quantize(share_rows(context, std::size_t{rows} * used));
  if (shared) shared_activated_.quantize(mine);
  context.barrier();
}

/// What the experts of the step's first `rows` rows give joins the stream; ends with a barrier.
void Forward::mix_experts_few(const ExpertWeights& weights, uint32_t rows, const Context& context) {
  const uint32_t used = spec_.experts.used;
  const Range panels = context.share(weights.experts[0].down.linear.panels());
  const Range outputs = outputs_of(panels, embedding_);
  float* const product = threads_[context.index()].out.data();
  for (std::size_t r = 0; r < rows && !outputs.empty(); ++r) {
    const Route route = route_of(r);
    float* const mixed = out_.data() + r * embedding_ + outputs.begin;
    std::memset(mixed, 0, outputs.size() * sizeof(float));
    const auto add = [&](const FeedForward& ffn, const Activations& in, std::size_t row,
                         float weight) {
      kernels::linear(ffn.down.linear, in, {row, row + 1}, panels, product, embedding_);
      add_bias(product, 1, embedding_, outputs, ffn.down_bias);
      kernels::scale(product + outputs.begin, weight, outputs.size());
      kernels::add(mixed, product + outputs.begin, outputs.size());
    };
    for (uint32_t k = 0; k < used; ++k) {
      add(weights.experts[route.experts[k]], expert_activated_, r * used + k, route.weights[k]);
    }
    if (spec_.experts.shared_ffn != 0) {
      add(weights.shared, shared_activated_, r, *route.shared);
    }
  }
  join_stream({0, rows}, outputs, out_.data());
  context.barrier();
}

/// The same from scratch.embedding on, for one tile of rows, by one thread.
void Forward::mix_experts_tile(const ExpertWeights& weights, Range rows, ThreadScratch& scratch) {
  const auto count = static_cast<uint32_t>(rows.size());
  std::memset(scratch.mixed.data(), 0, std::size_t{count} * embedding_ * sizeof(float));
  for (std::size_t r = 0; r < count; ++r) {
    choose_experts(weights, scratch.embedding, r, scratch, route_of(rows.begin + r));
  }
  const auto mix = [&](std::size_t from, std::size_t row, float weight) {
    float* const product = scratch.out.data() + from * embedding_;
    kernels::scale(product, weight, embedding_);
    kernels::add(scratch.mixed.data() + row * embedding_, product, embedding_);
  };
  std::array<uint32_t, kTileRows> next = {};  // of each row's route
  std::array<uint32_t, kTileRows> picked;
  for (uint32_t e = 0; e < spec_.experts.count; ++e) {
    uint32_t rows_of_expert = 0;
    for (uint32_t r = 0; r < count; ++r) {
      if (next[r] == spec_.experts.used) continue;
      if (route_of(rows.begin + r).experts[next[r]] == e) picked[rows_of_expert++] = r;
    }
    if (rows_of_expert == 0) continue;
    for (uint32_t i = 0; i < rows_of_expert; ++i) {
      std::memcpy(scratch.chosen.row(i), scratch.embedding.row(picked[i]),
                  embedding_ * sizeof(float));
      scratch.chosen.quantize(i);
    }
    const FeedForward& expert = weights.experts[e];
    ffn_tile(expert, scratch.chosen, rows_of_expert, scratch, scratch.expert);
    kernels::linear(expert.down.linear, scratch.expert, {0, rows_of_expert},
                    all_panels(expert.down), scratch.out.data(), embedding_);
    add_bias(scratch.out.data(), rows_of_expert, embedding_, {0, embedding_}, expert.down_bias);
    for (uint32_t i = 0; i < rows_of_expert; ++i) {
      const uint32_t r = picked[i];
      mix(i, r, route_of(rows.begin + r).weights[next[r]++]);
    }
  }
  if (spec_.experts.shared_ffn != 0) {
    ffn_tile(weights.shared, scratch.embedding, count, scratch, scratch.shared);
    kernels::linear(weights.shared.down.linear, scratch.shared, {0, count},
                    all_panels(weights.shared.down), scratch.out.data(), embedding_);
    for (uint32_t r = 0; r < count; ++r) mix(r, r, *route_of(rows.begin + r).shared);
  }
  join_stream(rows, {0, embedding_}, scratch.mixed.data());
}

}  // namespace pagewise::model
