// SPDX-License-Identifier: Apache-2.0
#include "kernels/linear/weight_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <limits>
#include <new>

#include "base/check.h"
#include "kernels/aligned.h"

#ifdef PW_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

namespace pagewise::kernels {
namespace {

constexpr std::size_t kLine = AlignedArray<uint8_t>::kAlignment;
constexpr std::size_t kHugePage = AlignedArray<uint8_t>::kHugePage;

// What the arena has and nobody took, and what somebody took. A mapping that ends must be allowed
// again: its addresses come back for something else.
#ifdef PW_ADDRESS_SANITIZER
constexpr std::size_t kGap = kLine;
void forbid(const uint8_t* memory, std::size_t bytes) {
  __asan_poison_memory_region(memory, bytes);
}
void allow(const uint8_t* memory, std::size_t bytes) {
  __asan_unpoison_memory_region(memory, bytes);
}
#else
constexpr std::size_t kGap = 0;
void forbid(const uint8_t*, std::size_t) {}
void allow(const uint8_t*, std::size_t) {}
#endif

constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

void WeightArena::Unmap::operator()(uint8_t* memory) const {
  allow(memory, bytes);
  munmap(memory, bytes);
}

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
  forbid(start + lead, size);
  return {start + lead, Unmap{size}};
}

std::span<uint8_t> WeightArena::take(std::size_t bytes) {
  PW_CHECK(bytes > 0);
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) throw std::bad_alloc();
  const std::size_t size = round_up(bytes + kGap, kLine);
  if (size > left_.size()) {
    // What is left of the last one is lost, and costs no more than its address space.
    const std::size_t wanted = chunks_.empty() ? bytes_expected_ : bytes_expected_ / 8;
    chunks_.push_back(map(std::max(size, wanted)));
    left_ = {chunks_.back().get(), chunks_.back().get_deleter().bytes};
  }
  const std::span<uint8_t> out = left_.first(bytes);
  left_ = left_.subspan(size);
  allow(out.data(), bytes);
  return out;
}

std::size_t WeightArena::bytes_reserved() const {
  std::size_t sum = 0;
  for (const Chunk& chunk : chunks_) sum += chunk.get_deleter().bytes;
  return sum;
}

}  // namespace pagewise::kernels
