// SPDX-License-Identifier: Apache-2.0
#include "kv/ghost_list.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "kv/linear_probing.h"

namespace pagewise::kv {
namespace {

constexpr uint64_t kEntriesMax = uint64_t{1} << 30;

}  // namespace

void GhostList::resize(uint64_t entries) {
  entries = std::min(entries, kEntriesMax);
  const std::vector<Entry> before = std::move(ring_);
  const uint32_t oldest = next_;
  ring_.assign(entries, Entry());
  // At most two thirds full.
  table_.assign(std::bit_ceil(entries + entries / 2 + 1), 0);
  next_ = 0;
  sizes_ = {};
  for (std::size_t i = 0; i < before.size(); ++i) {
    const Entry& entry = before[(oldest + i) % before.size()];
    if (entry.used) add(entry.digest, entry.kind);
  }
}

std::size_t GhostList::find(uint64_t digest) const {
  std::size_t at = home(slot_of(digest, 0));
  for (; table_[at] != 0; at = after(at)) {
    if (table_[at] >> 32 != digest >> 32) continue;
    if (ring_[static_cast<uint32_t>(table_[at]) - 1].digest == digest) break;
  }
  return at;
}

void GhostList::remove(std::size_t at) {
  PW_CHECK(table_[at] != 0);
  Entry& entry = ring_[static_cast<uint32_t>(table_[at]) - 1];
  entry.used = false;
  --sizes_[static_cast<std::size_t>(entry.kind)];
  empty_slot(table_, at, [&](uint64_t slot) { return home(slot); });
}

void GhostList::add(uint64_t digest, GhostKind kind) {
  if (ring_.empty()) return;
  take(digest);
  Entry& entry = ring_[next_];
  if (entry.used) remove(find(entry.digest));
  entry = {digest, kind, true};
  table_[find(digest)] = slot_of(digest, next_);
  ++sizes_[static_cast<std::size_t>(kind)];
  next_ = next_ + 1 == ring_.size() ? 0 : next_ + 1;
  if (ring_[next_].used) prefetch(ring_[next_].digest);  // the next one to leave
}

std::optional<GhostKind> GhostList::take(uint64_t digest) {
  if (ring_.empty()) return std::nullopt;
  const std::size_t at = find(digest);
  if (table_[at] == 0) return std::nullopt;
  const GhostKind kind = ring_[static_cast<uint32_t>(table_[at]) - 1].kind;
  remove(at);
  return kind;
}

}  // namespace pagewise::kv
