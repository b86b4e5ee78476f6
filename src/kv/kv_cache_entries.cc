// SPDX-License-Identifier: Apache-2.0
// Markers at admission: which entry is read, which creations are promised; and the entries that a
// publication writes.
#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "kv/kv_cache_impl.h"

namespace pagewise::kv {
namespace {

/// Positions that one marker's look-back visits, the marker's own first (reference B4).
constexpr uint32_t kLookBackPositions = 20;

}  // namespace

void KvCache::Impl::drop_promises(Sequence& sequence) {
  sequence.pending.clear();
  if (sequence.promise) leases.withdraw(*sequence.promise);
  sequence.promise.reset();
}

/// The entry that ends exactly at `tokens`, when that is within what is known to be in memory.
EntryId KvCache::Impl::entry_at(const AdmitRequest& request, const Plan& found,
                                uint32_t tokens) const {
  if (tokens == 0 || tokens > found.readable) return EntryId();
  const uint32_t depth = tokens / config.block_tokens;
  const NodeId parent = depth == 0 ? found.root : path[depth - 1];
  return leases.find(parent, request.tokens.subspan(std::size_t{depth} * config.block_tokens,
                                                    tokens % config.block_tokens));
}

/// Whether a request that arrived at `start` may read the entry.
bool KvCache::Impl::existed(EntryId entry, TimeNs start) const {
  return config.cache_mode == CacheMode::kNative || leases.readable_since(entry) <= start;
}

/// Reads the longest entry within the markers' look-back, refreshes what the markers stand on,
/// and promises the creations that the leases allow.
CacheUsage KvCache::Impl::read_markers(const AdmitRequest& request, const Plan& found,
                                       Sequence& opened) {
  const uint32_t tokens = static_cast<uint32_t>(request.tokens.size());
  std::vector<MarkedPrefix>& marked = marked_scratch;
  marked.clear();
  EntryId read;
  uint32_t read_tokens = 0;
  LeaseClass read_lease = LeaseClass::k5m;
  for (const CacheMarker& marker : request.markers) {
    if (marker.position >= request.positions.size()) continue;
    const uint32_t end = request.positions[marker.position].tokens;
    if (end > 0 && end <= tokens) marked.push_back({end, marker.lease});
    uint32_t counted = 0;
    for (uint32_t back = 0; counted < kLookBackPositions && back <= marker.position; ++back) {
      const CachePosition& position = request.positions[marker.position - back];
      if (!position.joined) ++counted;
      const uint32_t at = position.tokens;
      const EntryId entry = entry_at(request, found, at);
      if (!entry.valid() || !existed(entry, request.start)) continue;
      if (at > read_tokens) read_lease = marker.lease;
      if (at == read_tokens) read_lease = std::max(read_lease, marker.lease);
      if (at >= read_tokens) read = entry, read_tokens = at;
      break;
    }
  }
  std::sort(marked.begin(), marked.end(), [](const MarkedPrefix& a, const MarkedPrefix& b) {
    return a.tokens != b.tokens ? a.tokens < b.tokens : a.lease < b.lease;
  });
  std::erase_if(
      marked, [&](const MarkedPrefix& prefix) { return prefix.tokens < config.cache_tokens_min; });
  if (read.valid()) leases.refresh(read, read_lease, request.start);

  // Longest first.
  for (std::size_t i = marked.size(); i-- > 0;) {
    const MarkedPrefix prefix = marked[i];
    const EntryId here = entry_at(request, found, prefix.tokens);
    if (here.valid()) {
      leases.refresh(here, prefix.lease, request.start);
    } else if (!reachable(request, found, prefix.tokens)) {
      ++counters.leases_unreachable;
      marked.erase(marked.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      opened.pending.push_back({prefix.tokens, prefix.lease, request.start});
    }
  }
  opened.pending_from = config.cache_mode == CacheMode::kStrict ? tokens : 0;
  while (!opened.pending.empty()) {
    const Pending longest = opened.pending.front();
    if (!count_promise(opened, longest.tokens > read_tokens)) break;
    const PromiseKey key = promise_key(request, longest.tokens);
    if (leases.promise(key, opened.space->second.root, promised_scratch)) {
      opened.promise = key;
      break;
    }
    ++counters.leases_refused;
    opened.pending.erase(opened.pending.begin());
    const auto last = std::find_if(marked.rbegin(), marked.rend(), [&](const MarkedPrefix& at) {
      return at.tokens == longest.tokens && at.lease == longest.lease;
    });
    marked.erase(std::next(last).base());
  }
  return cache_usage(tokens, read_tokens, marked, config.cache_tokens_min);
}

/// How many nodes the pending entries will lease beyond what is leased, at most, by room. False
/// for none. What lies within a prefix that was read is leased already in the full groups.
bool KvCache::Impl::count_promise(const Sequence& opened, bool beyond_read) {
  std::fill(promised_scratch.begin(), promised_scratch.end(), 0);
  if (beyond_read) {
    uint32_t leased_depth = 0;
    while (leased_depth < path.size() && leases.leased(path[leased_depth])) ++leased_depth;
    const uint32_t blocks = blocks_for(opened.pending.front().tokens);
    promised_scratch[0] = blocks - std::min(leased_depth, blocks);
  }
  for (uint32_t room = 1; room < promised_scratch.size(); ++room) {
    for (const Pending& pending : opened.pending)
      promised_scratch[room] += leases.nodes_leased(room, pending.tokens);
  }
  return std::any_of(promised_scratch.begin(), promised_scratch.end(),
                     [](uint32_t nodes) { return nodes > 0; });
}

/// Whether a prefix that is not to be computed any more can be read up to exactly there: a
/// sliding group may have lost what is before it.
bool KvCache::Impl::reachable(const AdmitRequest& request, const Plan& found,
                              uint32_t tokens) const {
  const uint32_t depth = tokens / config.block_tokens;
  if (!sliding || depth >= found.full) return true;
  const NodeId parent = depth == 0 ? found.root : path[depth - 1];
  const std::span<const TokenId> tail = request.tokens.subspan(
      std::size_t{depth} * config.block_tokens, tokens % config.block_tokens);
  const NodeId node = entry_node(parent, path[depth], tail);
  return node.valid() && holds_window(node, tokens);
}

/// The node of an entry that ends `tail` behind `parent`: `below`, or one beside it, that has
/// blocks in all groups; null when there is none.
NodeId KvCache::Impl::entry_node(NodeId parent, NodeId below, std::span<const TokenId> tail) const {
  if (tail.empty()) return parent;
  if (!below.valid()) below = index.longest_child(parent, tail).child;
  PW_CHECK(below.valid() && common_tokens(index.tokens(below), tail) == tail.size());
  if (complete(below)) return below;
  for (uint32_t g = 0; g < groups(); ++g) {
    if (!is_sliding(g)) continue;
    const PrefixIndex::Match match = index.longest_child_with(parent, tail, g);
    if (match.tokens == tail.size() && complete(match.child)) return match.child;
  }
  return NodeId();
}

/// Whether all sliding groups have the blocks of the window before `tokens`, which end in `node`.
bool KvCache::Impl::holds_window(NodeId node, uint32_t tokens) const {
  for (uint32_t g = 0; g < groups(); ++g) {
    if (!is_sliding(g)) continue;
    const uint32_t first = first_held(g, tokens);
    for (NodeId at = node; index.depth(at) > first; at = index.parent(at)) {
      if (!index.block(at, g).valid()) return false;
    }
  }
  return true;
}

PromiseKey KvCache::Impl::promise_key(const AdmitRequest& request, uint32_t tokens) {
  const uint64_t space = xxh3(std::as_bytes(std::span(request.cache_namespace)));
  return xxh3(std::as_bytes(request.tokens.first(tokens)), space);
}

/// Turns the promises that `sequence.computed` covers into entries. Requires: they are in the
/// index.
void KvCache::Impl::write_entries(Sequence& sequence, std::span<const TokenId> computed) {
  if (sequence.computed < sequence.pending_from) return;
  while (!sequence.pending.empty() && sequence.pending.back().tokens <= sequence.computed) {
    const Pending pending = sequence.pending.back();
    sequence.pending.pop_back();
    if (pending.start + leases.lifetime_ns(pending.lease) <= leases.now())
      continue;  // the prefill outlasted the lease
    const uint32_t depth = pending.tokens / config.block_tokens;
    const uint32_t tail_tokens = pending.tokens % config.block_tokens;
    NodeId below;  // the node behind `parent` on this sequence's own path
    NodeId parent = sequence.tail;
    for (uint32_t i = sequence.full; i > depth; --i)
      below = std::exchange(parent, index.parent(parent));
    const NodeId node = entry_node(
        parent, below, computed.subspan(std::size_t{depth} * config.block_tokens, tail_tokens));
    if (!node.valid() || !holds_window(node, pending.tokens)) {
      leases.lose(sequence.space->second.root);
      continue;
    }
    leases.write(parent, node, tail_tokens, pending.lease, pending.start, sequence.promise);
  }
  if (sequence.pending.empty()) drop_promises(sequence);
}

}  // namespace pagewise::kv
