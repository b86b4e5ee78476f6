// SPDX-License-Identifier: Apache-2.0
// The KV cache as the engine sees it: sequences hold blocks through tables, equal prefixes share
// them, and what nobody holds any more stays findable until its memory is needed. docs/kv.md tells
// the whole story.
//
// Only block ids and counts live here. Whatever must happen to the bytes is handed back as Orders,
// which the engine passes to its executor. One request, from left to right:
//
//   admit ──▶ ensure ──▶ [step] ──▶ publish ──▶ ensure ──▶ [step] ──▶ publish ── ... ──▶ release
//     │         │                     │
//     │         │                     └ what was computed becomes findable, marked prefixes become
//     entries │         └ blocks for the positions that the next step writes └ longest known prefix
//     is held; `cached_tokens` need not be computed
//
//   tokens     │◀─────── cached_tokens ───────▶│◀─ computed by steps ─▶│
//   table      │ block 0 │ block 1 │ block 2  ┆│   ┆ block 3 │ block 4  │
//               shared    shared    own: matched positions are copied, then continued
//
// Every group has its own pool and table. A sliding group holds only the blocks of the last
// `window` positions: at rest at most window + 1 block of positions; from ensure to publish at most
// window + the tokens between + 2 blocks.
//
// Thread: engine thread only; no locks, no clock (`now` is told), no randomness (a seed at most).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "kv/cache_marker.h"
#include "kv/inspection.h"
#include "kv/quota.h"

namespace pagewise::kv {

struct CacheGroup {
  uint32_t blocks = 0;  // the executor's capacity of this group; ids are [0, blocks)
  uint32_t window = 0;  // 0: full attention; else a position sees itself and window - 1 before it
};

struct CacheConfig {
  uint32_t block_tokens = 32;      // any size >= 1
  std::vector<CacheGroup> groups;  // as in Geometry::groups, at least one
  bool shuffle_blocks = false;     // free blocks are handed out in an order drawn from shuffle_seed
  uint64_t shuffle_seed = 0;
  /// Part of the pool in which blocks that were read again are safe from blocks that were not, to
  /// begin with: it then follows what is missed (eviction_policy.h), within seven eighths. 0 is
  /// plain LRU for good.
  double protected_share = 0.25;
  TimeNs lease_5m_ns = 300'000'000'000;
  TimeNs lease_1h_ns = 3'600'000'000'000;
  double lease_share = 0.5;            // of the pool, all leases together
  double lease_share_namespace = 1.0;  // of that, one namespace
  uint32_t cache_tokens_min = 0;       // markers of fewer tokens do not count; 0: one block
  CacheMode cache_mode = CacheMode::kNative;
  std::vector<NamespaceQuota> quotas;  // of different names
};

/// Whether these pools can keep the floors: their sum is at most the smallest full group's blocks
/// (the smallest group's, where none is full). Errors: kPoolExhausted with both numbers.
Status check_floors(std::span<const NamespaceQuota> quotas, std::span<const CacheGroup> groups);

/// Copy positions [0, positions) of block `from` to block `to`, both of one group.
struct CopyOrder {
  uint32_t group = 0;
  BlockId from, to;
  uint32_t positions = 0;
  bool operator==(const CopyOrder&) const = default;
};

/// A block that was handed out and must be usable and zero-filled before anything is written or
/// copied to it.
struct FreshBlock {
  uint32_t group = 0;
  BlockId block;
  bool operator==(const FreshBlock&) const = default;
};

/// What the executor has to do, appended by the calls below. Requires of the engine: all `fresh`,
/// then all `copies`, in order, and before the next call on this cache that could hand out blocks
/// (admit, ensure): a copy's source is not held, and its block may be given to somebody else by
/// that next call.
struct Orders {
  std::vector<FreshBlock> fresh;
  std::vector<CopyOrder> copies;
  void clear() {
    fresh.clear();
    copies.clear();
  }
};

struct AdmitRequest {
  /// The prompt; after a preemption the prompt and what was generated so far. At least one token.
  std::span<const TokenId> tokens;
  /// Of a sequence that resumes after a preemption: so many of the tokens it has had already (all
  /// of them, once its prompt was computed: nobody asks for what it generates). To find those is no
  /// reading, and to compute them again no asking: neither the counters nor the eviction policy
  /// hear of it.
  std::optional<uint32_t> resumes_from;
  std::string_view cache_namespace;  // reuse never crosses namespaces
  bool use_cache = true;             // false: neither reads nor enters the cache
  /// false: finds nothing there, but enters it. Markers then do not count.
  bool read_cache = true;
  /// Ascending. Markers beyond the list and positions beyond the tokens are ignored.
  std::span<const CachePosition> positions;
  std::span<const CacheMarker> markers;
  /// Positions that the full groups' tables cover on return; 0: only the hit. All or nothing with
  /// the admission itself. Sliding groups cover the hit and are covered step by step (ensure); what
  /// so many tokens will take at rest must be there, beside what those before were promised.
  uint32_t cover_tokens = 0;
  TimeNs start = 0;  // when the request began; leases are measured from here
};

struct Admitted {
  SeqId seq;
  uint32_t cached_tokens = 0;  // physical: need not be computed; at most tokens.size() - 1
  uint32_t blocks_shared = 0;  // whole blocks read from the cache, all groups
  CacheUsage usage;            // contractual (B7); without counting markers all of it is input
};

/// What an admission would find now; nothing is held or changed.
struct AdmitEstimate {
  uint32_t cached_tokens = 0;
  bool fits_now = false;   // admit with the same request would succeed
  bool fits_ever = false;  // an empty pool could cover the request's tokens (and cover_tokens)
};

/// Per group. live + cached + free == pool, always. Leased is a property of live and cached blocks.
struct BlockCounts {
  uint32_t pool = 0;
  uint32_t live = 0;    // held by a sequence
  uint32_t cached = 0;  // held by none, findable
  uint32_t free = 0;
  uint32_t leased = 0;  // covered by an unexpired entry
  bool operator==(const BlockCounts&) const = default;
  /// Blocks that could be had now: leases and popularity decide who goes first, not whether.
  uint32_t available() const { return free + cached; }
};

/// A marked prefix that can be read until it expires.
struct LeaseUse {
  uint32_t tokens = 0;
  LeaseClass lease = LeaseClass::k5m;
  TimeNs expires = 0, left_ns = 0;  // left as of set_time
};

/// What one namespace uses now, all groups.
struct NamespaceUse {
  std::string name;
  uint32_t blocks_live = 0, blocks_cached = 0;
  uint32_t blocks_leased = 0;  // of these two
  std::vector<LeaseUse> leases;
};

/// A quota and what it is in blocks of all groups together.
struct QuotaUse {
  std::string name;
  uint32_t floor_blocks = 0, ceiling_blocks = 0;  // 0: no ceiling
};

/// Never decreasing.
struct CacheCounters {
  uint64_t evictions = 0;              // cached blocks whose contents were given up, all groups
  uint64_t evictions_ceiling = 0;      // of these, by their own namespace's ceiling
  uint64_t evictions_below_floor = 0;  // and for somebody else, although at or below a floor
  uint64_t leases_broken = 0;          // entries that lost a block before they expired
  uint64_t leases_refused = 0;         // markers that took no lease because the share was used up
  /// Markers inside the hit that took no lease: a sliding group has lost the blocks before them, so
  /// nothing can be read up to there.
  uint64_t leases_unreachable = 0;
  uint64_t query_tokens = 0;     // looked up by successful admissions that resume nothing
  uint64_t hit_tokens = 0;       // of these, found
  uint64_t copies_on_write = 0;  // shared blocks that a sequence copied to write on (after a fork)
  uint64_t twins = 0;  // blocks computed although an equal one was findable at publication
};

class KvCache {
 public:
  /// Errors: kInvalidArgument (a zero size, a share outside [0, 1], a lease that is none, quotas
  /// that contradict each other or that the pool cannot keep).
  static Result<std::unique_ptr<KvCache>> create(const CacheConfig& config);
  ~KvCache();

