// SPDX-License-Identifier: Apache-2.0
// Compute threads for one forward pass. A step is one parallel region: every thread runs the same
// function on its own share (static schedule, range.h) and meets the others at a few barriers.
//
// Waiting is a bounded spin of some hundred microseconds, then sleep in the kernel (futex): between
// two layers the others arrive sooner, while an idle server, or a core that another process burns,
// must not cost a spinning thread. A thread that the system has taken off its core delays its
// barrier, but is not fought for the core by the ones that wait.
//
// That delay is paid at every barrier, about 150 times a token, and each can last a time slice: two
// threads of which one has to share its core are then slower than one alone. A pool of adaptive
// width watches how long its threads sleep at barriers and does with fewer while that is faster.
// Results do not depend on it (contract rule 1).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

#include "kernels/range.h"

namespace pagewise::kernels {

/// kFixed: all threads take part in every region. kAdaptive: fewer do while others keep the cores
/// busy.
enum class PoolWidth : uint8_t { kFixed, kAdaptive };

/// Thread: run() from one thread at a time (the engine thread), which takes part as thread 0.
/// Memory: all of it in the constructor.
class ThreadPool {
 public:
  /// What a thread knows inside a region.
  class Context {
   public:
    std::size_t index() const { return index_; }
    /// How many take part in this region.
    std::size_t threads() const { return pool_->active_; }
    /// This thread's part of [0, count).
    Range share(std::size_t count) const { return split(count, index_, threads()); }
    /// Returns when all threads of the region have called it; what they wrote before is then
    /// visible. Every thread of the region must reach the same barriers.
    void barrier() const { pool_->wait_for_all(index_); }

   private:
    friend class ThreadPool;
    Context(ThreadPool* pool, std::size_t index) : pool_(pool), index_(index) {}
    ThreadPool* pool_;
    std::size_t index_;
  };

  /// Requires: threads >= 1. Starts threads - 1 workers; 1 starts none and run() is a plain call.
  explicit ThreadPool(std::size_t threads, PoolWidth width = PoolWidth::kFixed);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// How many take part in a region at most.
  std::size_t threads() const { return threads_; }

  /// Calls `fn(const Context&)` once on every thread that takes part and returns when all calls
  /// have returned. `fn` must not throw and must not call run(). Cost: about a microsecond when the
  /// workers still spin, a wake-up otherwise.
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
  void wait_for_all(std::size_t index);
  void judge(int64_t begin_ns, int64_t end_ns);

  /// Of one thread, on cache lines of its own.
  struct alignas(64) Member {
    std::atomic<uint32_t> regions{0};  // it was called to; it sleeps on this. Unused for thread 0
    std::atomic<int64_t> slept_ns{0};  // at barriers, since the pool was made
    int64_t slept_ns_at_window = 0;    // when the present window began; only run() looks at it
  };

  const std::size_t threads_;
  const PoolWidth width_;
  std::vector<Member> members_;
  std::vector<std::thread> workers_;
  // Written by run() before a member's `regions` is advanced, read by it after it saw that.
  Call call_ = nullptr;
  void* fn_ = nullptr;
  bool stop_ = false;
  std::size_t active_;  // threads of the present region; members beyond do not look at it
  // The thread that calls run() only:
  int64_t window_ns_ = 0;                         // time in regions since sleep was last looked at
  int64_t all_again_ns_ = 0;                      // when all threads are tried again
  int64_t patience_ns_;                           // until then, the next time
  bool was_well_ = true;                          // the last window of all threads lost little
  alignas(64) std::atomic<uint32_t> arrived_{0};  // threads that reached the present barrier
  alignas(64) std::atomic<uint32_t> phase_{0};    // counts barriers passed; waiters sleep on it
};

}  // namespace pagewise::kernels
