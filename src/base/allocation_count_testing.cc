// SPDX-License-Identifier: Apache-2.0
// Replaces operator new of a test program by one that counts. In a file of its own, so that the
// compiler does not look through one half of a pair and warn about the other.
#include "base/allocation_count_testing.h"

#include <atomic>
#include <cstdlib>
#include <new>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define PW_TSAN 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define PW_TSAN 1
#endif

namespace {
std::atomic<uint64_t> count{0};
}  // namespace

namespace pagewise::testing {
uint64_t allocation_count() { return count; }
}  // namespace pagewise::testing

#if defined(PW_TSAN)

// ThreadSanitizer has its own operator new, which cannot be replaced, and offers a hook instead.
#include <sanitizer/allocator_interface.h>

namespace {
const int installed = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, std::size_t) { count.fetch_add(1, std::memory_order_relaxed); },
    [](const volatile void*) {});
}  // namespace

#else

namespace {
void* counted(std::size_t size) noexcept {
  count.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(size == 0 ? 1 : size);
}
}  // namespace

// The whole family, so that a sanitizer never sees a block that one half made and another frees.
void* operator new(std::size_t size) {
  if (void* memory = counted(size)) return memory;
  throw std::bad_alloc();
}
void* operator new[](std::size_t size) { return operator new(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return counted(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return counted(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }

#endif
