// SPDX-License-Identifier: Apache-2.0
// An executor that passes everything on to another one: tests override what they watch or change.
#pragma once

#include <cstddef>
#include <span>

#include "model/executor.h"

namespace pagewise::model {

class PassingExecutor : public Executor {
 public:
  /// `inner` must outlive it.
  explicit PassingExecutor(Executor& inner) : inner_(inner) {}

  const kv::Geometry& geometry() const override { return inner_.geometry(); }
  uint32_t vocab_size() const override { return inner_.vocab_size(); }
  ExecutorLimits limits() const override { return inner_.limits(); }
  uint32_t blocks(uint32_t group) const override { return inner_.blocks(group); }
  Status grow(std::span<const uint32_t> blocks) override { return inner_.grow(blocks); }
  uint64_t committed_bytes() const override { return inner_.committed_bytes(); }
  Result<LogitsView> step(std::span<const StepRun> runs) override { return inner_.step(runs); }
  void copy(uint32_t group, BlockId from, BlockId to, uint32_t positions) override {
    inner_.copy(group, from, to, positions);
  }
  Status commit(uint32_t group, std::span<const BlockId> blocks) override {
    return inner_.commit(group, blocks);
  }
  void release(uint32_t group, std::span<const BlockId> blocks) override {
    inner_.release(group, blocks);
  }
  void export_block(uint32_t group, BlockId block, std::span<std::byte> out) const override {
    inner_.export_block(group, block, out);
  }
  void import_block(uint32_t group, BlockId block, std::span<const std::byte> bytes) override {
    inner_.import_block(group, block, bytes);
  }

 private:
  Executor& inner_;
};

}  // namespace pagewise::model
