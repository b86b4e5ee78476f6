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
// A sliding group needs only the blocks of the last `window` positions before an entry's end, and
// so only they are leased there: they, and one block more, so that the whole last block before the
// end can be returned to. Losing one of the needed blocks breaks the entry.
//
//   full group      │ L │ L │ L │ L │ L │ L ┆           entry ends here ┆
//   sliding group   │   │   │ l │ L │ L │ L ┆           L: needed and leased, l: leased
//
// All leased nodes and all promised ones together stay within a limit, in every room: one room for
// the full groups, whose blocks are leased together, and one for every sliding group. A promise is
// made at admission, when a request's creation is reported, and kept when its prefill has covered
// the marker. Equal prefixes that are promised at the same time count once.
//
// Thread: engine thread only. Time is told (set_time).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "kv/cache_marker.h"
#include "kv/id_heap.h"
#include "kv/inspection.h"
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

struct LeaseRoom {
  uint32_t window = 0;               // 0: all nodes up to an entry's end
  uint32_t nodes_max = 0;            // leased and promised, in all
  uint32_t nodes_max_namespace = 0;  // of one root
};

struct LeaseRules {
  TimeNs lifetime_5m_ns = 0, lifetime_1h_ns = 0;
  std::vector<LeaseRoom> rooms;  // the first has no window, the others have
};

