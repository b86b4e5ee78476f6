// SPDX-License-Identifier: Apache-2.0
#include "kernels/thread_pool.h"

#include <algorithm>
#include <chrono>

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

// 100 to 400 us of pauses (10 to 40 ns each). Shares of a batch differ by that much, and on a
// virtual machine a thread that slept comes back as late again; a core that another process burns
// is lost for a time slice of milliseconds, against which this is little.
constexpr int kSpins = 10'000;

// A window long enough that a thread of the server that runs for a moment does not decide, and
// short enough that a few decode steps do.
constexpr int64_t kWindowNs = 10'000'000;
// All threads are tried again soon after the first time, then later and later, at last after so
// many times what a try costs: then a tenth is lost at most.
constexpr int64_t kPatience = 10;
constexpr int64_t kPatienceNsMin = 100'000'000;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Returns when `word` no longer holds `old`: the nanoseconds of it that were spent asleep.
int64_t wait_while(const std::atomic<uint32_t>& word, uint32_t old) {
  for (int i = 0; i < kSpins; ++i) {
    if (word.load(std::memory_order_acquire) != old) return 0;
    relax();
  }
  const int64_t begin = now_ns();
  word.wait(old, std::memory_order_acquire);
  return now_ns() - begin;
}

}  // namespace

ThreadPool::ThreadPool(std::size_t threads, PoolWidth width)
    : threads_(threads),
      width_(width),
      members_(threads),
      active_(threads),
      patience_ns_(kPatienceNsMin) {
  PW_CHECK(threads >= 1);
  workers_.reserve(threads - 1);
  for (std::size_t i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  for (std::size_t i = 1; i < threads_; ++i) {
    members_[i].regions.fetch_add(1, std::memory_order_release);
    members_[i].regions.notify_one();
  }
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run_erased(Call call, void* fn) {
  const bool adaptive = width_ == PoolWidth::kAdaptive && threads_ > 1;
  const int64_t begin = adaptive ? now_ns() : 0;
  if (adaptive && active_ < threads_ && begin >= all_again_ns_) {
    active_ = threads_;
    for (Member& member : members_) {
      member.slept_ns_at_window = member.slept_ns.load(std::memory_order_relaxed);
    }
  }
  if (active_ > 1) {
    call_ = call;
    fn_ = fn;
    for (std::size_t i = 1; i < active_; ++i) {
      members_[i].regions.fetch_add(1, std::memory_order_release);
      members_[i].regions.notify_one();
    }
  }
  call(fn, Context(this, 0));
  wait_for_all(0);
  if (adaptive && active_ > 1) judge(begin, now_ns());
}

// Over a window: when one thread sleeps at a barrier, another that it waits for has no core. So of
// the time of all threads, what they slept is lost, and about as much again as the one that slept
// longest: the time that the late ones were ready and did not run. If more than one thread's whole
// time is lost, one thread fewer would have done more. A pool that was well before waits for a
// second such window: half a second with fewer threads costs more than a hiccup.
void ThreadPool::judge(int64_t begin_ns, int64_t end_ns) {
  window_ns_ += end_ns - begin_ns;
  if (window_ns_ < kWindowNs) return;
  int64_t slept = 0;
  int64_t slept_most = 0;
  for (Member& member : members_) {
    const int64_t total = member.slept_ns.load(std::memory_order_relaxed);
    slept += total - member.slept_ns_at_window;
    slept_most = std::max(slept_most, total - member.slept_ns_at_window);
    member.slept_ns_at_window = total;
  }
  const bool lost = slept + slept_most > window_ns_;
  if (!lost) {
    was_well_ = true;
    patience_ns_ = kPatienceNsMin;
  } else if (was_well_) {
    was_well_ = false;
  } else {
    --active_;
    all_again_ns_ = end_ns + patience_ns_;
    patience_ns_ = std::min(2 * patience_ns_, std::max(kPatienceNsMin, kPatience * window_ns_));
  }
  window_ns_ = 0;
}

void ThreadPool::work(std::size_t index) {
  name_this_thread("compute");
  uint32_t seen = 0;
  while (true) {
    wait_while(members_[index].regions, seen);
    ++seen;
    if (stop_) return;
    call_(fn_, Context(this, index));
    wait_for_all(index);
  }
}

void ThreadPool::wait_for_all(std::size_t index) {
  const std::size_t active = active_;  // once all have arrived, run() may change it
  if (active == 1) return;
  // The last to arrive resets the count before it opens the next phase, so nobody can be counted
  // twice.
  const uint32_t phase = phase_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == active) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.fetch_add(1, std::memory_order_release);
    phase_.notify_all();
    return;
  }
  if (const int64_t slept = wait_while(phase_, phase)) {
    members_[index].slept_ns.fetch_add(slept, std::memory_order_relaxed);
  }
}

}  // namespace pagewise::kernels
