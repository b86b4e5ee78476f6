// SPDX-License-Identifier: Apache-2.0
// The facade ties four things together and owns none of their rules: pools count holders, the index
// knows prefixes, the book keeps entries, and a sequence is a table and a place in the index.
#include "kv/kv_cache.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/hash.h"
#include "kv/block_pool.h"
#include "kv/block_table.h"
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
  uint32_t computed = 0;  // positions whose K and V are in the blocks
  BlockTables tables;
  // The sequence's place in the index: `full` leading blocks are findable under `tail` and its
  // predecessors, each by this sequence's block or by a twin of it.
  NodeId tail;
  uint32_t full = 0;
  std::vector<Pending> pending;  // longest first
  std::optional<PromiseKey> promise;
};

/// What a look-up found and what the admission would need. Nothing is held by it.
struct Plan {
  NodeId root;              // null: the namespace is unknown so far
  uint32_t full = 0;        // whole blocks to share: the first ones of the path
  uint32_t partial = 0;     // positions to copy from `source`
  NodeId source;            // null when partial == 0
  uint32_t readable = 0;    // an entry may end here at most
  uint32_t new_blocks = 0;  // per group
  bool fits = false;
};

}  // namespace

struct KvCache::Impl final : LeaseBook::Listener {
  explicit Impl(const CacheConfig& given)
      : config(given),
        index(given.block_tokens, capacities(given)),
        leases(index, *this, lease_rules(given)) {
    for (const CacheGroup& group : config.groups) {
      pools.emplace_back(group.blocks, config.protected_share,
                         config.shuffle_blocks ? std::optional(config.shuffle_seed) : std::nullopt);
    }
    if (config.cache_tokens_min == 0) config.cache_tokens_min = config.block_tokens;
    node_blocks.resize(groups());
  }

  static std::vector<uint32_t> capacities(const CacheConfig& config) {
    std::vector<uint32_t> blocks;
    for (const CacheGroup& group : config.groups) blocks.push_back(group.blocks);
    return blocks;
  }
  /// A node takes one block of each group, so the smallest group decides how many may be leased.
  static LeaseRules lease_rules(const CacheConfig& config) {
    const std::vector<uint32_t> blocks = capacities(config);
    LeaseRules rules;
    rules.lifetime_5m_ns = config.lease_5m_ns;
    rules.lifetime_1h_ns = config.lease_1h_ns;
    rules.nodes_max =
        static_cast<uint32_t>(*std::min_element(blocks.begin(), blocks.end()) * config.lease_share);
    rules.nodes_max_namespace =
        static_cast<uint32_t>(rules.nodes_max * config.lease_share_namespace);
    return rules;
  }

  uint32_t groups() const { return static_cast<uint32_t>(config.groups.size()); }
  uint32_t blocks_for(uint64_t tokens) const {
    return static_cast<uint32_t>(ceil_div(tokens, config.block_tokens));
  }
  // --- the index and the pools ---

  void on_leased(NodeId node, bool leased) override {
    for (uint32_t g = 0; g < groups(); ++g) pools[g].set_leased(index.block(node, g), leased);
  }

  /// Takes a node without children out of the index. Its blocks stay live where held, else become
  /// free.
  void remove_node(NodeId node, RemoveReason reason) {
    leases.on_remove(node, reason);
    for (uint32_t g = 0; g < groups(); ++g) {
      const BlockId block = index.block(node, g);
      if (reason == RemoveReason::kEvicted && pools[g].is_cached(block)) ++counters.evictions;
      pools[g].clear_findable(block);
    }
    index.remove(node);
  }

  /// Frees a cached block: a twin of it takes its place in the index, or its contents are given up.
  void evict(uint32_t g, BlockId victim) {
    const NodeId node = index.owner(g, victim);
    if (hand_over(node)) return;
    // Cached blocks go before those in front of them, and live ones behind a cached one imply a
    // twin of it.
    PW_CHECK(index.children(node).empty());
    Namespaces::value_type& space = *space_of_root[index.root(node).value];
    remove_node(node, RemoveReason::kEvicted);
    forget_if_empty(space);
  }

