// SPDX-License-Identifier: Apache-2.0
// Hash tables with open addressing and linear probing, whose size is a power of two: a slot that is
// 0 is empty, and a search goes from an entry's home to the next empty slot.
#pragma once

#include <cstddef>
#include <vector>

namespace pagewise::kv {

/// Empties the slot at `hole`. Those behind it move up as far as that brings them nearer to their
/// home, so that no search ends at the hole before it has found its entry. `home_of(slot)` is where
/// the search for what a taken slot holds begins. Requires: a slot that is taken; an empty one.
template <typename Slot, typename HomeOf>
void empty_slot(std::vector<Slot>& slots, std::size_t hole, HomeOf&& home_of) {
  const std::size_t mask = slots.size() - 1;
  for (std::size_t at = (hole + 1) & mask; slots[at] != 0; at = (at + 1) & mask) {
    if (((at - home_of(slots[at])) & mask) < ((at - hole) & mask)) continue;  // behind the hole
    slots[hole] = slots[at];
    hole = at;
  }
  slots[hole] = 0;
}

}  // namespace pagewise::kv
