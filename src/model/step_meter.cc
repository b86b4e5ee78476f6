// SPDX-License-Identifier: Apache-2.0
#include "model/step_meter.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/prng.h"

namespace pagewise::model {
namespace {

/// The first block that the run's first new token still reads.
uint64_t first_block(const kv::Geometry& geometry, const RunShape& run, uint32_t group) {
  return kv::first_block_held(uint64_t{run.position} + 1, geometry.groups[group].window,
                              geometry.block_tokens);
}

uint64_t end_block(const kv::Geometry& geometry, const RunShape& run) {
  return geometry.blocks_for(uint64_t{run.position} + run.tokens);
}

}  // namespace

uint64_t blocks_needed(const kv::Geometry& geometry, std::span<const RunShape> runs,
                       uint32_t group) {
  uint64_t blocks = 0;
  for (const RunShape& run : runs) {
    blocks += end_block(geometry, run) - first_block(geometry, run, group);
  }
  return blocks;
}

StepMeter::StepMeter(Executor& executor, const Clock& clock, Consumer consumer)
    : executor_(executor), clock_(clock), consumer_(std::move(consumer)) {
  Prng prng(1);
  for (uint32_t i = 0; i < executor.limits().step_tokens_max; ++i) {
    tokens_.emplace_back(static_cast<int32_t>(prng.below(executor.vocab_size())));
  }
  groups_.resize(executor.geometry().groups.size());
}

Status StepMeter::fill() {
  PW_CHECK(originals_ == 0);
  const uint32_t block_tokens = executor_.geometry().block_tokens;
  uint64_t positions = std::min<uint64_t>(std::max(kOriginalPositions, block_tokens),
                                          executor_.limits().context_max);
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    positions = std::min(positions, uint64_t{executor_.blocks(g)} * block_tokens);
  }
  // Whole blocks, as far as there are any.
  if (positions > block_tokens) positions -= positions % block_tokens;
  const auto blocks = static_cast<uint32_t>(executor_.geometry().blocks_for(positions));
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    for (uint32_t i = 0; i < blocks; ++i) groups_[g].filled.emplace_back(i);
    PW_RETURN_IF_ERROR(executor_.commit(g, groups_[g].filled));
  }
  std::vector<std::span<const BlockId>> tables;
  for (const GroupBlocks& group : groups_) tables.emplace_back(group.filled);
  for (uint64_t done = 0; done < positions;) {
    StepRun run;
    run.tokens = std::span(tokens_).first(std::min<uint64_t>(tokens_.size(), positions - done));
    run.position = static_cast<uint32_t>(done);
    run.tables = tables;
    PW_RETURN_IF_ERROR(executor_.step({&run, 1}).status());
    done += run.tokens.size();
  }
  originals_ = blocks;
  return Status::ok();
}

bool StepMeter::fits(std::span<const RunShape> runs) const {
  const ExecutorLimits limits = executor_.limits();
  uint64_t tokens = 0;
  for (const RunShape& run : runs) {
    tokens += run.tokens;
    if (run.tokens == 0 || uint64_t{run.position} + run.tokens > limits.context_max) return false;
  }
  if (runs.empty() || runs.size() > limits.step_runs_max || tokens > limits.step_tokens_max) {
    return false;
  }
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    if (blocks_needed(executor_.geometry(), runs, g) > executor_.blocks(g)) return false;
  }
  return true;
}

/// The next block with contents; made when all that there are have been taken.
Result<BlockId> StepMeter::take(uint32_t group) {
  GroupBlocks& blocks = groups_[group];
  if (blocks.used == blocks.filled.size()) {
    const BlockId block(static_cast<uint32_t>(blocks.filled.size()));
    PW_RETURN_IF_ERROR(executor_.commit(group, {&block, 1}));
    executor_.copy(group, blocks.filled[blocks.used % originals_], block,
                   executor_.geometry().block_tokens);
    blocks.filled.push_back(block);
  }
  return blocks.filled[blocks.used++];
}

Result<TimeNs> StepMeter::measure(std::span<const RunShape> runs) {
  PW_CHECK(originals_ > 0 && fits(runs));
  const kv::Geometry& geometry = executor_.geometry();
  for (GroupBlocks& group : groups_) group.used = 0;
  std::vector<std::vector<BlockId>> tables;  // [run][group]
  for (const RunShape& shape : runs) {
    for (uint32_t g = 0; g < groups_.size(); ++g) {
      std::vector<BlockId>& table =
          tables.emplace_back(first_block(geometry, shape, g));  // behind a window
      while (table.size() < end_block(geometry, shape)) {
        PW_ASSIGN_OR_RETURN(const BlockId block, take(g));
        table.push_back(block);
      }
    }
  }
  const std::vector<std::span<const BlockId>> spans(tables.begin(), tables.end());
  std::vector<uint32_t> last(runs.size());
  std::vector<StepRun> step(runs.size());
  std::size_t first_token = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    last[i] = runs[i].tokens - 1;
    step[i].tokens = std::span(tokens_).subspan(first_token, runs[i].tokens);
    step[i].position = runs[i].position;
    step[i].tables = std::span(spans).subspan(i * groups_.size(), groups_.size());
    step[i].logits_rows = {&last[i], 1};
    first_token += runs[i].tokens;
  }
  const TimeNs begin_ns = clock_.now();
  const Result<LogitsView> logits = executor_.step(step);
  if (!logits) return logits.error();
  if (consumer_) consumer_(*logits);
  return clock_.now() - begin_ns;
}

}  // namespace pagewise::model
