// SPDX-License-Identifier: Apache-2.0
#include "kernels/thread_pool.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace pagewise::kernels {
namespace {

TEST(Split, CoversEveryIndexOnceInPartsThatDifferByAtMostOne) {
  for (std::size_t count : {0, 1, 5, 64, 1000}) {
    for (std::size_t parts : {1, 2, 3, 7}) {
      std::size_t next = 0;
      for (std::size_t i = 0; i < parts; ++i) {
        const Range range = split(count, i, parts);
        EXPECT_EQ(range.begin, next);
        EXPECT_GE(range.size(), count / parts);
        EXPECT_LE(range.size(), count / parts + 1);
        next = range.end;
      }
      EXPECT_EQ(next, count);
    }
  }
}

TEST(ThreadPool, CallsEveryThreadOncePerRegion) {
  for (std::size_t threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    std::vector<int> calls(threads);
    for (int region = 0; region < 100; ++region) {
      pool.run([&](const ThreadPool::Context& context) {
        EXPECT_EQ(context.threads(), threads);
        ++calls[context.index()];
      });
    }
    EXPECT_EQ(calls, std::vector<int>(threads, 100));
  }
}

TEST(ThreadPool, WhatWasWrittenBeforeABarrierIsSeenBehindIt) {
  constexpr std::size_t kThreads = 3;
  constexpr int kRounds = 500;
  ThreadPool pool(kThreads);
  std::vector<int> values(kThreads);
  std::atomic<int> wrong{0};
  pool.run([&](const ThreadPool::Context& context) {
    for (int round = 1; round <= kRounds; ++round) {
      values[context.index()] = round;
      context.barrier();
      for (const int value : values) wrong += value != round;
      context.barrier();
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST(ThreadPool, ShareGivesEachThreadItsPart) {
  ThreadPool pool(2);
  std::vector<int> owner(11, -1);
  pool.run([&](const ThreadPool::Context& context) {
    const Range mine = context.share(owner.size());
    for (std::size_t i = mine.begin; i < mine.end; ++i)
      owner[i] = static_cast<int>(context.index());
  });
  EXPECT_EQ(owner, (std::vector<int>{0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1}));
}

TEST(ThreadPool, WakesWorkersThatHaveGoneToSleep) {
  ThreadPool pool(2);
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // far beyond the spin
    std::atomic<int> calls{0};
    pool.run([&](const ThreadPool::Context&) { ++calls; });
    EXPECT_EQ(calls, 2);
  }
}

TEST(ThreadPool, MoreThreadsThanCoresStillFinish) {
  const std::size_t threads = 4 * std::max(1u, std::thread::hardware_concurrency());
  ThreadPool pool(threads);
  std::atomic<std::size_t> calls{0};
  for (int region = 0; region < 20; ++region) {
    pool.run([&](const ThreadPool::Context& context) {
      context.barrier();
      ++calls;
      context.barrier();
    });
  }
  EXPECT_EQ(calls, 20 * threads);
}

TEST(ThreadPool, AnAdaptivePoolDoesWithoutAThreadThatKeepsItWaitingAndTakesItBackLater) {
  ThreadPool pool(2, PoolWidth::kAdaptive);
  const auto region = [&](bool late) {
    std::size_t took_part = 0;
    pool.run([&](const ThreadPool::Context& context) {
      if (late && context.index() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      context.barrier();
      if (context.index() == 0) took_part = context.threads();
    });
    return took_part;
  };
  const auto eventually = [&](std::size_t threads, bool late) {
    for (int i = 0; i < 10'000; ++i) {
      if (region(late) == threads) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // it tries again after some time
    }
    return false;
  };
  EXPECT_TRUE(eventually(1, true));
  EXPECT_TRUE(eventually(2, false));
}

TEST(ThreadPool, AnAdaptivePoolCallsExactlyTheThreadsThatTakePart) {
  constexpr std::size_t kThreads = 4;
  ThreadPool pool(kThreads, PoolWidth::kAdaptive);
  for (int i = 0; i < 300; ++i) {
    std::atomic<std::size_t> calls{0};
    std::atomic<std::size_t> beyond{0};
    std::size_t took_part = 0;
    pool.run([&](const ThreadPool::Context& context) {
      if (i % 3 != 0 && context.index() + 1 == context.threads()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      ++calls;
      context.barrier();
      beyond += context.index() >= context.threads();
      if (context.index() == 0) took_part = context.threads();
    });
    EXPECT_EQ(calls, took_part);
    EXPECT_EQ(beyond, 0);
    EXPECT_LE(took_part, kThreads);
  }
}

}  // namespace
}  // namespace pagewise::kernels
