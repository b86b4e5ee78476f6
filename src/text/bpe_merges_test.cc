// SPDX-License-Identifier: Apache-2.0
#include "text/bpe_merges.h"

#include <gtest/gtest.h>

#include <map>

#include "base/prng.h"
#include "text/test_vocabulary.h"

namespace pagewise::text {
namespace {

using Pairs = std::map<std::pair<int32_t, int32_t>, BpeMerges::Merge>;

/// The definition, word for word: merge the leftmost pair of the lowest rank until there is none.
std::vector<BpeSymbol> merge_plainly(std::vector<BpeSymbol> symbols, const Pairs& pairs) {
  while (true) {
    BpeMerges::Merge best;
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = pairs.find({symbols[i].id, symbols[i + 1].id});
      if (found == pairs.end() || found->second.rank >= best.rank) continue;
      best = found->second;
      at = i;
    }
    if (best.rank == BpeMerges::kNoRank) return symbols;
    symbols[at] = {best.result, symbols[at].bytes + symbols[at + 1].bytes};
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

TEST(BpeMerges, MergesTheLowestRankFirstAndTheLeftmostAmongEquals) {
  BpeMerges merges(2);
  merges.insert(0, 0, {1, 10});
  merges.insert(0, 1, {0, 11});
  BpeMerges::Scratch scratch;
  std::vector<BpeSymbol> symbols = {{0, 1}, {0, 1}, {0, 1}, {0, 1}, {1, 1}};
  merges.apply(symbols, scratch);
  ASSERT_EQ(symbols.size(), 3u);
  EXPECT_EQ(symbols[0].id, 10);
  EXPECT_EQ(symbols[0].bytes, 2u);
  EXPECT_EQ(symbols[1].id, 0);
  EXPECT_EQ(symbols[2].id, 11);
}

TEST(BpeMerges, NeverMergesWhatTheVocabularyDoesNotKnow) {
  BpeMerges merges(1);
  merges.insert(0, 0, {0, 1});
  BpeMerges::Scratch scratch;
  std::vector<BpeSymbol> symbols = {{0, 1}, {-1, 1}, {0, 1}, {-1, 1}, {-1, 1}, {0, 1}, {0, 1}};
  merges.apply(symbols, scratch);
  ASSERT_EQ(symbols.size(), 6u);
  EXPECT_EQ(symbols[5].id, 1);
}

TEST(BpeMerges, EqualsThePlainDefinitionForShortAndLongPieces) {
  const uint64_t seed = testing::test_seed();
  SCOPED_TRACE(::testing::Message() << "PAGEWISE_SEED=" << seed);
  Prng prng(seed);
  for (int round = 0; round < 400; ++round) {
    // A random vocabulary over few letters, so that merges chain and overlap.
    const auto letters = static_cast<int32_t>(1 + prng.below(4));
    int32_t ids = letters;
    Pairs pairs;
    const uint64_t count = prng.below(30);
    for (uint32_t rank = 0; rank < count; ++rank) {
      const auto left = static_cast<int32_t>(prng.below(static_cast<uint64_t>(ids)));
      const auto right = static_cast<int32_t>(prng.below(static_cast<uint64_t>(ids)));
      if (pairs.contains({left, right})) continue;
      pairs[{left, right}] = {rank, ids++};
    }
    BpeMerges merges(pairs.size());
    for (const auto& [pair, merge] : pairs) merges.insert(pair.first, pair.second, merge);
    std::vector<BpeSymbol> symbols(prng.below(2) == 0 ? prng.below(40) : prng.below(300));
    for (BpeSymbol& symbol : symbols) {
      symbol = {static_cast<int32_t>(prng.below(static_cast<uint64_t>(letters))), 1};
      if (prng.below(50) == 0) symbol.id = -1;
    }
    const std::vector<BpeSymbol> expected = merge_plainly(symbols, pairs);
    BpeMerges::Scratch scratch;
    merges.apply(symbols, scratch);
    ASSERT_EQ(symbols.size(), expected.size()) << "round " << round;
    for (std::size_t i = 0; i < symbols.size(); ++i) {
      ASSERT_EQ(symbols[i].id, expected[i].id) << "round " << round << " symbol " << i;
      ASSERT_EQ(symbols[i].bytes, expected[i].bytes) << "round " << round << " symbol " << i;
    }
  }
}

}  // namespace
}  // namespace pagewise::text
