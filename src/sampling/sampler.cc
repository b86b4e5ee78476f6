// SPDX-License-Identifier: Apache-2.0
// See sampler.h. The loops over the vocabulary are plain C++ that the compiler vectorises, compiled
// once for the baseline and once for AVX2. Both give the same bits: every operation is a correctly
// rounded one on its own element, and sums run in kLanes fixed lanes whatever the registers' width.
#include "sampling/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/prng.h"

namespace pagewise::sampling {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::size_t kLanes = 16;

// Chosen at load time by what the CPU has. Sanitizers run before such choices can be made.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define PW_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define PW_WIDE
#endif
constexpr std::size_t kSumBlock = 256;
// Up to this many best tokens a heap beside one pass is cheaper than selecting from all.
constexpr uint32_t kHeapMax = 1024;
// How many of the best top-p looks at before it looks at all: the answer of most rows of a real
// model.
constexpr uint32_t kLikely = 256;
// exp(-87) is the last normal float. What lies below weighs nothing beside a maximum of 1.
constexpr float kExponentMin = -87.0F;

/// exp(x) for x in [-87, 0]; exp(-87) below and for NaN. Relative error under 2e-7.
///
/// x = n ln 2 + r, |r| <= ln 2 / 2; exp(r) by its Taylor polynomial to r^7 (the first term left out
/// is under 6e-9), 2^n through the exponent bits. A loop over this has no branch and no call, so it
/// vectorises; the library's expf would be one call a token, five times as long.
constexpr float exp_clamped(float x) {
  // Magnitudes order as their bits do, NaN above all; and integers leave no branch in the loop.
  constexpr int32_t kMost = std::bit_cast<int32_t>(-kExponentMin);
  const int32_t magnitude = std::bit_cast<int32_t>(x) & 0x7fffffff;
  const float clamped = -std::bit_cast<float>(magnitude < kMost ? magnitude : kMost);
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  const float shifted = clamped * 1.44269504F + kRound;
  const float n = shifted - kRound;
  // ln 2 in two parts: the first has 9 trailing zero bits, so n times it is exact.
  const float r = (clamped - n * 0.693359375F) - n * -2.12194440e-4F;
  float p = 1.0F / 5040.0F;
  p = p * r + 1.0F / 720.0F;
  p = p * r + 1.0F / 120.0F;
  p = p * r + 1.0F / 24.0F;
  p = p * r + 1.0F / 6.0F;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound);
  return p * std::bit_cast<float>((exponent + 127) << 23);
}

/// exp(x) for x <= 0, and exactly 0 where that is below exp(-87) or x is NaN. The subtraction does
/// what a comparison would, but leaves no branch; it changes nothing above 1e-30.
inline float exp_weight(float x) {
  constexpr float kSmallest = exp_clamped(kExponentMin);
  return exp_clamped(x) - kSmallest;
}

PW_WIDE float max_of(std::span<const float> values) {
  float lanes[kLanes];
  std::fill_n(lanes, kLanes, -kInfinity);
  std::size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (std::size_t j = 0; j < kLanes; ++j) {
      lanes[j] = values[i + j] > lanes[j] ? values[i + j] : lanes[j];
    }
  }
  for (; i < values.size(); ++i) lanes[0] = values[i] > lanes[0] ? values[i] : lanes[0];
  return *std::max_element(lanes, lanes + kLanes);
}

PW_WIDE uint32_t first_equal(std::span<const float> values, float wanted) {
  std::size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    int32_t any = 0;
    for (std::size_t j = 0; j < kLanes; ++j) any |= values[i + j] == wanted ? 1 : 0;
    if (any != 0) break;
  }
  for (; i < values.size(); ++i) {
    if (values[i] == wanted) return static_cast<uint32_t>(i);
  }
  return 0;  // only NaN and nothing else
}

/// weights[i] = exp((logits[i] - max) / temperature). before[b] = the sum of all blocks of
/// kSumBlock weights in front of block b; returns the sum of all.
PW_WIDE double fill_weights(std::span<const float> logits, float max, float temperature,
                            float* weights, double* before) {
  double total = 0;
  for (std::size_t begin = 0; begin < logits.size(); begin += kSumBlock) {
    const std::size_t count = std::min(kSumBlock, logits.size() - begin);
    const float* const in = logits.data() + begin;
    float* const out = weights + begin;
    for (std::size_t i = 0; i < count; ++i) out[i] = exp_weight((in[i] - max) / temperature);
    double lanes[kLanes] = {};
    std::size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      for (std::size_t j = 0; j < kLanes; ++j) lanes[j] += out[i + j];
    }
    for (; i < count; ++i) lanes[0] += out[i];
    *before++ = total;
    for (std::size_t j = 0; j < kLanes; ++j) total += lanes[j];
  }
  return total;
}

