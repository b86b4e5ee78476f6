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

/// Where members stand in their heap, by id. Heaps without a common member may share one.
class IdPlaces {
 public:
  explicit IdPlaces(uint32_t ids) : place_(ids, kNowhere) {}
  /// Admits ids below `ids`. Never shrinks.
  void grow(uint32_t ids) {
    if (ids > place_.size()) place_.resize(ids, kNowhere);
  }
  bool contains(uint32_t id) const { return place_[id] != kNowhere; }

 private:
  friend class SharedIdHeap;
  static constexpr uint32_t kNowhere = UINT32_MAX;
  std::vector<uint32_t> place_;
};

/// A heap whose places are kept outside, always the same. Memory: by its members.
class SharedIdHeap {
 public:
  void reserve(uint32_t members) { heap_.reserve(members); }

  bool empty() const { return heap_.empty(); }
  uint32_t size() const { return static_cast<uint32_t>(heap_.size()); }
  /// Requires: a member of this heap.
  uint64_t key(const IdPlaces& places, uint32_t id) const {
    PW_CHECK(holds(places, id));
    return heap_[places.place_[id]].key;
  }
  /// Requires: not empty.
  uint32_t top() const {
    PW_CHECK(!empty());
    return heap_.front().id;
  }
  uint64_t top_key() const {
    PW_CHECK(!empty());
    return heap_.front().key;
  }

  /// Requires: not a member of any heap that shares the places.
  void push(IdPlaces& places, uint32_t id, uint64_t key) {
    PW_CHECK(!places.contains(id));
    places.place_[id] = size();
    heap_.push_back({key, id});
    sift_up(places, size() - 1);
  }

  /// Requires: a member of this heap.
  void erase(IdPlaces& places, uint32_t id) {
    PW_CHECK(holds(places, id));
    const uint32_t hole = places.place_[id];
    places.place_[id] = IdPlaces::kNowhere;
    const Item last = heap_.back();
    heap_.pop_back();
    if (hole == size()) return;
    heap_[hole] = last;
    places.place_[last.id] = hole;
    sift_up(places, hole);
    sift_down(places, places.place_[last.id]);
  }

 private:
  struct Item {
    uint64_t key;
    uint32_t id;
    auto operator<=>(const Item&) const = default;
  };

  bool holds(const IdPlaces& places, uint32_t id) const {
    const uint32_t place = places.place_[id];
    return place < size() && heap_[place].id == id;
  }
  void swap_items(IdPlaces& places, uint32_t a, uint32_t b) {
    std::swap(heap_[a], heap_[b]);
    places.place_[heap_[a].id] = a;
    places.place_[heap_[b].id] = b;
  }
  void sift_up(IdPlaces& places, uint32_t at) {
    while (at > 0) {
      const uint32_t parent = (at - 1) / 2;
      if (heap_[parent] < heap_[at]) return;
      swap_items(places, parent, at);
      at = parent;
    }
  }
  void sift_down(IdPlaces& places, uint32_t at) {
    while (true) {
      const uint32_t left = 2 * at + 1, right = left + 1;
      uint32_t least = at;
      if (left < size() && heap_[left] < heap_[least]) least = left;
      if (right < size() && heap_[right] < heap_[least]) least = right;
      if (least == at) return;
      swap_items(places, least, at);
      at = least;
    }
  }

  std::vector<Item> heap_;
};

/// Members are ids below `ids`. Memory: all of it in the constructor and grow(). Thread: the
/// owner's.
class IdHeap {
 public:
  explicit IdHeap(uint32_t ids) : places_(ids) { heap_.reserve(ids); }

  /// Admits ids below `ids`. Never shrinks.
  void grow(uint32_t ids) { places_.grow(ids); }

  bool empty() const { return heap_.empty(); }
  uint32_t size() const { return heap_.size(); }
  bool contains(uint32_t id) const { return places_.contains(id); }
  uint64_t key(uint32_t id) const { return heap_.key(places_, id); }
  /// Requires: not empty.
  uint32_t top() const { return heap_.top(); }
  /// Requires: not a member.
  void push(uint32_t id, uint64_t key) { heap_.push(places_, id, key); }
  /// Requires: a member.
  void erase(uint32_t id) { heap_.erase(places_, id); }
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
  IdPlaces places_;
  SharedIdHeap heap_;
};

}  // namespace pagewise::kv
