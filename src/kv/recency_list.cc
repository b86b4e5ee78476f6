// SPDX-License-Identifier: Apache-2.0
#include "kv/recency_list.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "kv/linear_probing.h"

namespace pagewise::kv {

RecencyList::RecencyList(uint64_t keys_max)
    : keys_max_(keys_max),
      keys_(2 * keys_max),
      weights_(keys_.size()),
      sums_(keys_.size() + 1),
      slots_(std::bit_ceil(2 * keys_max)),  // at most half of them are taken
      slot_mask_(slots_.size() - 1) {
  PW_CHECK(keys_max > 0 && keys_max < (uint64_t{1} << 30));
}

uint64_t RecencyList::distance(uint64_t key) const {
  const std::size_t slot = find(key);
  return slot == kNone ? 0 : total_ - sum_before(slots_[slot] - 1);
}

void RecencyList::use(uint64_t key, uint32_t weight) {
  PW_CHECK(weight > 0);
  if (next_ == keys_.size()) close_gaps();
  if (const std::size_t slot = find(key); slot != kNone) {
    vacate(slots_[slot] - 1);
    slots_[slot] = static_cast<uint32_t>(next_ + 1);
  } else {
    PW_CHECK(size_ < keys_max_);
    set_slot(key, next_);
  }
  keys_[next_] = key;
  weights_[next_] = weight;
  add(next_, weight);
  total_ += weight;
  ++size_;
  ++next_;
}

void RecencyList::erase_oldest() {
  PW_CHECK(size_ > 0);
  while (weights_[first_] == 0) ++first_;
  erase(keys_[first_]);
}

void RecencyList::erase(uint64_t key) {
  const std::size_t slot = find(key);
  PW_CHECK(slot != kNone);
  vacate(slots_[slot] - 1);
  empty_slot(slots_, slot, [&](uint32_t taken) { return keys_[taken - 1] & slot_mask_; });
}

void RecencyList::erase_above(uint64_t key) {
  for (std::size_t place = first_; place < next_; ++place) {
    if (weights_[place] != 0 && keys_[place] > key) erase(keys_[place]);
  }
}

std::size_t RecencyList::find(uint64_t key) const {
  for (std::size_t slot = key & slot_mask_; slots_[slot] != 0; slot = (slot + 1) & slot_mask_) {
    if (keys_[slots_[slot] - 1] == key) return slot;
  }
  return kNone;
}

/// Requires: the key has none.
void RecencyList::set_slot(uint64_t key, std::size_t place) {
  std::size_t slot = key & slot_mask_;
  while (slots_[slot] != 0) slot = (slot + 1) & slot_mask_;
  slots_[slot] = static_cast<uint32_t>(place + 1);
}

void RecencyList::vacate(std::size_t place) {
  add(place, 0 - uint64_t{weights_[place]});
  total_ -= weights_[place];
  weights_[place] = 0;
  --size_;
}

void RecencyList::add(std::size_t place, uint64_t value) {
  for (std::size_t i = place + 1; i < sums_.size(); i += i & (~i + 1)) sums_[i] += value;
}

uint64_t RecencyList::sum_before(std::size_t place) const {
  uint64_t sum = 0;
  for (std::size_t i = place; i > 0; i &= i - 1) sum += sums_[i];
  return sum;
}

void RecencyList::close_gaps() {
  std::size_t end = 0;
  for (std::size_t place = first_; place < next_; ++place) {
    if (weights_[place] == 0) continue;
    keys_[end] = keys_[place];
    weights_[end++] = weights_[place];
  }
  std::fill(weights_.begin() + static_cast<std::ptrdiff_t>(end), weights_.end(), 0U);
  first_ = 0;
  next_ = end;
  PW_CHECK(next_ < keys_.size());
  std::fill(slots_.begin(), slots_.end(), 0U);
  std::fill(sums_.begin(), sums_.end(), uint64_t{0});
  for (std::size_t place = 0; place < end; ++place) {
    set_slot(keys_[place], place);
    sums_[place + 1] = weights_[place];
  }
  for (std::size_t i = 1; i < sums_.size(); ++i) {
    const std::size_t parent = i + (i & (~i + 1));
    if (parent < sums_.size()) sums_[parent] += sums_[i];
  }
}

void RecencyList::check_invariants() const {
  uint64_t sum = 0, count = 0;
  for (std::size_t place = 0; place < next_; ++place) {
    PW_CHECK(sum_before(place) == sum);
    sum += weights_[place];
    if (weights_[place] == 0) continue;
    ++count;
    PW_CHECK(place >= first_);
    const std::size_t slot = find(keys_[place]);
    PW_CHECK(slot != kNone && slots_[slot] == place + 1);
  }
  PW_CHECK(sum_before(keys_.size()) == total_);
  PW_CHECK(sum == total_ && count == size_ && size_ <= keys_max_);
  const auto taken = static_cast<uint64_t>(
      std::count_if(slots_.begin(), slots_.end(), [](uint32_t slot) { return slot != 0; }));
  PW_CHECK(taken == size_);
}

}  // namespace pagewise::kv
