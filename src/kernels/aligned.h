// SPDX-License-Identifier: Apache-2.0
// A zero-filled array on a cache-line boundary, allocated once. Large ones ask the system for huge
// pages: weights and caches are walked from end to end in every step, and a page table walk each 4
// KiB shows.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <type_traits>

namespace pagewise::kernels {

template <typename T>
class AlignedArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  static constexpr std::size_t kAlignment = 64;
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;

  AlignedArray() = default;
  explicit AlignedArray(std::size_t count) : size_(count) {
    if (count == 0) return;
    const std::size_t alignment = count * sizeof(T) >= 2 * kHugePage ? kHugePage : kAlignment;
    const std::size_t bytes = (count * sizeof(T) + alignment - 1) / alignment * alignment;
    void* memory = std::aligned_alloc(alignment, bytes);
    if (memory == nullptr) throw std::bad_alloc();
    if (alignment == kHugePage)
      madvise(memory, bytes, MADV_HUGEPAGE);  // advice: refusal costs speed only
    std::memset(memory, 0, bytes);
    data_.reset(static_cast<T*>(memory));
  }

  /// Zeros that take memory page by page when they are first written: for what is rarely needed in
  /// full.
  static AlignedArray on_demand(std::size_t count) {
    AlignedArray array;
    array.size_ = count;
    if (count == 0) return array;
    const std::size_t bytes = count * sizeof(T);
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    array.data_ = {static_cast<T*>(memory), Free{bytes}};
    return array;
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  T& operator[](std::size_t i) { return data_.get()[i]; }
  const T& operator[](std::size_t i) const { return data_.get()[i]; }
  std::span<T> span() { return {data_.get(), size_}; }

 private:
  struct Free {
    std::size_t mapped = 0;  // bytes of a mapping; 0: of the heap
    void operator()(T* memory) const {
      if (mapped != 0) {
        munmap(memory, mapped);
      } else {
        std::free(memory);
      }
    }
  };
  std::unique_ptr<T, Free> data_;
  std::size_t size_ = 0;
};

}  // namespace pagewise::kernels
