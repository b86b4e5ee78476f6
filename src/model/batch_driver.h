// SPDX-License-Identifier: Apache-2.0
// For tests and tools only: several sequences on one executor, stepped in any mix of chunks, with
// block ids dealt out in shuffled order. What an engine does, without its policies.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/prng.h"
#include "model/executor.h"

namespace pagewise::model::testing {

class BatchDriver {
 public:
  struct Part {
    std::size_t sequence;
    uint32_t tokens;
  };
  using Sink =
      std::function<void(std::size_t sequence, uint32_t position, std::span<const float> logits)>;

  BatchDriver(Executor& executor, uint64_t shuffle_seed) : executor_(executor) {
    Prng prng(shuffle_seed);
    for (uint32_t g = 0; g < executor.geometry().groups.size(); ++g) {
      std::vector<BlockId>& free = free_.emplace_back();
      for (uint32_t i = 0; i < executor.blocks(g); ++i) free.emplace_back(i);
      for (std::size_t i = free.size(); i > 1; --i) std::swap(free[i - 1], free[prng.below(i)]);
    }
  }
  ~BatchDriver() {
    for (std::size_t s = 0; s < sequences_.size(); ++s) drop(s);
  }
  BatchDriver(const BatchDriver&) = delete;
  BatchDriver& operator=(const BatchDriver&) = delete;

  /// Logits are asked for positions >= logits_from.
  std::size_t add(std::vector<TokenId> tokens, uint32_t logits_from = 0) {
    Sequence sequence;
    sequence.tokens = std::move(tokens);
    sequence.logits_from = logits_from;
    sequence.blocks.resize(free_.size());
    sequence.own.resize(free_.size());
    sequences_.push_back(std::move(sequence));
    return sequences_.size() - 1;
  }
  void append(std::size_t s, TokenId token) { sequences_[s].tokens.push_back(token); }

  /// A new sequence that starts with the first `positions` positions of `from`: whole blocks are
  /// shared, the rest of a partial one is copied.
  std::size_t fork(std::size_t from, uint32_t positions, std::vector<TokenId> tokens) {
    const uint32_t block_tokens = executor_.geometry().block_tokens;
    PW_CHECK(positions <= sequences_[from].done && positions < tokens.size());
    const std::size_t s = add(std::move(tokens), positions);
    Sequence& sequence = sequences_[s];
    sequence.done = positions;
    for (uint32_t g = 0; g < free_.size(); ++g) {
      const std::vector<BlockId>& source = sequences_[from].blocks[g];
      sequence.blocks[g].assign(source.begin(), source.begin() + positions / block_tokens);
      if (positions % block_tokens == 0) continue;
      const BlockId block = take(g, sequence);
      executor_.copy(g, source[positions / block_tokens], block, positions % block_tokens);
    }
    return s;
  }

  uint32_t done(std::size_t s) const { return sequences_[s].done; }
  uint32_t left(std::size_t s) const {
    return static_cast<uint32_t>(sequences_[s].tokens.size()) - sequences_[s].done;
  }
  std::span<const BlockId> blocks(std::size_t s, uint32_t group) const {
    return sequences_[s].blocks[group];
  }

  /// One step with the next `tokens` tokens of each part's sequence.
  void step(std::span<const Part> parts, const Sink& sink) {
    std::vector<StepRun> runs;
    std::vector<std::vector<std::span<const BlockId>>> tables(parts.size());
    std::vector<std::vector<uint32_t>> rows(parts.size());
    const uint32_t block_tokens = executor_.geometry().block_tokens;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      Sequence& sequence = sequences_[parts[i].sequence];
      PW_CHECK(sequence.done + parts[i].tokens <= sequence.tokens.size());
      const uint64_t end = sequence.done + parts[i].tokens;
      for (uint32_t g = 0; g < free_.size(); ++g) {
        while (sequence.blocks[g].size() * block_tokens < end) take(g, sequence);
        tables[i].emplace_back(sequence.blocks[g]);
      }
      for (uint32_t r = 0; r < parts[i].tokens; ++r) {
        if (sequence.done + r >= sequence.logits_from) rows[i].push_back(r);
      }
      runs.push_back({.tokens = std::span(sequence.tokens).subspan(sequence.done, parts[i].tokens),
                      .position = sequence.done,
                      .tables = tables[i],
                      .logits_rows = rows[i]});
    }
    const Result<LogitsView> logits = executor_.step(runs);
    PW_CHECK(logits.has_value());
    uint32_t row = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      Sequence& sequence = sequences_[parts[i].sequence];
      for (const uint32_t r : rows[i])
        sink(parts[i].sequence, sequence.done + r, logits->row(row++));
      sequence.done += parts[i].tokens;
    }
    PW_CHECK(row == logits->rows);
  }

  /// Runs one sequence to its end in chunks of at most `chunk` tokens.
  void finish(std::size_t s, uint32_t chunk, const Sink& sink) {
    while (left(s) > 0) {
      const Part part = {s, std::min(chunk, left(s))};
      step({&part, 1}, sink);
    }
  }

  /// Gives the sequence's own blocks back; they are used again, dirty.
  void drop(std::size_t s) {
    for (uint32_t g = 0; g < free_.size(); ++g) {
      for (const BlockId block : sequences_[s].own[g]) free_[g].push_back(block);
    }
    sequences_[s] = {};
    sequences_[s].blocks.resize(free_.size());
    sequences_[s].own.resize(free_.size());
  }

 private:
  struct Sequence {
    std::vector<TokenId> tokens;
    uint32_t done = 0;
    uint32_t logits_from = 0;
    std::vector<std::vector<BlockId>> blocks;  // [group]
    std::vector<std::vector<BlockId>> own;     // [group]: those not shared from another sequence
  };

  BlockId take(uint32_t group, Sequence& sequence) {
    PW_CHECK(!free_[group].empty());
    const BlockId block = free_[group].back();
    free_[group].pop_back();
    PW_CHECK(executor_.commit(group, {&block, 1}).has_value());
    sequence.own[group].push_back(block);
    sequence.blocks[group].push_back(block);
    return block;
  }

  Executor& executor_;
  std::vector<std::vector<BlockId>> free_;
  std::vector<Sequence> sequences_;
};

}  // namespace pagewise::model::testing