/// Minus infinity where the bit of `allowed` is not set. Nearly always a word of it is all or
/// nothing.
void copy_allowed(std::span<const float> logits, std::span<const uint64_t> allowed, float* out) {
  for (std::size_t begin = 0; begin < logits.size(); begin += 64) {
    const std::size_t count = std::min<std::size_t>(64, logits.size() - begin);
    const uint64_t bits = allowed[begin / 64];
    if (bits == ~uint64_t{0}) {
      std::copy_n(logits.data() + begin, count, out + begin);
      continue;
    }
    std::fill_n(out + begin, count, -kInfinity);
    for (uint64_t left = bits; left != 0; left &= left - 1) {
      const auto i = begin + static_cast<std::size_t>(std::countr_zero(left));
      if (i < logits.size()) out[i] = logits[i];
    }
  }
}

/// Where the next value above `bound` stands, or the end: from `begin` on.
PW_WIDE std::size_t next_above(std::span<const float> values, std::size_t begin, float bound) {
  std::size_t i = begin;
  for (; i + kLanes <= values.size(); i += kLanes) {
    int32_t any = 0;
    for (std::size_t j = 0; j < kLanes; ++j) any |= values[i + j] > bound ? 1 : 0;
    if (any != 0) break;
  }
  while (i < values.size() && !(values[i] > bound)) ++i;
  return i;
}

}  // namespace

uint32_t argmax(std::span<const float> logits) { return first_equal(logits, max_of(logits)); }

Sampler::Sampler(uint32_t vocab_size) : vocab_size_(vocab_size) {
  PW_CHECK(vocab_size > 0);
  weights_.resize(vocab_size);
  block_sums_.resize((vocab_size + kSumBlock - 1) / kSumBlock);
  candidates_.reserve(vocab_size);
  adjusted_.resize(vocab_size);
  counts_.resize(vocab_size);
}

bool Sampler::sample(std::span<const float> logits, const Params& params, const History& history,
                     uint64_t choice, uint64_t position, std::span<const uint64_t> allowed,
                     Sampled& out) {
  PW_CHECK(logits.size() == vocab_size_);
  PW_CHECK(allowed.empty() || allowed.size() == (vocab_size_ + 63) / 64);
  const bool plain = params.logit_bias.empty() && !params.penalizes() && allowed.empty();
  const std::span<const float> wanted = plain ? logits : adjust(logits, params, history, allowed);
  const float max = max_of(wanted);
  if (!std::isfinite(max)) return false;
  const bool greedy = !(params.temperature > 0);
  const uint32_t token =
      greedy ? first_equal(wanted, max) : draw(wanted, max, params, choice, position);
  out.token = TokenId(static_cast<int32_t>(token));
  out.logprob = 0;
  out.top.clear();
  if (params.logprobs >= 0) {
    fill_logprobs(logits, plain ? max : max_of(logits), token,
                  static_cast<uint32_t>(params.logprobs), out);
  }
  return true;
}

void Sampler::score(std::span<const float> logits, TokenId token, uint32_t best, Sampled& out) {
  PW_CHECK(logits.size() == vocab_size_);
  PW_CHECK(token.value >= 0 && static_cast<uint32_t>(token.value) < vocab_size_);
  out.token = token;
  out.top.clear();
  fill_logprobs(logits, max_of(logits), static_cast<uint32_t>(token.value), best, out);
}

/// The logits that may come, with bias and penalties. Each token's new value depends on its own
/// logit and count alone, so the order in which the history names them does not matter.
std::span<const float> Sampler::adjust(std::span<const float> logits, const Params& params,
                                       const History& history, std::span<const uint64_t> allowed) {
  if (allowed.empty()) {
    std::copy(logits.begin(), logits.end(), adjusted_.begin());
  } else {
    copy_allowed(logits, allowed, adjusted_.data());
  }
  const auto index = [this](TokenId token) {
    const auto i = static_cast<std::size_t>(token.value);
    PW_CHECK(i < vocab_size_);
    return i;
  };
  for (const TokenBias& bias : params.logit_bias) adjusted_[index(bias.token)] += bias.bias;
  if (params.repetition_penalty > 0 && params.repetition_penalty != 1) {
    for (const std::span<const TokenId> part : {history.prompt, history.answer}) {
      for (const TokenId token : part) {
        const std::size_t i = index(token);
        if (counts_[i]++ != 0) continue;
        float& logit = adjusted_[i];
        logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
      }
    }
    for (const std::span<const TokenId> part : {history.prompt, history.answer}) {
      for (const TokenId token : part) counts_[index(token)] = 0;
    }
  }
  if (params.frequency_penalty != 0 || params.presence_penalty != 0) {
    for (const TokenId token : history.answer) ++counts_[index(token)];
    for (const TokenId token : history.answer) {
      uint32_t& count = counts_[index(token)];
      if (count == 0) continue;  // has had its penalty
      adjusted_[index(token)] -=
          params.frequency_penalty * static_cast<float>(count) + params.presence_penalty;
      count = 0;
    }
  }
  return adjusted_;
}

