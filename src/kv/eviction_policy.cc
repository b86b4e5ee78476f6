// SPDX-License-Identifier: Apache-2.0
#include "kv/eviction_policy.h"

#include "base/check.h"

namespace pagewise::kv {

EvictionPolicy::EvictionPolicy(uint32_t blocks, double protected_share)
    : probation_(blocks),
      protected_(blocks),
      leased_(blocks),
      tier_(blocks, Tier::kNone),
      reused_(blocks, 0),
      protected_max_(static_cast<uint32_t>(protected_share * blocks)) {
  PW_CHECK(protected_share >= 0 && protected_share <= 1);
}

IdHeap& EvictionPolicy::heap(Tier tier) {
  PW_CHECK(tier != Tier::kNone);
  return tier == Tier::kProbation ? probation_ : tier == Tier::kProtected ? protected_ : leased_;
}

const IdHeap& EvictionPolicy::heap(Tier tier) const {
  return const_cast<EvictionPolicy*>(this)->heap(tier);
}

EvictionPolicy::Tier EvictionPolicy::natural_tier(BlockId block, bool leased) const {
  if (leased) return Tier::kLeased;
  return reused(block) ? Tier::kProtected : Tier::kProbation;
}

void EvictionPolicy::place(BlockId block, Tier tier, uint64_t stamp) {
  tier_[block.value] = tier;
  heap(tier).push(block.value, stamp);
  while (protected_.size() > protected_max_) {
    const uint32_t oldest = protected_.top();
    const uint64_t oldest_stamp = protected_.key(oldest);
    protected_.erase(oldest);
    reused_[oldest] = 0;
    tier_[oldest] = Tier::kProbation;
    probation_.push(oldest, oldest_stamp);
  }
}

void EvictionPolicy::insert(BlockId block, bool leased) {
  PW_CHECK(!contains(block));
  place(block, natural_tier(block, leased), ++stamp_);
}

void EvictionPolicy::erase(BlockId block) {
  heap(tier_[block.value]).erase(block.value);
  tier_[block.value] = Tier::kNone;
}

void EvictionPolicy::touch(BlockId block) {
  heap(tier_[block.value]).set_key(block.value, ++stamp_);
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
  reused_[block.value] = 0;
}

BlockId EvictionPolicy::victim() const {
  for (const IdHeap* tier : {&probation_, &protected_, &leased_}) {
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
