// SPDX-License-Identifier: Apache-2.0
#include "kernels/linear/weight_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <limits>
#include <new>

#include "base/check.h"
#include "kernels/aligned.h"

namespace pagewise::kernels {
namespace {

constexpr std::size_t kLine = AlignedArray<uint8_t>::kAlignment;
constexpr std::size_t kHugePage = AlignedArray<uint8_t>::kHugePage;
/// Address space taken at a time; what is left of it when the next matrix does not fit costs none
/// but that.
constexpr std::size_t kChunkBytes = std::size_t{256} << 20;

constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

void WeightArena::Unmap::operator()(uint8_t* memory) const { munmap(memory, bytes); }

/// Whole huge pages, aligned: one more is mapped, and what is before and behind given back.
WeightArena::Chunk WeightArena::map(std::size_t bytes) {
  const std::size_t size = round_up(bytes, kHugePage);
  void* const mapped = mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  auto* const start = static_cast<uint8_t*>(mapped);
  const auto address = reinterpret_cast<uintptr_t>(start);
  const std::size_t lead = round_up(address, kHugePage) - address;
  if (lead > 0) munmap(start, lead);
  if (lead < kHugePage) munmap(start + lead + size, kHugePage - lead);
  (void)madvise(start + lead, size, MADV_HUGEPAGE);  // advice: refusal costs speed only
  return {start + lead, Unmap{size}};
}

std::span<uint8_t> WeightArena::take(std::size_t bytes) {
  PW_CHECK(bytes > 0);
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) throw std::bad_alloc();
  const std::size_t size = round_up(bytes, kLine);
  if (size > left_.size()) {
    const std::size_t chunk = std::max(size, kChunkBytes);
    chunks_.push_back(map(chunk));
    left_ = {chunks_.back().get(), chunk};
  }
  const std::span<uint8_t> out = left_.first(bytes);
  left_ = left_.subspan(size);
  return out;
}

}  // namespace pagewise::kernels
