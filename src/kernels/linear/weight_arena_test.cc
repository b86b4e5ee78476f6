// SPDX-License-Identifier: Apache-2.0
#include "kernels/linear/weight_arena.h"

#include <gtest/gtest.h>
#ifdef PW_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "kernels/linear/activations.h"
#include "kernels/linear/linear.h"

namespace pagewise::kernels {
namespace {

TEST(WeightArena, HandsOutZerosOnCacheLinesThatNobodyElseHas) {
  constexpr uint64_t kSeed = 11;
  SCOPED_TRACE(kSeed);
  Prng prng(kSeed);
  WeightArena arena;
  std::vector<std::span<uint8_t>> pieces;
  for (int i = 0; i < 200; ++i) {
    const std::span<uint8_t> piece = arena.take(1 + prng.below(100'000));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(piece.data()) % 64, 0U);
    EXPECT_TRUE(std::all_of(piece.begin(), piece.end(), [](uint8_t x) { return x == 0; }));
    std::memset(piece.data(), i + 1, piece.size());
    pieces.push_back(piece);
  }
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_TRUE(std::all_of(pieces[i].begin(), pieces[i].end(),
                            [&](uint8_t x) { return x == static_cast<uint8_t>(i + 1); }))
        << "piece " << i;
  }
}

TEST(WeightArena, PutsSmallMatricesSideBySide) {
  WeightArena arena;
  const std::span<uint8_t> first = arena.take(1000);
#ifdef PW_ADDRESS_SANITIZER
  EXPECT_EQ(arena.take(1).data(), first.data() + 1088);
#else
  EXPECT_EQ(arena.take(1).data(), first.data() + 1024);
#endif
}

TEST(WeightArena, ReservesWhatIsExpectedAndLittleMoreAtATimeWhenThatWasTooLittle) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  WeightArena small(1000);
  EXPECT_EQ(small.bytes_reserved(), 0U);
  small.take(900);
  EXPECT_EQ(small.bytes_reserved(), 2 * kMiB);
  for (int i = 0; i < 3000; ++i) small.take(1000);
  EXPECT_EQ(small.bytes_reserved(), 4 * kMiB) << "a huge page at least";
  WeightArena large(79 * kMiB);
  for (int i = 0; i < 79; ++i) large.take(kMiB - 64);
  EXPECT_EQ(large.bytes_reserved(), 80 * kMiB);
  for (int i = 0; i < 9; ++i) large.take(kMiB);
  EXPECT_EQ(large.bytes_reserved(), 90 * kMiB);
}

#ifdef PW_ADDRESS_SANITIZER
TEST(WeightArena, LetsNobodyTouchWhatIsBetweenPieces) {
  const auto forbidden = [](const uint8_t* byte) { return __asan_address_is_poisoned(byte) != 0; };
  std::vector<const uint8_t*> ends;
  const uint8_t* begin = nullptr;
  {
    WeightArena arena;
    for (const std::size_t bytes : {1, 7, 64, 100, 128, 4096}) {
      const std::span<uint8_t> piece = arena.take(bytes);
      if (begin == nullptr) begin = piece.data();
      ends.push_back(piece.data() + bytes);
    }
    for (const uint8_t* end : ends) {
      EXPECT_FALSE(forbidden(end - 1));
      EXPECT_TRUE(forbidden(end));
      EXPECT_TRUE(forbidden(end + 63));
    }
    EXPECT_TRUE(forbidden(begin + (std::size_t{2} << 20) - 1)) << "nobody has it yet";
  }
  for (const uint8_t* end : ends) EXPECT_FALSE(forbidden(end)) << "its addresses are free again";
}
#endif

TEST(WeightArena, TakesAPieceLargerThanAChunk) {
  WeightArena arena;
  const std::span<uint8_t> small = arena.take(64);
  const std::span<uint8_t> large = arena.take(std::size_t{300} << 20);  // touched at its ends only
  const std::span<uint8_t> behind = arena.take(64);
  small[0] = 1;
  large.front() = 2;
  large.back() = 3;
  behind[0] = 4;
  EXPECT_EQ(small[0] + large.front() + large.back() + behind[0], 10);
}

TEST(WeightArena, KeepsItsPiecesWhereTheyAreWhenItMoves) {
  WeightArena arena;
  const std::span<uint8_t> piece = arena.take(100);
  piece[99] = 7;
  const WeightArena moved = std::move(arena);
  EXPECT_EQ(piece[99], 7);
}

TEST(WeightArena, GivesTheSameProductsAsMemoryOfAMatrixsOwn) {
  constexpr std::size_t kOutputs = 40, kColumns = 64;
  Prng prng(3);
  std::vector<std::byte> data(kOutputs * row_bytes(TensorType::kQ8_0, kColumns));
  for (std::byte& byte : data) byte = static_cast<std::byte>(prng.below(64));  // plain f16 scales
  Activations x(1, kColumns);
  for (std::size_t k = 0; k < kColumns; ++k) x.row(0)[k] = static_cast<float>(prng.uniform() - 0.5);
  x.quantize(0);
  WeightArena arena;
  const auto product = [&](WeightArena* in) {
    const LinearWeights weights =
        LinearWeights::pack(TensorType::kQ8_0, kOutputs, kColumns, data, in).value();
    std::vector<float> out(kOutputs);
    linear(weights, x, {0, 1}, {0, weights.panels()}, out.data(), kOutputs);
    return out;
  };
  const std::vector<float> own = product(nullptr);
  EXPECT_EQ(product(&arena), own);
  EXPECT_EQ(product(&arena), own);
  EXPECT_NE(own, std::vector<float>(kOutputs));
}

}  // namespace
}  // namespace pagewise::kernels
