// SPDX-License-Identifier: Apache-2.0
// Compute threads for one forward pass. A step is one parallel region: every thread runs the same
// function on its own share (static schedule, range.h) and meets the others at a few barriers.
//
// Waiting is a short bounded spin, then sleep in the kernel (futex): between two layers the others
// arrive within microseconds, while an idle server, or a core that another process burns, must not
// cost a spinning thread. A thread that the system has taken off its core delays its barrier, but
// is not fought for the core by the ones that wait.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

#include "kernels/range.h"

namespace pagewise::kernels {

/// Thread: run() from one thread at a time (the engine thread), which takes part as thread 0.
/// Memory: all of it in the constructor.
class ThreadPool {
 public:
  /// What a thread knows inside a region.
  class Context {
   public:
    std::size_t index() const { return index_; }
    std::size_t threads() const { return pool_->threads(); }
    /// This thread's part of [0, count).
    Range share(std::size_t count) const { return split(count, index_, threads()); }
    /// Returns when all threads of the region have called it; what they wrote before is then
    /// visible. Every thread of the region must reach the same barriers.
    void barrier() const { pool_->wait_for_all(); }

   private:
    friend class ThreadPool;
    Context(ThreadPool* pool, std::size_t index) : pool_(pool), index_(index) {}
    ThreadPool* pool_;
    std::size_t index_;
  };

  /// Requires: threads >= 1. Starts threads - 1 workers; 1 starts none and run() is a plain call.
  explicit ThreadPool(std::size_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  std::size_t threads() const { return threads_; }

  /// Calls `fn(const Context&)` once on every thread and returns when all calls have returned. `fn`
  /// must not throw and must not call run(). Cost: about a microsecond when the workers still spin,
  /// a wake-up otherwise.
  template <typename Fn>
  void run(Fn&& fn) {
    using Plain = std::remove_reference_t<Fn>;
    run_erased([](void* f, const Context& context) { (*static_cast<Plain*>(f))(context); },
               const_cast<void*>(static_cast<const void*>(&fn)));
  }

 private:
  using Call = void (*)(void* fn, const Context& context);
  void run_erased(Call call, void* fn);
  void work(std::size_t index);
  void wait_for_all();

  const std::size_t threads_;
  std::vector<std::thread> workers_;
  // Written by run() before `region_` is advanced, read by workers after they saw it advance.
  Call call_ = nullptr;
  void* fn_ = nullptr;
  bool stop_ = false;
  alignas(64) std::atomic<uint32_t> region_{0};   // counts regions; workers sleep on it
  alignas(64) std::atomic<uint32_t> arrived_{0};  // threads that reached the present barrier
  alignas(64) std::atomic<uint32_t> phase_{0};    // counts barriers passed; waiters sleep on it
};

}  // namespace pagewise::kernels
