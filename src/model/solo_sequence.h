// SPDX-License-Identifier: Apache-2.0
// One sequence that has an executor to itself: what `pagewise run` decodes with. Its block table is
// the identity, grown a block at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/executor.h"

namespace pagewise::model {

/// Thread: one at a time. The executor must outlive it, and serve nobody else meanwhile.
class SoloSequence {
 public:
  explicit SoloSequence(Executor& executor);

  /// Computes `tokens` behind what is there, in steps of at most limits().step_tokens_max, and
  /// returns the logits of the last one: [vocab_size], valid until the next call. Requires: at
  /// least one token. Errors: kContextTooLong with both numbers when they do not fit; those of
  /// Executor::step.
  Result<std::span<const float>> feed(std::span<const TokenId> tokens);

  /// Forgets everything; the blocks' memory goes back, so nothing can be read again.
  void reset();

  uint32_t length() const { return length_; }
  /// Positions that fit: the context, or what the arena's blocks hold.
  uint32_t capacity() const;

 private:
  Executor& executor_;
  uint32_t length_ = 0;
  std::vector<std::vector<BlockId>> tables_;  // [group]
};

}  // namespace pagewise::model
