// SPDX-License-Identifier: Apache-2.0
#include "kv/lease.h"

#include <algorithm>

#include "base/check.h"

namespace pagewise::kv {

LeaseBook::LeaseBook(const PrefixIndex& index, Listener& listener, const LeaseRules& rules)
    : index_(index), listener_(listener), rules_(rules), expiry_(0) {}

void LeaseBook::make_room_for_slots() {
  if (nodes_.size() >= index_.slots()) return;
  nodes_.resize(index_.slots());
  roots_.resize(index_.slots());
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

void LeaseBook::refresh(EntryId id, LeaseClass lease, TimeNs start) {
  Entry& entry = entries_[id.value];
  entry.lease = std::max(entry.lease, lease);
  entry.expires = std::max(entry.expires, start + lifetime_ns(entry.lease));
  expiry_.set_key(id.value, expiry_key(entry.expires));
}

bool LeaseBook::fits(NodeId root, uint32_t nodes, uint32_t already_promised) const {
  const RootShare& share = roots_[root.value];
  const uint64_t all = uint64_t{leased_nodes_} + promised_nodes_ - already_promised + nodes;
  const uint64_t mine = uint64_t{share.leased} + share.promised - already_promised + nodes;
  return all <= rules_.nodes_max && mine <= rules_.nodes_max_namespace;
}

bool LeaseBook::promise(PromiseKey key, NodeId root, uint32_t nodes) {
  make_room_for_slots();
  auto found = promises_.find(key);
  if (found == promises_.end()) {
    if (!fits(root, nodes, 0)) return false;
    found = promises_.emplace(key, Promise{root, 0, nodes}).first;
    promised_nodes_ += nodes;
    roots_[root.value].promised += nodes;
  }
  ++found->second.holders;
  return true;
}

void LeaseBook::withdraw(PromiseKey key) {
  const auto found = promises_.find(key);
  PW_CHECK(found != promises_.end());
  Promise& promise = found->second;
  if (--promise.holders > 0) return;
  promised_nodes_ -= promise.nodes;
  roots_[promise.root.value].promised -= promise.nodes;
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
  uint32_t needed = 0;
  for (NodeId at = node; !index_.is_root(at) && !leased(at); at = index_.parent(at)) ++needed;
  Promise* promise = key ? &promises_.at(*key) : nullptr;
  if (needed > 0 && !fits(index_.root(node), needed, promise ? promise->nodes : 0)) {
    ++broken_;
    return false;
  }
  if (promise) {
    const uint32_t used = std::min(needed, promise->nodes);
    promise->nodes -= used;
    promised_nodes_ -= used;
    roots_[promise->root.value].promised -= used;
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
  entry = {parent, node, tail_tokens, lease, expires, EntryId(), nodes_[parent.value].first};
  if (entry.next.valid()) entries_[entry.next.value].previous = id;
  nodes_[parent.value].first = id;
  expiry_.push(id.value, expiry_key(expires));
  for (NodeId at = node; !index_.is_root(at); at = index_.parent(at)) add_lease(at);
  return true;
}

void LeaseBook::add_lease(NodeId node) {
  if (nodes_[node.value].count++ > 0) return;
  ++leased_nodes_;
  ++roots_[index_.root(node).value].leased;
  listener_.on_leased(node, true);
}

void LeaseBook::drop_lease(NodeId node) {
  PW_CHECK(leased(node));
  if (--nodes_[node.value].count > 0) return;
  --leased_nodes_;
  --roots_[index_.root(node).value].leased;
  listener_.on_leased(node, false);
}

void LeaseBook::drop(EntryId id) {
  const Entry entry = entries_[id.value];
  for (NodeId at = entry.node; !index_.is_root(at); at = index_.parent(at)) drop_lease(at);
  if (entry.previous.valid()) {
    entries_[entry.previous.value].next = entry.next;
  } else {
    nodes_[entry.parent.value].first = entry.next;
  }
  if (entry.next.valid()) entries_[entry.next.value].previous = entry.previous;
  expiry_.erase(id.value);
  unused_.push_back(id);
}

void LeaseBook::on_remove(NodeId node, RemoveReason reason) {
  if (!leased(node)) return;
  make_room_for_slots();  // an heir may be newer than the last entry
  const auto lose = [&](EntryId id) {
    drop(id);
    if (reason == RemoveReason::kEvicted) ++broken_;
  };
  while (first(node).valid()) lose(first(node));  // they end with this block
  const NodeId parent = index_.parent(node);
  const PrefixIndex::Neighbours beside = index_.neighbours(node);
  for (EntryId id = first(parent), next; id.valid() && leased(node); id = next) {
    Entry& entry = entries_[id.value];
    next = entry.next;
    if (entry.node != node || entry.tail_tokens == 0) continue;
    const std::span<const TokenId> tail = index_.tokens(node).first(entry.tail_tokens);
    NodeId heir;
    for (NodeId sibling : {beside.before, beside.after}) {
      if (sibling.valid() && common_tokens(index_.tokens(sibling), tail) == tail.size())
        heir = sibling;
    }
    if (heir.valid() && reason != RemoveReason::kCleared) {
      drop_lease(node);
      entry.node = heir;
      add_lease(heir);
    } else {
      lose(id);
    }
  }
  PW_CHECK(!leased(node));
}

void LeaseBook::check_invariants() const {
  std::vector<uint32_t> counts(nodes_.size(), 0);
  std::vector<RootShare> shares(roots_.size());
  uint32_t listed = 0, promised = 0, leased_count = 0;
  for (uint32_t slot = 0; slot < nodes_.size(); ++slot) {
    EntryId previous;
    for (EntryId id = nodes_[slot].first; id.valid(); id = entries_[id.value].next) {
      const Entry& entry = entries_[id.value];
      PW_CHECK(entry.parent == NodeId(slot) && entry.previous == previous &&
               expiry_.contains(id.value));
      PW_CHECK(entry.expires > now_ && expiry_.key(id.value) == expiry_key(entry.expires));
      PW_CHECK(index_.used(entry.node) && entry.tail_tokens <= index_.tokens(entry.node).size());
      PW_CHECK(entry.tail_tokens == 0 ? entry.node == entry.parent
                                      : index_.parent(entry.node) == entry.parent);
      for (NodeId at = entry.node; !index_.is_root(at); at = index_.parent(at)) ++counts[at.value];
      previous = id;
      ++listed;
    }
  }
  PW_CHECK(listed == expiry_.size());
  for (uint32_t slot = 0; slot < nodes_.size(); ++slot) {
    PW_CHECK(nodes_[slot].count == counts[slot]);
    if (counts[slot] == 0) continue;
    ++leased_count;
    ++shares[index_.root(NodeId(slot)).value].leased;
  }
  for (const auto& [key, promise] : promises_) {
    PW_CHECK(promise.holders > 0);
    promised += promise.nodes;
    shares[promise.root.value].promised += promise.nodes;
  }
  PW_CHECK(leased_count == leased_nodes_ && promised == promised_nodes_);
  PW_CHECK(leased_nodes_ + promised_nodes_ <= rules_.nodes_max);
  for (uint32_t slot = 0; slot < roots_.size(); ++slot) {
    PW_CHECK(shares[slot].leased == roots_[slot].leased &&
             shares[slot].promised == roots_[slot].promised);
    PW_CHECK(shares[slot].leased + shares[slot].promised <= rules_.nodes_max_namespace);
  }
}

}  // namespace pagewise::kv
