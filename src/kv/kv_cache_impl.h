// SPDX-License-Identifier: Apache-2.0
// What stands behind KvCache: the state, and who does what with it. The facade ties four things
// together and owns none of their rules: pools count holders, the index knows prefixes, the book
// keeps entries, and a sequence is a table and a place in the index. Only the files named below
// include this.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "kv/block_pool.h"
#include "kv/block_table.h"
#include "kv/geometry.h"
#include "kv/kv_cache.h"
#include "kv/lease.h"
#include "kv/prefix_index.h"

namespace pagewise::kv {

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
uint32_t measure(std::span<const CacheGroup> groups);

enum class EvictReason : uint8_t { kRoom, kCeiling };

/// Who takes a block, and whether others' floors are in his way: not when nobody else could give
/// anything up any more.
struct Taker {
  QuotaId quota;
  bool alone = false;
};

struct KvCache::Impl final : LeaseBook::Listener {
  explicit Impl(const CacheConfig& given);
  static std::vector<uint32_t> capacities(const CacheConfig& config);
  static uint32_t nodes(const CacheConfig& config);
  static LeaseRules lease_rules(const CacheConfig& config);
  static uint32_t floor_in(const NamespaceQuota& quota, const CacheGroup& group,
                           std::span<const CacheGroup> groups);
  static uint32_t ceiling_in(const NamespaceQuota& quota, const CacheGroup& group,
                             std::span<const CacheGroup> groups);
  void set_quota_limits();

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

  // kv_cache_admission.cc
  Plan plan(const AdmitRequest& request) const;
  Inspection inspect(const AdmitRequest& request, TimeNs now, uint32_t beyond_max) const;
  void find_hit(std::span<const TokenId> tokens, const PrefixIndex::Match& rest, bool with_partial,
                Plan& found) const;
  void find_sources(std::span<const TokenId> wanted, const PrefixIndex::Match& rest,
                    Plan& found) const;
  bool can_hold(const AdmitRequest& request, const Plan& found) const;
  uint32_t promised(uint32_t g) const;
  Result<Admitted> admit(const AdmitRequest& request, Orders& orders);
  static void note_points(const AdmitRequest& request, uint32_t hit, Sequence& opened);

  // kv_cache_entries.cc
  void drop_promises(Sequence& sequence);
  EntryId entry_at(const AdmitRequest& request, const Plan& found, uint32_t tokens) const;
  bool existed(EntryId entry, TimeNs start) const;
  CacheUsage read_markers(const AdmitRequest& request, const Plan& found, Sequence& opened);
  bool count_promise(const Sequence& opened, bool beyond_read);
  bool reachable(const AdmitRequest& request, const Plan& found, uint32_t tokens) const;
  NodeId entry_node(NodeId parent, NodeId below, std::span<const TokenId> tail) const;
  bool holds_window(NodeId node, uint32_t tokens) const;
  static PromiseKey promise_key(const AdmitRequest& request, uint32_t tokens);
  void write_entries(Sequence& sequence, std::span<const TokenId> computed);

  // kv_cache_publication.cc
  void publish(Sequence& sequence, std::span<const TokenId> computed);
  void enter(Sequence& sequence, std::span<const TokenId> computed);
  NodeId publish_block(Sequence& sequence, NodeId parent, uint32_t i,
                       std::span<const TokenId> tokens);
  void join(NodeId node, const Sequence& sequence, uint32_t i, uint32_t tokens);
  void note_computed(const Sequence& sequence, NodeId node);
  void give_up_passed(Sequence& sequence);
  bool before_point(const Sequence& sequence, uint32_t g, uint32_t i) const;
  void keep_twin(const Sequence& sequence, uint32_t g, uint32_t i, BlockId own);

  // kv_cache_sequences.cc
  Sequence& sequence(SeqId id);
  SeqId open_sequence();
  Status ensure(Sequence& sequence, uint32_t tokens, Orders& orders);
  uint32_t coverable(const Sequence& sequence, uint32_t tokens) const;
  SeqId fork(SeqId id);
  void release(SeqId id);
  void use_indexed(const Sequence& closed, uint32_t g, uint32_t i, NodeId node, bool used);
  /// Whether what the sequence computes may enter the cache.
  static bool enters_cache(const Sequence& sequence) {
    return sequence.space != nullptr && sequence.epoch == sequence.space->second.epoch;
  }
  Taker taker(const Sequence& sequence) const { return {sequence.quota, sequences_open == 1}; }
  static uint32_t blocks_missing(const Sequence& sequence, uint32_t g, uint32_t end) {
    const uint32_t have = sequence.tables.size(g);
    return end > have ? end - have : 0;
  }
  /// Whether covering `tokens` means writing into a block that somebody else holds, too.
  bool tail_is_shared(const Sequence& sequence, uint32_t g, uint32_t tokens) const {
    return sequence.computed % config.block_tokens > 0 && tokens > sequence.computed &&
           pools[g].holders(sequence.tables.at(g, sequence.computed / config.block_tokens)) > 1;
  }

  // kv_cache_eviction.cc
  void on_leased(NodeId node, uint32_t room, bool leased) override;
  void on_broken(NodeId root) override;
  bool complete(NodeId node) const override;
  void attach(NodeId node, uint32_t g, BlockId block);
  void detach(NodeId node, uint32_t g);
  void remove_node(NodeId node, RemoveReason reason);
  void evict(uint32_t g, BlockId victim, EvictReason reason);
  void prune(NodeId node);
  bool hand_over(NodeId node, uint32_t g);
  void swap(NodeId node, uint32_t g, BlockId block);
  void forget_if_empty(Namespaces::value_type& space);
  void give_up_one(uint32_t g, const Taker& taker);
  void keep_to_ceiling(QuotaId quota);
  void keep_to_ceiling(uint32_t g, QuotaId quota, uint32_t more);
  BlockId take(uint32_t g, const Taker& taker, Orders& orders);
  Namespaces::value_type& open_namespace(std::string_view name);
  uint64_t root_digest(std::string_view name) const;
  QuotaId quota_of(std::string_view name) const;
  uint32_t available(uint32_t g, const Taker& taker) const {
    return taker.alone ? pools[g].available() : pools[g].available_to(taker.quota);
  }

  // kv_cache_operations.cc
  Status check_resize(std::span<const uint32_t> blocks) const;
  void resize(std::span<const uint32_t> blocks, std::vector<FreshBlock>& dropped);
  uint32_t clear(std::optional<std::string_view> name);
  static bool is_within(std::string_view space, std::string_view name);
  std::vector<NamespaceUse> uses() const;

  // kv_cache_check.cc
  void check_quotas() const;
  void check_invariants() const;
  void check_node(NodeId node) const;

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

}  // namespace pagewise::kv
