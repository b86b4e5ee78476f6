// SPDX-License-Identifier: Apache-2.0
// What of a prompt is known, whether the rest can be had, and the opening of its sequence.
#include <algorithm>
#include <string>

#include "base/check.h"
#include "kv/kv_cache_impl.h"

namespace pagewise::kv {

/// Leaves the full nodes that match in `path`, and what to copy from in `sources`.
Plan KvCache::Impl::plan(const AdmitRequest& request) const {
  const uint32_t tokens = static_cast<uint32_t>(request.tokens.size());
  const uint32_t block_tokens = config.block_tokens;
  Plan found;
  path.clear();
  PrefixIndex::Match rest;
  const auto space = namespaces.find(request.cache_namespace);
  if (request.use_cache && request.read_cache && space != namespaces.end()) {
    found.root = space->second.root;
    rest = index.walk(found.root, request.tokens, path);
  }
  const uint32_t matched = static_cast<uint32_t>(path.size()) * block_tokens + rest.tokens;
  find_hit(request.tokens, rest, true, found);
  found.fits = can_hold(request, found);
  if (!found.fits && found.partial > 0) {
    // The partly matching block may itself be the memory that is missing: do without it.
    find_hit(request.tokens, rest, false, found);
    found.fits = can_hold(request, found);
  }
  // The last token's logits must be computed, but an entry that ends there can be read.
  const uint32_t hit = found.hit(block_tokens);
  found.readable = hit == tokens - 1 ? matched : hit;
  return found;
}

Inspection KvCache::Impl::inspect(const AdmitRequest& request, TimeNs now,
                                  uint32_t beyond_max) const {
  PW_CHECK(!request.tokens.empty());
  const Plan found = plan(request);
  Inspection seen;
  seen.cached_tokens = found.hit(config.block_tokens);
  for (uint32_t g = 0; g < groups(); ++g) {
    seen.blocks += blocks_for(seen.cached_tokens) - first_held(g, seen.cached_tokens);
  }
  if (!found.root.valid()) return seen;
  path.clear();
  const PrefixIndex::Match rest = index.walk(found.root, request.tokens, path);
  seen.matched_tokens = static_cast<uint32_t>(path.size()) * config.block_tokens + rest.tokens;
  seen.lease = leases.longest(found.root, path, request.tokens, now);
  if (seen.matched_tokens > 0) {
    index.follow(path.empty() ? found.root : path.back(), rest, beyond_max, seen.beyond);
  }
  return seen;
}

/// The longest hit, at a block's end unless `with_partial`: every full group has all blocks to
/// its end, and every sliding group those of the window before it.
void KvCache::Impl::find_hit(std::span<const TokenId> tokens, const PrefixIndex::Match& rest,
                             bool with_partial, Plan& found) const {
  const uint32_t limit = static_cast<uint32_t>(tokens.size()) - 1;
  const uint32_t block_tokens = config.block_tokens;
  found.full = std::min(static_cast<uint32_t>(path.size()), limit / block_tokens);
  while (true) {
    found.partial = 0;
    if (with_partial && found.root.valid()) {
      const uint32_t begin = found.full * block_tokens;
      find_sources(tokens.subspan(begin, std::min(block_tokens, limit - begin)), rest, found);
    }
    // From a missing block on every shorter hit lacks it, too, down to the one that ends at it.
    uint32_t missing = 0;
    for (uint32_t g = 0; sliding && g < groups(); ++g) {
      if (!is_sliding(g)) continue;
      const uint32_t first = std::max(first_held(g, found.hit(block_tokens)), missing);
      for (uint32_t i = found.full; i > first; --i) {
        if (index.block(path[i - 1], g).valid()) continue;
        missing = i;
        break;
      }
    }
    if (missing == 0) return;
    found.full = missing - 1;
  }
}

/// Behind the shared nodes: the block of each group that matches most of `wanted`, and how much
/// all of them match.
void KvCache::Impl::find_sources(std::span<const TokenId> wanted, const PrefixIndex::Match& rest,
                                 Plan& found) const {
  found.partial = static_cast<uint32_t>(wanted.size());
  const NodeId parent = found.full == 0 ? found.root : path[found.full - 1];
  const PrefixIndex::Match best =
      found.full < path.size() ? PrefixIndex::Match{path[found.full], found.partial} : rest;
  for (uint32_t g = 0; g < groups() && found.partial > 0; ++g) {
    PrefixIndex::Match match = best;
    if (best.child.valid() && !index.block(best.child, g).valid())
      match = index.longest_child_with(parent, wanted, g);
    found.partial = std::min(found.partial, match.tokens);
    sources[g] = match.child.valid() ? index.block(match.child, g) : BlockId();
  }
}

/// Blocks that the hit takes from the cached ones cannot be evicted to make the new ones.
bool KvCache::Impl::can_hold(const AdmitRequest& request, const Plan& found) const {
  const uint32_t hit = found.hit(config.block_tokens);
  const uint32_t covered = std::max(request.cover_tokens, hit);
  const Taker taker{quota_of(request.cache_namespace), sequences_open == 0};
  for (uint32_t g = 0; g < groups(); ++g) {
    const uint32_t first = first_held(g, hit);
    uint32_t pinned = 0;
    for (uint32_t i = first; i < found.full; ++i) {
      pinned += pools[g].is_cached(index.block(path[i], g));
    }
    if (found.partial > 0) pinned += pools[g].is_cached(sources[g]);
    // What is pinned is the taker's own.
    const uint32_t available = this->available(g, taker) - pinned;
    const uint32_t shared = found.full - first;
    if (!is_sliding(g)) {
      if (blocks_for(covered) - shared > available) return false;
      continue;
    }
    const uint32_t now = shared + (found.partial > 0 ? 1 : 0);
    const uint32_t later = std::max(now, held_at_rest(g, covered));
    if (uint64_t{later - shared} + promised(g) > available) return false;
  }
  return true;
}

/// Blocks of a sliding group that open sequences were admitted for and have not grown to yet.
uint32_t KvCache::Impl::promised(uint32_t g) const {
  uint32_t blocks = 0;
  for (const Sequence& sequence : sequences) {
    if (!sequence.open || sequence.computed >= sequence.promised_tokens) continue;
    const uint32_t at_rest = held_at_rest(g, sequence.promised_tokens);
    blocks += at_rest - std::min(at_rest, sequence.tables.held(g));
  }
  return blocks;
}

Result<Admitted> KvCache::Impl::admit(const AdmitRequest& request, Orders& orders) {
  PW_CHECK(!request.tokens.empty());
  const Plan found = plan(request);
  const uint32_t hit = found.hit(config.block_tokens);
  const uint32_t covered = std::max(request.cover_tokens, hit);
  if (!found.fits) {
    return Error{ErrorCode::kPoolExhausted, "the prompt needs " +
                                                std::to_string(blocks_for(covered) - found.full) +
                                                " new KV blocks, which cannot be had now"};
  }
  const Taker taker{quota_of(request.cache_namespace), sequences_open == 0};
  Admitted admitted;
  admitted.seq = open_sequence();
  admitted.cached_tokens = hit;
  admitted.usage.input_tokens = static_cast<uint32_t>(request.tokens.size());
  Sequence& opened = sequence(admitted.seq);
  opened.asked = admitted.usage.input_tokens;
  opened.asked_from = request.resumes_from.value_or(0);
  const bool reads = hit > opened.asked_from;  // something that it has not had
  opened.computed = hit;
  opened.quota = taker.quota;
  if (request.use_cache) {
    Namespaces::value_type& space = open_namespace(request.cache_namespace);
    ++space.second.sequences;  // from here on eviction cannot take the namespace away
    opened.space = &space;
    opened.epoch = space.second.epoch;
    opened.full = found.full;
    opened.tail = found.full > 0 ? path[found.full - 1] : space.second.root;
    if (!request.resumes_from) {
      if (request.read_cache) counters.query_tokens += request.tokens.size();
      counters.hit_tokens += hit;
    }
  }
  for (uint32_t g = 0; g < groups(); ++g) {
    const uint32_t first = first_held(g, hit);
    opened.tables.skip(g, first);
    for (uint32_t i = first; i < found.full; ++i) {
      const BlockId block = index.block(path[i], g);
      pools[g].hold(block);
      opened.tables.push(g, block);
      // Held first: with its old age it might be demoted at once.
      if (reads) pools[g].mark_reused(block);
    }
    admitted.blocks_shared += found.full - first;
  }
  if (sliding) {
    opened.promised_tokens = covered;
    if (request.use_cache) note_points(request, hit, opened);
  }
  if (request.use_cache && request.read_cache && !request.markers.empty())
    admitted.usage = read_markers(request, found, opened);

  // The sources are held only while blocks are taken, so that they are not among them.
  for (uint32_t g = 0; g < groups() && found.partial > 0; ++g) {
    pools[g].hold(sources[g]);
    if (reads) pools[g].mark_reused(sources[g]);
  }
  for (uint32_t g = 0; g < groups(); ++g) {
    const uint32_t end = blocks_for(is_sliding(g) ? hit : covered);
    while (opened.tables.size(g) < end) opened.tables.push(g, take(g, taker, orders));
  }
  for (uint32_t g = 0; g < groups() && found.partial > 0; ++g) {
    orders.copies.push_back({g, sources[g], opened.tables.at(g, found.full), found.partial});
    pools[g].release(sources[g]);
  }
  keep_to_ceiling(taker.quota);
  return admitted;
}

void KvCache::Impl::note_points(const AdmitRequest& request, uint32_t hit, Sequence& opened) {
  opened.points.clear();
  opened.points.push_back(hit);
  for (const CacheMarker& marker : request.markers) {
    if (marker.position < request.positions.size())
      opened.points.push_back(request.positions[marker.position].tokens);
  }
  opened.points.push_back(static_cast<uint32_t>(request.tokens.size()));
}

}  // namespace pagewise::kv
