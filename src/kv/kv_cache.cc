// SPDX-License-Identifier: Apache-2.0
// The facade ties four things together and owns none of their rules: pools count holders, the index
// knows prefixes, the book keeps entries, and a sequence is a table and a place in the index.
#include "kv/kv_cache.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/hash.h"
#include "kv/block_pool.h"
#include "kv/block_table.h"
#include "kv/geometry.h"
#include "kv/lease.h"
#include "kv/prefix_index.h"

namespace pagewise::kv {
namespace {

/// Positions that one marker's look-back visits, the marker's own first (reference B4).
constexpr uint32_t kLookBackPositions = 20;

/// Keeps "start + lease" far from overflow.
constexpr TimeNs kLeaseNsMax = 100LL * 365 * 24 * 3600 * 1'000'000'000;

/// What callers share: hits and entries below one root. Lives while it has nodes or open sequences.
struct Namespace {
  NodeId root;
  uint32_t sequences = 0;
  uint64_t epoch = 0;  // how often it was cleared; what began before does not enter the cache
  QuotaId quota = kNoQuota;
};
using Namespaces = std::map<std::string, Namespace, std::less<>>;

/// A creation that was reported at admission and becomes an entry once `tokens` are computed.
struct Pending {
  uint32_t tokens = 0;
  LeaseClass lease = LeaseClass::k5m;
  TimeNs start = 0;  // of the request
};

struct Sequence {
  explicit Sequence(uint32_t groups) : tables(groups) {}

  uint32_t generation = 0;
  bool open = false;
  Namespaces::value_type* space = nullptr;  // null: neither reads nor enters the cache
  uint64_t epoch = 0;
  QuotaId quota = kNoQuota;  // whose blocks it takes
  uint32_t asked_from = 0;   // of the tokens that it was admitted with, the first that is asked for
  uint32_t asked = 0;        // and how many it was admitted with
  uint32_t computed = 0;     // positions whose K and V are in the blocks
  BlockTables tables;
  // The sequence's place in the index: `full` leading blocks are findable under `tail` and its
  // predecessors, each by this sequence's block or by a twin of it.
  NodeId tail;
  uint32_t full = 0;
  std::vector<Pending> pending;  // longest first
  uint32_t pending_from = 0;     // tokens that must be computed before any of them is written
  std::optional<PromiseKey> promise;
  // With sliding groups: the prefixes behind which requests are likely to begin (what was hit, the
  // markers, the prompt), and how many tokens the admission has promised room for.
  std::vector<uint32_t> points;
  uint32_t promised_tokens = 0;
};

/// What a look-up found and what the admission would need. Nothing is held by it.
struct Plan {
  NodeId root;            // null: the namespace is unknown so far
  uint32_t full = 0;      // whole blocks to share: the first ones of the path
  uint32_t partial = 0;   // positions to copy from the sources (one a group)
  uint32_t readable = 0;  // an entry may end here at most
  bool fits = false;
  uint32_t hit(uint32_t block_tokens) const { return full * block_tokens + partial; }
};

/// The blocks that quotas are counted in.
uint32_t measure(std::span<const CacheGroup> groups) {
  uint32_t full = UINT32_MAX, any = UINT32_MAX;
  for (const CacheGroup& group : groups) {
    if (group.window == 0) full = std::min(full, group.blocks);
    any = std::min(any, group.blocks);
  }
  return full == UINT32_MAX ? any : full;
}

enum class EvictReason : uint8_t { kRoom, kCeiling };

/// Who takes a block, and whether others' floors are in his way: not when nobody else could give
/// anything up any more.
struct Taker {
  QuotaId quota;
  bool alone = false;
};

}  // namespace

struct KvCache::Impl final : LeaseBook::Listener {
  explicit Impl(const CacheConfig& given)
      : config(given),
        index(given.block_tokens, capacities(given), nodes(given)),
        leases(index, *this, lease_rules(given)) {
    uint32_t rooms = 1;
    for (const CacheGroup& group : config.groups) {
      room_of.push_back(group.window == 0 ? 0 : rooms++);
      pools.emplace_back(group.blocks, config.protected_share,
                         config.shuffle_blocks ? std::optional(config.shuffle_seed) : std::nullopt,
                         static_cast<uint32_t>(config.quotas.size()) + 1);
    }
    for (uint32_t q = 0; q < config.quotas.size(); ++q)
      quota_by_name.emplace(config.quotas[q].name, q + 1);
    set_quota_limits();
    sliding = rooms > 1;
    while (guide < groups() && is_sliding(guide)) ++guide;
    has_full = guide < groups();
    if (!has_full) guide = 0;
    if (config.cache_tokens_min == 0) config.cache_tokens_min = config.block_tokens;
    node_blocks.resize(groups());
    sources.resize(groups());
    promised_scratch.resize(rooms);
  }

