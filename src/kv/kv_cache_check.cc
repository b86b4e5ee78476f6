// SPDX-License-Identifier: Apache-2.0
// Every structure held against every other.
#include <algorithm>
#include <map>
#include <vector>

#include "base/check.h"
#include "kv/kv_cache_impl.h"

namespace pagewise::kv {

/// A block counts for its namespace's quota, and nobody who has cached blocks is beyond his
/// ceiling.
void KvCache::Impl::check_quotas() const {
  for (uint32_t g = 0; g < groups(); ++g) {
    const BlockPool& pool = pools[g];
    uint64_t floors = 0;
    for (uint32_t q = 1; q <= config.quotas.size(); ++q) {
      PW_CHECK(!pool.exceeds_ceiling(QuotaId(q)));
      floors += pool.floor(QuotaId(q));
    }
    PW_CHECK(floors <= pool.capacity());
    for (uint32_t id = 0; id < pool.ids(); ++id) {
      const NodeId node = index.owner(g, BlockId(id));
      if (!node.valid()) continue;
      const Namespaces::value_type& space = *space_of_root[index.root(node).value];
      PW_CHECK(space.second.quota == quota_of(space.first));
      PW_CHECK(pool.quota(BlockId(id)) == space.second.quota);
    }
    for (const Sequence& sequence : sequences) {
      for (const BlockId block : sequence.tables.group(g))
        PW_CHECK(!block.valid() || pool.quota(block) == sequence.quota);
    }
  }
}

void KvCache::Impl::check_invariants() const {
  index.check_invariants();
  leases.check_invariants();
  check_quotas();
  std::map<const Namespaces::value_type*, uint32_t> open_in;
  uint32_t open = 0;
  for (const Sequence& sequence : sequences) {
    open += sequence.open;
    if (sequence.open && sequence.space) ++open_in[sequence.space];
  }
  PW_CHECK(open == sequences_open);
  for (const Namespaces::value_type& space : namespaces) {
    const auto found = open_in.find(&space);
    PW_CHECK(space.second.sequences == (found == open_in.end() ? 0 : found->second));
    PW_CHECK(space.second.sequences > 0 || !index.children(space.second.root).empty());
    PW_CHECK(space_of_root[space.second.root.value] == &space);
  }
  for (const Sequence& sequence : sequences) {
    if (!sequence.open || !enters_cache(sequence)) continue;
    PW_CHECK(index.used(sequence.tail) && index.depth(sequence.tail) == sequence.full);
    PW_CHECK(index.root(sequence.tail) == sequence.space->second.root);
  }
  leases.check_needed([&](NodeId node, uint32_t room) {
    for (uint32_t g = 0; g < groups(); ++g) {
      if (room_of[g] == room && !index.block(node, g).valid()) return false;
    }
    return true;
  });
  for (uint32_t slot = 0; slot < index.slots(); ++slot) check_node(NodeId(slot));
  for (uint32_t g = 0; g < groups(); ++g) {
    const BlockPool& pool = pools[g];
    pool.check_invariants();
    std::vector<uint32_t> holders(pool.ids(), 0);
    for (const Sequence& sequence : sequences) {
      PW_CHECK(sequence.open || sequence.tables.size(g) == 0);
      PW_CHECK(blocks_for(sequence.computed) <= sequence.tables.size(g));
      PW_CHECK(sequence.tables.first_held(g) == first_held(g, sequence.computed));
      for (uint32_t i = 0; i < sequence.tables.size(g); ++i) {
        const BlockId block = sequence.tables.at(g, i);
        PW_CHECK(block.valid() == (i >= sequence.tables.first_held(g)));
        if (block.valid()) ++holders[block.value];
      }
    }
    for (uint32_t id = 0; id < pool.ids(); ++id) {
      const BlockId block(id);
      const NodeId node = index.owner(g, block);
      PW_CHECK(pool.holders(block) == holders[id]);
      PW_CHECK(pool.findable(block) == node.valid());
      if (!node.valid()) continue;
      PW_CHECK(pool.leased(block) == leases.leased(node, room_of[g]));
      if (is_sliding(g)) continue;
      const NodeId parent = index.parent(node);
      if (index.is_root(parent)) continue;
      PW_CHECK(!leases.leased(node) || leases.leased(parent));
      const BlockId above = index.block(parent, g);
      // A prefix is eaten from its tail: no block is given up while a cached one behind it stays.
      if (pool.is_cached(block) && pool.is_cached(above))
        PW_CHECK(pool.evicts_before(block, above));
    }
  }
}

/// Every full group has its block of every node; without full groups, a node without blocks has
/// something behind it.
void KvCache::Impl::check_node(NodeId node) const {
  if (!index.used(node) || index.is_root(node)) return;
  bool any = false;
  for (uint32_t g = 0; g < groups(); ++g) {
    any |= index.block(node, g).valid();
    PW_CHECK(is_sliding(g) || index.block(node, g).valid());
  }
  PW_CHECK(any || !index.children(node).empty() ||
           std::any_of(sequences.begin(), sequences.end(), [&](const Sequence& sequence) {
             return sequence.open && enters_cache(sequence) && sequence.tail == node;
           }));
}

}  // namespace pagewise::kv
