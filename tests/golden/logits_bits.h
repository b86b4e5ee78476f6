// SPDX-License-Identifier: Apache-2.0
// The bits of the logits that an executor gives for some prompts, with the work cut one way or the
// other: what equality tests compare.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/hash.h"
#include "base/ids.h"
#include "base/prng.h"
#include "model/batch_driver.h"

namespace pagewise::golden {

/// A hash of each row of logits, [prompt][position - logits_from].
using Bits = std::vector<std::vector<uint64_t>>;

struct Prompt {
  std::vector<TokenId> tokens;
  uint32_t logits_from;
};

inline model::testing::BatchDriver::Sink into(Bits& bits, const std::vector<Prompt>& prompts) {
  bits.resize(prompts.size());
  for (std::size_t s = 0; s < prompts.size(); ++s) {
    bits[s].assign(prompts[s].tokens.size() - prompts[s].logits_from, 0);
  }
  return [&bits, &prompts](std::size_t s, uint32_t position, std::span<const float> logits) {
    bits[s][position - prompts[s].logits_from] = xxh3(std::as_bytes(logits));
  };
}

/// Each alone, in chunks of up to `chunk` tokens; `seed` shuffles the blocks.
inline Bits bits_one_by_one(model::Executor& executor, const std::vector<Prompt>& prompts,
                            uint32_t chunk, uint64_t seed) {
  Bits bits;
  const auto sink = into(bits, prompts);
  model::testing::BatchDriver driver(executor, seed);
  for (const Prompt& prompt : prompts) {
    driver.finish(driver.add(prompt.tokens, prompt.logits_from), chunk, sink);
  }
  return bits;
}

/// All together: random chunks, random pauses, decode rows beside prefill chunks.
inline Bits bits_batched(model::Executor& executor, const std::vector<Prompt>& prompts,
                         uint64_t seed) {
  Bits bits;
  const auto sink = into(bits, prompts);
  Prng prng(seed);
  model::testing::BatchDriver driver(executor, prng.next());
  for (const Prompt& prompt : prompts) driver.add(prompt.tokens, prompt.logits_from);
  for (bool left = true; left;) {
    left = false;
    std::vector<model::testing::BatchDriver::Part> parts;
    for (std::size_t s = 0; s < prompts.size(); ++s) {
      if (driver.left(s) == 0) continue;
      left = true;
      if (prng.below(8) == 0) continue;
      const uint32_t most = driver.done(s) < prompts[s].logits_from && prng.below(2) == 0 ? 200 : 3;
      parts.push_back({s, std::min(static_cast<uint32_t>(1 + prng.below(most)), driver.left(s))});
    }
    if (!parts.empty()) driver.step(parts, sink);
  }
  return bits;
}

}  // namespace pagewise::golden
