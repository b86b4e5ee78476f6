// SPDX-License-Identifier: Apache-2.0
// Where one sequence's positions sit: position p of group g is in block tables[g][p /
// block_tokens], at offset p % block_tokens. Ids only; the pool counts holders.
//
//   full group      │ 4 │ 7 │ 0 │ 2 │ 9 │     every block from the start
//   sliding group   │ - │ - │ - │ 1 │ 5 │     null blocks behind the window; first_held == 3
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace pagewise::kv {

/// The block tables of one sequence, one a layer group. A full group's may be longer than a sliding
/// one's: it is covered ahead. Memory is kept by clear(), so that a slot's next sequence allocates
/// nothing. Thread: engine thread only.
class BlockTables {
 public:
  explicit BlockTables(uint32_t groups) : tables_(groups), first_held_(groups, 0) {}

  /// Blocks from the start to the table's end, given up ones included.
  uint32_t size(uint32_t group) const { return static_cast<uint32_t>(tables_[group].size()); }
  /// Blocks before this index were given up.
  uint32_t first_held(uint32_t group) const { return first_held_[group]; }
  uint32_t held(uint32_t group) const { return size(group) - first_held(group); }
  uint32_t groups() const { return static_cast<uint32_t>(tables_.size()); }
  std::span<const BlockId> group(uint32_t group) const { return tables_[group]; }
  BlockId at(uint32_t group, uint32_t index) const { return tables_[group][index]; }

  void push(uint32_t group, BlockId block) { tables_[group].push_back(block); }
  void replace(uint32_t group, uint32_t index, BlockId block) { tables_[group][index] = block; }
  /// The table begins with `count` blocks that are not held. Requires: an empty table.
  void skip(uint32_t group, uint32_t count) {
    tables_[group].assign(count, BlockId());
    first_held_[group] = count;
  }
  /// The first held block is held no more; returns it. Requires: held(group) > 0.
  BlockId give_up(uint32_t group) {
    BlockId& entry = tables_[group][first_held_[group]++];
    const BlockId block = entry;
    entry = BlockId();
    return block;
  }
  void clear() {
    for (std::vector<BlockId>& table : tables_) table.clear();
    for (uint32_t& first : first_held_) first = 0;
  }

 private:
  std::vector<std::vector<BlockId>> tables_;
  std::vector<uint32_t> first_held_;
};

}  // namespace pagewise::kv
