// SPDX-License-Identifier: Apache-2.0
// A hit is of equal tokens, whatever they look like: the index has no digest that could collide
// (docs/decisions/0003), and the one digest there is, the key of a promise, decides nothing about
// what is read. Here are the prompts that digests, sums and orders confuse.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/prng.h"
#include "kv/kv_cache.h"
#include "kv/lease.h"
#include "kv/test_tokens.h"

namespace pagewise::kv {
namespace {

std::unique_ptr<KvCache> make_cache(uint32_t block_tokens) {
  CacheConfig config;
  config.block_tokens = block_tokens;
  config.groups = {{4096 / block_tokens, 0}};
  return std::move(KvCache::create(config)).value();
}

void serve(KvCache& cache, const Tokens& prompt, std::string_view space = "") {
  AdmitRequest request;
  request.tokens = prompt;
  request.cache_namespace = space;
  Orders orders;
  const SeqId seq = cache.admit(request, orders).value().seq;
  ASSERT_TRUE(cache.ensure(seq, static_cast<uint32_t>(prompt.size()), orders));
  cache.publish(seq, prompt);
  cache.release(seq);
  cache.check_invariants();
}

uint32_t hit(const KvCache& cache, const Tokens& prompt, std::string_view space = "") {
  AdmitRequest request;
  request.tokens = prompt;
  request.cache_namespace = space;
  return cache.estimate(request).cached_tokens;
}

/// Of one prompt by another, and back: exactly what both begin with.
void expect_only_the_common_beginning(const Tokens& a, const Tokens& b) {
  const uint32_t common = common_tokens(a, b);
  for (const uint32_t block_tokens : {1U, 4U, 16U}) {
    for (const auto& [known, asked] : {std::pair(&a, &b), std::pair(&b, &a)}) {
      const auto cache = make_cache(block_tokens);
      serve(*cache, *known);
      const auto most = static_cast<uint32_t>(asked->size()) - 1;
      EXPECT_EQ(hit(*cache, *asked), std::min(common, most)) << "blocks of " << block_tokens;
      // With both there, each is found whole.
      serve(*cache, *asked);
      EXPECT_EQ(hit(*cache, *asked), most);
      EXPECT_EQ(hit(*cache, *known), known->size() - 1);
    }
  }
}

TEST(Collision, TheSameTokensInAnotherOrderAreAnotherPrompt) {
  // What sums, exclusive ors and sets cannot tell apart.
  Tokens base;
  for (int32_t i = 0; i < 32; ++i) base.emplace_back(i);
  for (const std::size_t at : {0U, 3U, 15U, 16U, 30U}) {
    Tokens swapped = base;
    std::swap(swapped[at], swapped[at + 1]);
    expect_only_the_common_beginning(base, swapped);
  }
  Tokens reversed(base.rbegin(), base.rend());
  expect_only_the_common_beginning(base, reversed);
}

TEST(Collision, PromptsThatDifferInTheirLastTokenAloneAreSiblings) {
  Tokens a;
  for (int32_t i = 0; i < 16; ++i) a.emplace_back(i);
  Tokens b = a;
  b.back() = TokenId(99);
  expect_only_the_common_beginning(a, b);
  // Many of them, and each finds its own: no place among siblings is decided by less than all
  // tokens.
  const auto cache = make_cache(16);
  for (int32_t last = 0; last < 200; ++last) {
    b.back() = TokenId(last * 7 % 200);
    serve(*cache, b);
  }
  for (int32_t last = 0; last < 200; ++last) {
    Tokens whole = b;
    whole.back() = TokenId(last);
    whole.emplace_back(5);
    EXPECT_EQ(hit(*cache, whole), 16U);
  }
}

TEST(Collision, AnEqualBlockBehindAnotherBeginningIsAnotherPlace) {
  // What a digest of a block without its parent's cannot tell apart.
  const Tokens block = tokens({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
  Tokens a(16, TokenId(100)), b(16, TokenId(200));
  a.insert(a.end(), block.begin(), block.end());
  b.insert(b.end(), block.begin(), block.end());
  expect_only_the_common_beginning(a, b);
  Tokens repeated = block;
  repeated.insert(repeated.end(), block.begin(), block.end());
  expect_only_the_common_beginning(repeated, a);
  expect_only_the_common_beginning(repeated, block);
}

TEST(Collision, RunsOfOneTokenDifferByTheirLength) {
  for (const std::size_t length : {1U, 4U, 15U, 16U, 17U, 32U}) {
    Tokens a(length, TokenId(0)), b(length, TokenId(0));
    a.emplace_back(0);
    b.emplace_back(1);
    expect_only_the_common_beginning(a, b);
  }
}

TEST(Collision, NumbersThatSpellTheSameTextAreDifferentTokens) {
  expect_only_the_common_beginning(tokens({1, 23, 4, 5}), tokens({12, 3, 4, 5}));
  // And the same bytes, cut elsewhere.
  expect_only_the_common_beginning(tokens({0x00010000, 0x00000001}), tokens({0, 0x00010001}));
}

TEST(Collision, BlocksWithEqualDigestsAreToldApart) {
  // A collision in 24 bits of the digest that the process uses elsewhere, found by trying: what an
  // index of such keys would take for the same block.
  Prng prng(1);
  std::map<uint64_t, Tokens> seen;
  uint32_t planted = 0;
  while (planted < 20) {
    Tokens block;
    for (int i = 0; i < 16; ++i) block.emplace_back(static_cast<int32_t>(prng.below(50'000)));
    const uint64_t key = xxh3(std::as_bytes(std::span(block))) & 0xffffff;
    const auto [twin, is_new] = seen.emplace(key, block);
    if (is_new) continue;
    ++planted;
    Tokens a = twin->second, b = block;
    for (Tokens* prompt : {&a, &b}) prompt->insert(prompt->end(), 8, TokenId(7));
    ASSERT_NE(a, b);
    expect_only_the_common_beginning(a, b);
  }
}

TEST(Collision, TheSamePromptOfAnotherNamespaceIsNeverFound) {
  const auto cache = make_cache(4);
  const Tokens prompt = tokens({1, 2, 3, 4, 5, 6, 7, 8, 9});
  const std::vector<std::string> names = {"", "a", "b", "a/", "a/b", "a/b/c", "A", "a "};
  for (const std::string& name : names) {
    EXPECT_EQ(hit(*cache, prompt, name), 0U) << name;
    serve(*cache, prompt, name);
    EXPECT_EQ(hit(*cache, prompt, name), 8U) << name;
  }
}

/// A book of leases over an index without a cache around it.
class Promises : public testing::Test, LeaseBook::Listener {
 protected:
  Promises() : index_(4, kBlocks, 64), book_(index_, *this, rules()) { book_.set_time(1); }

  static LeaseRules rules() {
    LeaseRules rules;
    rules.lifetime_5m_ns = rules.lifetime_1h_ns = 1000;
    rules.rooms = {{0, 3, 3, {}}};
    return rules;
  }
  void on_leased(NodeId, uint32_t, bool) override {}
  bool complete(NodeId) const override { return true; }
  void on_broken(NodeId root) override { broken_.push_back(root); }

  NodeId insert(NodeId parent, std::initializer_list<int32_t> values) {
    const BlockId block(next_++);
    return index_.insert(parent, tokens(values), std::span(&block, 1));
  }

  static constexpr uint32_t kBlocks[1] = {64};
  PrefixIndex index_;
  LeaseBook book_;
  std::vector<NodeId> broken_;
  uint32_t next_ = 0;
};

TEST_F(Promises, UnderCollidingKeysShareRoomAndNothingElse) {
  const NodeId root = index_.add_root();
  const NodeId mine = insert(root, {1, 2, 3, 4}), theirs = insert(root, {5, 6, 7, 8});
  const PromiseKey key = 42;  // as if both prefixes had this digest
  const uint32_t nodes[] = {1};
  ASSERT_TRUE(book_.promise(key, root, nodes));
  ASSERT_TRUE(book_.promise(key, root, nodes));
  ASSERT_TRUE(book_.write(mine, mine, 0, LeaseClass::k5m, 1, key));
  EXPECT_TRUE(book_.find(mine, {}).valid());
  EXPECT_FALSE(book_.find(theirs, {}).valid()) << "nobody wrote this one";
  // The other promise had counted on the same room: it is kept while there is some.
  ASSERT_TRUE(book_.write(theirs, theirs, 0, LeaseClass::k5m, 1, key));
  EXPECT_NE(book_.find(mine, {}), book_.find(theirs, {}));
  book_.withdraw(key);
  book_.withdraw(key);
  book_.check_invariants();
}

TEST_F(Promises, UnderCollidingKeysAreBrokenWhereTheRoomIsNotThere) {
  const NodeId root = index_.add_root();
  const NodeId mine = insert(root, {1, 2, 3, 4}), theirs = insert(root, {5, 6, 7, 8});
  const NodeId others = insert(root, {9, 9, 9, 9}), more = insert(root, {9, 9, 9, 8});
  const uint32_t nodes[] = {1};
  ASSERT_TRUE(book_.promise(42, root, nodes));
  ASSERT_TRUE(book_.promise(42, root, nodes));
  ASSERT_TRUE(book_.write(others, others, 0, LeaseClass::k5m, 1, std::nullopt));
  ASSERT_TRUE(book_.write(more, more, 0, LeaseClass::k5m, 1, std::nullopt));
  EXPECT_TRUE(book_.write(mine, mine, 0, LeaseClass::k5m, 1, 42));
  EXPECT_FALSE(book_.write(theirs, theirs, 0, LeaseClass::k5m, 1, 42)) << "the share holds";
  EXPECT_EQ(book_.broken(), 1U) << "and the next use is a creation";
  EXPECT_EQ(broken_, std::vector<NodeId>{root});
  EXPECT_FALSE(book_.find(theirs, {}).valid());
  book_.withdraw(42);
  book_.withdraw(42);
  book_.check_invariants();
}

}  // namespace
}  // namespace pagewise::kv