  /// An open sequence that published through this node without holding its block has computed a
  /// twin of it. Then nothing is lost: the twin becomes the findable one. False when there is none.
  /// Cost: O(open sequences), and their depth in the rare case that the node has children.
  bool hand_over(NodeId node) {
    const bool is_leaf = index.children(node).empty();
    const uint32_t i = index.depth(node) - 1;
    for (const Sequence& sequence : sequences) {
      if (!sequence.open || !enters_cache(sequence) || sequence.full <= i) continue;
      NodeId at = sequence.tail;
      while (!is_leaf && index.depth(at) > i + 1) at = index.parent(at);
      if (at != node) continue;
      for (uint32_t g = 0; g < groups(); ++g) {
        BlockPool& pool = pools[g];
        const BlockId old_block = index.block(node, g);
        const bool reused = pool.reused(old_block);
        pool.clear_findable(old_block);
        node_blocks[g] = sequence.tables.at(g, i);
        pool.set_findable(node_blocks[g]);
        if (leases.leased(node)) pool.set_leased(node_blocks[g], true);
        if (reused) pool.mark_reused(node_blocks[g]);
      }
      index.replace_blocks(node, node_blocks);
      return true;
    }
    return false;
  }

  /// A namespace without nodes and sequences is forgotten: salts may be many.
  void forget_if_empty(Namespaces::value_type& space) {
    if (space.second.sequences > 0 || !index.children(space.second.root).empty()) return;
    space_of_root[space.second.root.value] = nullptr;
    index.remove_root(space.second.root);
    namespaces.erase(namespaces.find(space.first));
  }

  /// A free block of group g, made by eviction if need be. Requires: pools[g].available() > 0.
  BlockId take(uint32_t g, Orders& orders) {
    if (pools[g].free() == 0) {
      const BlockId victim = pools[g].victim();
      PW_CHECK(victim.valid());
      evict(g, victim);
    }
    const BlockId block = pools[g].take();
    orders.fresh.push_back({g, block});
    return block;
  }

