// SPDX-License-Identifier: Apache-2.0
// What a step has computed becomes findable, and what a window has passed is given up.
#include <algorithm>

#include "base/check.h"
#include "kv/kv_cache_impl.h"

namespace pagewise::kv {

void KvCache::Impl::publish(Sequence& sequence, std::span<const TokenId> computed) {
  PW_CHECK(computed.size() >= sequence.computed);
  for (uint32_t g = 0; g < groups(); ++g)
    PW_CHECK(computed.size() <= std::size_t{sequence.tables.size(g)} * config.block_tokens);
  sequence.computed = static_cast<uint32_t>(computed.size());
  if (enters_cache(sequence)) {
    enter(sequence, computed);
  } else {
    drop_promises(sequence);
  }
  if (sliding) give_up_passed(sequence);
  keep_to_ceiling(sequence.quota);
}

/// Makes the computed positions findable.
void KvCache::Impl::enter(Sequence& sequence, std::span<const TokenId> computed) {
  const uint32_t block_tokens = config.block_tokens;
  filled.clear();
  for (; sequence.full < computed.size() / block_tokens; ++sequence.full) {
    const NodeId node =
        publish_block(sequence, sequence.tail, sequence.full,
                      computed.subspan(std::size_t{sequence.full} * block_tokens, block_tokens));
    const uint64_t end = uint64_t{index.depth(node)} * block_tokens;
    if (end > sequence.asked_from && end <= sequence.asked) {
      filled.push_back(node);
      for (const BlockPool& pool : pools) pool.expect(index.digest(node));
    }
    sequence.tail = node;
  }
  for (const NodeId node : filled) note_computed(sequence, node);
  const std::span<const TokenId> rest = computed.subspan(std::size_t{sequence.full} * block_tokens);
  if (!rest.empty()) publish_block(sequence, sequence.tail, sequence.full, rest);
  if (!sequence.pending.empty()) write_entries(sequence, computed);
}

/// Makes block `i` of the sequence findable as `tokens` behind `parent`, or finds its twin.
/// Returns the node that stands for these tokens.
NodeId KvCache::Impl::publish_block(Sequence& sequence, NodeId parent, uint32_t i,
                                    std::span<const TokenId> tokens) {
  const NodeId own = index.owner(guide, sequence.tables.at(guide, i));
  if (own.valid()) {
    PW_CHECK(index.parent(own) == parent);
    index.extend(own, tokens);
    return own;
  }
  const PrefixIndex::Match match = index.longest_child(parent, tokens);
  if (match.tokens == tokens.size()) {
    join(match.child, sequence, i, match.tokens);
    return match.child;
  }
  const bool extends_sibling =
      match.child.valid() && match.tokens == index.tokens(match.child).size();
  for (uint32_t g = 0; g < groups(); ++g) {
    node_blocks[g] = sequence.tables.at(g, i);
    pools[g].set_findable(node_blocks[g]);
  }
  const NodeId node = index.insert(parent, tokens, node_blocks);
  if (extends_sibling) remove_node(match.child, RemoveReason::kReplaced);
  return node;
}

/// What the sequence has computed is findable as `node` already. Its own block stays private:
/// what is findable serves everybody as well. But where a sliding group has lost its block, ours
/// takes the place.
void KvCache::Impl::join(NodeId node, const Sequence& sequence, uint32_t i, uint32_t tokens) {
  const bool was_there = index.block(node, guide).valid();
  if (tokens == config.block_tokens) {
    counters.twins += was_there;
    for (uint32_t g = 0; sliding && g < groups(); ++g) {
      if (!index.block(node, g).valid()) attach(node, g, sequence.tables.at(g, i));
    }
    return;
  }
  if (!sliding || complete(node) || index.is_full(node)) return;
  // A partly filled one must be of one piece, so that whoever continues it owns all of it. No
  // entry ends in it, for a block of it is missing.
  const PrefixIndex::Neighbours beside = index.neighbours(node);
  const std::span<const TokenId> shared = index.tokens(node).first(tokens);
  for (NodeId sibling : {beside.before, beside.after}) {
    if (sibling.valid() && common_tokens(index.tokens(sibling), shared) == tokens) return;
  }
  for (uint32_t g = 0; g < groups(); ++g) {
    if (index.block(node, g).valid()) detach(node, g);
    attach(node, g, sequence.tables.at(g, i));
  }
  index.truncate(node, tokens);
}

/// The sequence has filled a block that it was asked for, `node`, whose block may be its own: the
/// policies learn what they should have kept. From what an answer generates they would learn
/// nothing: it has to be computed in any case.
void KvCache::Impl::note_computed(const Sequence& sequence, NodeId node) {
  const uint32_t depth = index.depth(node);
  const NodeId before = index.parent(node);
  for (uint32_t g = 0; g < groups(); ++g) {
    const BlockId block = index.block(node, g);
    if (!block.valid() || block != sequence.tables.at(g, depth - 1)) continue;
    const bool reused = index.is_root(before) || !index.block(before, g).valid() ||
                        pools[g].reused(index.block(before, g));
    pools[g].came_back(block, index.digest(node), reused);
  }
}

/// Gives up what is behind the windows of the positions to come.
void KvCache::Impl::give_up_passed(Sequence& sequence) {
  for (uint32_t g = 0; g < groups(); ++g) {
    if (!is_sliding(g)) continue;
    const uint32_t first = first_held(g, sequence.computed);
    while (sequence.tables.first_held(g) < first) {
      const uint32_t i = sequence.tables.first_held(g);
      const BlockId block = sequence.tables.give_up(g);
      const bool keep = before_point(sequence, g, i);
      if (keep && enters_cache(sequence)) keep_twin(sequence, g, i, block);
      pools[g].release(block, !keep);
    }
  }
}

/// Whether one of the sequence's points stands within a window behind block `i`, or one block
/// further: so that requests may begin anywhere in the last block before a point.
bool KvCache::Impl::before_point(const Sequence& sequence, uint32_t g, uint32_t i) const {
  return std::any_of(sequence.points.begin(), sequence.points.end(), [&](uint32_t point) {
    return i < blocks_for(point) && i + 1 >= first_held(g, point);
  });
}

/// Where the index names another block than the sequence's own, that one is kept.
void KvCache::Impl::keep_twin(const Sequence& sequence, uint32_t g, uint32_t i, BlockId own) {
  NodeId node = sequence.tail;
  while (index.depth(node) > i + 1) node = index.parent(node);
  const BlockId block = index.block(node, g);
  if (block == own || !block.valid()) return;
  pools[g].keep(block);
  pools[g].touch(block);
}

}  // namespace pagewise::kv
