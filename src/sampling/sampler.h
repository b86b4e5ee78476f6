// SPDX-License-Identifier: Apache-2.0
// One row of logits in, one token out: a pure function of (logits, params, choice, position, the
// tokens so far).
//
// The draw comes from a counter-based generator keyed by seed, choice and position, and every sum
// runs in ascending token id. Nothing here remembers earlier calls, so a token does not depend on
// what else is in the batch, on preemption, or on how often the engine had to try. Penalties are
// counted anew from the history each time: a few microseconds for thousands of tokens, and no count
// that could be wrong.
//
// Order of the operations, each on what the one before left:
//   1  log-probabilities are taken from the logits as they came, and change no more
//   2  what a mask leaves out becomes minus infinity, and stays so; logit_bias is added
//   3  repetition_penalty, for each token in prompt or answer: l > 0 ? l / r : l * r
//   4  frequency_penalty and presence_penalty, for each token that the answer has c times:
//      l -= frequency * c + presence
//   5  greedy ends here, with the largest; else temperature, min-p, top-k, top-p; then one draw
//      from the renormalised rest
// Between equal logits the lower id counts as the larger one, everywhere. 4 is the formula that
// OpenAI publishes for its penalties, 3 that of the CTRL paper (Keskar et al. 2019) with the sign
// taken care of; both together, behind the bias, is the order of the servers that have all three.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "sampling/params.h"

namespace pagewise::sampling {

/// What to say where sample() finds no token.
inline constexpr std::string_view kNoNumbers =
    "the model's scores for the next token are not numbers (infinity or NaN): a value left the "
    "range of its type; try --kv-type bf16 or f32, or check the model file";

/// The memory sampling works in, taken once. A call allocates only what the caller asked to keep
/// (Sampled::top, when log-probabilities were wanted and `out` has no room for them yet).
///
/// Thread: one at a time.
class Sampler {
 public:
  explicit Sampler(uint32_t vocab_size);

  /// Samples the token at `position` of choice `choice`, which `history` precedes.
  /// logits: [vocab_size] f32. allowed: bit i % 64 of word i / 64 says whether token i may come;
  /// empty: all may. NaN counts as minus infinity. False when the largest is infinite or
  /// nothing is a number: the model computed nonsense, and `out` has no token. Requires:
  /// logits.size() == vocab_size; tokens of the history and of logit_bias below it. Out-of-range
  /// parameters mean "off" (temperature <= 0: greedy; top_p <= 0: only the best token;
  /// repetition_penalty <= 0: none); the server refuses them before. Cost at 49,152 tokens
  /// (bench/micro/sampling_bench.cc, an EPYC of Zen 4): 16 us greedy, 48 us sampled
  /// without cuts, 33 us with top-k 40; log-probabilities add 57 us, a bias 4 us, all penalties 10
  /// us. A flat distribution under top-p is the worst.
  [[nodiscard]] bool sample(std::span<const float> logits, const Params& params,
                            const History& history, uint64_t choice, uint64_t position,
                            std::span<const uint64_t> allowed, Sampled& out);
  [[nodiscard]] bool sample(std::span<const float> logits, const Params& params,
                            const History& history, uint64_t choice, uint64_t position,
                            Sampled& out) {
    return sample(logits, params, history, choice, position, {}, out);
  }

  /// As above, by value; the token is -1 when there is none.
  Sampled sample(std::span<const float> logits, const Params& params, const History& history,
                 uint64_t choice, uint64_t position) {
    Sampled out;
    if (!sample(logits, params, history, choice, position, out)) out.token = TokenId(-1);
    return out;
  }
  /// Without a history: at the beginning of everything, or with penalties off.
  Sampled sample(std::span<const float> logits, const Params& params, uint64_t choice,
                 uint64_t position) {
    return sample(logits, params, {}, choice, position);
  }

  /// The log-probability of a token that is already there, and the `best` likeliest in its place.
  /// The same bits as sample() reports for the same row.
  void score(std::span<const float> logits, TokenId token, uint32_t best, Sampled& out);

  uint32_t vocab_size() const { return vocab_size_; }

 private:
  struct Candidate {
    float logit;
    uint32_t id;
    float weight;  // exp((logit - max) / temperature)
  };
  static bool larger(const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  }

  std::span<const float> adjust(std::span<const float> logits, const Params& params,
                                const History& history, std::span<const uint64_t> allowed);
  uint32_t draw(std::span<const float> logits, float max, const Params& params, uint64_t choice,
                uint64_t position);
  uint32_t draw_uncut(std::span<const float> logits, float max, const Params& params,
                      double uniform);
  void select_best(std::span<const float> logits, uint32_t count, float floor);
  double select_weighty(std::span<const float> logits, double total, float floor,
                        const Params& params);
  void keep_top_p(double total, float top_p);
  void fill_logprobs(std::span<const float> logits, float max, uint32_t token, uint32_t best,
                     Sampled& out);

  const uint32_t vocab_size_;
  std::vector<float> weights_;         // [vocab_size]
  std::vector<double> block_sums_;     // running sum before each block of kSumBlock weights
  std::vector<Candidate> candidates_;  // capacity vocab_size
  std::vector<float> adjusted_;        // [vocab_size]: logits with bias and penalties
  std::vector<uint32_t> counts_;       // [vocab_size]: all 0 between calls
};

/// Index of the largest value, the lowest on ties; NaN never wins unless there is nothing else
/// (then 0).
uint32_t argmax(std::span<const float> logits);

/// Smallest log-probability ever reported: keeps the wire free of infinities.
inline constexpr float kLogprobMin = -9999.0F;

}  // namespace pagewise::sampling
