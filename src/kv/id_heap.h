// SPDX-License-Identifier: Apache-2.0
// A binary min-heap of small integers that knows where each of them stands, so that any member can
// be taken out or given a new key in O(log n). Order is by key, then id: equal runs give equal
// orders.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/check.h"

namespace pagewise::kv {

/// Members are ids below `ids`. Memory: all of it in the constructor and grow(). Thread: the
/// owner's.
class IdHeap {
 public:
  explicit IdHeap(uint32_t ids) : place_(ids, kAbsent) { heap_.reserve(ids); }

  /// Admits ids below `ids`. Never shrinks.
  void grow(uint32_t ids) {
    if (ids > place_.size()) place_.resize(ids, kAbsent);
  }

  bool empty() const { return heap_.empty(); }
  uint32_t size() const { return static_cast<uint32_t>(heap_.size()); }
  bool contains(uint32_t id) const { return place_[id] != kAbsent; }
  uint64_t key(uint32_t id) const {
    PW_CHECK(contains(id));
    return heap_[place_[id]].key;
  }
  /// Requires: not empty.
  uint32_t top() const {
    PW_CHECK(!empty());
    return heap_.front().id;
  }

  /// Requires: not a member.
  void push(uint32_t id, uint64_t key) {
    PW_CHECK(!contains(id));
    place_[id] = size();
    heap_.push_back({key, id});
    sift_up(size() - 1);
  }

  /// Requires: a member.
  void erase(uint32_t id) {
    PW_CHECK(contains(id));
    const uint32_t hole = place_[id];
    place_[id] = kAbsent;
    const Item last = heap_.back();
    heap_.pop_back();
    if (hole == size()) return;
    heap_[hole] = last;
    place_[last.id] = hole;
    sift_up(hole);
    sift_down(place_[last.id]);
  }

  void set_key(uint32_t id, uint64_t key) {
    erase(id);
    push(id, key);
  }

  /// Requires: not empty.
  uint32_t pop() {
    const uint32_t id = top();
    erase(id);
    return id;
  }

 private:
  static constexpr uint32_t kAbsent = UINT32_MAX;

  struct Item {
    uint64_t key;
    uint32_t id;
    auto operator<=>(const Item&) const = default;
  };

  void swap_items(uint32_t a, uint32_t b) {
    std::swap(heap_[a], heap_[b]);
    place_[heap_[a].id] = a;
    place_[heap_[b].id] = b;
  }
  void sift_up(uint32_t at) {
    while (at > 0) {
      const uint32_t parent = (at - 1) / 2;
      if (heap_[parent] < heap_[at]) return;
      swap_items(parent, at);
      at = parent;
    }
  }
  void sift_down(uint32_t at) {
    while (true) {
      const uint32_t left = 2 * at + 1, right = left + 1;
      uint32_t least = at;
      if (left < size() && heap_[left] < heap_[least]) least = left;
      if (right < size() && heap_[right] < heap_[least]) least = right;
      if (least == at) return;
      swap_items(least, at);
      at = least;
    }
  }

  std::vector<Item> heap_;
  std::vector<uint32_t> place_;  // index into heap_ by id, or kAbsent
};

}  // namespace pagewise::kv
