// SPDX-License-Identifier: Apache-2.0
// What was given up lately: digests of contents whose memory somebody else has now. A cache that
// meets one of them again learns that it gave up the wrong block.
//
//   oldest                                          newest
//   │ a  once │ b  read again │   (met)   │ c  once │        at most `entries`, first in, first out
//
// Digests decide what is kept a little longer and nothing else: two contents with one digest cost a
// hit at most.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace pagewise::kv {

/// Whether a block was read by another request between its computation and its end.
enum class GhostKind : uint8_t { kOnce, kReadAgain };

/// A ring keeps the order, and a table with linear probing leads into it. A slot has half of its
/// digest beside the place in the ring, so that one line of memory answers for almost all that are
/// not remembered: every block that is computed is asked for.
///
/// Thread: the owner's. Memory: 28 to 40 bytes an entry, all of it in the constructor and resize.
/// Cost: O(1).
class GhostList {
 public:
  explicit GhostList(uint64_t entries) { resize(entries); }

  /// Remembers at most so many from now on: the newest ones stay.
  void resize(uint64_t entries);

  /// The newest from now on. What is remembered already gets its new kind and place.
  void add(uint64_t digest, GhostKind kind);
  /// Soon asked for by take(): its line of memory is on its way then. Changes nothing.
  void prefetch(uint64_t digest) const {
    if (!ring_.empty()) __builtin_prefetch(&table_[home(slot_of(digest, 0))]);
  }
  /// What kind it is, when it is remembered; it is no longer.
  std::optional<GhostKind> take(uint64_t digest);

  uint32_t size(GhostKind kind) const { return sizes_[static_cast<std::size_t>(kind)]; }
  uint32_t size() const { return sizes_[0] + sizes_[1]; }

 private:
  struct Entry {
    uint64_t digest = 0;
    GhostKind kind = GhostKind::kOnce;
    bool used = false;
  };
  /// A slot: the digest's upper half and the place in the ring, from 1; 0 is an empty slot.
  static uint64_t slot_of(uint64_t digest, uint32_t place) {
    return (digest >> 32) << 32 | (place + 1);
  }
  /// Where a slot's search begins.
  std::size_t home(uint64_t slot) const { return (slot >> 32) & (table_.size() - 1); }
  std::size_t after(std::size_t at) const { return (at + 1) & (table_.size() - 1); }
  /// The slot that leads to the digest, or the empty one where the search for it ends.
  std::size_t find(uint64_t digest) const;
  void remove(std::size_t at);

  std::vector<Entry> ring_;
  uint32_t next_ = 0;  // where the next one goes: the oldest one's place
  std::vector<uint64_t> table_;
  std::array<uint32_t, 2> sizes_{};
};

}  // namespace pagewise::kv