  /// Time for leases and idle memory; goes forward only (an earlier time is ignored). Call before
  /// admit, and before what a step has released.
  void set_time(TimeNs now);

  /// Looks the tokens up, holds every whole block of the longest known prefix, and opens a
  /// sequence. Of a block that matches in part, the matched positions are ordered to be copied to a
  /// fresh block. Markers are read (refreshing what they hit) and their creations are promised;
  /// publish keeps the promise. Errors: kPoolExhausted when the blocks cannot be had now; nothing
  /// is then held, refreshed or counted. A request with AdmitEstimate::fits_ever succeeds at the
  /// latest when no other sequence is open: others' floors count for nothing then.
  Result<Admitted> admit(const AdmitRequest& request, Orders& orders);
  AdmitEstimate estimate(const AdmitRequest& request) const;
  /// What is known of the request's tokens, and up to `beyond_max` tokens of how a cached prompt of
  /// the namespace goes on where they part. Nothing is held, refreshed, counted or moved in the
  /// order of eviction. Leases that ended at `now` are none.
  Inspection inspect(const AdmitRequest& request, TimeNs now, uint32_t beyond_max) const;

  /// Extends the tables to cover positions [0, tokens), and makes the block of the first uncomputed
  /// position the sequence's own (after a fork it may be shared: copy on first write). Errors:
  /// kPoolExhausted: nothing has changed and nothing was ordered. The only open sequence is not
  /// held up by floors.
  Status ensure(SeqId seq, uint32_t tokens, Orders& orders);
  /// The most tokens, up to `tokens`, for which ensure would succeed now.
  uint32_t coverable(SeqId seq, uint32_t tokens) const;

