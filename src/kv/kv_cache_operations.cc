// SPDX-License-Identifier: Apache-2.0
// What operators ask of a cache in use: another size, to forget, who uses what.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/check.h"
#include "kv/kv_cache_impl.h"

namespace pagewise::kv {

Status KvCache::Impl::check_resize(std::span<const uint32_t> blocks) const {
  PW_CHECK(blocks.size() == groups());
  std::vector<CacheGroup> after = config.groups;
  for (uint32_t g = 0; g < groups(); ++g) after[g].blocks = blocks[g];
  for (uint32_t g = 0; g < groups(); ++g) {
    if (blocks[g] == 0) {
      return {ErrorCode::kInvalidArgument, "a layer group would have no KV block"};
    }
    if (pools[g].live() > blocks[g]) {
      return {ErrorCode::kPoolExhausted, std::to_string(pools[g].live()) +
                                             " KV blocks are in use, " + std::to_string(blocks[g]) +
                                             " would be left of " +
                                             std::to_string(pools[g].capacity())};
    }
  }
  return check_floors(config.quotas, after);
}

void KvCache::Impl::resize(std::span<const uint32_t> blocks, std::vector<FreshBlock>& dropped) {
  for (uint32_t g = 0; g < groups(); ++g) config.groups[g].blocks = blocks[g];
  set_quota_limits();
  const std::vector<LeaseRoom> rooms = lease_rules(config).rooms;
  for (Sequence& sequence : sequences) {
    if (leases.set_limits(rooms)) break;
    if (!sequence.open || !sequence.promise) continue;
    for (std::size_t i = 0; i < sequence.pending.size(); ++i)
      leases.lose(sequence.space->second.root);
    drop_promises(sequence);
  }
  PW_CHECK(leases.set_limits(rooms));
  for (uint32_t g = 0; g < groups(); ++g) {
    while (pools[g].capacity() - pools[g].free() > blocks[g]) give_up_one(g, {kNoQuota, true});
    dropped_scratch.clear();
    pools[g].resize(blocks[g], dropped_scratch);
    for (const BlockId block : dropped_scratch) dropped.push_back({g, block});
    index.grow(g, pools[g].ids());
  }
  for (uint32_t q = 0; q < config.quotas.size(); ++q) keep_to_ceiling(QuotaId(q + 1));
}

uint32_t KvCache::Impl::clear(std::optional<std::string_view> name) {
  uint32_t before = 0, after = 0;
  ++clears;
  for (const BlockPool& pool : pools) before += pool.free();
  for (auto next = namespaces.begin(); next != namespaces.end();) {
    Namespaces::value_type& space = *next++;  // forget_if_empty may erase it
    if (name && !is_within(space.first, *name)) continue;
    const NodeId root = space.second.root;
    for (NodeId at = root; at != root || !index.children(root).empty();) {
      while (!index.children(at).empty()) at = index.children(at).back();
      const NodeId leaf = std::exchange(at, index.parent(at));
      remove_node(leaf, RemoveReason::kCleared);
    }
    ++space.second.epoch;
    index.set_root_digest(root, root_digest(space.first));
    forget_if_empty(space);
  }
  for (const BlockPool& pool : pools) after += pool.free();
  return after - before;
}

/// Whether a namespace is `name` or below it.
bool KvCache::Impl::is_within(std::string_view space, std::string_view name) {
  return space.starts_with(name) && (space.size() == name.size() || space[name.size()] == '/');
}

std::vector<NamespaceUse> KvCache::Impl::uses() const {
  std::map<NodeId, NamespaceUse> by_root;
  for (const auto& [name, space] : namespaces) by_root[space.root].name = name;
  for (uint32_t slot = 0; slot < index.slots(); ++slot) {
    const NodeId node(slot);
    if (!index.used(node) || index.is_root(node)) continue;
    NamespaceUse& use = by_root.at(index.root(node));
    for (uint32_t g = 0; g < groups(); ++g) {
      const BlockId block = index.block(node, g);
      if (!block.valid()) continue;
      ++(pools[g].is_cached(block) ? use.blocks_cached : use.blocks_live);
      use.blocks_leased += pools[g].leased(block);
    }
  }
  for (uint32_t g = 0; g < groups(); ++g) {
    std::set<std::pair<NodeId, BlockId>> held;  // and not findable; a fork's may be held twice
    for (const Sequence& sequence : sequences) {
      if (!sequence.open || sequence.space == nullptr) continue;
      for (const BlockId block : sequence.tables.group(g)) {
        if (block.valid() && !pools[g].findable(block))
          held.emplace(sequence.space->second.root, block);
      }
    }
    for (const auto& [root, block] : held) ++by_root.at(root).blocks_live;
  }
  leases.for_each([&](NodeId root, uint32_t tokens, LeaseClass lease, TimeNs expires) {
    by_root.at(root).leases.push_back({tokens, lease, expires, expires - leases.now()});
  });
  std::vector<NamespaceUse> all;
  for (const auto& [name, space] : namespaces) all.push_back(std::move(by_root[space.root]));
  return all;
}

}  // namespace pagewise::kv
