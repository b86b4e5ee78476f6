// SPDX-License-Identifier: Apache-2.0
// The small types of base: errors as values, ids, element types, generators, the queue between
// threads.
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/bounded_queue.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "base/ids.h"
#include "base/prng.h"
#include "base/result.h"
#include "base/thread_name.h"
#include "base/trimmed.h"

namespace pagewise {
namespace {

static_assert(!std::is_convertible_v<BlockId, TokenId>);
static_assert(!std::is_convertible_v<uint32_t, BlockId>);

Result<int> half(int value) {
  if (value % 2 != 0) return Error{ErrorCode::kInvalidArgument, "odd"};
  return value / 2;
}
Status quarter(int value, int& out) {
  PW_ASSIGN_OR_RETURN(const int first, half(value));
  PW_ASSIGN_OR_RETURN(out, half(first));
  return Status::ok();
}

TEST(Result, PassesValuesAndErrorsThrough) {
  int out = 0;
  EXPECT_TRUE(quarter(8, out).has_value());
  EXPECT_EQ(out, 2);
  const Status status = quarter(6, out);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().message, "odd");
}

TEST(Result, CarriesMoveOnlyValues) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(7));
  const std::unique_ptr<int> value = std::move(result).value();
  EXPECT_EQ(*value, 7);
}

TEST(CheckDeathTest, AFailedCheckNamesItsPlaceAndStops) {
  EXPECT_DEATH(PW_CHECK(1 == 2), "internal check failed: 1 == 2");
}

TEST(StrongId, TheDefaultIsTheNullId) {
  EXPECT_FALSE(BlockId().valid());
  EXPECT_TRUE(BlockId(0).valid());
  EXPECT_LT(BlockId(1), BlockId(2));
}

TEST(DType, KvRowsTakeTheBytesOfTheirType) {
  EXPECT_EQ(kv_row_bytes(KvType::kF16, 128), 256u);
  EXPECT_EQ(kv_row_bytes(KvType::kBF16, 64), 128u);
  EXPECT_EQ(kv_row_bytes(KvType::kF32, 64), 256u);
  EXPECT_EQ(kv_row_bytes(KvType::kQ8_0, 128), 136u);
}

TEST(DType, EveryTypeIsFoundByNumberAndUnknownNumbersAreNot) {
  EXPECT_EQ(tensor_type_info(TensorType::kQ4_1)->block_bytes, 20u);
  EXPECT_EQ(tensor_type_info(static_cast<TensorType>(4)), nullptr);
  EXPECT_EQ(tensor_type_info(static_cast<TensorType>(9999)), nullptr);
}

TEST(Prng, EqualSeedsGiveEqualSequencesAndBoundsHold) {
  Prng a(1), b(1), c(2);
  bool differs = false;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t value = a.next();
    EXPECT_EQ(value, b.next());
    differs |= value != c.next();
    EXPECT_LT(a.below(7), 7u);
    b.below(7);
    const double u = a.uniform();
    b.uniform();
    EXPECT_GE(u, 0.0);
    EXPECT_LT(u, 1.0);
  }
  EXPECT_TRUE(differs);
}

TEST(CounterUniform, IsAFunctionOfSeedStreamAndPosition) {
  EXPECT_EQ(counter_uniform(5, 1, 9), counter_uniform(5, 1, 9));
  std::set<double> draws;
  for (uint64_t stream = 0; stream < 10; ++stream) {
    for (uint64_t position = 0; position < 10; ++position)
      draws.insert(counter_uniform(5, stream, position));
  }
  EXPECT_EQ(draws.size(), 100u);
}

TEST(Hash, Sha256OfTheEmptyStringIsTheStandardsValue) {
  EXPECT_EQ(to_hex(sha256(std::string_view())),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(BoundedQueue, SaysNoWhenFullAndLeavesTheItemAlone) {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  EXPECT_TRUE(queue.try_push(std::make_unique<int>(1)));
  auto second = std::make_unique<int>(2);
  EXPECT_FALSE(queue.try_push(std::move(second)));
  EXPECT_NE(second, nullptr);
  std::vector<std::unique_ptr<int>> out;
  queue.drain(out);
  EXPECT_EQ(out.size(), 1u);
  EXPECT_EQ(queue.size(), 0u);
}

TEST(BoundedQueue, CloseWakesTheWaiter) {
  BoundedQueue<int> queue(4);
  std::thread waiter([&] { EXPECT_FALSE(queue.wait()); });
  queue.close();
  waiter.join();
  EXPECT_FALSE(queue.try_push(1));
}

#if defined(__linux__)
TEST(ThreadName, IsWhatTheSystemShowsAndIsCutWhereTheSystemAllowsNoMore) {
  const auto shown = [](const char* name) {
    std::string line;
    std::thread([&] {
      name_this_thread(name);
      std::getline(std::ifstream("/proc/thread-self/comm"), line);
    }).join();
    return line;
  };
  EXPECT_EQ(shown("engine"), "engine");
  EXPECT_EQ(shown("a name of twenty-one."), "a name of twent");
}
#endif

TEST(Trimmed, TakesBlanksFromBothEndsAndLeavesThoseInside) {
  EXPECT_EQ(trimmed(" \ta b\r ", " \t\r"), "a b");
  EXPECT_EQ(trimmed("a\n", " \t\r"), "a\n");
  EXPECT_EQ(trimmed(" \t ", " \t\r"), "");
  EXPECT_EQ(trimmed("", " "), "");
}

}  // namespace
}  // namespace pagewise