  /// Call after a step that computed K and V of positions up to computed.size(): makes them
  /// findable, and gives up the blocks that are now behind a sliding window (null in the table).
  /// `computed` is the whole sequence so far, prompt and generated tokens. Entries of markers that
  /// are now covered become readable. Requires: not shorter than before, the same tokens as before,
  /// covered by the tables. With CacheMode::kStrict they become so once the whole
  /// prompt is computed. Cost: O(1) for a decode step, O(blocks * log(siblings)) for a prefill
  /// chunk. No allocation for decode.
  void publish(SeqId seq, std::span<const TokenId> computed);

  /// A second sequence with the same computed tokens (n > 1). All blocks are shared; a partly
  /// filled last block is copied by whoever is first to write on (ensure). Promised creations stay
  /// with the original. Call when all sharers' tokens are computed and published. Blocks reserved
  /// beyond the computed tokens are not shared.
  SeqId fork(SeqId seq);

  /// Closes the sequence, whose end is a point where the next request may begin: findable blocks
  /// without another holder become cached, the others free. Tail first, so that a long prefix is
  /// later eaten from its end. Promised creations that no step covered are dropped.
  void release(SeqId seq);

  /// table[i] holds positions [i * block_tokens, (i + 1) * block_tokens); null behind a sliding
  /// window. Valid until the next call that names seq.
  std::span<const BlockId> table(SeqId seq, uint32_t group) const;
  /// Blocks of one group that the sequence holds: its table without those behind the window.
  uint32_t held(SeqId seq, uint32_t group) const;
  uint32_t tokens_computed(SeqId seq) const;
  /// Positions that the tables of all groups cover: the shortest one's size * block_tokens.
  uint32_t tokens_covered(SeqId seq) const;

  /// How many sequences hold the block that position computed - 1 stands in: forks share a partly
  /// filled one until they write on. 1 before anything is computed.
  uint32_t tail_holders(SeqId seq, uint32_t group) const;

  /// Forgets what is cached, one namespace and those below it ("name" and "name/...") or all, and
  /// its entries (not counted as broken). Open sequences run on, but what they hold does not enter
  /// the cache any more. Returns the number of blocks that became free.
  uint32_t clear(std::optional<std::string_view> cache_namespace = std::nullopt);

  /// Whether resize would succeed. Errors: kInvalidArgument for a group without blocks;
  /// kPoolExhausted with both numbers when sequences hold more blocks of a group than there would
  /// be, or when floors sum to more.
  Status check_resize(std::span<const uint32_t> blocks) const;
  /// From now on group g has `blocks[g]`. Held blocks stay what and where they are. To make room,
  /// cached ones are given up as always (those under a lease last), but first those that no floor
  /// keeps; leases follow their share of the pool, floors and ceilings of sliding groups, too.
  /// Broken leases are counted, promised creations that lost their room among them. Blocks that are
  /// gone and may still have memory: appended to `dropped`. Ids of a grown group are below the
  /// largest number of blocks that it ever had. Errors: as check_resize; nothing has changed.
  Status resize(std::span<const uint32_t> blocks, std::vector<FreshBlock>& dropped);

  /// Memory of blocks that nobody needs: those free since `until` or longer, as told by set_time,
  /// that were handed out since they were last named here; appended to `blocks`. Their memory may
  /// be given back: whoever gets them finds them among Orders::fresh.
  void take_idle(uint32_t group, TimeNs until, std::vector<BlockId>& blocks);
  /// Since when the longest of those has been free.
  std::optional<TimeNs> oldest_idle() const;
  /// When the next entry expires (set_time then drops its lease).
  std::optional<TimeNs> next_expiry() const;

  uint32_t block_tokens() const;
  /// What a marked prefix must have at least to count.
  uint32_t marker_tokens_min() const;
  uint32_t groups() const;
  uint32_t window(uint32_t group) const;
  /// Whether another request could read this block's contents now.
  bool findable(uint32_t group, BlockId block) const;
  BlockCounts counts(uint32_t group) const;
  CacheCounters counters() const;
  uint32_t sequences() const;
  /// Every namespace that has blocks or open sequences, by name. Live blocks that are not findable
  /// count where their sequence belongs; those of sequences that skip the cache count nowhere.
  /// Cost: O(nodes + blocks held).
  std::vector<NamespaceUse> namespaces() const;
  /// In the order of CacheConfig::quotas.
  std::vector<QuotaUse> quotas() const;
  /// CacheCounters::leases_broken of the namespaces "top" and "top/..." since the start, whether
  /// or not they still exist.
  uint64_t leases_broken(std::string_view top) const;
  uint32_t entries() const;  // readable entries (marked prefixes), unexpired as of set_time

  /// Proves every invariant of pool, index and leases in O(blocks); stops the process if one is
  /// broken. For tests and simulation, after each event.
  void check_invariants() const;

 private:
  KvCache();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pagewise::kv
