// SPDX-License-Identifier: Apache-2.0
// Entries: marked prefixes that were written, readable until they expire or lose a block; and the
// leases that make their blocks the last to be given up.
//
// An entry stands for exactly the tokens from a root to a point, which need not be a block
// boundary. It is kept with the last full node before that point (`parent`) and leases the nodes up
// to and including `node`, the one that holds the rest:
//
//   root ── [full] ── [full] ── [a b c d e f ..]     entry of 2 blocks + 3 tokens:
//             ▲         ▲          └ node: tail "a b c"      parent = second full node
//             └─ leased ┴── leased ┘
//
// When `node` goes and a sibling holds the same tail, the entry moves there; otherwise it is
// broken, which is counted: the next use of that prefix is a creation. Leased nodes are closed
// towards the root: a node's predecessors are leased whenever it is.
//
// All leased nodes and all promised ones together stay within a limit. A promise is made at
// admission, when a request's creation is reported, and kept when its prefill has covered the
// marker. Equal prefixes that are promised at the same time count once.
//
// Thread: engine thread only. Time is told (set_time).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "kv/cache_marker.h"
#include "kv/id_heap.h"
#include "kv/prefix_index.h"

namespace pagewise::kv {

using EntryId = StrongId<struct EntryTag, uint32_t>;

/// Identifies a promised prefix: a digest of its tokens. A collision would only make two promises
/// count as one.
using PromiseKey = uint64_t;

/// Why a node leaves the index.
enum class RemoveReason : uint8_t {
  kEvicted,   // its memory is needed: entries that lose it are broken
  kReplaced,  // a longer equal block stands in: entries move there
  kCleared,   // on purpose: entries are dropped and not counted
};

struct LeaseRules {
  TimeNs lifetime_5m_ns = 0, lifetime_1h_ns = 0;
  uint32_t nodes_max = 0;            // leased and promised, in all
  uint32_t nodes_max_namespace = 0;  // of one root
};

class LeaseBook {
 public:
  /// Hears which nodes gain their first and lose their last lease.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void on_leased(NodeId node, bool leased) = 0;
  };

  LeaseBook(const PrefixIndex& index, Listener& listener, const LeaseRules& rules);

  /// Drops entries that expire at or before `now`. Earlier times than the last are ignored.
  void set_time(TimeNs now);
  TimeNs now() const { return now_; }

  /// The unexpired entry of exactly the prefix that ends `tail.size()` tokens behind `parent`; null
  /// if there is none. Requires: tail shorter than a block, or parent a root and tail not empty.
  EntryId find(NodeId parent, std::span<const TokenId> tail) const;
  /// A read by a request that began at `start`: the entry keeps the larger class, and lives its
  /// lifetime from there, unless it lives longer already.
  void refresh(EntryId entry, LeaseClass lease, TimeNs start);
  TimeNs lifetime_ns(LeaseClass lease) const {
    return lease == LeaseClass::k1h ? rules_.lifetime_1h_ns : rules_.lifetime_5m_ns;
  }

  /// Room for `nodes` more leased nodes below `root`; false when the limits do not allow it.
  /// Promises under one key share the room of the first.
  bool promise(PromiseKey key, NodeId root, uint32_t nodes);
  void withdraw(PromiseKey key);
  /// Makes the prefix readable that ends `tail_tokens` behind `parent`, inside `node` (the parent
  /// itself when tail_tokens is 0), using the room promised under `key`. An equal entry is
  /// refreshed instead. False when the room is gone, because a lease that the promise counted on
  /// has expired meanwhile: counted as broken.
  bool write(NodeId parent, NodeId node, uint32_t tail_tokens, LeaseClass lease, TimeNs start,
             std::optional<PromiseKey> key);

  /// Call before the index removes a node (without children).
  void on_remove(NodeId node, RemoveReason reason);

  bool leased(NodeId node) const { return lease_count(node) > 0; }
  uint32_t leased_nodes() const { return leased_nodes_; }
  uint32_t promised_nodes() const { return promised_nodes_; }
  uint32_t entries() const { return expiry_.size(); }
  uint64_t broken() const { return broken_; }

  void check_invariants() const;

 private:
  struct Entry {
    NodeId parent, node;
    uint32_t tail_tokens = 0;
    LeaseClass lease = LeaseClass::k5m;
    TimeNs expires = 0;
    EntryId previous, next;  // in the parent's list
  };
  struct Promise {
    NodeId root;
    uint32_t holders = 0;
    uint32_t nodes = 0;
  };
  struct NodeLeases {
    uint32_t count = 0;  // entries that cover the node
    EntryId first;       // entries whose parent it is
  };
  struct RootShare {
    uint32_t leased = 0, promised = 0;
  };

  uint32_t lease_count(NodeId node) const {
    return node.value < nodes_.size() ? nodes_[node.value].count : 0;
  }
  EntryId first(NodeId parent) const {
    return parent.value < nodes_.size() ? nodes_[parent.value].first : EntryId();
  }
  void make_room_for_slots();
  bool fits(NodeId root, uint32_t nodes, uint32_t already_promised) const;
  void add_lease(NodeId node);
  void drop_lease(NodeId node);
  void drop(EntryId entry);
  static uint64_t expiry_key(TimeNs expires) {
    return static_cast<uint64_t>(expires) ^ (uint64_t{1} << 63);
  }

  const PrefixIndex& index_;
  Listener& listener_;
  const LeaseRules rules_;
  TimeNs now_ = INT64_MIN;
  std::vector<Entry> entries_;  // by id
  std::vector<EntryId> unused_;
  IdHeap expiry_;                           // exactly the entries, earliest expiry first
  std::vector<NodeLeases> nodes_;           // by node id
  std::vector<RootShare> roots_;            // by root's node id
  std::map<PromiseKey, Promise> promises_;  // ordered: no dependence on hash order
  uint32_t leased_nodes_ = 0, promised_nodes_ = 0;
  uint64_t broken_ = 0;
};

}  // namespace pagewise::kv
