// SPDX-License-Identifier: Apache-2.0
#include "kv/block_pool.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/check.h"
#include "base/prng.h"

namespace pagewise::kv {

BlockPool::BlockPool(uint32_t blocks, double protected_share, std::optional<uint64_t> shuffle_seed,
                     uint32_t quotas)
    : capacity_(blocks),
      policy_(blocks, protected_share, quotas),
      quotas_(quotas),
      holders_(blocks, 0),
      findable_(blocks, 0),
      leased_(blocks, 0),
      kept_(blocks, 0),
      absent_(blocks, 0),
      rank_(blocks),
      order_(blocks),
      free_(blocks),
      idle_(blocks) {
  std::iota(order_.begin(), order_.end(), 0u);
  if (shuffle_seed) {
    Prng prng(*shuffle_seed);
    for (uint32_t i = blocks; i > 1; --i) std::swap(order_[i - 1], order_[prng.below(i)]);
  }
  for (uint32_t rank = 0; rank < blocks; ++rank) rank_[order_[rank]] = rank;
  std::iota(free_.begin(), free_.end(), 0u);  // ascending is a valid min-heap
}

uint32_t BlockPool::available_to(QuotaId taker) const {
  uint32_t blocks = available();
  // The first has no floor.
  for (QuotaId quota(1); quota.value < quotas_.size(); ++quota.value) {
    if (quota != taker && floor(quota) > 0) blocks -= std::min(cached(quota), floor(quota));
  }
  return blocks;
}

BlockId BlockPool::take(QuotaId taker) {
  PW_CHECK(!free_.empty());
  std::pop_heap(free_.begin(), free_.end(), std::greater<>());
  const BlockId block(order_[free_.back()]);
  free_.pop_back();
  PW_CHECK(holders(block) == 0 && !findable(block));
  holders_[block.value] = 1;
  policy_.set_quota(block, taker);
  ++quotas_[taker.value].used;
  kept_[block.value] = 0;
  unlink_idle(block.value);
  return block;
}

void BlockPool::make_free(BlockId block) {
  policy_.forget(block);
  --quotas_[quota(block).value].used;
  free_.push_back(rank_[block.value]);
  std::push_heap(free_.begin(), free_.end(), std::greater<>());
  link_idle(block.value);
}

void BlockPool::resize(uint32_t blocks, std::vector<BlockId>& dropped) {
  PW_CHECK(blocks > 0 && capacity() - free() <= blocks);
  if (blocks < capacity_) drop(capacity_ - blocks, dropped);
  if (blocks > capacity_) add(blocks - capacity_);
  capacity_ = blocks;
  policy_.resize(ids(), blocks);
}

/// The last ones to be handed out go: low ids lie side by side, which suits huge pages.
void BlockPool::drop(uint32_t blocks, std::vector<BlockId>& dropped) {
  std::sort(free_.begin(), free_.end());
  for (; blocks > 0; --blocks) {
    const uint32_t id = order_[free_.back()];
    free_.pop_back();
    absent_[id] = 1;
    if (!idle_[id].linked) continue;  // its memory has gone back already
    unlink_idle(id);
    dropped.push_back(BlockId(id));
  }
}

void BlockPool::add(uint32_t blocks) {
  for (uint32_t rank = 0; rank < ids() && blocks > 0; ++rank) {
    if (!absent_[order_[rank]]) continue;
    absent_[order_[rank]] = 0;
    free_.push_back(rank);
    --blocks;
  }
  for (; blocks > 0; --blocks) {
    const uint32_t id = ids();
    holders_.push_back(0);
    findable_.push_back(0);
    leased_.push_back(0);
    kept_.push_back(0);
    absent_.push_back(0);
    rank_.push_back(id);
    order_.push_back(id);
    free_.push_back(id);
    idle_.emplace_back();
  }
  std::make_heap(free_.begin(), free_.end(), std::greater<>());
}

void BlockPool::link_idle(uint32_t id) {
  idle_[id] = {now_, idle_last_, kNone, true};
  (idle_last_ == kNone ? idle_first_ : idle_[idle_last_].next) = id;
  idle_last_ = id;
}

void BlockPool::unlink_idle(uint32_t id) {
  IdleLink& link = idle_[id];
  if (!link.linked) return;
  (link.previous == kNone ? idle_first_ : idle_[link.previous].next) = link.next;
  (link.next == kNone ? idle_last_ : idle_[link.next].previous) = link.previous;
  link.linked = false;
}

void BlockPool::take_idle(TimeNs until, std::vector<BlockId>& out) {
  while (idle_first_ != kNone && idle_[idle_first_].since <= until) {
    out.push_back(BlockId(idle_first_));
    unlink_idle(idle_first_);
  }
}

std::optional<TimeNs> BlockPool::oldest_idle() const {
  if (idle_first_ == kNone) return std::nullopt;
  return idle_[idle_first_].since;
}

void BlockPool::hold(BlockId block) {
  PW_CHECK(holders(block) > 0 || is_cached(block));
  if (holders_[block.value]++ == 0) policy_.erase(block);
}

void BlockPool::release(BlockId block, bool passed) {
  PW_CHECK(holders(block) > 0);
  if (!passed) kept_[block.value] = 1;
  if (--holders_[block.value] > 0) return;
  if (findable(block)) {
    policy_.insert(block, leased(block), kept_[block.value] == 0);
  } else {
    make_free(block);
  }
}

void BlockPool::keep(BlockId block) {
  PW_CHECK(findable(block));
  kept_[block.value] = 1;
  policy_.keep(block);
}

void BlockPool::set_findable(BlockId block) {
  PW_CHECK(holders(block) > 0 && !findable(block));
  policy_.forget(block);
  findable_[block.value] = 1;
}

void BlockPool::clear_findable(BlockId block) {
  PW_CHECK(findable(block));
  if (leased(block)) set_leased(block, false);
  findable_[block.value] = 0;
  if (!is_cached(block)) return;
  policy_.erase(block);
  make_free(block);
}

void BlockPool::set_leased(BlockId block, bool leased) {
  PW_CHECK(findable(block) && this->leased(block) != leased);
  leased_[block.value] = leased ? 1 : 0;
  leased ? ++leased_count_ : --leased_count_;
  if (is_cached(block)) policy_.set_leased(block, leased);
}

void BlockPool::check_invariants() const {
  uint32_t free_count = 0, cached_count = 0, live_count = 0, leased_count = 0;
  std::vector<uint8_t> in_free(ids(), 0);
  uint32_t absent_count = 0;
  for (uint32_t rank : free_) {
    PW_CHECK(!in_free[order_[rank]]);
    in_free[order_[rank]] = 1;
  }
  for (uint32_t id = 0; id < ids(); ++id) {
    const BlockId block(id);
    if (absent_[id]) {
      PW_CHECK(holders(block) == 0 && !findable(block) && !is_cached(block) && !in_free[id]);
      PW_CHECK(!idle_[id].linked);
      ++absent_count;
      continue;
    }
    const bool is_live = holders(block) > 0;
    const bool should_be_cached = !is_live && findable(block);
    const bool should_be_free = !is_live && !findable(block);
    PW_CHECK(is_cached(block) == should_be_cached);
    PW_CHECK((in_free[id] != 0) == should_be_free);
    PW_CHECK(!leased(block) || findable(block));
    live_count += is_live;
    cached_count += should_be_cached;
    free_count += should_be_free;
    leased_count += leased(block);
  }
  PW_CHECK(free_count + live_count + cached_count == capacity());
  PW_CHECK(capacity() + absent_count == ids());
  PW_CHECK(free_count == free() && live_count == live() && cached_count == cached());
  PW_CHECK(leased_count == leased_count_);
  std::vector<uint32_t> used(quotas_.size(), 0);
  for (uint32_t id = 0; id < ids(); ++id) {
    if (!absent_[id] && !in_free[id]) ++used[quota(BlockId(id)).value];
  }
  for (uint32_t q = 0; q < used.size(); ++q) PW_CHECK(used[q] == quotas_[q].used);
  uint32_t previous = kNone, linked = 0;
  for (uint32_t id = idle_first_; id != kNone; previous = id, id = idle_[id].next, ++linked) {
    PW_CHECK(idle_[id].linked && idle_[id].previous == previous && in_free[id]);
    PW_CHECK(previous == kNone || idle_[previous].since <= idle_[id].since);
  }
  PW_CHECK(previous == idle_last_);
  for (const IdleLink& link : idle_) linked -= link.linked;
  PW_CHECK(linked == 0);
}

}  // namespace pagewise::kv