  static std::vector<uint32_t> capacities(const CacheConfig& config) {
    std::vector<uint32_t> blocks;
    for (const CacheGroup& group : config.groups) blocks.push_back(group.blocks);
    return blocks;
  }
  /// A node takes one block of each full group, so the smallest decides how many there are. Without
  /// full groups nodes may outlive their blocks: as many as the blocks to begin with.
  static uint32_t nodes(const CacheConfig& config) {
    uint32_t smallest = UINT32_MAX, largest = 0;
    for (const CacheGroup& group : config.groups) {
      if (group.window == 0) smallest = std::min(smallest, group.blocks);
      largest = std::max(largest, group.blocks);
    }
    return std::min(smallest, largest);
  }
  static LeaseRules lease_rules(const CacheConfig& config) {
    LeaseRules rules;
    rules.lifetime_5m_ns = config.lease_5m_ns;
    rules.lifetime_1h_ns = config.lease_1h_ns;
    const auto room = [&](uint32_t blocks, uint32_t window) {
      LeaseRoom room;
      room.window = window;
      room.nodes_max = static_cast<uint32_t>(blocks * config.lease_share);
      room.nodes_max_namespace =
          static_cast<uint32_t>(room.nodes_max * config.lease_share_namespace);
      return room;
    };
    uint32_t smallest = UINT32_MAX;  // of the full groups
    for (const CacheGroup& group : config.groups) {
      if (group.window == 0) smallest = std::min(smallest, group.blocks);
    }
    rules.rooms.push_back(room(smallest, 0));
    if (smallest == UINT32_MAX) rules.rooms[0] = {0, UINT32_MAX, UINT32_MAX, {}};
    for (const CacheGroup& group : config.groups) {
      if (group.window != 0) rules.rooms.push_back(room(group.blocks, group.window));
    }
    // What a ceiling gives up at once is not to be leased.
    std::size_t last = 0;
    for (const CacheGroup& group : config.groups) {
      std::vector<uint32_t>& most =
          rules.rooms[group.window == 0 ? 0 : ++last].nodes_max_quota = {UINT32_MAX};
      for (const NamespaceQuota& quota : config.quotas)
        most.push_back(ceiling_in(quota, group, config.groups));
    }
    return rules;
  }

  /// A quota's limits in one group.
  static uint32_t floor_in(const NamespaceQuota& quota, const CacheGroup& group,
                           std::span<const CacheGroup> groups) {
    if (group.window == 0) return quota.floor_blocks;
    return static_cast<uint32_t>(uint64_t{quota.floor_blocks} * group.blocks / measure(groups));
  }
  static uint32_t ceiling_in(const NamespaceQuota& quota, const CacheGroup& group,
                             std::span<const CacheGroup> groups) {
    if (quota.ceiling_blocks == 0) return UINT32_MAX;
    if (group.window == 0) return quota.ceiling_blocks;
    const uint64_t share = ceil_div(uint64_t{quota.ceiling_blocks} * group.blocks, measure(groups));
    return static_cast<uint32_t>(std::min<uint64_t>(share, UINT32_MAX));
  }
  void set_quota_limits() {
    for (uint32_t q = 0; q < config.quotas.size(); ++q) {
      for (uint32_t g = 0; g < groups(); ++g) {
        pools[g].set_limits(QuotaId(q + 1),
                            floor_in(config.quotas[q], config.groups[g], config.groups),
                            ceiling_in(config.quotas[q], config.groups[g], config.groups));
      }
    }
  }

