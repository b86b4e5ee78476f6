// SPDX-License-Identifier: Apache-2.0
#include "model/solo_sequence.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace pagewise::model {

SoloSequence::SoloSequence(Executor& executor)
    : executor_(executor), tables_(executor.geometry().groups.size()) {}

uint32_t SoloSequence::capacity() const {
  uint64_t positions = executor_.limits().context_max;
  for (uint32_t g = 0; g < tables_.size(); ++g) {
    positions =
        std::min(positions, uint64_t{executor_.blocks(g)} * executor_.geometry().block_tokens);
  }
  return static_cast<uint32_t>(positions);
}

Result<std::span<const float>> SoloSequence::feed(std::span<const TokenId> tokens) {
  PW_CHECK(!tokens.empty());
  const uint64_t end = uint64_t{length_} + tokens.size();
  if (end > capacity()) {
    return Error{ErrorCode::kContextTooLong,
                 fmt::format("{} tokens do not fit a context of {}", end, capacity())};
  }
  for (uint32_t g = 0; g < tables_.size(); ++g) {
    while (tables_[g].size() < executor_.geometry().blocks_for(end)) {
      const BlockId block(static_cast<uint32_t>(tables_[g].size()));
      PW_RETURN_IF_ERROR(executor_.commit(g, {&block, 1}));
      tables_[g].push_back(block);
    }
  }
  const std::vector<std::span<const BlockId>> tables(tables_.begin(), tables_.end());
  for (;;) {
    const std::size_t count =
        std::min<std::size_t>(tokens.size(), executor_.limits().step_tokens_max);
    const uint32_t last = static_cast<uint32_t>(count) - 1;
    const bool is_end = count == tokens.size();
    const StepRun run = {
        .tokens = tokens.first(count),
        .position = length_,
        .tables = tables,
        .logits_rows = is_end ? std::span<const uint32_t>(&last, 1) : std::span<const uint32_t>()};
    PW_ASSIGN_OR_RETURN(const LogitsView logits, executor_.step({&run, 1}));
    length_ += static_cast<uint32_t>(count);
    tokens = tokens.subspan(count);
    if (is_end) return logits.row(0);
  }
}

void SoloSequence::reset() {
  for (uint32_t g = 0; g < tables_.size(); ++g) {
    executor_.release(g, tables_[g]);
    tables_[g].clear();
  }
  length_ = 0;
}

}  // namespace pagewise::model
