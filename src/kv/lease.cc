// SPDX-License-Identifier: Apache-2.0
#include "kv/lease.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "kv/geometry.h"

namespace pagewise::kv {

LeaseBook::LeaseBook(const PrefixIndex& index, Listener& listener, const LeaseRules& rules)
    : index_(index),
      listener_(listener),
      rules_(rules),
      expiry_(0),
      total_(rules.rooms.size()),
      needed_(rules.rooms.size()) {
  PW_CHECK(!rules_.rooms.empty() && rules_.rooms[0].window == 0);
}

void LeaseBook::make_room_for_slots() {
  if (nodes_.size() >= index_.slots()) return;
  nodes_.resize(index_.slots());
  counts_.resize(index_.slots() * rooms());
  shares_.resize(index_.slots() * rooms());
}

uint32_t LeaseBook::first_needed(std::size_t room, uint32_t tokens) const {
  return static_cast<uint32_t>(
      first_block_held(tokens, rules_.rooms[room].window, index_.block_tokens()));
}

uint32_t LeaseBook::first_leased(std::size_t room, uint32_t tokens) const {
  const uint32_t needed = first_needed(room, tokens);
  return needed > 0 ? needed - 1 : 0;
}

uint32_t LeaseBook::nodes_leased(uint32_t room, uint32_t tokens) const {
  return static_cast<uint32_t>(ceil_div(tokens, index_.block_tokens())) -
         first_leased(room, tokens);
}

void LeaseBook::set_time(TimeNs now) {
  now_ = std::max(now_, now);
  while (!expiry_.empty() && entries_[expiry_.top()].expires <= now_) drop(EntryId(expiry_.top()));
}

EntryId LeaseBook::find(NodeId parent, std::span<const TokenId> tail) const {
  for (EntryId id = first(parent); id.valid(); id = entries_[id.value].next) {
    const Entry& entry = entries_[id.value];
    if (entry.tail_tokens == tail.size() &&
        common_tokens(index_.tokens(entry.node), tail) == tail.size())
      return id;
    // With an empty tail the node is the parent itself, and both lengths are 0.
  }
  return EntryId();
}

std::optional<StandingLease> LeaseBook::longest(NodeId root, std::span<const NodeId> path,
                                                std::span<const TokenId> tokens, TimeNs now) const {
  for (std::size_t depth = path.size() + 1; depth-- > 0;) {
    const auto behind = tokens.subspan(depth * index_.block_tokens());
    std::optional<StandingLease> found;
    for (EntryId id = first(depth == 0 ? root : path[depth - 1]); id.valid();
         id = entries_[id.value].next) {
      const Entry& entry = entries_[id.value];
      if (entry.expires <= now || entry.tail_tokens > behind.size()) continue;
      // With an empty tail the node is the parent itself.
      if (entry.tail_tokens > 0 &&
          common_tokens(index_.tokens(entry.node), behind) < entry.tail_tokens)
        continue;
      const uint32_t length = this->tokens(entry);
      if (!found || length > found->tokens)
        found = StandingLease{length, entry.lease, entry.expires};
    }
    if (found) return found;
  }
  return std::nullopt;
}

void LeaseBook::refresh(EntryId id, LeaseClass lease, TimeNs start) {
  Entry& entry = entries_[id.value];
  entry.lease = std::max(entry.lease, lease);
  entry.expires = std::max(entry.expires, start + lifetime_ns(entry.lease));
  expiry_.set_key(id.value, expiry_key(entry.expires));
}

bool LeaseBook::exceeded(std::size_t room) const {
  const Share& all = total_[room];
  return uint64_t{all.leased} + all.promised > rules_.rooms[room].nodes_max;
}

bool LeaseBook::exceeded(NodeId root, std::size_t room) const {
  const Share& mine = shares_[root.value * rooms() + room];
  return uint64_t{mine.leased} + mine.promised > rules_.rooms[room].nodes_max_namespace;
}

bool LeaseBook::set_limits(std::span<const LeaseRoom> given) {
  PW_CHECK(given.size() == rooms());
  for (std::size_t room = 0; room < rooms(); ++room) {
    PW_CHECK(given[room].window == rules_.rooms[room].window);
    rules_.rooms[room] = given[room];
  }
  make_room_for_slots();
  std::vector<uint32_t> ids;
  for (uint32_t id = 0; id < entries_.size(); ++id) {
    if (expiry_.contains(id)) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end(), [&](uint32_t a, uint32_t b) {
    return std::pair(expiry_.key(a), a) < std::pair(expiry_.key(b), b);
  });
  for (const uint32_t id : ids) {
    const NodeId root = index_.root(entries_[id].node);
    bool too_many = false;
    for (std::size_t room = 0; room < rooms(); ++room)
      too_many |= exceeded(room) || exceeded(root, room);
    if (!too_many) continue;
    drop(EntryId(id));
    lose(root);
  }
  for (std::size_t room = 0; room < rooms(); ++room) {
    if (exceeded(room)) return false;
    for (uint32_t slot = 0; slot * rooms() < shares_.size(); ++slot) {
      if (exceeded(NodeId(slot), room)) return false;
    }
  }
  return true;
}

bool LeaseBook::fits(NodeId root, std::span<const uint32_t> nodes, const Promise* promised) const {
  for (std::size_t room = 0; room < rooms(); ++room) {
    if (nodes[room] == 0) continue;
    const uint32_t counted = promised ? promised->nodes[room] : 0;
    const Share& mine = shares_[root.value * rooms() + room];
    const Share& all = total_[room];
    if (uint64_t{all.leased} + all.promised - counted + nodes[room] > rules_.rooms[room].nodes_max)
      return false;
    if (uint64_t{mine.leased} + mine.promised - counted + nodes[room] >
        rules_.rooms[room].nodes_max_namespace)
      return false;
  }
  return true;
}

bool LeaseBook::promise(PromiseKey key, NodeId root, std::span<const uint32_t> nodes) {
  make_room_for_slots();
  auto found = promises_.find(key);
  if (found == promises_.end()) {
    if (!fits(root, nodes, nullptr)) return false;
    found = promises_.emplace(key, Promise{root, 0, {nodes.begin(), nodes.end()}}).first;
    for (std::size_t room = 0; room < rooms(); ++room) {
      total_[room].promised += nodes[room];
      share(root, room).promised += nodes[room];
    }
  }
  ++found->second.holders;
  return true;
}

void LeaseBook::withdraw(PromiseKey key) {
  const auto found = promises_.find(key);
  PW_CHECK(found != promises_.end());
  Promise& promise = found->second;
  if (--promise.holders > 0) return;
  for (std::size_t room = 0; room < rooms(); ++room) {
    total_[room].promised -= promise.nodes[room];
    share(promise.root, room).promised -= promise.nodes[room];
  }
  promises_.erase(found);
}

bool LeaseBook::write(NodeId parent, NodeId node, uint32_t tail_tokens, LeaseClass lease,
                      TimeNs start, std::optional<PromiseKey> key) {
  PW_CHECK(tail_tokens == 0 ? node == parent : index_.parent(node) == parent);
  PW_CHECK(!index_.is_root(node) && tail_tokens <= index_.tokens(node).size());
  make_room_for_slots();
  const EntryId equal = find(parent, index_.tokens(node).first(tail_tokens));
  if (equal.valid()) {
    refresh(equal, lease, start);
    return true;
  }
  const uint32_t end =
      (index_.depth(node) - (tail_tokens > 0 ? 1 : 0)) * index_.block_tokens() + tail_tokens;
  std::fill(needed_.begin(), needed_.end(), 0);
  for (NodeId at = node; !index_.is_root(at); at = index_.parent(at)) {
    for (std::size_t room = 0; room < rooms(); ++room) {
      if (index_.depth(at) > first_leased(room, end)) needed_[room] += !leased(at, room);
    }
  }
  Promise* promise = key ? &promises_.at(*key) : nullptr;
  if (!fits(index_.root(node), needed_, promise)) {
    lose(index_.root(node));
    return false;
  }
  if (promise) {
    for (std::size_t room = 0; room < rooms(); ++room) {
      const uint32_t used = std::min(needed_[room], promise->nodes[room]);
      promise->nodes[room] -= used;
      total_[room].promised -= used;
      share(promise->root, room).promised -= used;
    }
  }
  if (unused_.empty()) {
    unused_.emplace_back(static_cast<uint32_t>(entries_.size()));
    entries_.emplace_back();
    expiry_.grow(static_cast<uint32_t>(entries_.size()));
  }
  const EntryId id = unused_.back();
  unused_.pop_back();
  Entry& entry = entries_[id.value];
  const TimeNs expires = start + lifetime_ns(lease);
  entry = {parent, node, tail_tokens, lease, expires, now_, EntryId(), nodes_[parent.value]};
  if (entry.next.valid()) entries_[entry.next.value].previous = id;
  nodes_[parent.value] = id;
  expiry_.push(id.value, expiry_key(expires));
  add_leases(node, end);
  return true;
}

void LeaseBook::add_leases(NodeId node, uint32_t tokens) {
  for (NodeId at = node; !index_.is_root(at); at = index_.parent(at)) add_lease(at, 0);
  for (std::size_t room = 1; room < rooms(); ++room) {
    const uint32_t first = first_leased(room, tokens);
    for (NodeId at = node; index_.depth(at) > first; at = index_.parent(at)) add_lease(at, room);
  }
}

void LeaseBook::drop_leases(NodeId node, uint32_t tokens) {
  for (NodeId at = node; !index_.is_root(at); at = index_.parent(at)) drop_lease(at, 0);
  for (std::size_t room = 1; room < rooms(); ++room) {
    const uint32_t first = first_leased(room, tokens);
    for (NodeId at = node; index_.depth(at) > first; at = index_.parent(at)) drop_lease(at, room);
  }
}

void LeaseBook::add_lease(NodeId node, std::size_t room) {
  if (counts_[node.value * rooms() + room]++ > 0) return;
  ++total_[room].leased;
  ++share(index_.root(node), room).leased;
  listener_.on_leased(node, static_cast<uint32_t>(room), true);
}

void LeaseBook::drop_lease(NodeId node, std::size_t room) {
  PW_CHECK(leased(node, static_cast<uint32_t>(room)));
  if (--counts_[node.value * rooms() + room] > 0) return;
  --total_[room].leased;
  --share(index_.root(node), room).leased;
  listener_.on_leased(node, static_cast<uint32_t>(room), false);
}

void LeaseBook::drop(EntryId id) {
  const Entry entry = entries_[id.value];
  drop_leases(entry.node, tokens(entry));
  if (entry.previous.valid()) {
    entries_[entry.previous.value].next = entry.next;
  } else {
    nodes_[entry.parent.value] = entry.next;
  }
  if (entry.next.valid()) entries_[entry.next.value].previous = entry.previous;
  expiry_.erase(id.value);
  unused_.push_back(id);
}

void LeaseBook::on_block_lost(uint32_t room, NodeId node) {
  if (!leased(node, room)) return;
  for (uint32_t id = 0; id < entries_.size(); ++id) {
    if (!expiry_.contains(id)) continue;
    const Entry& entry = entries_[id];
    if (index_.depth(node) <= first_needed(room, tokens(entry))) continue;
    NodeId at = entry.node;
    while (index_.depth(at) > index_.depth(node)) at = index_.parent(at);
    if (at != node) continue;
    drop(EntryId(id));
    lose(index_.root(node));
  }
}

void LeaseBook::on_remove(NodeId node, RemoveReason reason) {
  if (!leased(node)) return;
  make_room_for_slots();  // an heir may be newer than the last entry
  const auto lose_entry = [&](EntryId id) {
    drop(id);
    if (reason == RemoveReason::kEvicted) lose(index_.root(node));
  };
  while (first(node).valid()) lose_entry(first(node));  // they end with this block
  const NodeId parent = index_.parent(node);
  const PrefixIndex::Neighbours beside = index_.neighbours(node);
  for (EntryId id = first(parent), next; id.valid() && leased(node); id = next) {
    Entry& entry = entries_[id.value];
    next = entry.next;
    if (entry.node != node || entry.tail_tokens == 0) continue;
    const std::span<const TokenId> tail = index_.tokens(node).first(entry.tail_tokens);
    NodeId heir;
    for (NodeId sibling : {beside.before, beside.after}) {
      if (sibling.valid() && common_tokens(index_.tokens(sibling), tail) == tail.size() &&
          listener_.complete(sibling))
        heir = sibling;
    }
    if (heir.valid() && reason != RemoveReason::kCleared) {
      for (std::size_t room = 0; room < rooms(); ++room) {
        drop_lease(node, room);
        add_lease(heir, room);
      }
      entry.node = heir;
    } else {
      lose_entry(id);
    }
  }
  PW_CHECK(!leased(node));
}

void LeaseBook::for_each(
    const std::function<void(NodeId, uint32_t, LeaseClass, TimeNs)>& visit) const {
  for (uint32_t id = 0; id < entries_.size(); ++id) {
    if (!expiry_.contains(id)) continue;
    const Entry& entry = entries_[id];
    visit(index_.root(entry.node), tokens(entry), entry.lease, entry.expires);
  }
}

void LeaseBook::check_invariants() const {
  std::vector<uint32_t> counts(counts_.size(), 0);
  std::vector<Share> shares(shares_.size()), total(rooms());
  uint32_t listed = 0;
  for (uint32_t slot = 0; slot < nodes_.size(); ++slot) {
    EntryId previous;
    for (EntryId id = nodes_[slot]; id.valid(); id = entries_[id.value].next) {
      const Entry& entry = entries_[id.value];
      PW_CHECK(entry.parent == NodeId(slot) && entry.previous == previous &&
               expiry_.contains(id.value));
      PW_CHECK(entry.expires > now_ && expiry_.key(id.value) == expiry_key(entry.expires));
      PW_CHECK(index_.used(entry.node) && entry.tail_tokens <= index_.tokens(entry.node).size());
      PW_CHECK(entry.tail_tokens == 0 ? entry.node == entry.parent
                                      : index_.parent(entry.node) == entry.parent);
      for (std::size_t room = 0; room < rooms(); ++room) {
        const uint32_t first = first_leased(room, tokens(entry));
        for (NodeId at = entry.node; index_.depth(at) > first; at = index_.parent(at))
          ++counts[at.value * rooms() + room];
      }
      previous = id;
      ++listed;
    }
  }
  PW_CHECK(listed == expiry_.size());
  for (uint32_t slot = 0; slot < nodes_.size(); ++slot) {
    for (std::size_t room = 0; room < rooms(); ++room) {
      PW_CHECK(counts_[slot * rooms() + room] == counts[slot * rooms() + room]);
      if (counts[slot * rooms() + room] == 0) continue;
      ++total[room].leased;
      ++shares[index_.root(NodeId(slot)).value * rooms() + room].leased;
    }
  }
  for (const auto& [key, promise] : promises_) {
    PW_CHECK(promise.holders > 0);
    for (std::size_t room = 0; room < rooms(); ++room) {
      total[room].promised += promise.nodes[room];
      shares[promise.root.value * rooms() + room].promised += promise.nodes[room];
    }
  }
  for (std::size_t room = 0; room < rooms(); ++room) {
    PW_CHECK(total[room].leased == total_[room].leased &&
             total[room].promised == total_[room].promised);
    PW_CHECK(uint64_t{total[room].leased} + total[room].promised <= rules_.rooms[room].nodes_max);
  }
  for (std::size_t i = 0; i < shares_.size(); ++i) {
    PW_CHECK(shares[i].leased == shares_[i].leased && shares[i].promised == shares_[i].promised);
    PW_CHECK(uint64_t{shares[i].leased} + shares[i].promised <=
             rules_.rooms[i % rooms()].nodes_max_namespace);
  }
}

void LeaseBook::check_needed(const std::function<bool(NodeId, uint32_t room)>& present) const {
  for (uint32_t id = 0; id < entries_.size(); ++id) {
    if (!expiry_.contains(id)) continue;
    const Entry& entry = entries_[id];
    for (std::size_t room = 0; room < rooms(); ++room) {
      const uint32_t first = first_needed(room, tokens(entry));
      for (NodeId at = entry.node; index_.depth(at) > first; at = index_.parent(at))
        PW_CHECK(present(at, static_cast<uint32_t>(room)));
    }
  }
}

}  // namespace pagewise::kv
