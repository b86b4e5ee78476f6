// SPDX-License-Identifier: Apache-2.0
#include "kv/eviction_policy.h"

#include <algorithm>

#include "base/check.h"

namespace pagewise::kv {

EvictionPolicy::EvictionPolicy(uint32_t blocks, double protected_share, uint32_t quotas)
    : quotas_(quotas),
      links_(blocks),
      blocks_(blocks),
      adapts_(protected_share > 0),
      capacity_(blocks),
      protected_max_(static_cast<uint32_t>(protected_share * blocks)),
      ghosts_(adapts_ ? kGhostsPerBlock * blocks : 0) {
  PW_CHECK(protected_share >= 0 && protected_share <= 1 && quotas > 0);
}

void EvictionPolicy::resize(uint32_t ids, uint32_t blocks) {
  if (ids > blocks_.size()) {
    links_.grow(ids);
    blocks_.resize(ids);
  }
  protected_max_ = static_cast<uint32_t>(uint64_t{protected_max_} * blocks / capacity_);
  capacity_ = blocks;
  if (adapts_) ghosts_.resize(kGhostsPerBlock * blocks);
  demote_overflow();
}

void EvictionPolicy::set_quota(BlockId block, QuotaId quota) {
  PW_CHECK(!contains(block) && quota.value < quotas_.size());
  blocks_[block.value].quota = quota;
}

EvictionPolicy::Tier EvictionPolicy::natural_tier(BlockId block, bool leased) const {
  if (leased) return Tier::kLeased;
  if (blocks_[block.value].passed) return Tier::kPassed;
  return reused(block) ? Tier::kProtected : Tier::kProbation;
}

void EvictionPolicy::put(BlockId block, Tier tier, uint64_t stamp) {
  blocks_[block.value].tier = tier;
  order(block).push(links_, block.value, stamp);
  ++size_;
  protected_size_ += tier == Tier::kProtected;
}

void EvictionPolicy::place(BlockId block, Tier tier, uint64_t stamp) {
  put(block, tier, stamp);
  demote_overflow();
}

void EvictionPolicy::demote_overflow() {
  while (protected_size_ > protected_max_) {
    const BlockId block = first_of(Tier::kProtected, [](QuotaId) { return true; });
    const uint64_t stamp = links_.stamp(block.value);
    erase(block);
    Block& its = blocks_[block.value];
    its.reused = false;
    its.was_reused = true;
    put(block, Tier::kProbation, stamp);
  }
}

void EvictionPolicy::insert(BlockId block, bool leased, bool passed) {
  PW_CHECK(!contains(block));
  blocks_[block.value].passed = passed;
  place(block, natural_tier(block, leased), ++stamp_);
}

void EvictionPolicy::erase(BlockId block) {
  order(block).erase(links_, block.value);
  --size_;
  protected_size_ -= blocks_[block.value].tier == Tier::kProtected;
}

void EvictionPolicy::touch(BlockId block) {
  StampOrder& its = order(block);
  its.erase(links_, block.value);
  its.push(links_, block.value, ++stamp_);
}

void EvictionPolicy::keep(BlockId block) {
  Block& its = blocks_[block.value];
  its.passed = false;
  if (!contains(block) || its.tier != Tier::kPassed) return;
  const uint64_t stamp = links_.stamp(block.value);
  erase(block);
  place(block, natural_tier(block, false), stamp);
}

void EvictionPolicy::mark_reused(BlockId block) {
  Block& its = blocks_[block.value];
  its.reused = true;
  if (!contains(block) || its.tier != Tier::kProbation) return;
  const uint64_t stamp = links_.stamp(block.value);
  erase(block);
  place(block, Tier::kProtected, stamp);
}

void EvictionPolicy::set_leased(BlockId block, bool leased) {
  PW_CHECK(contains(block));
  const uint64_t stamp = links_.stamp(block.value);
  erase(block);
  place(block, natural_tier(block, leased), stamp);
}

void EvictionPolicy::forget(BlockId block) {
  PW_CHECK(!contains(block));
  Block& its = blocks_[block.value];
  its.reused = its.was_reused = its.passed = false;
}

void EvictionPolicy::remember(BlockId block, uint64_t digest) {
  PW_CHECK(contains(block));
  const Block& its = blocks_[block.value];
  // What a window has passed is given up first whatever the share.
  if (its.tier == Tier::kPassed) return;
  ghosts_.add(digest, its.reused || its.was_reused ? GhostKind::kReadAgain : GhostKind::kOnce);
}

void EvictionPolicy::came_back(BlockId block, uint64_t digest, bool predecessor_reused) {
  PW_CHECK(!contains(block));
  const uint32_t once = ghosts_.size(GhostKind::kOnce);
  const uint32_t read_again = ghosts_.size(GhostKind::kReadAgain);
  const std::optional<GhostKind> kind = ghosts_.take(digest);
  if (!kind) return;
  if (*kind == GhostKind::kOnce) {
    protected_max_ -= std::min(protected_max_, std::max(1U, read_again / once));
  } else {
    const uint32_t most = std::max(protected_max_, capacity_ - capacity_ / kNewcomersPart);
    protected_max_ += std::min(most - protected_max_, std::max(1U, once / read_again));
  }
  if (predecessor_reused) blocks_[block.value].reused = true;
  demote_overflow();
}

bool EvictionPolicy::precedes(BlockId a, BlockId b) const {
  PW_CHECK(contains(a) && contains(b));
  const Tier tier_a = blocks_[a.value].tier, tier_b = blocks_[b.value].tier;
  if (tier_a != tier_b) return tier_a < tier_b;
  return links_.stamp(a.value) < links_.stamp(b.value);
}

}  // namespace pagewise::kv
