// SPDX-License-Identifier: Apache-2.0
#include "kv/eviction_policy.h"

#include "base/check.h"

namespace pagewise::kv {

EvictionPolicy::EvictionPolicy(uint32_t blocks, double protected_share, uint32_t quotas)
    : quotas_(quotas),
      places_(blocks),
      quota_(blocks, kNoQuota),
      tier_(blocks),
      reused_(blocks, 0),
      is_passed_(blocks, 0),
      protected_share_(protected_share),
      protected_max_(static_cast<uint32_t>(protected_share * blocks)) {
  PW_CHECK(protected_share >= 0 && protected_share <= 1 && quotas > 0);
  reserve(blocks);
}

void EvictionPolicy::reserve(uint32_t ids) {
  for (SharedIdHeap& heap : quotas_[kNoQuota.value]) heap.reserve(ids);
}

void EvictionPolicy::resize(uint32_t ids, uint32_t blocks) {
  if (ids > tier_.size()) {
    reserve(ids);
    places_.grow(ids);
    quota_.resize(ids, kNoQuota);
    tier_.resize(ids);
    reused_.resize(ids, 0);
    is_passed_.resize(ids, 0);
  }
  protected_max_ = static_cast<uint32_t>(protected_share_ * blocks);
  demote_overflow();
}

void EvictionPolicy::set_quota(BlockId block, QuotaId quota) {
  PW_CHECK(!contains(block) && quota.value < quotas_.size());
  quota_[block.value] = quota;
}

EvictionPolicy::Tier EvictionPolicy::natural_tier(BlockId block, bool leased) const {
  if (leased) return Tier::kLeased;
  if (is_passed_[block.value]) return Tier::kPassed;
  return reused(block) ? Tier::kProtected : Tier::kProbation;
}

void EvictionPolicy::place(BlockId block, Tier tier, uint64_t stamp) {
  tier_[block.value] = tier;
  heap(block).push(places_, block.value, stamp);
  ++size_;
  protected_size_ += tier == Tier::kProtected;
  demote_overflow();
}

void EvictionPolicy::demote_overflow() {
  while (protected_size_ > protected_max_) {
    const SharedIdHeap* oldest = nullptr;
    for (const auto& tiers : quotas_) {
      const SharedIdHeap& heap = tiers[static_cast<std::size_t>(Tier::kProtected)];
      if (heap.empty()) continue;
      if (oldest == nullptr || heap.top_key() < oldest->top_key()) oldest = &heap;
    }
    const BlockId block(oldest->top());
    const uint64_t stamp = oldest->top_key();
    erase(block);
    reused_[block.value] = 0;
    place(block, Tier::kProbation, stamp);
  }
}

void EvictionPolicy::insert(BlockId block, bool leased, bool passed) {
  PW_CHECK(!contains(block));
  is_passed_[block.value] = passed ? 1 : 0;
  place(block, natural_tier(block, leased), ++stamp_);
}

void EvictionPolicy::erase(BlockId block) {
  heap(block).erase(places_, block.value);
  --size_;
  protected_size_ -= tier_[block.value] == Tier::kProtected;
}

void EvictionPolicy::touch(BlockId block) {
  SharedIdHeap& its = heap(block);
  its.erase(places_, block.value);
  its.push(places_, block.value, ++stamp_);
}

void EvictionPolicy::keep(BlockId block) {
  is_passed_[block.value] = 0;
  if (!contains(block) || tier_[block.value] != Tier::kPassed) return;
  const uint64_t stamp = stamp_of(block);
  erase(block);
  place(block, natural_tier(block, false), stamp);
}

void EvictionPolicy::mark_reused(BlockId block) {
  reused_[block.value] = 1;
  if (!contains(block) || tier_[block.value] != Tier::kProbation) return;
  const uint64_t stamp = stamp_of(block);
  erase(block);
  place(block, Tier::kProtected, stamp);
}

void EvictionPolicy::set_leased(BlockId block, bool leased) {
  PW_CHECK(contains(block));
  const uint64_t stamp = stamp_of(block);
  erase(block);
  place(block, natural_tier(block, leased), stamp);
}

void EvictionPolicy::forget(BlockId block) {
  PW_CHECK(!contains(block));
  reused_[block.value] = is_passed_[block.value] = 0;
}

bool EvictionPolicy::precedes(BlockId a, BlockId b) const {
  PW_CHECK(contains(a) && contains(b));
  const Tier tier_a = tier_[a.value], tier_b = tier_[b.value];
  if (tier_a != tier_b) return tier_a < tier_b;
  return stamp_of(a) < stamp_of(b);
}

}  // namespace pagewise::kv
