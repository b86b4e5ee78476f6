// SPDX-License-Identifier: Apache-2.0
// The seam between engine and compute. Above it only block ids and counts travel, never pointers
// into KV, so that an executor with its own memory (a GPU) can be added without touching kv, engine
// or server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/result.h"
#include "kv/geometry.h"

namespace pagewise::model {

/// Consecutive new tokens of one sequence in one step: a prefill chunk, or one decode row.
struct StepRun {
  std::span<const TokenId> tokens;  // at least one
  uint32_t position = 0;            // absolute position of tokens[0]
  /// tables[g][i]: block of group g holding positions [i * block_tokens, (i + 1) * block_tokens).
  /// Covers at least position + tokens.size() positions. Blocks behind a sliding window may be the
  /// null block.
  std::span<const std::span<const BlockId>> tables;
  /// Which rows need logits: ascending indices into `tokens`. Usually only the last, or none.
  std::span<const uint32_t> logits_rows;
};

/// Logits of all runs' logits_rows, in order: [rows, vocab_size] f32, row-major. Valid until the
/// next step.
struct LogitsView {
  const float* data = nullptr;
  uint32_t rows = 0;
  uint32_t vocab_size = 0;
  std::span<const float> row(uint32_t index) const {
    return {data + std::size_t{index} * vocab_size, vocab_size};
  }
};

struct ExecutorLimits {
  uint32_t step_tokens_max = 0;  // all runs of a step together
  uint32_t step_runs_max = 0;
  uint32_t context_max = 0;  // positions of one sequence
};

/// Thread: engine thread only. Owns the KV arena.
class Executor {
 public:
  virtual ~Executor() = default;

  virtual const kv::Geometry& geometry() const = 0;
  virtual uint32_t vocab_size() const = 0;
  virtual ExecutorLimits limits() const = 0;
  virtual uint32_t blocks(uint32_t group) const = 0;  // ids are [0, blocks)
  /// Ids below blocks[g] are usable from now on, and those that were before; what is there stays.
  /// Between steps. How many blocks take memory at a time is the caller's affair: ids never become
  /// fewer, their memory goes by release. Errors: kInvalidArgument, kIo: no further ids.
  virtual Status grow(std::span<const uint32_t> blocks) = 0;
  /// Memory that blocks take now.
  virtual uint64_t committed_bytes() const = 0;

  /// Writes K and V of every row into the runs' blocks and computes the asked logits. Rows of one
  /// run attend to each other causally. Requires: blocks committed; within limits().
  virtual Result<LogitsView> step(std::span<const StepRun> runs) = 0;

  /// Copies the first `positions` positions of block `from` to block `to` (copy-on-write of a
  /// partial block).
  virtual void copy(uint32_t group, BlockId from, BlockId to, uint32_t positions) = 0;

  /// Makes blocks usable; their memory is zero-filled. Idempotent only through release.
  virtual Status commit(uint32_t group, std::span<const BlockId> blocks) = 0;
  /// Gives the blocks' memory back to the system.
  virtual void release(uint32_t group, std::span<const BlockId> blocks) = 0;

  /// One block's bytes, Geometry::block_bytes(group) long, in the layout of
  /// docs/formats/kv_block.md.
  virtual void export_block(uint32_t group, BlockId block, std::span<std::byte> out) const = 0;
  virtual void import_block(uint32_t group, BlockId block, std::span<const std::byte> bytes) = 0;
};

}  // namespace pagewise::model
