// SPDX-License-Identifier: Apache-2.0
// Replaces operator new of the test program by one that counts. Apart from its users, so that the
// compiler does not see half of a pair inlined and warn about the other half.
#include "engine/allocation_count_testing.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

#ifndef PW_ALLOCATIONS_UNCOUNTED

namespace {
std::atomic<uint64_t> calls{0};
}  // namespace

namespace pagewise::engine {
uint64_t allocation_count() { return calls; }
}  // namespace pagewise::engine

void* operator new(std::size_t size) {
  calls.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  calls.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(size == 0 ? 1 : size);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }

#endif
