// SPDX-License-Identifier: Apache-2.0
#include "kernels/thread_pool.h"

#include "base/check.h"
#include "base/thread_name.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace pagewise::kernels {
namespace {

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// About 20 us of pauses (10 to 40 ns each): longer than the skew between balanced shares of a
// layer, shorter than what a wake-up would have to save before spinning on a contended core pays.
constexpr int kSpins = 1000;

// Returns when `word` no longer holds `old`.
void wait_while(const std::atomic<uint32_t>& word, uint32_t old) {
  for (int i = 0; i < kSpins; ++i) {
    if (word.load(std::memory_order_acquire) != old) return;
    relax();
  }
  word.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(std::size_t threads) : threads_(threads) {
  PW_CHECK(threads >= 1);
  workers_.reserve(threads - 1);
  for (std::size_t i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  region_.fetch_add(1, std::memory_order_release);
  region_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run_erased(Call call, void* fn) {
  if (threads_ > 1) {
    call_ = call;
    fn_ = fn;
    region_.fetch_add(1, std::memory_order_release);
    region_.notify_all();
  }
  call(fn, Context(this, 0));
  wait_for_all();
}

void ThreadPool::work(std::size_t index) {
  name_this_thread("compute");
  uint32_t seen = 0;
  while (true) {
    wait_while(region_, seen);
    ++seen;
    if (stop_) return;
    call_(fn_, Context(this, index));
    wait_for_all();
  }
}

void ThreadPool::wait_for_all() {
  if (threads_ == 1) return;
  // The last to arrive resets the count before it opens the next phase, so nobody can be counted
  // twice.
  const uint32_t phase = phase_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.fetch_add(1, std::memory_order_release);
    phase_.notify_all();
    return;
  }
  wait_while(phase_, phase);
}

}  // namespace pagewise::kernels