uint32_t Sampler::draw(std::span<const float> logits, float max, const Params& params,
                       uint64_t choice, uint64_t position) {
  const double uniform = counter_uniform(params.seed, choice, position);
  const float temperature = params.temperature;
  const bool cut_k = params.top_k > 0 && params.top_k < vocab_size_;
  const bool cut_p = params.top_p < 1.0F;
  const bool cut_min = params.min_p > 0.0F;
  if (!cut_k && !cut_p && !cut_min) return draw_uncut(logits, max, params, uniform);

  // min-p keeps weights >= min_p (the largest weight is 1): a bound on logits, known before any
  // exp.
  float floor = -kInfinity;
  if (cut_min) {
    floor = std::min(max, max + temperature * std::log(std::min(params.min_p, 1.0F)));
  }
  double total = 0;
  if (cut_k) {
    select_best(logits, params.top_k, floor);
    std::sort(candidates_.begin(), candidates_.end(),
              [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
    for (Candidate& candidate : candidates_) {
      candidate.weight = exp_weight((candidate.logit - max) / temperature);
      total += candidate.weight;
    }
  } else {
    total = fill_weights(logits, max, temperature, weights_.data(), block_sums_.data());
    bool enough = false;
    if (cut_p && !cut_min) {
      select_best(logits, kLikely, floor);
      double best = 0;
      for (Candidate& candidate : candidates_) {
        candidate.weight = weights_[candidate.id];
        best += candidate.weight;
      }
      enough = best >= params.top_p * total;
    }
    if (!enough) total = select_weighty(logits, total, floor, params);
  }
  if (cut_p) {
    keep_top_p(total, params.top_p);
    total = 0;
    for (const Candidate& candidate : candidates_) total += candidate.weight;
  }

  const double target = uniform * total;
  double sum = 0;
  uint32_t last = candidates_.front().id;
  for (const Candidate& candidate : candidates_) {
    if (candidate.weight == 0) continue;
    sum += candidate.weight;
    last = candidate.id;
    if (sum > target) break;
  }
  return last;
}

/// Candidates for top-p and min-p from all of weights_; returns the total that top-p counts with.
double Sampler::select_weighty(std::span<const float> logits, double total, float floor,
                               const Params& params) {
  // What weighs less than (1 - p) of the total spread evenly over the vocabulary can be left out by
  // top-p without looking at it: all of it together is at most 1 - p.
  const double needless =
      params.top_p < 1.0F ? (1.0 - std::max(0.0F, params.top_p)) * total / vocab_size_ : 0.0;
  candidates_.clear();
  double kept = 0;
  for (uint32_t i = 0; i < vocab_size_; ++i) {
    if (weights_[i] < needless || !(logits[i] >= floor)) continue;
    candidates_.push_back({logits[i], i, weights_[i]});
    kept += weights_[i];
  }
  return params.min_p > 0.0F ? kept : total;  // top-p counts what min-p left
}

uint32_t Sampler::draw_uncut(std::span<const float> logits, float max, const Params& params,
                             double uniform) {
  const double sum =
      fill_weights(logits, max, params.temperature, weights_.data(), block_sums_.data());
  const double target = uniform * sum;
  // The last block whose running sum is not beyond the target holds the token, unless it is all
  // zeros.
  const auto next = std::upper_bound(block_sums_.begin(), block_sums_.end(), target);
  const std::size_t block = static_cast<std::size_t>(next - block_sums_.begin()) - 1;
  double running = block_sums_[block];
  std::size_t last = vocab_size_;
  for (std::size_t i = block * kSumBlock; i < vocab_size_; ++i) {
    if (weights_[i] == 0) continue;
    running += weights_[i];
    last = i;
    if (running > target) break;
  }
  if (last == vocab_size_) {
    // A target that rounding moved to the very end: the last token that has weight.
    last = block * kSumBlock;
    while (last > 0 && weights_[last] == 0) --last;
  }
  return static_cast<uint32_t>(last);
}

void Sampler::select_best(std::span<const float> logits, uint32_t count, float floor) {
  candidates_.clear();
  if (count > kHeapMax) {
    for (uint32_t i = 0; i < vocab_size_; ++i) {
      if (logits[i] >= floor) candidates_.push_back({logits[i], i, 0});
    }
    if (candidates_.size() > count) {
      std::nth_element(candidates_.begin(), candidates_.begin() + count, candidates_.end(), larger);
      candidates_.resize(count);
    }
    return;
  }
  // A heap with the smallest of the best on top. Ids ascend, so an equal logit never displaces one.
  uint32_t id = 0;
  for (; id < vocab_size_ && candidates_.size() < count; ++id) {
    if (!(logits[id] >= floor)) continue;
    candidates_.push_back({logits[id], id, 0});
    std::push_heap(candidates_.begin(), candidates_.end(), larger);
  }
  while (id < vocab_size_) {
    id = static_cast<uint32_t>(next_above(logits, id, candidates_.front().logit));
    if (id == vocab_size_) break;
    std::pop_heap(candidates_.begin(), candidates_.end(), larger);
    candidates_.back() = {logits[id], id, 0};
    std::push_heap(candidates_.begin(), candidates_.end(), larger);
    ++id;
  }
}

/// Leaves the fewest largest candidates whose weights reach top_p * total, at least one, in
/// ascending id. A quick-select by mass: linear on average, where sorting a flat distribution would
/// take 5 ms.
void Sampler::keep_top_p(double total, float top_p) {
  const double wanted = std::max(0.0F, top_p) * total;
  auto low = candidates_.begin();
  auto high = candidates_.end();
  double mass = 0;  // of [begin, low): all larger than the rest
  int rounds = 0;
  while (high - low > 1) {
    if (++rounds > 64) {  // unlucky pivots: bound the cost
      std::sort(low, high, larger);
      while (low != high && mass + low->weight < wanted) mass += (low++)->weight;
      break;
    }
    const auto middle = low + (high - low) / 2;
    if (larger(*middle, *low)) std::swap(*middle, *low);
    if (larger(*(high - 1), *low)) std::swap(*(high - 1), *low);
    if (larger(*(high - 1), *middle)) std::swap(*(high - 1), *middle);
    const Candidate pivot = *middle;  // the median of three, so neither side is everything
    const auto split =
        std::partition(low, high, [&](const Candidate& c) { return larger(c, pivot); });
    double upper = 0;
    for (auto it = low; it != split; ++it) upper += it->weight;
    if (split == low) {
      // The pivot is the largest of the range: decide on it alone.
      std::iter_swap(low,
                     std::find_if(low, high, [&](const Candidate& c) { return c.id == pivot.id; }));
      if (mass + low->weight >= wanted) {
        high = low + 1;
      } else {
        mass += low->weight;
        ++low;
      }
    } else if (mass + upper >= wanted) {
      high = split;
    } else {
      mass += upper;
      low = split;
    }
  }
  const auto end = low == candidates_.end() ? low : low + 1;
  candidates_.erase(end, candidates_.end());
  std::sort(candidates_.begin(), candidates_.end(),
            [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
}

void Sampler::fill_logprobs(std::span<const float> logits, float max, uint32_t token, uint32_t best,
                            Sampled& out) {
  double log_total = max;
  if (std::isfinite(max)) {
    const double total = fill_weights(logits, max, 1.0F, weights_.data(), block_sums_.data());
    log_total = double{max} + std::log(total);
  }
  const auto logprob = [&](float logit) {
    if (!std::isfinite(max)) return logit == max ? 0.0F : kLogprobMin;
    const double value = double{logit} - log_total;
    return value > kLogprobMin ? static_cast<float>(std::min(value, 0.0)) : kLogprobMin;
  };
  out.logprob = logprob(logits[token]);
  if (best == 0) return;
  select_best(logits, std::min(best, vocab_size_), -kInfinity);
  std::sort(candidates_.begin(), candidates_.end(), larger);
  out.top.reserve(candidates_.size());
  for (const Candidate& candidate : candidates_) {
    out.top.push_back({TokenId(static_cast<int32_t>(candidate.id)), logprob(candidate.logit)});
  }
}

}  // namespace pagewise::sampling