  uint32_t groups() const { return static_cast<uint32_t>(config.groups.size()); }
  uint32_t blocks_for(uint64_t tokens) const {
    return static_cast<uint32_t>(ceil_div(tokens, config.block_tokens));
  }
  bool is_sliding(uint32_t g) const { return config.groups[g].window != 0; }
  /// The first block that a sequence of `tokens` holds.
  uint32_t first_held(uint32_t g, uint32_t tokens) const {
    return static_cast<uint32_t>(
        first_block_held(tokens, config.groups[g].window, config.block_tokens));
  }
  uint32_t held_at_rest(uint32_t g, uint32_t tokens) const {
    return static_cast<uint32_t>(blocks_held(tokens, config.groups[g].window, config.block_tokens));
  }

  // --- the index and the pools ---

  void on_leased(NodeId node, uint32_t room, bool leased) override {
    for (uint32_t g = 0; g < groups(); ++g) {
      if (room_of[g] != room || !index.block(node, g).valid()) continue;
      pools[g].set_leased(index.block(node, g), leased);
    }
  }
  void on_broken(NodeId root) override {
    const std::string_view top = top_namespace(space_of_root[root.value]->first);
    auto found = leases_broken.find(top);
    if (found == leases_broken.end()) found = leases_broken.emplace(top, 0).first;
    ++found->second;
  }
  bool complete(NodeId node) const override {
    for (uint32_t g = 0; g < groups(); ++g) {
      if (!index.block(node, g).valid()) return false;
    }
    return true;
  }

  /// The node names this block from now on. Requires: live, not findable; the node has none.
  void attach(NodeId node, uint32_t g, BlockId block) {
    pools[g].set_findable(block);
    index.set_block(node, g, block);
    if (leases.leased(node, room_of[g])) pools[g].set_leased(block, true);
  }
  /// The node names no block any more; it stays live where held, else becomes free.
  void detach(NodeId node, uint32_t g) {
    pools[g].clear_findable(index.block(node, g));
    index.set_block(node, g, BlockId());
  }