  Namespaces::value_type& open_namespace(std::string_view name) {
    const auto found = namespaces.find(name);
    if (found != namespaces.end()) return *found;
    Namespaces::value_type& space = *namespaces.emplace(std::string(name), Namespace{}).first;
    space.second.root = index.add_root();
    if (space_of_root.size() < index.slots()) space_of_root.resize(index.slots(), nullptr);
    space_of_root[space.second.root.value] = &space;
    return space;
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

  /// Leaves the full nodes that match in `path`.
  Plan plan(const AdmitRequest& request) const {
    const uint32_t tokens = static_cast<uint32_t>(request.tokens.size());
    const uint32_t block_tokens = config.block_tokens;
    Plan found;
    path.clear();
    PrefixIndex::Match rest;
    const auto space = namespaces.find(request.cache_namespace);
    if (request.use_cache && space != namespaces.end()) {
      found.root = space->second.root;
      rest = index.walk(found.root, request.tokens, path);
    }
    const uint32_t matched = static_cast<uint32_t>(path.size()) * block_tokens + rest.tokens;
    const uint32_t hit = std::min(matched, tokens - 1);  // the last token's logits must be computed
    found.readable = matched;
    found.full = hit / block_tokens;
    found.partial = hit % block_tokens;
    if (found.partial > 0) found.source = found.full < path.size() ? path[found.full] : rest.child;
    found.new_blocks = blocks_for(std::max(request.cover_tokens, hit)) - found.full;
    found.fits = can_hold(found);
    if (!found.fits && found.partial > 0) {
      // The partly matching block may itself be the memory that is missing: do without it.
      found.partial = 0;
      found.source = NodeId();
      found.readable = found.full * block_tokens;
      const uint32_t covered = std::max(request.cover_tokens, found.full * block_tokens);
      found.new_blocks = blocks_for(covered) - found.full;
      found.fits = can_hold(found);
    }
    return found;
  }

  /// Blocks that the hit takes from the cached ones cannot be evicted to make the new ones.
  bool can_hold(const Plan& found) const {
    for (uint32_t g = 0; g < groups(); ++g) {
      uint32_t pinned = 0;
      for (uint32_t i = 0; i < found.full; ++i) {
        pinned += pools[g].is_cached(index.block(path[i], g));
      }
      if (found.source.valid()) pinned += pools[g].is_cached(index.block(found.source, g));
      if (found.new_blocks > pools[g].available() - pinned) return false;
    }
    return true;
  }

  /// Another request reads this node. Held or touched first: with its old age it might be demoted
  /// at once.
  void mark_reused(NodeId node) {
    for (uint32_t g = 0; g < groups(); ++g) pools[g].mark_reused(index.block(node, g));
  }

  Result<Admitted> admit(const AdmitRequest& request, Orders& orders) {
    PW_CHECK(!request.tokens.empty());
    const Plan found = plan(request);
    if (!found.fits) {
      return Error{ErrorCode::kPoolExhausted, "the prompt needs " +
                                                  std::to_string(found.new_blocks) +
                                                  " new KV blocks, which cannot be had now"};
    }
    Admitted admitted;
    admitted.seq = open_sequence();
    admitted.cached_tokens = found.full * config.block_tokens + found.partial;
    admitted.blocks_shared = found.full * groups();
    admitted.usage.input_tokens = static_cast<uint32_t>(request.tokens.size());
    Sequence& opened = sequence(admitted.seq);
    opened.computed = admitted.cached_tokens;
    if (request.use_cache) {
      Namespaces::value_type& space = open_namespace(request.cache_namespace);
      ++space.second.sequences;  // from here on eviction cannot take the namespace away
      opened.space = &space;
      opened.epoch = space.second.epoch;
      opened.full = found.full;
      opened.tail = found.full > 0 ? path[found.full - 1] : space.second.root;
      counters.query_tokens += request.tokens.size();
      counters.hit_tokens += admitted.cached_tokens;
    }
    for (uint32_t i = 0; i < found.full; ++i) {
      for (uint32_t g = 0; g < groups(); ++g) {
        pools[g].hold(index.block(path[i], g));
        opened.tables.push(g, index.block(path[i], g));
      }
      mark_reused(path[i]);
    }
    if (request.use_cache && !request.markers.empty())
      admitted.usage = read_markers(request, found, opened);

    // The source is held only while blocks are taken, so that it is not among them.
    if (found.source.valid()) {
      for (uint32_t g = 0; g < groups(); ++g) pools[g].hold(index.block(found.source, g));
      mark_reused(found.source);
    }
    for (uint32_t g = 0; g < groups(); ++g) {
      for (uint32_t i = 0; i < found.new_blocks; ++i) opened.tables.push(g, take(g, orders));
    }
    if (found.source.valid()) {
      for (uint32_t g = 0; g < groups(); ++g) {
        const BlockId from = index.block(found.source, g);
        orders.copies.push_back({g, from, opened.tables.at(g, found.full), found.partial});
        pools[g].release(from);
      }
    }
    return admitted;
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
      for (uint32_t back = 0; back < kLookBackPositions && back <= marker.position; ++back) {
        const uint32_t at = request.positions[marker.position - back].tokens;
        const EntryId entry = entry_at(request, found, at);
        if (!entry.valid()) continue;
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

    // Longest first: what fits for it fits for all shorter ones.
    uint32_t leased_depth = 0;
    while (leased_depth < path.size() && leases.leased(path[leased_depth])) ++leased_depth;
    for (std::size_t i = marked.size(); i-- > 0;) {
      const MarkedPrefix prefix = marked[i];
      const EntryId here = entry_at(request, found, prefix.tokens);
      if (here.valid()) {
        leases.refresh(here, prefix.lease, request.start);
        continue;
      }
      if (prefix.tokens > read_tokens && !opened.promise) {
        const uint32_t blocks = blocks_for(prefix.tokens);
        const PromiseKey key = promise_key(request, prefix.tokens);
        if (!leases.promise(key, opened.space->second.root,
                            blocks - std::min(leased_depth, blocks))) {
          ++counters.leases_refused;
          marked.erase(marked.begin() + static_cast<std::ptrdiff_t>(i));
          continue;
        }
        opened.promise = key;
      }
      opened.pending.push_back({prefix.tokens, prefix.lease, request.start});
    }
    return cache_usage(tokens, read_tokens, marked, config.cache_tokens_min);
  }

  static PromiseKey promise_key(const AdmitRequest& request, uint32_t tokens) {
    const uint64_t space = xxh3(std::as_bytes(std::span(request.cache_namespace)));
    return xxh3(std::as_bytes(request.tokens.first(tokens)), space);
  }

  /// Turns the promises that `sequence.computed` covers into entries. Requires: they are in the
  /// index.
  void write_entries(Sequence& sequence, std::span<const TokenId> computed) {
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
      NodeId node = parent;
      if (tail_tokens > 0) {
        const std::span<const TokenId> tail =
            computed.subspan(std::size_t{depth} * config.block_tokens, tail_tokens);
        node = below.valid() ? below : index.longest_child(parent, tail).child;
        PW_CHECK(node.valid() && common_tokens(index.tokens(node), tail) == tail_tokens);
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
    const NodeId own = index.owner(0, sequence.tables.at(0, i));
    if (own.valid()) {
      PW_CHECK(index.parent(own) == parent);
      index.extend(own, tokens);
      return own;
    }
    const PrefixIndex::Match match = index.longest_child(parent, tokens);
    if (match.tokens == tokens.size()) {
      if (tokens.size() == config.block_tokens) ++counters.twins;
      return match.child;  // ours stays private; what is findable serves everybody as well
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

  void publish(Sequence& sequence, std::span<const TokenId> computed) {
    PW_CHECK(computed.size() >= sequence.computed);
    PW_CHECK(blocks_for(computed.size()) <= sequence.tables.size());
    sequence.computed = static_cast<uint32_t>(computed.size());
    if (!enters_cache(sequence)) {
      drop_promises(sequence);
      return;
    }
    const uint32_t block_tokens = config.block_tokens;
    for (; sequence.full < computed.size() / block_tokens; ++sequence.full) {
      const NodeId node =
          publish_block(sequence, sequence.tail, sequence.full,
                        computed.subspan(std::size_t{sequence.full} * block_tokens, block_tokens));
      sequence.tail = node;
    }
    const std::span<const TokenId> rest =
        computed.subspan(std::size_t{sequence.full} * block_tokens);
    if (!rest.empty()) publish_block(sequence, sequence.tail, sequence.full, rest);
    if (!sequence.pending.empty()) write_entries(sequence, computed);
  }

  // --- growth and end ---

  Status ensure(Sequence& sequence, uint32_t tokens, Orders& orders) {
    const uint32_t wanted = std::max(blocks_for(tokens), sequence.tables.size());
    const uint32_t new_blocks = wanted - sequence.tables.size();
    const uint32_t written = sequence.computed % config.block_tokens;
    const uint32_t tail = sequence.computed / config.block_tokens;  // block of the next position
    const auto tail_is_shared = [&](uint32_t g) {
      return written > 0 && tokens > sequence.computed &&
             pools[g].holders(sequence.tables.at(g, tail)) > 1;
    };
    for (uint32_t g = 0; g < groups(); ++g) {
      const uint32_t needed = new_blocks + tail_is_shared(g);
      if (needed > pools[g].available()) {
        return {ErrorCode::kPoolExhausted,
                "the sequence needs " + std::to_string(needed) + " more KV blocks, " +
                    std::to_string(pools[g].available()) + " can be had"};
      }
    }
    for (uint32_t g = 0; g < groups(); ++g) {
      if (tail_is_shared(g)) {
        const BlockId shared = sequence.tables.at(g, tail);
        const BlockId own = take(g, orders);
        orders.copies.push_back({g, shared, own, written});
        sequence.tables.replace(g, tail, own);
        pools[g].release(shared);
      }
      for (uint32_t i = 0; i < new_blocks; ++i) sequence.tables.push(g, take(g, orders));
    }
    return Status::ok();
  }

  SeqId fork(SeqId id) {
    const SeqId copy_id = open_sequence();  // may move sequences
    Sequence& from = sequence(id);
    Sequence& to = sequence(copy_id);
    to.space = from.space;
    if (to.space) ++to.space->second.sequences;
    to.epoch = from.epoch;
    to.computed = from.computed;
    to.tail = from.tail;
    to.full = from.full;
    for (uint32_t g = 0; g < groups(); ++g) {
      for (uint32_t i = 0; i < blocks_for(from.computed); ++i) {
        pools[g].hold(from.tables.at(g, i));
        to.tables.push(g, from.tables.at(g, i));
      }
    }
    return copy_id;
  }

  void release(SeqId id) {
    Sequence& closed = sequence(id);
    drop_promises(closed);
    NodeId at = enters_cache(closed) && closed.full > 0 ? closed.tail : NodeId();
    bool above_twin = false;
    for (uint32_t i = closed.tables.size(); i-- > 0;) {
      if (at.valid() && i < closed.full) {
        // Where a twin stands in for our block it was used as well, and with it all that is before
        // it; otherwise it could be given up before its successors.
        above_twin = above_twin || index.block(at, 0) != closed.tables.at(0, i);
        if (above_twin) {
          for (uint32_t g = 0; g < groups(); ++g) pools[g].touch(index.block(at, g));
          mark_reused(at);
        }
        at = index.parent(at);
      }
      for (uint32_t g = 0; g < groups(); ++g) pools[g].release(closed.tables.at(g, i));
    }
    Namespaces::value_type* space = closed.space;
    closed.tables.clear();
    closed.space = nullptr;
    closed.tail = NodeId();
    closed.full = closed.computed = 0;
    closed.open = false;
    ++closed.generation;
    --sequences_open;
    sequences_unused.push_back(static_cast<uint32_t>(id.value & UINT32_MAX));
    if (space == nullptr) return;
    --space->second.sequences;
    forget_if_empty(*space);
  }

  uint32_t clear(std::optional<std::string_view> name) {
    uint32_t before = 0, after = 0;
    for (const BlockPool& pool : pools) before += pool.free();
    for (auto next = namespaces.begin(); next != namespaces.end();) {
      Namespaces::value_type& space = *next++;  // forget_if_empty may erase it
      if (name && space.first != *name) continue;
      const NodeId root = space.second.root;
      for (NodeId at = root; at != root || !index.children(root).empty();) {
        while (!index.children(at).empty()) at = index.children(at).back();
        const NodeId leaf = std::exchange(at, index.parent(at));
        remove_node(leaf, RemoveReason::kCleared);
      }
      ++space.second.epoch;
      forget_if_empty(space);
    }
    for (const BlockPool& pool : pools) after += pool.free();
    return after - before;
  }

  void check_invariants() const {
    index.check_invariants();
    leases.check_invariants();
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
    for (uint32_t g = 0; g < groups(); ++g) {
      const BlockPool& pool = pools[g];
      pool.check_invariants();
      std::vector<uint32_t> holders(pool.capacity(), 0);
      for (const Sequence& sequence : sequences) {
        PW_CHECK(sequence.open || sequence.tables.size() == 0);
        PW_CHECK(sequence.tables.group(g).size() == sequence.tables.size());
        PW_CHECK(blocks_for(sequence.computed) <= sequence.tables.size());
        for (BlockId block : sequence.tables.group(g)) ++holders[block.value];
      }
      for (uint32_t id = 0; id < pool.capacity(); ++id) {
        const BlockId block(id);
        const NodeId node = index.owner(g, block);
        PW_CHECK(pool.holders(block) == holders[id]);
        PW_CHECK(pool.findable(block) == node.valid());
        if (!node.valid()) continue;
        PW_CHECK(pool.leased(block) == leases.leased(node));
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

  CacheConfig config;
  std::vector<BlockPool> pools;  // one a group
  PrefixIndex index;
  LeaseBook leases;
  Namespaces namespaces;
  std::vector<Namespaces::value_type*> space_of_root;  // by the root's node id
  std::vector<Sequence> sequences;                     // by slot
  std::vector<uint32_t> sequences_unused;
  uint32_t sequences_open = 0;
  CacheCounters counters;
  // Scratch, so that a steady step allocates nothing.
  mutable std::vector<NodeId> path;  // full nodes that the last plan found
  std::vector<MarkedPrefix> marked_scratch;
  std::vector<BlockId> node_blocks;
};

KvCache::KvCache() = default;
KvCache::~KvCache() = default;

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
    if (group.window != 0) {
      return Error{ErrorCode::kUnsupported, "sliding-window layers (window " +
                                                std::to_string(group.window) +
                                                ") are not supported yet"};
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
  std::unique_ptr<KvCache> cache(new KvCache());
  cache->impl_ = std::make_unique<Impl>(config);
  return cache;
}

void KvCache::set_time(TimeNs now) { impl_->leases.set_time(now); }

Result<Admitted> KvCache::admit(const AdmitRequest& request, Orders& orders) {
  return impl_->admit(request, orders);
}

AdmitEstimate KvCache::estimate(const AdmitRequest& request) const {
  PW_CHECK(!request.tokens.empty());
  const Plan found = impl_->plan(request);
  AdmitEstimate estimate;
  estimate.cached_tokens = found.full * block_tokens() + found.partial;
  estimate.fits_now = found.fits;
  estimate.fits_ever = true;
  const uint64_t blocks =
      ceil_div(std::max<uint64_t>(request.tokens.size(), request.cover_tokens), block_tokens());
  for (const BlockPool& pool : impl_->pools)
    estimate.fits_ever = estimate.fits_ever && blocks <= pool.capacity();
  return estimate;
}

Status KvCache::ensure(SeqId seq, uint32_t tokens, Orders& orders) {
  return impl_->ensure(impl_->sequence(seq), tokens, orders);
}

void KvCache::publish(SeqId seq, std::span<const TokenId> computed) {
  impl_->publish(impl_->sequence(seq), computed);
}

SeqId KvCache::fork(SeqId seq) { return impl_->fork(seq); }

void KvCache::release(SeqId seq) { impl_->release(seq); }

std::span<const BlockId> KvCache::table(SeqId seq, uint32_t group) const {
  return impl_->sequence(seq).tables.group(group);
}

uint32_t KvCache::tokens_computed(SeqId seq) const { return impl_->sequence(seq).computed; }

uint32_t KvCache::tokens_covered(SeqId seq) const {
  return impl_->sequence(seq).tables.size() * block_tokens();
}

uint32_t KvCache::clear(std::optional<std::string_view> cache_namespace) {
  return impl_->clear(cache_namespace);
}

uint32_t KvCache::block_tokens() const { return impl_->config.block_tokens; }

uint32_t KvCache::groups() const { return impl_->groups(); }

BlockCounts KvCache::counts(uint32_t group) const {
  const BlockPool& pool = impl_->pools[group];
  return {pool.capacity(), pool.live(), pool.cached(), pool.free(), pool.leased()};
}

CacheCounters KvCache::counters() const {
  CacheCounters counters = impl_->counters;
  counters.leases_broken = impl_->leases.broken();
  return counters;
}

uint32_t KvCache::sequences() const { return impl_->sequences_open; }

uint32_t KvCache::entries() const { return impl_->leases.entries(); }

void KvCache::check_invariants() const { impl_->check_invariants(); }

}  // namespace pagewise::kv
