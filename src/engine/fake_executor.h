// SPDX-License-Identifier: Apache-2.0
// An executor without a model that catches every way of reading the wrong KV.
//
// The "KV" of a position is a fingerprint of the token prefix that ends there, chained from
// position 0. A step walks the whole chain through the block table before it computes: a block of
// another sequence, a position not yet written when the step began, a block that was given back, a
// missing copy-on-write: each breaks the chain and is recorded as a violation. Logits are a pure
// function of the fingerprint, so a request served from a wrong prefix also answers differently
// from the same request alone.
//
// Thread: one at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/prng.h"
#include "model/executor.h"

namespace pagewise::engine {

struct FakeExecutorOptions {
  uint32_t block_tokens = 16;
  /// One group each; windows[g] = 0: full attention, else a sliding window of at least 2.
  std::vector<uint32_t> windows = {0};
  uint32_t blocks = 64;                     // of every group
  std::vector<uint32_t> group_blocks = {};  // of each; empty: as many for all
  uint32_t vocab_size = 64;
  uint32_t step_tokens_max = 4096;
  uint32_t step_runs_max = 256;
  uint32_t context_max = 1U << 20;
  /// Called within each step: where a test lets time pass.
  std::function<void(std::span<const model::StepRun>)> on_step;
};

class FakeExecutor final : public model::Executor {
 public:
  explicit FakeExecutor(FakeExecutorOptions options) : options_(std::move(options)) {
    PW_CHECK(options_.block_tokens > 0 && options_.blocks > 0 && !options_.windows.empty());
    geometry_.block_tokens = options_.block_tokens;
    for (const uint32_t window : options_.windows) {
      PW_CHECK(window != 1);  // a window of one sees no other position: nothing to check
      // 4 values of K and V at 2 bytes: 16 bytes a token, what one Position takes.
      geometry_.groups.push_back({.layers = 1,
                                  .kv_heads = 1,
                                  .key_dim = 4,
                                  .value_dim = 4,
                                  .window = window,
                                  .key_type = KvType::kF16,
                                  .value_type = KvType::kF16});
      const std::size_t group = blocks_.size();
      blocks_.emplace_back(options_.group_blocks.empty() ? options_.blocks
                                                         : options_.group_blocks.at(group));
    }
  }

  const kv::Geometry& geometry() const override { return geometry_; }
  uint32_t vocab_size() const override { return options_.vocab_size; }
  model::ExecutorLimits limits() const override {
    return {options_.step_tokens_max, options_.step_runs_max, options_.context_max};
  }
  uint32_t blocks(uint32_t group) const override {
    return static_cast<uint32_t>(blocks_[group].size());
  }

  Status grow(std::span<const uint32_t> blocks) override {
    if (grow_failures_left_ > 0) {
      --grow_failures_left_;
      return {ErrorCode::kIo, "the system has no room for more blocks"};
    }
    for (std::size_t g = 0; g < blocks_.size(); ++g) {
      if (blocks[g] > blocks_[g].size()) blocks_[g].resize(blocks[g]);
    }
    return Status::ok();
  }
  uint64_t committed_bytes() const override {
    uint64_t bytes = 0;
    for (uint32_t g = 0; g < blocks_.size(); ++g) {
      for (const std::vector<Position>& block : blocks_[g])
        bytes += block.empty() ? 0 : geometry_.block_stride(g);
    }
    return bytes;
  }

  Result<model::LogitsView> step(std::span<const model::StepRun> runs) override {
    ++steps_;
    if (options_.on_step) options_.on_step(runs);
    if (failures_left_ > 0) {
      --failures_left_;
      return {ErrorCode::kInternal, "the executor was told to fail this step"};
    }
    check_limits(runs);
    // All reads first: what a step writes is readable from the next step on, never within it.
    prefixes_.clear();
    for (const model::StepRun& run : runs) prefixes_.push_back(read_prefix(run));
    uint32_t rows = 0;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const uint32_t begin = rows;
      write_run(runs[i], prefixes_[i], rows);
      if (std::ranges::find(runs[i].tokens, overflowing_) == runs[i].tokens.end()) continue;
      std::fill(logits_.begin() + std::size_t{begin} * options_.vocab_size,
                logits_.begin() + std::size_t{rows} * options_.vocab_size,
                std::numeric_limits<float>::quiet_NaN());
    }
    tokens_computed_ += step_tokens_;
    return model::LogitsView{logits_.data(), rows, options_.vocab_size};
  }

