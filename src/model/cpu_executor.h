// SPDX-License-Identifier: Apache-2.0
// The executor that computes on this machine's cores: packed weights, the KV arena and one thread
// pool.
//
// A step is one parallel region. Few rows (decode): every phase splits the outputs of a matrix
// between threads. Many rows (prefill): each thread carries its own rows through everything that is
// local to a row, so that threads meet only around attention. By the arithmetic contract
// (docs/design.md, section 5) neither choice, nor thread count, nor what else is in the batch shows
// in the results.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "gguf/gguf.h"
#include "model/executor.h"
#include "model/spec.h"

namespace pagewise::model {

/// As many as asked, and never more than cores that this process may use; 0: as many as these.
uint32_t compute_threads(uint32_t asked);

struct CpuExecutorOptions {
  uint32_t threads = 0;                   // compute_threads()
  std::vector<uint32_t> blocks;           // capacity of each KV group
  std::vector<uint32_t> blocks_reserved;  // how far each may grow; empty: not at all
  uint32_t step_tokens_max = 512;
  uint32_t step_runs_max = 256;
  uint32_t context_max = 0;  // 0: the model's
  /// Called while weights are packed, with the share done in [0, 1]. May be empty.
  std::function<void(double)> progress;
};

/// Thread: one at a time (the engine thread).
class CpuExecutor final : public Executor {
 public:
  /// Packs the weights of `file` and drops the file's pages; `file` is not needed afterwards.
  /// Errors: kUnsupported for a tensor type without kernels or decoder (by name); kIo when the
  /// system gives no memory.
  static Result<std::unique_ptr<CpuExecutor>> create(const gguf::File& file, const ModelSpec& spec,
                                                     const kv::Geometry& geometry,
                                                     CpuExecutorOptions options);
  ~CpuExecutor() override;

  const kv::Geometry& geometry() const override;
  uint32_t vocab_size() const override;
  ExecutorLimits limits() const override;
  uint32_t blocks(uint32_t group) const override;
  Status grow(std::span<const uint32_t> blocks) override;
  uint64_t committed_bytes() const override;
  Result<LogitsView> step(std::span<const StepRun> runs) override;
  void copy(uint32_t group, BlockId from, BlockId to, uint32_t positions) override;
  Status commit(uint32_t group, std::span<const BlockId> blocks) override;
  void release(uint32_t group, std::span<const BlockId> blocks) override;
  void export_block(uint32_t group, BlockId block, std::span<std::byte> out) const override;
  void import_block(uint32_t group, BlockId block, std::span<const std::byte> bytes) override;

  uint32_t threads() const;
  /// Bytes of packed weights and of working memory, both taken at creation.
  uint64_t weight_bytes() const;
  uint64_t scratch_bytes() const;
  /// The instruction set the kernels use: "AVX2", ...
  std::string_view isa() const;

 private:
  struct Impl;
  explicit CpuExecutor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pagewise::model
