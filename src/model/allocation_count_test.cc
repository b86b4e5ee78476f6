// SPDX-License-Identifier: Apache-2.0
// Replaces operator new of the test program by one that counts. In a file of its own, so that the
// compiler does not look through one half of a pair and warn about the other.
#include "model/allocation_count.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<uint64_t> count{0};
}  // namespace

namespace pagewise::model::testing {
uint64_t allocation_count() { return count; }
}  // namespace pagewise::model::testing

void* operator new(std::size_t size) {
  count++;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
