// SPDX-License-Identifier: Apache-2.0
// A sequence's growth, its forks, and its end.
#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "kv/kv_cache_impl.h"

namespace pagewise::kv {

Sequence& KvCache::Impl::sequence(SeqId id) {
  const uint64_t slot = id.value & UINT32_MAX;
  PW_CHECK(slot < sequences.size());
  Sequence& sequence = sequences[slot];
  PW_CHECK(sequence.open && sequence.generation == id.value >> 32);
  return sequence;
}

SeqId KvCache::Impl::open_sequence() {
  if (sequences_unused.empty()) {
    sequences_unused.push_back(static_cast<uint32_t>(sequences.size()));
    sequences.emplace_back(groups());
  }
  const uint32_t slot = sequences_unused.back();
  sequences_unused.pop_back();
  Sequence& opened = sequences[slot];
  opened.open = true;
  ++sequences_open;
  return SeqId(uint64_t{opened.generation} << 32 | slot);
}

Status KvCache::Impl::ensure(Sequence& sequence, uint32_t tokens, Orders& orders) {
  const uint32_t end = blocks_for(tokens);
  const Taker taker = this->taker(sequence);
  bool covered = true;  // as most tokens of an answer are
  for (uint32_t g = 0; g < groups(); ++g) {
    const uint32_t needed = blocks_missing(sequence, g, end) + tail_is_shared(sequence, g, tokens);
    covered = covered && needed == 0;
    if (needed > 0 && needed > available(g, taker)) {
      return {ErrorCode::kPoolExhausted, "the sequence needs " + std::to_string(needed) +
                                             " more KV blocks, " +
                                             std::to_string(available(g, taker)) + " can be had"};
    }
  }
  if (covered) return Status::ok();
  for (uint32_t g = 0; g < groups(); ++g) {
    if (tail_is_shared(sequence, g, tokens)) {
      const uint32_t tail = sequence.computed / config.block_tokens;
      const BlockId shared = sequence.tables.at(g, tail);
      const BlockId own = take(g, taker, orders);
      orders.copies.push_back({g, shared, own, sequence.computed % config.block_tokens});
      sequence.tables.replace(g, tail, own);
      ++counters.copies_on_write;
      pools[g].release(shared);
    }
    while (sequence.tables.size(g) < end) sequence.tables.push(g, take(g, taker, orders));
  }
  keep_to_ceiling(sequence.quota);
  return Status::ok();
}

uint32_t KvCache::Impl::coverable(const Sequence& sequence, uint32_t tokens) const {
  uint64_t most = tokens;
  for (uint32_t g = 0; g < groups(); ++g) {
    const uint32_t copied = tail_is_shared(sequence, g, tokens);
    const uint32_t free = available(g, taker(sequence));
    if (copied > free) return std::min(tokens, sequence.computed);
    const uint64_t blocks = uint64_t{sequence.tables.size(g)} + free - copied;
    most = std::min(most, blocks * config.block_tokens);
  }
  return static_cast<uint32_t>(most);
}

SeqId KvCache::Impl::fork(SeqId id) {
  const SeqId copy_id = open_sequence();  // may move sequences
  Sequence& from = sequence(id);
  Sequence& to = sequence(copy_id);
  to.space = from.space;
  if (to.space) ++to.space->second.sequences;
  to.epoch = from.epoch;
  to.quota = from.quota;
  to.computed = from.computed;
  to.tail = from.tail;
  to.full = from.full;
  to.points = from.points;
  for (uint32_t g = 0; g < groups(); ++g) {
    to.tables.skip(g, from.tables.first_held(g));
    for (uint32_t i = to.tables.size(g); i < blocks_for(from.computed); ++i) {
      pools[g].hold(from.tables.at(g, i));
      to.tables.push(g, from.tables.at(g, i));
    }
  }
  return copy_id;
}

void KvCache::Impl::release(SeqId id) {
  Sequence& closed = sequence(id);
  drop_promises(closed);
  const bool entered = enters_cache(closed);
  const NodeId tail = closed.tail;
  NodeId at = entered && closed.full > 0 ? tail : NodeId();
  uint32_t end = 0, begin = has_full ? 0 : UINT32_MAX;
  for (uint32_t g = 0; g < groups(); ++g) {
    end = std::max(end, closed.tables.size(g));
    const uint32_t first = closed.tables.first_held(g);
    begin = std::min(begin, first > 0 ? first - 1 : 0);
  }
  bool used = false;
  for (uint32_t i = end; i-- > begin;) {
    if (at.valid() && i < closed.full) {
      // Where a twin stands in for our block it was used as well, and with it all that is before
      // it; otherwise it could be given up before its successors. The same holds for what is
      // before a block that others have read.
      used = used || (has_full && index.block(at, guide) != closed.tables.at(guide, i));
      for (uint32_t g = 0; g < groups(); ++g) use_indexed(closed, g, i, at, used);
      at = index.parent(at);
    }
    for (uint32_t g = 0; g < groups(); ++g) {
      if (i >= closed.tables.size(g) || i < closed.tables.first_held(g)) continue;
      const BlockId block = closed.tables.at(g, i);
      used = used || (!is_sliding(g) && pools[g].reused(block));
      pools[g].release(block);
    }
  }
  Namespaces::value_type* space = closed.space;
  closed.tables.clear();
  closed.space = nullptr;
  closed.tail = NodeId();
  closed.full = closed.asked_from = closed.asked = closed.computed = closed.promised_tokens = 0;
  closed.points.clear();
  closed.open = false;
  ++closed.generation;
  --sequences_open;
  sequences_unused.push_back(static_cast<uint32_t>(id.value & UINT32_MAX));
  if (entered) prune(tail);
  keep_to_ceiling(std::exchange(closed.quota, kNoQuota));
  if (space == nullptr) return;
  --space->second.sequences;
  forget_if_empty(*space);
}

/// A sequence leaves that has published through `node`, its block `i`: what the index names there
/// counts as used where it is not the sequence's own, or where what is behind it was.
void KvCache::Impl::use_indexed(const Sequence& closed, uint32_t g, uint32_t i, NodeId node,
                                bool used) {
  const BlockId block = index.block(node, g);
  if (!is_sliding(g)) {
    if (!used) return;
    pools[g].touch(block);
    pools[g].mark_reused(block);
    return;
  }
  // One block behind the window is kept for this end, as for every point (before_point).
  if (!block.valid() || i + 1 < closed.tables.first_held(g)) return;
  pools[g].keep(block);
  if (i < closed.tables.first_held(g) || block == closed.tables.at(g, i)) return;
  pools[g].touch(block);
  pools[g].mark_reused(block);
}

}  // namespace pagewise::kv
