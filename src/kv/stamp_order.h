// SPDX-License-Identifier: Apache-2.0
// Small integers in the order of their stamps, where most that come have a later stamp than all
// that are there: the order of last use.
//
// Whoever has the latest stamp goes to the end of a list, and leaves it from anywhere, in O(1). Two
// lists, because two ascending streams meet in one order: blocks that are used now, and blocks
// whose protection ends, long after their last use but each later than the one before. A stamp that
// fits the end of neither goes to a heap. The first of all is the first of one of the three.
//
//   list 0   12 ─ 15 ─ 31 ─ 40 ─ 41      ◀── 42
//   list 1    3 ─  9 ─ 20                ◀── 22, because 41 is later and 20 is not
//   strays    7                          ◀── 8
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "kv/id_heap.h"

namespace pagewise::kv {

/// Where members stand, by id. Orders without a common member may share one.
class StampLinks {
 public:
  explicit StampLinks(uint32_t ids) : links_(ids), strays_(ids) {}
  /// Admits ids below `ids`. Never shrinks.
  void grow(uint32_t ids) {
    if (ids <= links_.size()) return;
    links_.resize(ids);
    strays_.grow(ids);
  }
  bool contains(uint32_t id) const { return links_[id].where != kNowhere; }
  /// Requires: a member.
  uint64_t stamp(uint32_t id) const {
    PW_CHECK(contains(id));
    return links_[id].stamp;
  }

 private:
  friend class StampOrder;
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint32_t kLists = 2;
  static constexpr uint32_t kStrays = kLists, kNowhere = kLists + 1;
  struct Link {
    uint64_t stamp = 0;
    uint32_t previous = kNone, next = kNone;
    uint32_t where = kNowhere;
  };
  std::vector<Link> links_;
  IdPlaces strays_;
};

/// Stamps are distinct. Cost: O(1), and O(log strays) for those. Memory: by its strays; the rest
/// stands in the links, always the same ones.
class StampOrder {
 public:
  bool empty() const { return size_ == 0; }
  uint32_t size() const { return size_; }

  struct Member {
    uint32_t id = 0;
    uint64_t stamp = UINT64_MAX;
  };
  /// The one with the earliest stamp. Requires: not empty.
  Member first() const {
    PW_CHECK(!empty());
    Member first;
    for (const List& list : lists_) {
      if (list.first.stamp < first.stamp) first = list.first;
    }
    if (!strays_.empty() && strays_.top_key() < first.stamp)
      first = {strays_.top(), strays_.top_key()};
    return first;
  }

  /// Requires: not a member of any order that shares the links.
  void push(StampLinks& links, uint32_t id, uint64_t stamp) {
    PW_CHECK(!links.contains(id) && stamp != UINT64_MAX);
    ++size_;
    const uint32_t where = place(stamp);
    links.links_[id] = {stamp, StampLinks::kNone, StampLinks::kNone, where};
    if (where == StampLinks::kStrays) return strays_.push(links.strays_, id, stamp);
    List& list = lists_[where];
    if (list.empty()) {
      list.first = {id, stamp};
    } else {
      links.links_[id].previous = list.last.id;
      links.links_[list.last.id].next = id;
    }
    list.last = {id, stamp};
  }

  /// Requires: a member of this order.
  void erase(StampLinks& links, uint32_t id) {
    PW_CHECK(links.contains(id) && size_ > 0);
    --size_;
    StampLinks::Link& link = links.links_[id];
    if (link.where == StampLinks::kStrays) {
      strays_.erase(links.strays_, id);
    } else {
      List& list = lists_[link.where];
      unlink(links, list, id, link);
    }
    link.where = StampLinks::kNowhere;
  }

 private:
  struct List {
    Member first;       // of an empty one: later than all
    Member last{0, 0};  // and earlier than all
    bool empty() const { return first.stamp == UINT64_MAX; }
  };

  /// The list whose last stamp is the latest before this one.
  uint32_t place(uint64_t stamp) const {
    uint32_t best = StampLinks::kStrays;
    for (uint32_t i = 0; i < StampLinks::kLists; ++i) {
      const List& list = lists_[i];
      if (!list.empty() && list.last.stamp >= stamp) continue;
      if (best == StampLinks::kStrays || list.last.stamp > lists_[best].last.stamp) best = i;
    }
    return best;
  }

  static void unlink(StampLinks& links, List& list, uint32_t id, const StampLinks::Link& link) {
    // A member of another order would be linked to that one's ends.
    PW_CHECK(link.previous != StampLinks::kNone || list.first.id == id);
    PW_CHECK(link.next != StampLinks::kNone || list.last.id == id);
    if (link.previous == StampLinks::kNone && link.next == StampLinks::kNone) {
      list = List();
      return;
    }
    if (link.previous == StampLinks::kNone) {
      list.first = {link.next, links.links_[link.next].stamp};
    } else {
      links.links_[link.previous].next = link.next;
    }
    if (link.next == StampLinks::kNone) {
      list.last = {link.previous, links.links_[link.previous].stamp};
    } else {
      links.links_[link.next].previous = link.previous;
    }
  }

  std::array<List, StampLinks::kLists> lists_;
  SharedIdHeap strays_;
  uint32_t size_ = 0;
};

}  // namespace pagewise::kv
