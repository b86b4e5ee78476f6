// SPDX-License-Identifier: Apache-2.0
// Keys in the order of their last use, and how much was used since: what a least-recently-used
// memory of any size would still hold.
//
//   places    │ b 32 │  -   │ d 32 │ a 20 │  -   │ c 32 │      │      │
//               ▲ least recently used              ▲ last   ▲ the next use takes this place
//   sums      a Fenwick tree over the places' weights: distance(d) = 32 + 20 + 32
//   slots     a hash table from keys to places
//
// Each use takes the next place and leaves the old one empty; when the places are used up, the gaps
// close. Keys are hashes: their low bits are taken as they are.
//
// Invariants, proved by check_invariants() in O(keys_max):
//   R1  a place has a weight if and only if a slot names it, and no two have the same key
//   R2  the tree's sums are those of the weights
//   R3  nothing is kept before `first_` or from `next_` on
//
// Thread: one at a time. Memory: 20 bytes for each place, of which there are two a key, and 8 to 16
// for a key's slots, all of it in the constructor.
// Source of the tree: Fenwick, Software: Practice and Experience 24(3), 1994.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pagewise::kv {

class RecencyList {
 public:
  /// Requires: 1 <= keys_max < 2^30.
  explicit RecencyList(uint64_t keys_max);

  uint64_t size() const { return size_; }
  /// Of all weights.
  uint64_t total() const { return total_; }

  bool contains(uint64_t key) const { return find(key) != kNone; }
  /// The weights of what was used since the key's last use, its own included; 0: it is not there.
  /// Cost: O(log keys_max).
  uint64_t distance(uint64_t key) const;

  /// The key is the most recently used one, with this weight from now on. Requires: a weight, and
  /// room for the key: it is there, or fewer than keys_max are. Cost: O(log keys_max), and a
  /// closing of the gaps every keys_max uses.
  void use(uint64_t key, uint32_t weight);

  /// Requires: there is one.
  void erase_oldest();
  /// Requires: contains(key).
  void erase(uint64_t key);
  /// Cost: O(keys_max).
  void erase_above(uint64_t key);

  void check_invariants() const;

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  std::size_t find(uint64_t key) const;  // slot
  void set_slot(uint64_t key, std::size_t place);
  void vacate(std::size_t place);
  void add(std::size_t place, uint64_t value);  // value may be a negative one, wrapped
  uint64_t sum_before(std::size_t place) const;
  void close_gaps();

  const uint64_t keys_max_;
  std::vector<uint64_t> keys_;     // [place]
  std::vector<uint32_t> weights_;  // [place]; 0: empty
  std::vector<uint64_t> sums_;     // [place + 1]
  std::vector<uint32_t> slots_;    // place + 1; 0: empty
  const uint64_t slot_mask_;
  std::size_t first_ = 0, next_ = 0;
  uint64_t size_ = 0, total_ = 0;
};

}  // namespace pagewise::kv
