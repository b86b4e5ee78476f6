// SPDX-License-Identifier: Apache-2.0
#include "text/bpe_merges.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/check.h"

namespace pagewise::text {

BpeMerges::BpeMerges(std::size_t count) {
  const std::size_t slots = std::bit_ceil(std::max<std::size_t>(2 * count, 16));
  slots_.resize(slots);
  shift_ = 64 - static_cast<uint32_t>(std::countr_zero(slots));
}

uint64_t BpeMerges::key_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

void BpeMerges::insert(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = key_of(left, right);
  const std::size_t mask = slots_.size() - 1;
  // Fibonacci hashing: the high bits of the product depend on every bit of the key.
  std::size_t at = (key * 0x9e3779b97f4a7c15ULL) >> shift_;
  while (slots_[at].key != kEmpty && slots_[at].key != key) at = (at + 1) & mask;
  if (slots_[at].key == kEmpty) slots_[at] = {key, merge};
}

BpeMerges::Merge BpeMerges::find(int32_t left, int32_t right) const {
  if ((left | right) < 0) return {};
  const uint64_t key = key_of(left, right);
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = (key * 0x9e3779b97f4a7c15ULL) >> shift_;
  while (true) {
    const Slot& slot = slots_[at];
    if (slot.key == key) return slot.merge;
    if (slot.key == kEmpty) return {};
    at = (at + 1) & mask;
  }
}

void BpeMerges::apply(std::vector<BpeSymbol>& symbols, Scratch& scratch) const {
  if (symbols.size() < 2) return;
  if (symbols.size() <= kShortSymbols) {
    apply_short(symbols, scratch);
  } else {
    apply_long(symbols, scratch);
  }
}

void BpeMerges::apply_short(std::vector<BpeSymbol>& symbols, Scratch& scratch) const {
  std::size_t count = symbols.size();
  std::vector<Merge>& merges = scratch.merges;  // merges[i]: of symbols i and i + 1
  merges.resize(count - 1);
  for (std::size_t i = 0; i + 1 < count; ++i) merges[i] = find(symbols[i].id, symbols[i + 1].id);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == kNoRank) break;
    symbols[best] = {merges[best].result, symbols[best].bytes + symbols[best + 1].bytes};
    std::copy(symbols.begin() + best + 2, symbols.begin() + count, symbols.begin() + best + 1);
    std::copy(merges.begin() + best + 1, merges.begin() + (count - 1), merges.begin() + best);
    --count;
    if (best + 1 < count) merges[best] = find(symbols[best].id, symbols[best + 1].id);
    if (best > 0) merges[best - 1] = find(symbols[best - 1].id, symbols[best].id);
  }
  symbols.resize(count);
}

void BpeMerges::apply_long(std::vector<BpeSymbol>& symbols, Scratch& scratch) const {
  PW_CHECK(symbols.size() < UINT32_MAX);
  const auto count = static_cast<uint32_t>(symbols.size());
  // A list threaded through the row; symbol i is gone when its merge has no rank and its
  // predecessor skips it. A heap entry (rank, place) is stale when the place has another rank by
  // now; a rank names its pair, so an equal rank is the same pair.
  std::vector<Merge>& merges = scratch.merges;
  merges.assign(count, Merge{});
  scratch.previous.resize(count);
  scratch.next.resize(count);
  scratch.heap.clear();
  for (uint32_t i = 0; i < count; ++i) {
    scratch.previous[i] = i - 1;  // of the first: UINT32_MAX, never followed
    scratch.next[i] = i + 1;      // of the last: count
    if (i + 1 == count) break;
    merges[i] = find(symbols[i].id, symbols[i + 1].id);
    if (merges[i].rank != kNoRank) {
      scratch.heap.push_back(static_cast<uint64_t>(merges[i].rank) << 32 | i);
    }
  }
  const auto later = std::greater<uint64_t>();
  std::make_heap(scratch.heap.begin(), scratch.heap.end(), later);
  const auto refresh = [&](uint32_t at) {
    const uint32_t right = scratch.next[at];
    merges[at] = right < count ? find(symbols[at].id, symbols[right].id) : Merge{};
    if (merges[at].rank == kNoRank) return;
    scratch.heap.push_back(static_cast<uint64_t>(merges[at].rank) << 32 | at);
    std::push_heap(scratch.heap.begin(), scratch.heap.end(), later);
  };
  while (!scratch.heap.empty()) {
    std::pop_heap(scratch.heap.begin(), scratch.heap.end(), later);
    const uint64_t entry = scratch.heap.back();
    scratch.heap.pop_back();
    const auto at = static_cast<uint32_t>(entry);
    if (merges[at].rank != static_cast<uint32_t>(entry >> 32)) continue;
    const uint32_t gone = scratch.next[at];
    symbols[at] = {merges[at].result, symbols[at].bytes + symbols[gone].bytes};
    merges[gone] = Merge{};
    scratch.next[at] = scratch.next[gone];
    if (scratch.next[at] < count) scratch.previous[scratch.next[at]] = at;
    refresh(at);
    if (at != 0) refresh(scratch.previous[at]);
  }
  uint32_t kept = 0;
  for (uint32_t i = 0; i < count; i = scratch.next[i]) symbols[kept++] = symbols[i];
  symbols.resize(kept);
}

}  // namespace pagewise::text