  void copy(uint32_t group, BlockId from, BlockId to, uint32_t positions) override {
    if (positions > options_.block_tokens) violation("copy of more positions than a block has");
    for (uint32_t i = 0; i < positions && i < options_.block_tokens; ++i) {
      const Position* source = find(group, from, i);
      if (source == nullptr || source->print == 0)
        return violation("copy reads an unwritten position");
      Position* target = find(group, to, i);
      if (target == nullptr) return violation("copy into a block that is not committed");
      if (target->print != 0) return violation("copy overwrites a position");
      *target = *source;
    }
    ++copies_;
  }

  Status commit(uint32_t group, std::span<const BlockId> blocks) override {
    if (commit_failures_left_ > 0) {
      --commit_failures_left_;
      return {ErrorCode::kIo, "the system has no memory for another block"};
    }
    for (const BlockId id : blocks) {
      if (id.value >= blocks_[group].size()) {
        violation("commit of a block that does not exist");
        continue;
      }
      blocks_[group][id.value].assign(options_.block_tokens, Position{});
    }
    return Status::ok();
  }
  void release(uint32_t group, std::span<const BlockId> blocks) override {
    for (const BlockId id : blocks) {
      if (id.value >= blocks_[group].size()) {
        violation("release of a block that does not exist");
      } else {
        blocks_[group][id.value].clear();
      }
    }
  }

  void export_block(uint32_t group, BlockId block, std::span<std::byte> out) const override {
    PW_CHECK(out.size() == geometry_.block_bytes(group));
    PW_CHECK(block.value < blocks_[group].size() && !blocks_[group][block.value].empty());
    std::memcpy(out.data(), blocks_[group][block.value].data(), out.size());
  }
  void import_block(uint32_t group, BlockId block, std::span<const std::byte> bytes) override {
    PW_CHECK(bytes.size() == geometry_.block_bytes(group));
    PW_CHECK(block.value < blocks_[group].size() && !blocks_[group][block.value].empty());
    std::memcpy(blocks_[group][block.value].data(), bytes.data(), bytes.size());
  }

  // For tests.

  /// What went wrong, first things first; empty is what every test wants.
  const std::vector<std::string>& violations() const { return violations_; }
  void fail_next_steps(uint32_t count) { failures_left_ = count; }
  /// From now on a run that computes this token has logits that are not numbers.
  void overflow_at(TokenId token) { overflowing_ = token; }
  void fail_next_grow() { grow_failures_left_ = 1; }
  void fail_next_commits(uint32_t count) { commit_failures_left_ = count; }
  uint64_t steps() const { return steps_; }
  uint64_t tokens_computed() const { return tokens_computed_; }
  uint64_t copies() const { return copies_; }
  /// Blocks of all groups that take memory now.
  uint32_t committed() const {
    uint32_t count = 0;
    for (const auto& group : blocks_) {
      for (const std::vector<Position>& block : group) count += !block.empty();
    }
    return count;
  }
  uint32_t largest_step_tokens() const { return largest_step_tokens_; }

  /// The logits that follow a prefix of tokens: what any correct serving must have sampled from.
  std::vector<float> logits_after(std::span<const TokenId> prefix) const {
    uint64_t print = kStart;
    for (const TokenId token : prefix) print = chain(print, token);
    std::vector<float> row(options_.vocab_size);
    fill_logits(print, row.data());
    return row;
  }

 private:
  struct Position {
    uint64_t print = 0;  // 0: zero-filled, nothing was written
    int32_t token = -1;
    uint32_t step = 0;  // that wrote it, modulo 2^32
  };
  static_assert(sizeof(Position) == 16);  // one token's bytes in geometry_
  static constexpr uint64_t kStart = 0x5061676577697365ULL;

  static uint64_t chain(uint64_t print, TokenId token) {
    const uint64_t next = mix64(print ^ mix64(static_cast<uint64_t>(token.value) + 1));
    return next == 0 ? 1 : next;
  }
  /// Groups hold different numbers for the same position: a table of the wrong group shows.
  static uint64_t stored(uint64_t print, uint32_t group) {
    const uint64_t salted = print ^ (uint64_t{group} << 56);
    return salted == 0 ? 1 : salted;
  }

  void fill_logits(uint64_t print, float* row) const {
    for (uint32_t i = 0; i < options_.vocab_size; ++i) {
      row[i] = static_cast<float>(mix64(print + i) >> 40) * (8.0F / 16777216.0F);
    }
  }

  void violation(std::string what) {
    if (violations_.size() < 20)
      violations_.push_back(std::move(what) + " (step " + std::to_string(steps_) + ")");
  }

