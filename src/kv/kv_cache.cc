// SPDX-License-Identifier: Apache-2.0
#include "kv/kv_cache.h"

#include <algorithm>
#include <set>
#include <string>

#include "kv/kv_cache_impl.h"

namespace pagewise::kv {
namespace {

/// Keeps "start + lease" far from overflow.
constexpr TimeNs kLeaseNsMax = 100LL * 365 * 24 * 3600 * 1'000'000'000;

}  // namespace

uint32_t measure(std::span<const CacheGroup> groups) {
  uint32_t full = UINT32_MAX, any = UINT32_MAX;
  for (const CacheGroup& group : groups) {
    if (group.window == 0) full = std::min(full, group.blocks);
    any = std::min(any, group.blocks);
  }
  return full == UINT32_MAX ? any : full;
}

KvCache::Impl::Impl(const CacheConfig& given)
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

std::vector<uint32_t> KvCache::Impl::capacities(const CacheConfig& config) {
  std::vector<uint32_t> blocks;
  for (const CacheGroup& group : config.groups) blocks.push_back(group.blocks);
  return blocks;
}

/// A node takes one block of each full group, so the smallest decides how many there are. Without
/// full groups nodes may outlive their blocks: as many as the blocks to begin with.
uint32_t KvCache::Impl::nodes(const CacheConfig& config) {
  uint32_t smallest = UINT32_MAX, largest = 0;
  for (const CacheGroup& group : config.groups) {
    if (group.window == 0) smallest = std::min(smallest, group.blocks);
    largest = std::max(largest, group.blocks);
  }
  return std::min(smallest, largest);
}

LeaseRules KvCache::Impl::lease_rules(const CacheConfig& config) {
  LeaseRules rules;
  rules.lifetime_5m_ns = config.lease_5m_ns;
  rules.lifetime_1h_ns = config.lease_1h_ns;
  const auto room = [&](uint32_t blocks, uint32_t window) {
    LeaseRoom room;
    room.window = window;
    room.nodes_max = static_cast<uint32_t>(blocks * config.lease_share);
    room.nodes_max_namespace = static_cast<uint32_t>(room.nodes_max * config.lease_share_namespace);
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
uint32_t KvCache::Impl::floor_in(const NamespaceQuota& quota, const CacheGroup& group,
                                 std::span<const CacheGroup> groups) {
  if (group.window == 0) return quota.floor_blocks;
  return static_cast<uint32_t>(uint64_t{quota.floor_blocks} * group.blocks / measure(groups));
}

uint32_t KvCache::Impl::ceiling_in(const NamespaceQuota& quota, const CacheGroup& group,
                                   std::span<const CacheGroup> groups) {
  if (quota.ceiling_blocks == 0) return UINT32_MAX;
  if (group.window == 0) return quota.ceiling_blocks;
  const uint64_t share = ceil_div(uint64_t{quota.ceiling_blocks} * group.blocks, measure(groups));
  return static_cast<uint32_t>(std::min<uint64_t>(share, UINT32_MAX));
}

void KvCache::Impl::set_quota_limits() {
  for (uint32_t q = 0; q < config.quotas.size(); ++q) {
    for (uint32_t g = 0; g < groups(); ++g) {
      pools[g].set_limits(QuotaId(q + 1),
                          floor_in(config.quotas[q], config.groups[g], config.groups),
                          ceiling_in(config.quotas[q], config.groups[g], config.groups));
    }
  }
}

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
