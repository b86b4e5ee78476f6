// SPDX-License-Identifier: Apache-2.0
// Where one sequence's positions sit: position p of group g is in block tables[g][p /
// block_tokens], at offset p % block_tokens. Ids only; the pool counts holders.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace pagewise::kv {

/// The block tables of one sequence, one a layer group, all of equal length. Memory is kept by
/// clear(), so that a slot's next sequence allocates nothing. Thread: engine thread only.
class BlockTables {
 public:
  explicit BlockTables(uint32_t groups) : tables_(groups) {}

  /// Blocks per group.
  uint32_t size() const { return static_cast<uint32_t>(tables_.front().size()); }
  uint32_t groups() const { return static_cast<uint32_t>(tables_.size()); }
  std::span<const BlockId> group(uint32_t group) const { return tables_[group]; }
  BlockId at(uint32_t group, uint32_t index) const { return tables_[group][index]; }

  void push(uint32_t group, BlockId block) { tables_[group].push_back(block); }
  void replace(uint32_t group, uint32_t index, BlockId block) { tables_[group][index] = block; }
  void clear() {
    for (std::vector<BlockId>& table : tables_) table.clear();
  }

 private:
  std::vector<std::vector<BlockId>> tables_;
};

}  // namespace pagewise::kv