  Position* find(uint32_t group, BlockId block, uint32_t index) {
    if (!block.valid() || block.value >= blocks_[group].size()) return nullptr;
    auto& positions = blocks_[group][block.value];
    return positions.empty() ? nullptr : &positions[index];
  }
  Position* find(const model::StepRun& run, uint32_t group, uint32_t position) {
    const uint32_t index = position / options_.block_tokens;
    if (index >= run.tables[group].size()) return nullptr;
    return find(group, run.tables[group][index], position % options_.block_tokens);
  }

  void check_limits(std::span<const model::StepRun> runs) {
    step_tokens_ = 0;
    std::size_t rows = 0;
    for (const model::StepRun& run : runs) {
      PW_CHECK(!run.tokens.empty());
      PW_CHECK(run.tables.size() == geometry_.groups.size());
      step_tokens_ += static_cast<uint32_t>(run.tokens.size());
      rows += run.logits_rows.size();
      if (run.position + run.tokens.size() > options_.context_max) violation("beyond the context");
      for (const TokenId token : run.tokens) {
        PW_CHECK(token.value >= 0 && static_cast<uint32_t>(token.value) < options_.vocab_size);
      }
    }
    if (runs.empty()) violation("an empty step");
    if (step_tokens_ > options_.step_tokens_max) violation("more tokens than a step takes");
    if (runs.size() > options_.step_runs_max) violation("more runs than a step takes");
    largest_step_tokens_ = std::max(largest_step_tokens_, step_tokens_);
    logits_.resize(rows * options_.vocab_size);
  }

  /// Walks every position that the run reads and returns the fingerprint at its start.
  uint64_t read_prefix(const model::StepRun& run) {
    uint64_t result = kStart;
    for (uint32_t g = 0; g < geometry_.groups.size(); ++g) {
      const uint32_t window = geometry_.groups[g].window;
      // The first row at `position` sees (position - window, position].
      const uint32_t begin =
          window == 0 || run.position + 1 <= window ? 0 : run.position + 1 - window;
      uint64_t print = kStart;
      for (uint32_t p = begin; p < run.position; ++p) {
        const Position* position = find(run, g, p);
        const auto where = [&] {
          return "position " + std::to_string(p) + " of group " + std::to_string(g);
        };
        if (position == nullptr) {
          violation("reads " + where() + " of a block that it does not hold");
          return result;
        }
        if (position->print == 0) {
          violation("reads " + where() + " before it was written");
          return result;
        }
        const uint64_t own = position->print ^ (uint64_t{g} << 56);
        if ((p == 0 || p > begin) && own != chain(print, TokenId(position->token))) {
          violation("reads " + where() + " of another prefix");
        }
        print = own;
      }
      if (g == 0) result = print;
      if (run.position > 0 && print != result) violation("groups disagree on the prefix");
    }
    return result;
  }

  void write_run(const model::StepRun& run, uint64_t print, uint32_t& rows) {
    std::size_t next_row = 0;
    for (uint32_t i = 0; i < run.tokens.size(); ++i) {
      print = chain(print, run.tokens[i]);
      for (uint32_t g = 0; g < geometry_.groups.size(); ++g) {
        Position* position = find(run, g, run.position + i);
        if (position == nullptr) {
          violation("writes into a block that it does not hold");
          continue;
        }
        if (position->print != 0)
          violation("overwrites position " + std::to_string(run.position + i));
        *position = {stored(print, g), run.tokens[i].value, static_cast<uint32_t>(steps_)};
      }
      if (next_row < run.logits_rows.size() && run.logits_rows[next_row] == i) {
        fill_logits(print, logits_.data() + std::size_t{rows} * options_.vocab_size);
        ++rows;
        ++next_row;
      }
    }
    PW_CHECK(next_row == run.logits_rows.size());
  }

  const FakeExecutorOptions options_;
  kv::Geometry geometry_;
  std::vector<std::vector<std::vector<Position>>>
      blocks_;  // [group][block][position]; empty: not committed
  std::vector<float> logits_;
  std::vector<uint64_t> prefixes_;
  std::vector<std::string> violations_;
  uint64_t steps_ = 0, tokens_computed_ = 0, copies_ = 0;
  TokenId overflowing_{-1};
  uint32_t failures_left_ = 0, commit_failures_left_ = 0, grow_failures_left_ = 0;
  uint32_t step_tokens_ = 0, largest_step_tokens_ = 0;
};

}  // namespace pagewise::engine
