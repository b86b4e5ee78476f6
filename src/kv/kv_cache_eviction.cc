// SPDX-License-Identifier: Apache-2.0
// Which node names which block, what is given up to make room, and whose room it is.
#include <algorithm>
#include <string>

#include "base/check.h"
#include "base/hash.h"
#include "kv/kv_cache_impl.h"

namespace pagewise::kv {

void KvCache::Impl::on_leased(NodeId node, uint32_t room, bool leased) {
  for (uint32_t g = 0; g < groups(); ++g) {
    if (room_of[g] != room || !index.block(node, g).valid()) continue;
    pools[g].set_leased(index.block(node, g), leased);
  }
}

void KvCache::Impl::on_broken(NodeId root) {
  const std::string_view top = top_namespace(space_of_root[root.value]->first);
  auto found = leases_broken.find(top);
  if (found == leases_broken.end()) found = leases_broken.emplace(top, 0).first;
  ++found->second;
}

bool KvCache::Impl::complete(NodeId node) const {
  for (uint32_t g = 0; g < groups(); ++g) {
    if (!index.block(node, g).valid()) return false;
  }
  return true;
}

/// The node names this block from now on. Requires: live, not findable; the node has none.
void KvCache::Impl::attach(NodeId node, uint32_t g, BlockId block) {
  pools[g].set_findable(block);
  index.set_block(node, g, block);
  if (leases.leased(node, room_of[g])) pools[g].set_leased(block, true);
}

/// The node names no block any more; it stays live where held, else becomes free.
void KvCache::Impl::detach(NodeId node, uint32_t g) {
  pools[g].clear_findable(index.block(node, g));
  index.set_block(node, g, BlockId());
}

/// Takes a node without children out of the index. Its blocks stay live where held, else become
/// free.
void KvCache::Impl::remove_node(NodeId node, RemoveReason reason) {
  leases.on_remove(node, reason);
  for (uint32_t g = 0; g < groups(); ++g) {
    const BlockId block = index.block(node, g);
    if (!block.valid()) continue;
    if (reason == RemoveReason::kEvicted && pools[g].is_cached(block)) ++counters.evictions;
    pools[g].clear_findable(block);
  }
  index.remove(node);
}

/// Frees a cached block: a twin of it takes its place in the index, or its contents are given up.
/// Behind a sliding window only the block goes; a full group's takes the node along.
void KvCache::Impl::evict(uint32_t g, BlockId victim, EvictReason reason) {
  const NodeId node = index.owner(g, victim);
  pools[g].expect(index.digest(node));
  if (hand_over(node, g)) return;
  // What a ceiling takes says nothing about what the pool should have kept.
  if (reason == EvictReason::kRoom && index.is_full(node))
    pools[g].remember(victim, index.digest(node));
  if (is_sliding(g)) {
    leases.on_block_lost(room_of[g], node);
    ++counters.evictions;
    detach(node, g);
    prune(node);
    return;
  }
  // Cached blocks go before those in front of them, and live ones behind a cached one imply a
  // twin of it.
  PW_CHECK(index.children(node).empty());
  Namespaces::value_type& space = *space_of_root[index.root(node).value];
  remove_node(node, RemoveReason::kEvicted);
  forget_if_empty(space);
}

/// Without full groups a node may have lost its last block: it goes when nothing is behind it.
void KvCache::Impl::prune(NodeId node) {
  if (has_full) return;
  Namespaces::value_type& space = *space_of_root[index.root(node).value];
  const auto useless = [&](NodeId at) {
    if (index.is_root(at) || !index.children(at).empty()) return false;
    for (uint32_t g = 0; g < groups(); ++g) {
      if (index.block(at, g).valid()) return false;
    }
    return std::none_of(sequences.begin(), sequences.end(), [&](const Sequence& sequence) {
      return sequence.open && enters_cache(sequence) && sequence.tail == at;
    });
  };
  while (useless(node)) {
    const NodeId parent = index.parent(node);
    remove_node(node, RemoveReason::kEvicted);
    node = parent;
  }
  forget_if_empty(space);
}

/// An open sequence that published through this node and holds another block than the node's has
/// computed a twin of it. Then nothing is lost: the twin becomes the findable one (for a full
/// group's block, all full groups' twins do). False when there is none. Cost: O(open sequences),
/// and their depth in the rare case that the node has children; behind a window only the depth
/// of the window.
bool KvCache::Impl::hand_over(NodeId node, uint32_t g) {
  const bool is_leaf = index.children(node).empty();
  const uint32_t i = index.depth(node) - 1;
  for (const Sequence& sequence : sequences) {
    if (!sequence.open || !enters_cache(sequence) || sequence.full <= i) continue;
    if (i < sequence.tables.first_held(g)) continue;
    NodeId at = sequence.tail;
    while (!is_leaf && index.depth(at) > i + 1) at = index.parent(at);
    if (at != node) continue;
    for (uint32_t h = 0; h < groups(); ++h) {
      if (is_sliding(g) ? h == g : !is_sliding(h)) swap(node, h, sequence.tables.at(h, i));
    }
    return true;
  }
  return false;
}

/// The node's block gives its place to an equal one. Requires: that one is live and not findable.
void KvCache::Impl::swap(NodeId node, uint32_t g, BlockId block) {
  BlockPool& pool = pools[g];
  const BlockId old_block = index.block(node, g);
  const bool reused = pool.reused(old_block), kept = pool.kept(old_block);
  detach(node, g);
  attach(node, g, block);
  if (reused) pool.mark_reused(block);
  if (kept) pool.keep(block);
}

/// A namespace without nodes and sequences is forgotten: salts may be many.
void KvCache::Impl::forget_if_empty(Namespaces::value_type& space) {
  if (space.second.sequences > 0 || !index.children(space.second.root).empty()) return;
  space_of_root[space.second.root.value] = nullptr;
  index.remove_root(space.second.root);
  namespaces.erase(namespaces.find(space.first));
}

/// The cached block that is given up next for the taker; below somebody's floor only when nothing
/// else is left. Requires: one is cached.
void KvCache::Impl::give_up_one(uint32_t g, const Taker& taker) {
  const BlockPool& pool = pools[g];
  BlockId victim = pool.victim_for(taker.quota);
  if (!victim.valid()) {
    victim = pool.victim();
    PW_CHECK(victim.valid() && taker.alone);
    ++counters.evictions_below_floor;
  }
  evict(g, victim, EvictReason::kRoom);
}

/// Beyond its ceiling a quota's own cached blocks go, as far as there are any.
void KvCache::Impl::keep_to_ceiling(QuotaId quota) {
  if (quota == kNoQuota) return;
  for (uint32_t g = 0; g < groups(); ++g) keep_to_ceiling(g, quota, 0);
}

/// With room for `more` blocks.
void KvCache::Impl::keep_to_ceiling(uint32_t g, QuotaId quota, uint32_t more) {
  while (pools[g].exceeds_ceiling(quota, more)) {
    ++counters.evictions_ceiling;
    evict(g, pools[g].victim_of(quota), EvictReason::kCeiling);
  }
}

/// A free block of group g, made by eviction if need be. Requires: available(g, taker) > 0.
BlockId KvCache::Impl::take(uint32_t g, const Taker& taker, Orders& orders) {
  keep_to_ceiling(g, taker.quota, 1);
  if (pools[g].free() == 0) give_up_one(g, taker);
  const BlockId block = pools[g].take(taker.quota);
  orders.fresh.push_back({g, block});
  return block;
}

Namespaces::value_type& KvCache::Impl::open_namespace(std::string_view name) {
  const auto found = namespaces.find(name);
  if (found != namespaces.end()) return *found;
  Namespaces::value_type& space = *namespaces.emplace(std::string(name), Namespace{}).first;
  space.second.root = index.add_root(root_digest(name));
  if (space_of_root.size() < index.slots()) space_of_root.resize(index.slots(), nullptr);
  space_of_root[space.second.root.value] = &space;
  space.second.quota = quota_of(name);
  if (!config.quotas.empty()) leases.set_quota(space.second.root, space.second.quota);
  return space;
}

/// Another one after each clear, so that the policy does not recognise what was forgotten.
uint64_t KvCache::Impl::root_digest(std::string_view name) const {
  return xxh3(std::as_bytes(std::span(name)), clears);
}

QuotaId KvCache::Impl::quota_of(std::string_view name) const {
  const auto found = quota_by_name.find(top_namespace(name));
  return found == quota_by_name.end() ? kNoQuota : QuotaId(found->second);
}

}  // namespace pagewise::kv
