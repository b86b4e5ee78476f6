// SPDX-License-Identifier: Apache-2.0
// What a request may ask of sampling. Sampling itself is a pure function of (logits, these, seed,
// choice, position): sampler.h.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace pagewise::sampling {

struct Params {
  float temperature = 1.0F;  // 0: exact argmax, the lowest id on ties
  uint32_t top_k = 0;        // 0: off
  float top_p = 1.0F;        // 1: off
  float min_p = 0.0F;        // 0: off
  uint64_t seed = 0;
  /// Log-probabilities of the model's own distribution (before temperature and cuts): the sampled
  /// token's and this many of the best. Negative: none wanted.
  int32_t logprobs = -1;
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
