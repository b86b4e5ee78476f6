// SPDX-License-Identifier: Apache-2.0
// Times single steps of an executor whose work is chosen: so many new tokens behind so many
// positions, for so many sequences at once. What a calibration is measured with.
//
// A step's time depends on how much K and V it reads, not on what they say. So only a few blocks
// are filled by computing; the others are copies of them, each in memory of its own, and a long
// context is there in the time of a copy:
//
//   run 0   │ a │ b │ c │ d │ a │ b │ c │ d │ a │ new tokens     a b c d  computed once
//   run 1   │ a │ b │ c │ d │ a │ new tokens                     copies   other blocks, equal bytes
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "model/executor.h"

namespace pagewise::model {

/// One sequence's part of a step: `tokens` new ones behind `position` others.
struct RunShape {
  uint32_t tokens = 1;
  uint32_t position = 0;
};

/// Blocks of `group` that a step of these runs takes, each run's in memory of its own; what lies
/// behind a window is none.
uint64_t blocks_needed(const kv::Geometry& geometry, std::span<const RunShape> runs,
                       uint32_t group);

/// Thread: one at a time. Executor and clock must outlive it; nobody else uses the executor.
class StepMeter {
 public:
  /// Called with the logits before the clock is read again: what a server does behind each step.
  using Consumer = std::function<void(const LogitsView&)>;

  StepMeter(Executor& executor, const Clock& clock, Consumer consumer = {});

  /// Positions that fill() computes; every group needs blocks for them.
  static constexpr uint32_t kOriginalPositions = 128;

  /// Computes what contexts are copies of. Before the first measure(). Errors: as measure().
  Status fill();

  /// Whether context, step and every group's blocks hold these runs.
  bool fits(std::span<const RunShape> runs) const;

  /// How long one step of these runs takes; each run's last token has its logits computed.
  /// Requires: fits(runs). Errors: those of Executor::commit and step.
  Result<TimeNs> measure(std::span<const RunShape> runs);

 private:
  struct GroupBlocks {
    std::vector<BlockId> filled;  // all that have contents, in order of first use
    std::size_t used = 0;         // of them, by the runs that are being set up
  };

  Result<BlockId> take(uint32_t group);

  Executor& executor_;
  const Clock& clock_;
  const Consumer consumer_;
  std::vector<TokenId> tokens_;  // of one step at most
  std::vector<GroupBlocks> groups_;
  std::size_t originals_ = 0;  // blocks of each group that were computed
};

}  // namespace pagewise::model
