// SPDX-License-Identifier: Apache-2.0
#include "kv/eviction_policy.h"

#include "base/check.h"

namespace pagewise::kv {

EvictionPolicy::EvictionPolicy(uint32_t blocks, double protected_share)
    : passed_(blocks),
      probation_(blocks),
      protected_(blocks),
      leased_(blocks),
      tier_(blocks, Tier::kNone),
      reused_(blocks, 0),
      is_passed_(blocks, 0),
      protected_share_(protected_share),
      protected_max_(static_cast<uint32_t>(protected_share * blocks)) {
  PW_CHECK(protected_share >= 0 && protected_share <= 1);
}

void EvictionPolicy::resize(uint32_t ids, uint32_t blocks) {
  for (IdHeap* tier : {&passed_, &probation_, &protected_, &leased_}) tier->grow(ids);
  if (ids > tier_.size()) {
    tier_.resize(ids, Tier::kNone);
    reused_.resize(ids, 0);
    is_passed_.resize(ids, 0);
  }
  protected_max_ = static_cast<uint32_t>(protected_share_ * blocks);
  demote_overflow();
}

IdHeap& EvictionPolicy::heap(Tier tier) {
  switch (tier) {
    case Tier::kPassed:
      return passed_;
    case Tier::kProbation:
      return probation_;
    case Tier::kProtected:
      return protected_;
    case Tier::kLeased:
      return leased_;
    case Tier::kNone:
      break;
  }
  PW_CHECK(tier != Tier::kNone);
  return leased_;
}

const IdHeap& EvictionPolicy::heap(Tier tier) const {
  return const_cast<EvictionPolicy*>(this)->heap(tier);
}

EvictionPolicy::Tier EvictionPolicy::natural_tier(BlockId block, bool leased) const {
  if (leased) return Tier::kLeased;
  if (is_passed_[block.value]) return Tier::kPassed;
  return reused(block) ? Tier::kProtected : Tier::kProbation;
}

void EvictionPolicy::place(BlockId block, Tier tier, uint64_t stamp) {
  tier_[block.value] = tier;
  heap(tier).push(block.value, stamp);
  demote_overflow();
}

void EvictionPolicy::demote_overflow() {
  while (protected_.size() > protected_max_) {
    const uint32_t oldest = protected_.top();
    const uint64_t oldest_stamp = protected_.key(oldest);
    protected_.erase(oldest);
    reused_[oldest] = 0;
    tier_[oldest] = Tier::kProbation;
    probation_.push(oldest, oldest_stamp);
  }
}

void EvictionPolicy::insert(BlockId block, bool leased, bool passed) {
  PW_CHECK(!contains(block));
  is_passed_[block.value] = passed ? 1 : 0;
  place(block, natural_tier(block, leased), ++stamp_);
}

void EvictionPolicy::erase(BlockId block) {
  heap(tier_[block.value]).erase(block.value);
  tier_[block.value] = Tier::kNone;
}

void EvictionPolicy::touch(BlockId block) {
  heap(tier_[block.value]).set_key(block.value, ++stamp_);
}

void EvictionPolicy::keep(BlockId block) {
  is_passed_[block.value] = 0;
  if (tier_[block.value] != Tier::kPassed) return;
  const uint64_t stamp = passed_.key(block.value);
  erase(block);
  place(block, natural_tier(block, false), stamp);
}

void EvictionPolicy::mark_reused(BlockId block) {
  reused_[block.value] = 1;
  if (tier_[block.value] != Tier::kProbation) return;
  const uint64_t stamp = probation_.key(block.value);
  erase(block);
  place(block, Tier::kProtected, stamp);
}

void EvictionPolicy::set_leased(BlockId block, bool leased) {
  PW_CHECK(contains(block));
  const uint64_t stamp = heap(tier_[block.value]).key(block.value);
  erase(block);
  place(block, natural_tier(block, leased), stamp);
}

void EvictionPolicy::forget(BlockId block) {
  PW_CHECK(!contains(block));
  reused_[block.value] = is_passed_[block.value] = 0;
}

BlockId EvictionPolicy::victim() const {
  for (const IdHeap* tier : {&passed_, &probation_, &protected_, &leased_}) {
    if (!tier->empty()) return BlockId(tier->top());
  }
  return BlockId();
}

bool EvictionPolicy::precedes(BlockId a, BlockId b) const {
  const Tier tier_a = tier_[a.value], tier_b = tier_[b.value];
  if (tier_a != tier_b) return tier_a < tier_b;
  return heap(tier_a).key(a.value) < heap(tier_b).key(b.value);
}

}  // namespace pagewise::kv
