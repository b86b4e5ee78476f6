// SPDX-License-Identifier: Apache-2.0
#include "simulate/machine.h"

#include <utility>

#include "base/check.h"

namespace pagewise::simulate {

kv::Geometry plain_geometry(uint64_t token_bytes, uint32_t block_tokens) {
  PW_CHECK(token_bytes >= 2 && token_bytes % 2 == 0);
  kv::GroupGeometry group;  // one layer whose f16 rows have as many bytes
  group.layers = group.kv_heads = 1;
  group.key_dim = static_cast<uint32_t>(token_bytes / 4);
  group.value_dim = static_cast<uint32_t>(token_bytes / 2 - token_bytes / 4);
  kv::Geometry geometry;
  geometry.block_tokens = block_tokens;
  geometry.groups = {group};
  return geometry;
}

SimulatedExecutor::SimulatedExecutor(const workload::Calibration& calibration,
                                     const kv::Geometry& geometry, std::vector<uint32_t> blocks,
                                     SimClock& clock)
    : calibration_(calibration), geometry_(geometry), blocks_(std::move(blocks)), clock_(clock) {
  PW_CHECK(!blocks_.empty() && blocks_.size() == geometry_.groups.size());
}

Result<model::LogitsView> SimulatedExecutor::step(std::span<const model::StepRun> runs) {
  workload::StepWork work;
  uint32_t rows = 0;
  for (const model::StepRun& run : runs) {
    work.add(run.tokens.size(), run.position, calibration_.window);
    rows += static_cast<uint32_t>(run.logits_rows.size());
  }
  take(work);
  while (logits_.size() < std::size_t{rows} * workload::kVocabSize) {
    logits_.push_back(logits_.size() % workload::kVocabSize == 0 ? 1.0F : 0.0F);
  }
  return model::LogitsView{logits_.data(), rows, workload::kVocabSize};
}

TimeNs SimulatedExecutor::take(const workload::StepWork& work) {
  const TimeNs ns = workload::step_time_ns(calibration_, work);
  clock_.advance(ns);
  busy_ns_ += ns;
  return ns;
}

}  // namespace pagewise::simulate