class LeaseBook {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    /// The node gained its first or lost its last lease in this room.
    virtual void on_leased(NodeId node, uint32_t room, bool leased) = 0;
    /// An entry of this namespace was broken.
    virtual void on_broken(NodeId root) = 0;
    /// Whether the node has a block in every group.
    virtual bool complete(NodeId node) const = 0;
  };

  LeaseBook(const PrefixIndex& index, Listener& listener, const LeaseRules& rules);

  /// Drops entries that expire at or before `now`. Earlier times than the last are ignored.
  void set_time(TimeNs now);
  TimeNs now() const { return now_; }

  /// The unexpired entry of exactly the prefix that ends `tail.size()` tokens behind `parent`; null
  /// if there is none. Requires: tail shorter than a block, or parent a root and tail not empty.
  EntryId find(NodeId parent, std::span<const TokenId> tail) const;
  /// The longest entry, unexpired at `now`, whose prefix `tokens` begin with. `path`: the full
  /// nodes from `root` that match them. Nothing is refreshed. Cost: O(path + their entries).
  std::optional<StandingLease> longest(NodeId root, std::span<const NodeId> path,
                                       std::span<const TokenId> tokens, TimeNs now) const;
  /// When the entry came to be; an earlier time is none at which it could have been read.
  TimeNs readable_since(EntryId entry) const { return entries_[entry.value].readable; }
  /// A read by a request that began at `start`: the entry keeps the larger class, and lives its
  /// lifetime from there, unless it lives longer already.
  void refresh(EntryId entry, LeaseClass lease, TimeNs start);
  TimeNs lifetime_ns(LeaseClass lease) const {
    return lease == LeaseClass::k1h ? rules_.lifetime_1h_ns : rules_.lifetime_5m_ns;
  }

  /// Other limits from now on, by room; windows stay. Entries that are too many for them are
  /// broken, those that end first going first. True when all that is left fits; else promises alone
  /// are too many: withdraw some and call again. Cost: O(entries * log).
  bool set_limits(std::span<const LeaseRoom> rooms);

  /// Room for `nodes[r]` more leased nodes below `root` in every room r; false when the limits do
  /// not allow it. Promises under one key share the room of the first.
  bool promise(PromiseKey key, NodeId root, std::span<const uint32_t> nodes);
  void withdraw(PromiseKey key);
  /// Makes the prefix readable that ends `tail_tokens` behind `parent`, inside `node` (the parent
  /// itself when tail_tokens is 0), using the room promised under `key`. An equal entry is
  /// refreshed instead. False when the room is gone, because a lease that the promise counted on
  /// has expired meanwhile: counted as broken.
  bool write(NodeId parent, NodeId node, uint32_t tail_tokens, LeaseClass lease, TimeNs start,
             std::optional<PromiseKey> key);

  /// A prefix of this namespace was to become readable whose blocks are not there any more:
  /// counted as broken.
  void lose(NodeId root) {
    ++broken_;
    listener_.on_broken(root);
  }

  /// Call before a node loses its block of the sliding group that `room` stands for: breaks the
  /// entries that need it. Cost: O(entries).
  void on_block_lost(uint32_t room, NodeId node);
  /// Call before the index removes a node (without children).
  void on_remove(NodeId node, RemoveReason reason);

  /// Every unexpired entry: its root, tokens, class and end.
  void for_each(const std::function<void(NodeId root, uint32_t tokens, LeaseClass lease,
                                         TimeNs expires)>& visit) const;

  bool leased(NodeId node) const { return lease_count(node) > 0; }
  bool leased(NodeId node, uint32_t room) const {
    return node.value < nodes_.size() && counts_[node.value * rooms() + room] > 0;
  }
  /// Nodes that an entry of `tokens` leases at most in a sliding group's room.
  uint32_t nodes_leased(uint32_t room, uint32_t tokens) const;
  uint32_t entries() const { return expiry_.size(); }
  uint64_t broken() const { return broken_; }

  /// When the first entry expires.
  std::optional<TimeNs> next_expiry() const {
    if (expiry_.empty()) return std::nullopt;
    return entries_[expiry_.top()].expires;
  }

  void check_invariants() const;
  /// Proves that every block an entry needs is there.
  void check_needed(const std::function<bool(NodeId node, uint32_t room)>& present) const;

 private:
  struct Entry {
    NodeId parent, node;
    uint32_t tail_tokens = 0;
    LeaseClass lease = LeaseClass::k5m;
    TimeNs expires = 0;
    TimeNs readable = 0;     // since
    EntryId previous, next;  // in the parent's list
  };
  struct Promise {
    NodeId root;
    uint32_t holders = 0;
    std::vector<uint32_t> nodes;  // by room
  };
  struct Share {
    uint32_t leased = 0, promised = 0;
  };

  std::size_t rooms() const { return rules_.rooms.size(); }
  uint32_t lease_count(NodeId node) const {
    return node.value < nodes_.size() ? counts_[node.value * rooms()] : 0;
  }
  EntryId first(NodeId parent) const {
    return parent.value < nodes_.size() ? nodes_[parent.value] : EntryId();
  }
  Share& share(NodeId root, std::size_t room) { return shares_[root.value * rooms() + room]; }
  uint32_t tokens(const Entry& entry) const {
    return index_.depth(entry.parent) * index_.block_tokens() + entry.tail_tokens;
  }
  /// The first block that an entry of `tokens` needs, or leases, in this room.
  uint32_t first_needed(std::size_t room, uint32_t tokens) const;
  uint32_t first_leased(std::size_t room, uint32_t tokens) const;
  void make_room_for_slots();
  bool exceeded(std::size_t room) const;
  bool exceeded(NodeId root, std::size_t room) const;
  bool fits(NodeId root, std::span<const uint32_t> nodes, const Promise* promised) const;
  void add_leases(NodeId node, uint32_t tokens);
  void drop_leases(NodeId node, uint32_t tokens);
  void add_lease(NodeId node, std::size_t room);
  void drop_lease(NodeId node, std::size_t room);
  void drop(EntryId entry);
  static uint64_t expiry_key(TimeNs expires) {
    return static_cast<uint64_t>(expires) ^ (uint64_t{1} << 63);
  }

  const PrefixIndex& index_;
  Listener& listener_;
  LeaseRules rules_;
  TimeNs now_ = INT64_MIN;
  std::vector<Entry> entries_;  // by id
  std::vector<EntryId> unused_;
  IdHeap expiry_;                           // exactly the entries, earliest expiry first
  std::vector<EntryId> nodes_;              // by node id: the first entry whose parent it is
  std::vector<uint32_t> counts_;            // [node, room]: entries that lease it
  std::vector<Share> shares_;               // [root's node id, room]
  std::vector<Share> total_;                // by room
  std::map<PromiseKey, Promise> promises_;  // ordered: no dependence on hash order
  std::vector<uint32_t> needed_;            // scratch, by room
  uint64_t broken_ = 0;
};

}  // namespace pagewise::kv
