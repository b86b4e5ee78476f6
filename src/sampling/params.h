// SPDX-License-Identifier: Apache-2.0
// What a request may ask of sampling. Sampling itself is a pure function of (logits, these, seed,
// choice, position, the tokens so far): sampler.h.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace pagewise::sampling {

/// Added to one token's logit. -100 bans it in practice, 100 forces it.
struct TokenBias {
  TokenId token;
  float bias = 0;
};

struct Params {
  float temperature = 1.0F;  // 0: exact argmax, the lowest id on ties
  uint32_t top_k = 0;        // 0: off
  float top_p = 1.0F;        // 1: off
  float min_p = 0.0F;        // 0: off
  uint64_t seed = 0;
  /// Of tokens that the history has: a positive logit is divided, another one multiplied. Counts
  /// prompt and answer. 1: off.
  float repetition_penalty = 1.0F;
  /// Taken off the logit of a token that the answer has: once for each time, and once. 0: off.
  float frequency_penalty = 0.0F;
  float presence_penalty = 0.0F;
  std::vector<TokenBias> logit_bias;  // each token at most once
  /// Log-probabilities of the model's own distribution (before bias, penalties, temperature
  /// and cuts): the sampled
  /// token's and this many of the best. Negative: none wanted.
  int32_t logprobs = -1;

  bool penalizes() const {
    return frequency_penalty != 0 || presence_penalty != 0 ||
           (repetition_penalty > 0 && repetition_penalty != 1);
  }
};

/// The tokens that precede the sampled one: the penalties look at them, and nothing else does.
struct History {
  std::span<const TokenId> prompt;
  std::span<const TokenId> answer;
};

struct TokenLogprob {
  TokenId token;
  float logprob = 0;
};

struct Sampled {
  TokenId token;
  float logprob = 0;              // only when Params::logprobs >= 0
  std::vector<TokenLogprob> top;  // best first, Params::logprobs entries
};

}  // namespace pagewise::sampling