  /// Takes a node without children out of the index. Its blocks stay live where held, else become
  /// free.
  void remove_node(NodeId node, RemoveReason reason) {
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
  void evict(uint32_t g, BlockId victim, EvictReason reason) {
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
  void prune(NodeId node) {
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
  bool hand_over(NodeId node, uint32_t g) {
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
  void swap(NodeId node, uint32_t g, BlockId block) {
    BlockPool& pool = pools[g];
    const BlockId old_block = index.block(node, g);
    const bool reused = pool.reused(old_block), kept = pool.kept(old_block);
    detach(node, g);
    attach(node, g, block);
    if (reused) pool.mark_reused(block);
    if (kept) pool.keep(block);
  }

  /// A namespace without nodes and sequences is forgotten: salts may be many.
  void forget_if_empty(Namespaces::value_type& space) {
    if (space.second.sequences > 0 || !index.children(space.second.root).empty()) return;
    space_of_root[space.second.root.value] = nullptr;
    index.remove_root(space.second.root);
    namespaces.erase(namespaces.find(space.first));
  }

  uint32_t available(uint32_t g, const Taker& taker) const {
    return taker.alone ? pools[g].available() : pools[g].available_to(taker.quota);
  }

  /// The cached block that is given up next for the taker; below somebody's floor only when nothing
  /// else is left. Requires: one is cached.
  void give_up_one(uint32_t g, const Taker& taker) {
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
  void keep_to_ceiling(QuotaId quota) {
    if (quota == kNoQuota) return;
    for (uint32_t g = 0; g < groups(); ++g) keep_to_ceiling(g, quota, 0);
  }
  /// With room for `more` blocks.
  void keep_to_ceiling(uint32_t g, QuotaId quota, uint32_t more) {
    while (pools[g].exceeds_ceiling(quota, more)) {
      ++counters.evictions_ceiling;
      evict(g, pools[g].victim_of(quota), EvictReason::kCeiling);
    }
  }

  /// A free block of group g, made by eviction if need be. Requires: available(g, taker) > 0.
  BlockId take(uint32_t g, const Taker& taker, Orders& orders) {
    keep_to_ceiling(g, taker.quota, 1);
    if (pools[g].free() == 0) give_up_one(g, taker);
    const BlockId block = pools[g].take(taker.quota);
    orders.fresh.push_back({g, block});
    return block;
  }

  Namespaces::value_type& open_namespace(std::string_view name) {
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
  uint64_t root_digest(std::string_view name) const {
    return xxh3(std::as_bytes(std::span(name)), clears);
  }

  QuotaId quota_of(std::string_view name) const {
    const auto found = quota_by_name.find(top_namespace(name));
    return found == quota_by_name.end() ? kNoQuota : QuotaId(found->second);
  }

  // --- sequences ---

  Sequence& sequence(SeqId id) {
    const uint64_t slot = id.value & UINT32_MAX;
    PW_CHECK(slot < sequences.size());
    Sequence& sequence = sequences[slot];
    PW_CHECK(sequence.open && sequence.generation == id.value >> 32);
    return sequence;
  }
  SeqId open_sequence() {
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
  /// Whether what the sequence computes may enter the cache.
  static bool enters_cache(const Sequence& sequence) {
    return sequence.space != nullptr && sequence.epoch == sequence.space->second.epoch;
  }

  void drop_promises(Sequence& sequence) {
    sequence.pending.clear();
    if (sequence.promise) leases.withdraw(*sequence.promise);
    sequence.promise.reset();
  }

  // --- admission ---

  /// Leaves the full nodes that match in `path`, and what to copy from in `sources`.
  Plan plan(const AdmitRequest& request) const {
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

  Inspection inspect(const AdmitRequest& request, TimeNs now, uint32_t beyond_max) const {
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
  void find_hit(std::span<const TokenId> tokens, const PrefixIndex::Match& rest, bool with_partial,
                Plan& found) const {
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
  void find_sources(std::span<const TokenId> wanted, const PrefixIndex::Match& rest,
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
  bool can_hold(const AdmitRequest& request, const Plan& found) const {
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
  uint32_t promised(uint32_t g) const {
    uint32_t blocks = 0;
    for (const Sequence& sequence : sequences) {
      if (!sequence.open || sequence.computed >= sequence.promised_tokens) continue;
      const uint32_t at_rest = held_at_rest(g, sequence.promised_tokens);
      blocks += at_rest - std::min(at_rest, sequence.tables.held(g));
    }
    return blocks;
  }

  Result<Admitted> admit(const AdmitRequest& request, Orders& orders) {
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

  static void note_points(const AdmitRequest& request, uint32_t hit, Sequence& opened) {
    opened.points.clear();
    opened.points.push_back(hit);
    for (const CacheMarker& marker : request.markers) {
      if (marker.position < request.positions.size())
        opened.points.push_back(request.positions[marker.position].tokens);
    }
    opened.points.push_back(static_cast<uint32_t>(request.tokens.size()));
  }

  /// Whether one of the sequence's points stands within a window behind block `i`, or one block
  /// further: so that requests may begin anywhere in the last block before a point.
  bool before_point(const Sequence& sequence, uint32_t g, uint32_t i) const {
    return std::any_of(sequence.points.begin(), sequence.points.end(), [&](uint32_t point) {
      return i < blocks_for(point) && i + 1 >= first_held(g, point);
    });
  }

  /// Gives up what is behind the windows of the positions to come.
  void give_up_passed(Sequence& sequence) {
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

  /// Where the index names another block than the sequence's own, that one is kept.
  void keep_twin(const Sequence& sequence, uint32_t g, uint32_t i, BlockId own) {
    NodeId node = sequence.tail;
    while (index.depth(node) > i + 1) node = index.parent(node);
    const BlockId block = index.block(node, g);
    if (block == own || !block.valid()) return;
    pools[g].keep(block);
    pools[g].touch(block);
  }

  // --- markers ---

  /// The entry that ends exactly at `tokens`, when that is within what is known to be in memory.
  EntryId entry_at(const AdmitRequest& request, const Plan& found, uint32_t tokens) const {
    if (tokens == 0 || tokens > found.readable) return EntryId();
    const uint32_t depth = tokens / config.block_tokens;
    const NodeId parent = depth == 0 ? found.root : path[depth - 1];
    return leases.find(parent, request.tokens.subspan(std::size_t{depth} * config.block_tokens,
                                                      tokens % config.block_tokens));
  }

  /// Whether a request that arrived at `start` may read the entry.
  bool existed(EntryId entry, TimeNs start) const {
    return config.cache_mode == CacheMode::kNative || leases.readable_since(entry) <= start;
  }

  /// Reads the longest entry within the markers' look-back, refreshes what the markers stand on,
  /// and promises the creations that the leases allow.
  CacheUsage read_markers(const AdmitRequest& request, const Plan& found, Sequence& opened) {
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
    std::erase_if(marked, [&](const MarkedPrefix& prefix) {
      return prefix.tokens < config.cache_tokens_min;
    });
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
  bool count_promise(const Sequence& opened, bool beyond_read) {
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
  bool reachable(const AdmitRequest& request, const Plan& found, uint32_t tokens) const {
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
  NodeId entry_node(NodeId parent, NodeId below, std::span<const TokenId> tail) const {
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
  bool holds_window(NodeId node, uint32_t tokens) const {
    for (uint32_t g = 0; g < groups(); ++g) {
      if (!is_sliding(g)) continue;
      const uint32_t first = first_held(g, tokens);
      for (NodeId at = node; index.depth(at) > first; at = index.parent(at)) {
        if (!index.block(at, g).valid()) return false;
      }
    }
    return true;
  }

  static PromiseKey promise_key(const AdmitRequest& request, uint32_t tokens) {
    const uint64_t space = xxh3(std::as_bytes(std::span(request.cache_namespace)));
    return xxh3(std::as_bytes(request.tokens.first(tokens)), space);
  }

  /// Turns the promises that `sequence.computed` covers into entries. Requires: they are in the
  /// index.
  void write_entries(Sequence& sequence, std::span<const TokenId> computed) {
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

  // --- publication ---

  /// Makes block `i` of the sequence findable as `tokens` behind `parent`, or finds its twin.
  /// Returns the node that stands for these tokens.
  NodeId publish_block(Sequence& sequence, NodeId parent, uint32_t i,
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
  void join(NodeId node, const Sequence& sequence, uint32_t i, uint32_t tokens) {
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

  void publish(Sequence& sequence, std::span<const TokenId> computed) {
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
  void enter(Sequence& sequence, std::span<const TokenId> computed) {
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
    const std::span<const TokenId> rest =
        computed.subspan(std::size_t{sequence.full} * block_tokens);
    if (!rest.empty()) publish_block(sequence, sequence.tail, sequence.full, rest);
    if (!sequence.pending.empty()) write_entries(sequence, computed);
  }

  /// The sequence has filled a block that it was asked for, `node`, whose block may be its own: the
  /// policies learn what they should have kept. From what an answer generates they would learn
  /// nothing: it has to be computed in any case.
  void note_computed(const Sequence& sequence, NodeId node) {
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

  // --- growth and end ---

  Taker taker(const Sequence& sequence) const { return {sequence.quota, sequences_open == 1}; }

  Status ensure(Sequence& sequence, uint32_t tokens, Orders& orders) {
    const uint32_t end = blocks_for(tokens);
    const Taker taker = this->taker(sequence);
    bool covered = true;  // as most tokens of an answer are
    for (uint32_t g = 0; g < groups(); ++g) {
      const uint32_t needed =
          blocks_missing(sequence, g, end) + tail_is_shared(sequence, g, tokens);
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

  static uint32_t blocks_missing(const Sequence& sequence, uint32_t g, uint32_t end) {
    const uint32_t have = sequence.tables.size(g);
    return end > have ? end - have : 0;
  }

  /// Whether covering `tokens` means writing into a block that somebody else holds, too.
  bool tail_is_shared(const Sequence& sequence, uint32_t g, uint32_t tokens) const {
    return sequence.computed % config.block_tokens > 0 && tokens > sequence.computed &&
           pools[g].holders(sequence.tables.at(g, sequence.computed / config.block_tokens)) > 1;
  }

  uint32_t coverable(const Sequence& sequence, uint32_t tokens) const {
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

  SeqId fork(SeqId id) {
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

  void release(SeqId id) {
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
  void use_indexed(const Sequence& closed, uint32_t g, uint32_t i, NodeId node, bool used) {
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

  Status check_resize(std::span<const uint32_t> blocks) const {
    PW_CHECK(blocks.size() == groups());
    std::vector<CacheGroup> after = config.groups;
    for (uint32_t g = 0; g < groups(); ++g) after[g].blocks = blocks[g];
    for (uint32_t g = 0; g < groups(); ++g) {
      if (blocks[g] == 0) {
        return {ErrorCode::kInvalidArgument, "a layer group would have no KV block"};
      }
      if (pools[g].live() > blocks[g]) {
        return {ErrorCode::kPoolExhausted, std::to_string(pools[g].live()) +
                                               " KV blocks are in use, " +
                                               std::to_string(blocks[g]) + " would be left of " +
                                               std::to_string(pools[g].capacity())};
      }
    }
    return check_floors(config.quotas, after);
  }

  void resize(std::span<const uint32_t> blocks, std::vector<FreshBlock>& dropped) {
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

  uint32_t clear(std::optional<std::string_view> name) {
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
  static bool is_within(std::string_view space, std::string_view name) {
    return space.starts_with(name) && (space.size() == name.size() || space[name.size()] == '/');
  }

  std::vector<NamespaceUse> uses() const {
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

  /// A block counts for its namespace's quota, and nobody who has cached blocks is beyond his
  /// ceiling.
  void check_quotas() const {
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

  void check_invariants() const {
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
  void check_node(NodeId node) const {
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

  CacheConfig config;
  bool sliding = false;   // some group has a window
  bool has_full = false;  // some group has none
  uint32_t guide = 0;     // the first full group, or the first: whose blocks a node is known by
  std::vector<uint32_t> room_of;  // by group: where its leases count
  std::vector<BlockPool> pools;   // one a group
  PrefixIndex index;
  LeaseBook leases;
  Namespaces namespaces;
  std::map<std::string, uint32_t, std::less<>> quota_by_name;  // from 1
  std::vector<Namespaces::value_type*> space_of_root;          // by the root's node id
  /// By the first part of a namespace's name: those behind it may be as many as there are callers.
  std::map<std::string, uint64_t, std::less<>> leases_broken;
  std::vector<Sequence> sequences;  // by slot
  std::vector<uint32_t> sequences_unused;
  uint32_t sequences_open = 0;
  uint64_t clears = 0;
  CacheCounters counters;
  // Scratch, so that a steady step allocates nothing.
  mutable std::vector<NodeId> path;      // full nodes that the last plan found
  mutable std::vector<BlockId> sources;  // by group: what it copies from
  std::vector<uint32_t> promised_scratch;
  std::vector<MarkedPrefix> marked_scratch;
  std::vector<BlockId> node_blocks;
  std::vector<NodeId> filled;  // by the publication under way
  std::vector<BlockId> dropped_scratch;
};

KvCache::KvCache() = default;
KvCache::~KvCache() = default;

Status check_floors(std::span<const NamespaceQuota> quotas, std::span<const CacheGroup> groups) {
  uint64_t floors = 0;
  for (const NamespaceQuota& quota : quotas) floors += quota.floor_blocks;
  const uint32_t blocks = measure(groups);
  if (floors <= blocks) return Status::ok();
  return {ErrorCode::kPoolExhausted, "the floors of namespaces sum to " + std::to_string(floors) +
                                         " KV blocks, and the pool " + "has room for " +
                                         std::to_string(blocks) +
                                         ": lower some, or make the pool larger"};
}

namespace {

Status check_quotas(const CacheConfig& config) {
  const auto invalid = [](const NamespaceQuota& quota, const std::string& what) {
    return Status(ErrorCode::kInvalidArgument, "namespace '" + quota.name + "': " + what);
  };
  std::set<std::string_view> names;
  for (const NamespaceQuota& quota : config.quotas) {
    if (quota.name.find('/') != std::string::npos)
      return invalid(quota, "a floor or ceiling is for all that is below a name without '/'");
    if (!names.insert(quota.name).second) return invalid(quota, "has two quotas");
    if (quota.ceiling_blocks != 0 && quota.floor_blocks > quota.ceiling_blocks) {
      return invalid(quota, "its floor of " + std::to_string(quota.floor_blocks) +
                                " blocks is above its ceiling of " +
                                std::to_string(quota.ceiling_blocks));
    }
  }
  const Status floors = check_floors(config.quotas, config.groups);
  return floors ? floors : Status(ErrorCode::kInvalidArgument, floors.error().message);
}

}  // namespace

Result<std::unique_ptr<KvCache>> KvCache::create(const CacheConfig& config) {
  if (config.block_tokens == 0 || config.groups.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "a KV cache needs a block size and at least one layer group"};
  }
  for (const CacheGroup& group : config.groups) {
    if (group.blocks == 0) {
      return Error{ErrorCode::kInvalidArgument,
                   "the KV pool of a layer group has no blocks: give it more memory"};
    }
  }
  for (const double share :
       {config.protected_share, config.lease_share, config.lease_share_namespace}) {
    if (!(share >= 0 && share <= 1)) {
      return Error{ErrorCode::kInvalidArgument, "a share of the KV pool must be between 0 and 1"};
    }
  }
  for (const TimeNs lease : {config.lease_5m_ns, config.lease_1h_ns}) {
    if (lease <= 0 || lease > kLeaseNsMax) {
      return Error{ErrorCode::kInvalidArgument,
                   "a lease must last longer than 0 and at most 100 years"};
    }
  }
  PW_RETURN_IF_ERROR(check_quotas(config));
  std::unique_ptr<KvCache> cache(new KvCache());
  cache->impl_ = std::make_unique<Impl>(config);
  return cache;
}

void KvCache::set_time(TimeNs now) {
  for (BlockPool& pool : impl_->pools) pool.set_time(now);
  impl_->leases.set_time(now);
}

Result<Admitted> KvCache::admit(const AdmitRequest& request, Orders& orders) {
  return impl_->admit(request, orders);
}

AdmitEstimate KvCache::estimate(const AdmitRequest& request) const {
  PW_CHECK(!request.tokens.empty());
  const Plan found = impl_->plan(request);
  AdmitEstimate estimate;
  estimate.cached_tokens = found.hit(block_tokens());
  estimate.fits_now = found.fits;
  estimate.fits_ever = true;
  const uint64_t tokens = std::max<uint64_t>(request.tokens.size(), request.cover_tokens);
  for (uint32_t g = 0; g < groups(); ++g) {
    const uint64_t blocks = blocks_needed(tokens, window(g), block_tokens());
    estimate.fits_ever = estimate.fits_ever && blocks <= impl_->pools[g].capacity();
  }
  return estimate;
}

Inspection KvCache::inspect(const AdmitRequest& request, TimeNs now, uint32_t beyond_max) const {
  return impl_->inspect(request, now, beyond_max);
}

Status KvCache::ensure(SeqId seq, uint32_t tokens, Orders& orders) {
  return impl_->ensure(impl_->sequence(seq), tokens, orders);
}

uint32_t KvCache::coverable(SeqId seq, uint32_t tokens) const {
  return impl_->coverable(impl_->sequence(seq), tokens);
}

void KvCache::publish(SeqId seq, std::span<const TokenId> computed) {
  impl_->publish(impl_->sequence(seq), computed);
}

SeqId KvCache::fork(SeqId seq) { return impl_->fork(seq); }

void KvCache::release(SeqId seq) { impl_->release(seq); }

std::span<const BlockId> KvCache::table(SeqId seq, uint32_t group) const {
  return impl_->sequence(seq).tables.group(group);
}

uint32_t KvCache::held(SeqId seq, uint32_t group) const {
  return impl_->sequence(seq).tables.held(group);
}

uint32_t KvCache::tokens_computed(SeqId seq) const { return impl_->sequence(seq).computed; }

uint32_t KvCache::tail_holders(SeqId seq, uint32_t group) const {
  const auto& sequence = impl_->sequence(seq);
  if (sequence.computed == 0) return 1;
  return impl_->pools[group].holders(
      sequence.tables.at(group, (sequence.computed - 1) / impl_->config.block_tokens));
}

uint32_t KvCache::tokens_covered(SeqId seq) const {
  const BlockTables& tables = impl_->sequence(seq).tables;
  uint32_t blocks = tables.size(0);
  for (uint32_t g = 1; g < groups(); ++g) blocks = std::min(blocks, tables.size(g));
  return blocks * block_tokens();
}

uint32_t KvCache::clear(std::optional<std::string_view> cache_namespace) {
  return impl_->clear(cache_namespace);
}

Status KvCache::check_resize(std::span<const uint32_t> blocks) const {
  return impl_->check_resize(blocks);
}

Status KvCache::resize(std::span<const uint32_t> blocks, std::vector<FreshBlock>& dropped) {
  PW_RETURN_IF_ERROR(impl_->check_resize(blocks));
  impl_->resize(blocks, dropped);
  return Status::ok();
}

uint32_t KvCache::block_tokens() const { return impl_->config.block_tokens; }
uint32_t KvCache::marker_tokens_min() const { return impl_->config.cache_tokens_min; }

uint32_t KvCache::groups() const { return impl_->groups(); }

uint32_t KvCache::window(uint32_t group) const { return impl_->config.groups[group].window; }

bool KvCache::findable(uint32_t group, BlockId block) const {
  return impl_->pools[group].findable(block);
}

void KvCache::take_idle(uint32_t group, TimeNs until, std::vector<BlockId>& blocks) {
  impl_->pools[group].take_idle(until, blocks);
}

std::optional<TimeNs> KvCache::oldest_idle() const {
  std::optional<TimeNs> oldest;
  for (const BlockPool& pool : impl_->pools) {
    const std::optional<TimeNs> since = pool.oldest_idle();
    if (since && (!oldest || *since < *oldest)) oldest = since;
  }
  return oldest;
}

std::optional<TimeNs> KvCache::next_expiry() const { return impl_->leases.next_expiry(); }

BlockCounts KvCache::counts(uint32_t group) const {
  const BlockPool& pool = impl_->pools[group];
  return {pool.capacity(), pool.live(), pool.cached(), pool.free(), pool.leased()};
}

CacheCounters KvCache::counters() const {
  CacheCounters counters = impl_->counters;
  counters.leases_broken = impl_->leases.broken();
  return counters;
}

std::vector<NamespaceUse> KvCache::namespaces() const { return impl_->uses(); }

std::vector<QuotaUse> KvCache::quotas() const {
  std::vector<QuotaUse> all;
  for (uint32_t q = 0; q < impl_->config.quotas.size(); ++q) {
    QuotaUse& use = all.emplace_back();
    use.name = impl_->config.quotas[q].name;
    for (const BlockPool& pool : impl_->pools) {
      use.floor_blocks += pool.floor(QuotaId(q + 1));
      if (impl_->config.quotas[q].ceiling_blocks != 0)
        use.ceiling_blocks += pool.ceiling(QuotaId(q + 1));
    }
  }
  return all;
}

uint64_t KvCache::leases_broken(std::string_view top) const {
  const auto found = impl_->leases_broken.find(top);
  return found == impl_->leases_broken.end() ? 0 : found->second;
}

uint32_t KvCache::sequences() const { return impl_->sequences_open; }

uint32_t KvCache::entries() const { return impl_->leases.entries(); }

void KvCache::check_invariants() const { impl_->check_invariants(); }

}  // namespace pagewise::kv
