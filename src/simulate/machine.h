// SPDX-License-Identifier: Apache-2.0
// What the engine runs on in a simulation: an executor whose steps take time and compute nothing,
// and a vocabulary without words.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "model/executor.h"
#include "text/tokenizer.h"
#include "workload/calibration.h"
#include "workload/trace.h"

namespace pagewise::simulate {

/// One pool, full attention. A step moves the clock by its cost; the likeliest token is always
/// kAnswerToken. Blocks are counted and hold nothing.
class SimulatedExecutor final : public model::Executor {
 public:
  /// All must outlive the executor. Requires: an even number of KV bytes a token.
  SimulatedExecutor(const workload::Calibration& calibration, uint32_t block_tokens,
                    uint32_t blocks, SimClock& clock)
      : calibration_(calibration), clock_(clock), blocks_(blocks) {
    const uint64_t bytes = calibration.kv_bytes_per_token;
    PW_CHECK(bytes >= 2 && bytes % 2 == 0);
    kv::GroupGeometry group;  // one layer whose f16 rows have as many bytes
    group.layers = group.kv_heads = 1;
    group.key_dim = static_cast<uint32_t>(bytes / 4);
    group.value_dim = static_cast<uint32_t>(bytes / 2 - bytes / 4);
    geometry_.block_tokens = block_tokens;
    geometry_.groups = {group};
  }

  const kv::Geometry& geometry() const override { return geometry_; }
  uint32_t vocab_size() const override { return workload::kVocabSize; }
  model::ExecutorLimits limits() const override { return {}; }
  uint32_t blocks(uint32_t) const override { return blocks_; }
  Status grow(std::span<const uint32_t>) override {
    return {ErrorCode::kUnsupported, "a simulated pool has one size"};
  }
  uint64_t committed_bytes() const override { return committed_ * geometry_.block_stride(0); }

  Result<model::LogitsView> step(std::span<const model::StepRun> runs) override {
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
  /// The time of a step with this work passes.
  TimeNs take(const workload::StepWork& work) {
    const TimeNs ns = workload::step_time_ns(calibration_, work);
    clock_.advance(ns);
    busy_ns_ += ns;
    return ns;
  }

  void copy(uint32_t, BlockId, BlockId, uint32_t) override {}
  Status commit(uint32_t, std::span<const BlockId> blocks) override {
    committed_ += blocks.size();
    return Status::ok();
  }
  void release(uint32_t, std::span<const BlockId> blocks) override { committed_ -= blocks.size(); }
  void export_block(uint32_t, BlockId, std::span<std::byte>) const override {}
  void import_block(uint32_t, BlockId, std::span<const std::byte>) override {}

  TimeNs busy_ns() const { return busy_ns_; }

 private:
  const workload::Calibration& calibration_;
  SimClock& clock_;
  const uint32_t blocks_;
  kv::Geometry geometry_;
  uint64_t committed_ = 0;
  TimeNs busy_ns_ = 0;
  std::vector<float> logits_;  // [rows, kVocabSize]: 1 0 0 ... 0
};

/// Tokens without text: nothing ends an answer but its length.
class WordlessTokenizer final : public text::Tokenizer {
 public:
  std::vector<TokenId> encode(std::string_view, bool) const override { return {}; }
  text::EncodedText encode(const text::ProvenancedText&) const override { return {}; }
  std::string_view token_bytes(TokenId) const override { return {}; }
  bool is_control(TokenId) const override { return false; }
  bool is_eog(TokenId) const override { return false; }
  std::span<const TokenId> eog_tokens() const override { return {}; }
  uint32_t vocab_size() const override { return workload::kVocabSize; }
  std::optional<TokenId> bos() const override { return std::nullopt; }
  std::optional<TokenId> eos() const override { return std::nullopt; }
  bool add_bos() const override { return false; }
  std::optional<TokenId> find(std::string_view) const override { return std::nullopt; }
};

}  // namespace pagewise::simulate
