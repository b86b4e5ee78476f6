// SPDX-License-Identifier: Apache-2.0
// What the engine runs on in a simulation: an executor whose steps take time and compute nothing,
// and a vocabulary without words.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "model/executor.h"
#include "text/tokenizer.h"
#include "workload/calibration.h"
#include "workload/trace.h"

namespace pagewise::simulate {

/// The KV cache of a model of which nothing is known but its size: one group that keeps every
/// position. Requires: an even number of bytes, at least 2.
kv::Geometry plain_geometry(uint64_t token_bytes, uint32_t block_tokens);

/// A step moves the clock by its cost; the likeliest token is always kAnswerToken. Blocks are
/// counted and hold nothing.
class SimulatedExecutor final : public model::Executor {
 public:
  /// All must outlive the executor. Requires: a number of blocks for each group.
  SimulatedExecutor(const workload::Calibration& calibration, const kv::Geometry& geometry,
                    std::vector<uint32_t> blocks, SimClock& clock);

  const kv::Geometry& geometry() const override { return geometry_; }
  uint32_t vocab_size() const override { return workload::kVocabSize; }
  model::ExecutorLimits limits() const override { return {}; }
  uint32_t blocks(uint32_t group) const override { return blocks_[group]; }
  Status grow(std::span<const uint32_t>) override {
    return {ErrorCode::kUnsupported, "a simulated pool has one size"};
  }
  uint64_t committed_bytes() const override { return committed_bytes_; }

  Result<model::LogitsView> step(std::span<const model::StepRun> runs) override;
  /// The time of a step with this work passes.
  TimeNs take(const workload::StepWork& work);

  void copy(uint32_t, BlockId, BlockId, uint32_t) override {}
  Status commit(uint32_t group, std::span<const BlockId> blocks) override {
    committed_bytes_ += blocks.size() * geometry_.block_stride(group);
    return Status::ok();
  }
  void release(uint32_t group, std::span<const BlockId> blocks) override {
    committed_bytes_ -= blocks.size() * geometry_.block_stride(group);
  }
  void export_block(uint32_t, BlockId, std::span<std::byte>) const override {}
  void import_block(uint32_t, BlockId, std::span<const std::byte>) override {}

  TimeNs busy_ns() const { return busy_ns_; }

 private:
  const workload::Calibration& calibration_;
  const kv::Geometry& geometry_;
  const std::vector<uint32_t> blocks_;  // of each group
  SimClock& clock_;
  uint64_t committed_bytes_ = 0;
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
