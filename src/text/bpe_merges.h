// SPDX-License-Identifier: Apache-2.0
// Byte-pair merging: in a row of symbols, the adjacent pair of the lowest rank becomes one symbol,
// the leftmost first among equals, until no pair has a rank.
//
// Source: Sennrich, Haddow, Birch, ACL 2016, algorithm 1, applied with a table of ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pagewise::text {

/// One symbol of a piece: a vocabulary id and how many bytes of the text it covers.
struct BpeSymbol {
  int32_t id = 0;  // negative: unknown to the vocabulary, never merges
  uint32_t bytes = 0;
};

/// Thread: immutable once filled; any thread.
class BpeMerges {
 public:
  static constexpr uint32_t kNoRank = UINT32_MAX;

  struct Merge {
    uint32_t rank = kNoRank;  // lower merges earlier
    int32_t result = -1;
  };

  /// Buffers that outlive one piece, so that merging allocates nothing in the steady state.
  struct Scratch {
    std::vector<Merge> merges;
    std::vector<uint32_t> previous;
    std::vector<uint32_t> next;
    std::vector<uint64_t> heap;
  };

  /// Room for `count` pairs at a load of at most one half.
  explicit BpeMerges(std::size_t count);
  /// The first of equal pairs wins. Requires: ids >= 0, fewer than `count` pairs so far.
  void insert(int32_t left, int32_t right, Merge merge);
  /// rank == kNoRank when the pair never merges.
  Merge find(int32_t left, int32_t right) const;

  /// Merges `symbols` in place. Cost: O(n^2) of cheap moves up to kShortSymbols, O(n log n) beyond.
  void apply(std::vector<BpeSymbol>& symbols, Scratch& scratch) const;

 private:
  // Up to here a scan of the row for its lowest rank beats a heap (measured on English and source
  // code).
  static constexpr std::size_t kShortSymbols = 48;

  struct Slot {
    uint64_t key = kEmpty;
    Merge merge;
  };
  static constexpr uint64_t kEmpty = UINT64_MAX;

  static uint64_t key_of(int32_t left, int32_t right);
  void apply_short(std::vector<BpeSymbol>& symbols, Scratch& scratch) const;
  void apply_long(std::vector<BpeSymbol>& symbols, Scratch& scratch) const;

  std::vector<Slot> slots_;  // open addressing, linear probing, a power of two
  uint32_t shift_ = 0;
};

}  // namespace pagewise::text
