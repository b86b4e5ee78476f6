// SPDX-License-Identifier: Apache-2.0
#include "kv/kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "kv/test_tokens.h"

namespace pagewise::kv {
namespace {

using Ids = std::vector<uint32_t>;

/// first, first + 1, ...: `count` tokens.
Tokens range(int32_t first, uint32_t count) {
  Tokens out;
  for (uint32_t i = 0; i < count; ++i) out.emplace_back(first + static_cast<int32_t>(i));
  return out;
}
Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// A cache of one group, and a request's life in a few words.
class Bench {
 public:
  explicit Bench(uint32_t blocks, uint32_t block_tokens = 4, CacheConfig config = {}) {
    config.block_tokens = block_tokens;
    config.groups = {{blocks, 0}};
    auto created = KvCache::create(config);
    cache_ = std::move(created).value();
  }
  KvCache* operator->() { return cache_.get(); }

  AdmitRequest request(const Tokens& prompt) const {
    AdmitRequest request;
    request.tokens = prompt;
    request.start = now_;
    return request;
  }
  Result<Admitted> try_admit(const AdmitRequest& request) {
    orders.clear();
    return cache_->admit(request, orders);
  }
  Admitted admit(const Tokens& prompt) {
    Result<Admitted> admitted = try_admit(request(prompt));
    EXPECT_TRUE(admitted.has_value());
    return admitted.value();
  }
  bool ensure(SeqId seq, uint32_t tokens) {
    orders.clear();
    return cache_->ensure(seq, tokens, orders).has_value();
  }
  /// Computes the whole of `all`.
  void compute(SeqId seq, const Tokens& all) {
    ASSERT_TRUE(ensure(seq, static_cast<uint32_t>(all.size())));
    cache_->publish(seq, all);
    cache_->check_invariants();
  }
  /// Computes the prompt and leaves; returns what was read from the cache.
  uint32_t serve(const Tokens& prompt) {
    const Admitted admitted = admit(prompt);
    compute(admitted.seq, prompt);
    release(admitted.seq);
    return admitted.cached_tokens;
  }
  /// The same for a sequence that was preempted when it had had the first `from` of these.
  uint32_t resume(const Tokens& all, uint32_t from) {
    AdmitRequest again = request(all);
    again.resumes_from = from;
    const Result<Admitted> admitted = try_admit(again);
    EXPECT_TRUE(admitted.has_value());
    compute(admitted->seq, all);
    release(admitted->seq);
    return admitted->cached_tokens;
  }
  /// The same with marked prefixes, each position marked: (tokens, class).
  CacheUsage serve_marked(const Tokens& prompt, const std::vector<MarkedPrefix>& marks) {
    std::vector<CachePosition> positions;
    std::vector<CacheMarker> markers;
    for (const MarkedPrefix& mark : marks) {
      markers.push_back({static_cast<uint32_t>(positions.size()), mark.lease});
      positions.push_back({mark.tokens});
    }
    return serve_positions(prompt, positions, markers);
  }
  CacheUsage serve_positions(const Tokens& prompt, const std::vector<CachePosition>& positions,
                             const std::vector<CacheMarker>& markers) {
    AdmitRequest asked = request(prompt);
    asked.positions = positions;
    asked.markers = markers;
    Result<Admitted> admitted = try_admit(asked);
    EXPECT_TRUE(admitted.has_value());
    compute(admitted->seq, prompt);
    release(admitted->seq);
    return admitted->usage;
  }
  void release(SeqId seq) {
    cache_->release(seq);
    cache_->check_invariants();
  }
  void set_time(TimeNs now) {
    now_ = now;
    cache_->set_time(now);
    cache_->check_invariants();
  }
  Ids table(SeqId seq) const {
    Ids ids;
    for (BlockId block : cache_->table(seq, 0)) ids.push_back(block.value);
    return ids;
  }
  Ids fresh() const {
    Ids ids;
    for (const FreshBlock& fresh : orders.fresh) ids.push_back(fresh.block.value);
    return ids;
  }
  BlockCounts counts() const { return cache_->counts(0); }

  Orders orders;  // of the last call

 private:
  std::unique_ptr<KvCache> cache_;
  TimeNs now_ = 0;
};

CacheConfig half_protected() {
  CacheConfig config;
  config.protected_share = 0.5;
  return config;
}

// ---- The worked example of docs/kv.md: ten blocks of four positions, to replay by hand ----

TEST(KvCache, ReplaysTheWorkedExample) {
  Bench kv(10, 4, half_protected());
  // A: eleven prompt tokens, then two generated ones.
  const Tokens a = range(1, 13);
  const Admitted first = kv.admit(range(1, 11));
  EXPECT_EQ(first.cached_tokens, 0u);
  kv.compute(first.seq, range(1, 11));
  EXPECT_EQ(kv.table(first.seq), (Ids{0, 1, 2}));
  kv.compute(first.seq, range(1, 12));
  kv.compute(first.seq, a);
  EXPECT_EQ(kv.table(first.seq), (Ids{0, 1, 2, 3}));

  // B shares two whole blocks and then differs.
  const Tokens b = range(1, 8) + range(20, 3);
  const Admitted second = kv.admit(b);
  EXPECT_EQ(second.cached_tokens, 8u);
  EXPECT_EQ(second.blocks_shared, 2u);
  kv.compute(second.seq, b);
  EXPECT_EQ(kv.table(second.seq), (Ids{0, 1, 4}));

  // C differs inside block 2: two positions are copied.
  const Tokens c = range(1, 10) + tokens({30});
  const Admitted third = kv.admit(c);
  EXPECT_EQ(third.cached_tokens, 10u);
  EXPECT_EQ(kv.orders.copies, (std::vector<CopyOrder>{{0, BlockId(2), BlockId(5), 2}}));
  kv.compute(third.seq, c);
  EXPECT_EQ(kv.table(third.seq), (Ids{0, 1, 5}));
  EXPECT_EQ(kv.counts(), (BlockCounts{10, 6, 0, 4, 0}));

  kv.release(first.seq);  // 3 and 2 become cached, in this order; B and C hold 0 and 1
  EXPECT_EQ(kv.counts(), (BlockCounts{10, 4, 2, 4, 0}));

  // D is what A computed first, to the token: its last token is computed all the same, and makes a
  // twin of block 2.
  const Tokens d = range(1, 12);
  const Admitted fourth = kv.admit(d);
  EXPECT_EQ(fourth.cached_tokens, 11u);
  EXPECT_EQ(kv.orders.copies, (std::vector<CopyOrder>{{0, BlockId(2), BlockId(6), 3}}));
  kv.compute(fourth.seq, d);
  EXPECT_EQ(kv->counters().twins, 1u);
  kv.release(fourth.seq);  // the twin becomes free, the indexed block stays
  EXPECT_EQ(kv.counts(), (BlockCounts{10, 4, 2, 4, 0}));

  // E needs five blocks: four are free, then block 3 goes, which nobody read again.
  const Tokens e = range(100, 17);
  const Admitted fifth = kv.admit(e);
  kv.compute(fifth.seq, e);
  EXPECT_EQ(kv.table(fifth.seq), (Ids{6, 7, 8, 9, 3}));
  EXPECT_EQ(kv->counters().evictions, 1u);

  // All leave. E's prompt, read by nobody, goes from its tail; what was shared stays longest.
  kv.release(fifth.seq);
  kv.release(third.seq);
  kv.release(second.seq);
  EXPECT_EQ(kv.counts(), (BlockCounts{10, 0, 10, 0, 0}));
  const Admitted sixth = kv.admit(range(200, 3));
  Ids given;
  for (uint32_t block = 1; block <= 10; ++block) {
    ASSERT_TRUE(kv.ensure(sixth.seq, 4 * block));
    given.push_back(kv.fresh().at(0));
    kv->check_invariants();
  }
  EXPECT_EQ(given, (Ids{3, 9, 8, 7, 6, 5, 4, 2, 1, 0}));
  kv.release(sixth.seq);
  EXPECT_EQ(kv.counts(), (BlockCounts{10, 0, 0, 10, 0}));
}

// ---- Hits ----

TEST(KvCache, C01ReadsTheSamePromptAgainAndAgain) {
  Bench kv(64, 16);
  const Tokens prompt = range(0, 512);
  EXPECT_EQ(kv.serve(prompt), 0u);
  for (int repeat = 0; repeat < 9; ++repeat) EXPECT_EQ(kv.serve(prompt), 511u);
  EXPECT_EQ(kv.counts().live, 0u);
  EXPECT_EQ(kv.counts().cached, 32u);  // twins of the last block do not pile up
}

TEST(KvCache, C02NeverReadsABlockThatIsNotComputedYet) {
  Bench kv(64);
  const Tokens prompt = range(0, 23);
  const Admitted one = kv.admit(prompt), other = kv.admit(prompt);
  EXPECT_EQ(other.cached_tokens, 0u);
  ASSERT_TRUE(kv.ensure(one.seq, 23));
  EXPECT_EQ(kv->estimate(kv.request(prompt)).cached_tokens, 0u);  // blocks, but nothing in them
  kv->publish(one.seq, std::span(prompt).first(10));
  EXPECT_EQ(kv->estimate(kv.request(prompt)).cached_tokens, 10u);
  kv.compute(one.seq, prompt);
  kv.compute(other.seq, prompt);
  EXPECT_EQ(kv->counters().twins, 5u);
  EXPECT_EQ(kv->estimate(kv.request(prompt)).cached_tokens, 22u);
  kv.release(one.seq);
  kv.release(other.seq);
  EXPECT_EQ(kv.counts().cached, 6u);
}

TEST(KvCache, C03CachesToTheTokenAroundWholeBlocks) {
  for (const uint32_t size : {1u, 2u, 16u, 32u, 256u}) {
    SCOPED_TRACE("block of " + std::to_string(size));
    uint32_t last_cached = 0;
    std::vector<uint32_t> lengths = {1,        size - 1,     size,     size + 1,    2 * size - 1,
                                     2 * size, 2 * size + 1, 8 * size, 8 * size + 1};
    std::sort(lengths.begin(), lengths.end());
    for (const uint32_t n : lengths) {
      if (n == 0) continue;
      Bench kv(64, size);
      for (int repeat = 0; repeat < 3; ++repeat) {
        for (const uint32_t generated : {1u, 2 * size}) {
          const bool cold = repeat == 0 && generated == 1;
          const Tokens prompt = range(0, n);
          const Admitted admitted = kv.admit(prompt);
          EXPECT_EQ(admitted.cached_tokens, cold ? 0 : n - 1) << n;
          Tokens all = prompt;
          kv.compute(admitted.seq, all);
          for (uint32_t i = 1; i < generated; ++i) {  // the last sampled token is never computed
            all.emplace_back(1000 + static_cast<int32_t>(i));
            kv.compute(admitted.seq, all);
          }
          kv.release(admitted.seq);
          const BlockCounts counts = kv.counts();
          EXPECT_EQ(counts.live, 0u);
          EXPECT_EQ(counts.live + counts.cached + counts.free, counts.pool);
          if (!cold) {
            EXPECT_GE(admitted.cached_tokens, last_cached);
            last_cached = admitted.cached_tokens;
          }
        }
      }
    }
  }
}

TEST(KvCache, FindsGeneratedTokensInTheNextTurn) {
  Bench kv(64);
  const Tokens turn = range(0, 9), answer = range(50, 6);
  const Admitted admitted = kv.admit(turn);
  kv.compute(admitted.seq, turn);
  Tokens all = turn;
  for (TokenId token : answer) {
    all.push_back(token);
    kv.compute(admitted.seq, all);
  }
  kv.release(admitted.seq);
  // The answer's tokens came back as the client tokenises them: equal up to the fourth.
  EXPECT_EQ(kv.serve(turn + range(50, 4) + range(90, 5)), 13u);
}

TEST(KvCache, KeepsNamespacesApart) {
  Bench kv(64);
  AdmitRequest mine = kv.request(Tokens());
  const Tokens prompt = range(0, 20);
  kv.serve(prompt);
  mine.tokens = prompt;
  mine.cache_namespace = "another";
  EXPECT_EQ(kv->estimate(mine).cached_tokens, 0u);
  mine.cache_namespace = "";
  EXPECT_EQ(kv->estimate(mine).cached_tokens, 19u);
}

TEST(KvCache, NeitherReadsNorEntersForARequestThatSkipsTheCache) {
  Bench kv(64);
  const Tokens prompt = range(0, 20), other = range(100, 20);
  kv.serve(prompt);
  AdmitRequest request = kv.request(prompt);
  request.use_cache = false;
  Result<Admitted> admitted = kv.try_admit(request);
  EXPECT_EQ(admitted->cached_tokens, 0u);
  kv.compute(admitted->seq, prompt);
  kv.release(admitted->seq);
  request.tokens = other;
  admitted = kv.try_admit(request);
  kv.compute(admitted->seq, other);
  kv.release(admitted->seq);
  EXPECT_EQ(kv.serve(other), 0u);
}

TEST(KvCache, EntersWithoutReadingForARequestThatMustComputeEverything) {  // C20
  Bench kv(64);
  const Tokens known = range(0, 20), cold = range(100, 20);
  kv.serve(known);
  for (const Tokens& prompt : {known, cold}) {
    AdmitRequest request = kv.request(prompt);
    request.read_cache = false;
    const CachePosition position{16};
    const CacheMarker marker{0, LeaseClass::k5m};
    request.positions = {&position, 1};
    request.markers = {&marker, 1};
    const CacheCounters before = kv->counters();
    EXPECT_EQ(kv->estimate(request).cached_tokens, 0u);
    const Result<Admitted> admitted = kv.try_admit(request);
    EXPECT_EQ(admitted->cached_tokens, 0u);
    EXPECT_EQ(admitted->usage.input_tokens, 20u);
    EXPECT_EQ(kv->counters().query_tokens, before.query_tokens);
    kv.compute(admitted->seq, prompt);
    kv.release(admitted->seq);
    kv->check_invariants();
    EXPECT_EQ(kv.serve(prompt), 19u);
  }
  EXPECT_EQ(kv->entries(), 0u);
}

TEST(KvCache, C07OffersOnlyWhatACancelledPrefillHasComputed) {
  Bench kv(64);
  const Tokens prompt = range(0, 40);
  const Admitted admitted = kv.admit(prompt);
  ASSERT_TRUE(kv.ensure(admitted.seq, 40));
  kv->publish(admitted.seq, std::span(prompt).first(14));
  kv.release(admitted.seq);  // the client left
  EXPECT_EQ(kv.counts(), (BlockCounts{64, 0, 4, 60, 0}));
  EXPECT_EQ(kv.serve(prompt), 14u);
}

TEST(KvCache, ReplacesAPartlyFilledBlockByTheOneThatContinuesIt) {
  Bench kv(64);
  kv.serve(range(0, 6));                 // one block and two positions
  EXPECT_EQ(kv.serve(range(0, 8)), 6u);  // copied, then filled
  EXPECT_EQ(kv.counts().cached, 2u);     // the half-filled original is gone
  EXPECT_EQ(kv.serve(range(0, 8)), 7u);
}

// ---- Memory ----

TEST(KvCache, C08RefusesWhatCanNeverFitAndChangesNothing) {
  Bench kv(64, 16);
  const Tokens prompt = range(0, 2000);
  AdmitRequest request = kv.request(prompt);
  request.cover_tokens = 2000;
  EXPECT_FALSE(kv->estimate(request).fits_ever);
  Result<Admitted> admitted = kv.try_admit(request);
  ASSERT_FALSE(admitted.has_value());
  EXPECT_EQ(admitted.error().code, ErrorCode::kPoolExhausted);
  EXPECT_EQ(kv.counts().free, 64u);
  EXPECT_EQ(kv->sequences(), 0u);
}

TEST(KvCache, AdmitsAPromptOfTheWholePoolWhoseOwnPartialBlockIsInTheWay) {
  Bench kv(4);
  kv.serve(range(0, 14) + tokens({99, 98}));  // the pool is full of a prompt that differs at 14
  AdmitRequest request = kv.request(Tokens());
  const Tokens prompt = range(0, 16);
  request.tokens = prompt;
  request.cover_tokens = 16;
  const Result<Admitted> admitted = kv.try_admit(request);
  ASSERT_TRUE(admitted.has_value());
  EXPECT_EQ(admitted->cached_tokens, 12u);  // 14 are known, but their last block had to go
  EXPECT_TRUE(kv.orders.copies.empty());
  kv->check_invariants();
}

TEST(KvCache, TakesAllBlocksOrNone) {
  Bench kv(4);
  const Admitted admitted = kv.admit(range(0, 3));
  ASSERT_TRUE(kv.ensure(admitted.seq, 12));
  EXPECT_FALSE(kv.ensure(admitted.seq, 17));
  EXPECT_TRUE(kv.orders.fresh.empty());
  EXPECT_EQ(kv->tokens_covered(admitted.seq), 12u);
  EXPECT_EQ(kv.counts().free, 1u);
}

TEST(KvCache, GivesFreeBlocksBeforeCachedOnes) {
  Bench kv(4);
  kv.serve(range(0, 8));
  const Admitted admitted = kv.admit(range(100, 9));
  ASSERT_TRUE(kv.ensure(admitted.seq, 8));
  EXPECT_EQ(kv.fresh(), (Ids{2, 3}));
  ASSERT_TRUE(kv.ensure(admitted.seq, 9));
  EXPECT_EQ(kv.fresh(), (Ids{1}));  // the tail of the cached prompt
  EXPECT_EQ(kv->counters().evictions, 1u);
}

TEST(KvCache, KeepsASharedPrefixThroughAScanOfSingleUsePrompts) {
  const auto hit_after_scan = [](double protected_share) {
    CacheConfig config;
    config.protected_share = protected_share;
    Bench kv(32, 4, config);
    const Tokens system = range(0, 40);
    kv.serve(system + tokens({1000}));
    kv.serve(system + tokens({1001}));
    for (int32_t job = 0; job < 100; ++job) kv.serve(range(5000 + 100 * job, 30));
    return kv.serve(system + tokens({1002}));
  };
  EXPECT_EQ(hit_after_scan(0.5), 40u);
  EXPECT_EQ(hit_after_scan(0), 0u);  // plain LRU forgets it
}

/// Four prompts that nobody sends again: as many blocks as the pool of 32 has.
void scan(Bench& kv, int32_t& next) {
  for (int i = 0; i < 4; ++i) kv.serve(range(next += 1000, 30));
}

TEST(KvCache, KeepsAPrefixWhoseReadersComeFurtherApartThanAPoolOfNewcomers) {
  const auto hits = [](double protected_share) {
    CacheConfig config;
    config.protected_share = protected_share;
    Bench kv(32, 4, config);
    std::vector<uint32_t> all;
    int32_t next = 5000;
    for (int32_t i = 0; i < 4; ++i) {
      all.push_back(kv.serve(range(0, 40) + tokens({1000 + i})));
      scan(kv, next);
    }
    return all;
  };
  // The second reader computes ten blocks that had been given up. They are protected from then on,
  // as far as there is room: each shrank the share of 16 by one, for they had been read once. The
  // third finds the six that were kept; that the other four had been read again grows the share.
  EXPECT_EQ(hits(0.5), (std::vector<uint32_t>{0, 0, 24, 40}));
  EXPECT_EQ(hits(0), (std::vector<uint32_t>{0, 0, 0, 0}));
}

TEST(KvCache, DoesNotRecogniseWhatWasClearedMeanwhile) {
  Bench kv(32, 4, half_protected());
  const Tokens prompt = range(0, 41);
  int32_t next = 5000;
  kv.serve(prompt);
  scan(kv, next);
  kv->clear();
  kv.serve(prompt);
  scan(kv, next);
  EXPECT_EQ(kv.serve(prompt), 0u) << "given up as a prompt that was used once";
  scan(kv, next);
  EXPECT_EQ(kv.serve(prompt), 24u) << "without a clear in between it is recognised";
}

TEST(KvCache, LearnsFromPromptsAndNotFromWhatAnswersRepeat) {
  Bench kv(32, 4, half_protected());
  const Tokens prompt = range(0, 8), whole = range(0, 20);
  int32_t next = 5000;
  for (int i = 0; i < 2; ++i) {
    const Admitted admitted = kv.admit(prompt);
    kv.compute(admitted.seq, whole);
    kv.release(admitted.seq);
    scan(kv, next);
  }
  EXPECT_EQ(kv.serve(whole), 8u);
}

TEST(KvCache, ASequenceThatResumesHasReadNothingAgain) {
  Bench kv(32, 4, half_protected());
  const Tokens prompt = range(0, 41);
  int32_t next = 5000;
  kv.serve(prompt);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(kv.resume(prompt, 41), 40u);
  EXPECT_EQ(kv->counters().query_tokens, 41u);
  EXPECT_EQ(kv->counters().hit_tokens, 0u);
  scan(kv, next);
  EXPECT_EQ(kv.serve(prompt), 0u) << "given up as a prompt that was used once";
}

TEST(KvCache, ASequenceThatResumesAsksForNothingAgain) {
  Bench kv(32, 4, half_protected());
  const Tokens prompt = range(0, 41);
  int32_t next = 5000;
  kv.serve(prompt);
  for (int i = 0; i < 3; ++i) {
    scan(kv, next);
    EXPECT_EQ(kv.resume(prompt, 41), 0u) << "nothing was learnt from the last time";
  }
  scan(kv, next);
  EXPECT_EQ(kv.serve(prompt), 0u) << "and the share is what it was:";
  scan(kv, next);
  EXPECT_EQ(kv.serve(prompt), 24u) << "as if it had never been preempted";
}

TEST(KvCache, ASequenceThatResumesStillAsksForWhatItHasNotHad) {
  Bench kv(32, 4, half_protected());
  const Tokens prompt = range(0, 41);
  int32_t next = 5000;
  kv.serve(prompt);
  scan(kv, next);
  const Admitted begun = kv.admit(prompt);
  kv.compute(begun.seq, range(0, 20));
  kv.release(begun.seq);
  EXPECT_EQ(kv.resume(prompt, 20), 20u);
  scan(kv, next);
  EXPECT_EQ(kv.serve(prompt), 24u);
}

TEST(KvCache, ASequenceThatResumesHasReadWhatAnotherComputedMeanwhile) {
  Bench kv(32, 4, half_protected());
  const Tokens prompt = range(0, 41);
  int32_t next = 5000;
  kv.serve(range(0, 20));
  kv.serve(prompt);
  EXPECT_EQ(kv.resume(prompt, 20), 40u);
  scan(kv, next);
  EXPECT_EQ(kv.serve(prompt), 40u);
}

TEST(KvCache, LetsNewFavouritesReplaceOldOnes) {
  Bench kv(16);
  for (int i = 0; i < 5; ++i) kv.serve(range(0, 40));
  for (int i = 0; i < 5; ++i) kv.serve(range(1000, 40));
  EXPECT_EQ(kv.serve(range(1000, 40)), 39u);
}

TEST(KvCache, HandsOutShuffledBlocksUnderTheDebugFlag) {
  CacheConfig config;
  config.shuffle_blocks = true;
  config.shuffle_seed = 5;
  Bench kv(64, 4, config);
  const Admitted admitted = kv.admit(range(0, 3));
  ASSERT_TRUE(kv.ensure(admitted.seq, 256));
  Ids ids = kv.table(admitted.seq);
  EXPECT_FALSE(std::is_sorted(ids.begin(), ids.end()));
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end());
}

TEST(KvCache, KeepsWhatIsBeforeABlockThatWasReadAlsoWhenATwinTookItsPlace) {
  CacheConfig config;
  config.protected_share = 0.1;  // one block
  Bench kv(16, 4, config);
  const Tokens prompt = range(0, 8);
  const Admitted first = kv.admit(prompt), second = kv.admit(prompt);
  kv.compute(first.seq, range(0, 4));
  kv.compute(second.seq, prompt);  // its first block is a twin, its second findable
  kv.release(first.seq);
  EXPECT_EQ(kv.serve(prompt + range(50, 2)), 8u);  // reads both
  kv.serve(range(100, 5));
  kv.serve(range(100, 5));  // now this is the block that is protected
  const Admitted large = kv.admit(range(1000, 48));
  ASSERT_TRUE(
      kv.ensure(large.seq, 4 * (kv.counts().free + 2)));  // the first block goes: the twin stays
  kv.release(second.seq);  // checks that it does not go before the block that was read
  kv.release(large.seq);
}

TEST(KvCache, LetsATwinTakeThePlaceOfAnEvictedBlock) {
  Bench kv(6);
  const Tokens prompt = range(0, 8);
  const Admitted one = kv.admit(prompt), other = kv.admit(prompt);
  kv.compute(one.seq, prompt);
  kv.compute(other.seq, prompt);  // twins: 2 and 3, private
  EXPECT_EQ(kv.table(other.seq), (Ids{2, 3}));
  const Tokens longer = prompt + range(50, 4);
  kv.compute(other.seq, longer);  // block 4, findable behind block 1
  kv.release(one.seq);            // 1 and 0 are cached
  const Admitted third = kv.admit(range(900, 3));
  ASSERT_TRUE(kv.ensure(third.seq, 12));
  EXPECT_EQ(kv.fresh(), (Ids{5, 1, 0}));
  EXPECT_EQ(kv->counters().evictions, 0u);  // no contents were lost
  kv.release(third.seq);
  EXPECT_EQ(kv->estimate(kv.request(longer)).cached_tokens, 11u);
}

TEST(KvCache, KeepsEveryLayerGroupInStep) {
  CacheConfig config;
  config.block_tokens = 4;
  config.groups = {{8, 0}, {3, 0}};
  auto cache = std::move(KvCache::create(config)).value();
  Orders orders;
  const Tokens prompt = range(0, 7);
  AdmitRequest request;
  request.tokens = prompt;
  const Admitted one = cache->admit(request, orders).value();
  EXPECT_FALSE(cache->ensure(one.seq, 16, orders));  // the smaller group decides
  EXPECT_TRUE(orders.fresh.empty());
  ASSERT_TRUE(cache->ensure(one.seq, 7, orders));
  EXPECT_EQ(orders.fresh.size(), 4u);
  cache->publish(one.seq, prompt);
  cache->release(one.seq);
  orders.clear();
  request.cover_tokens = 7;
  EXPECT_EQ(cache->admit(request, orders)->cached_tokens, 6u);
  EXPECT_EQ(orders.copies, (std::vector<CopyOrder>{{0, BlockId(1), BlockId(2), 2},
                                                   {1, BlockId(1), BlockId(2), 2}}));
  cache->check_invariants();
}

// ---- Forks ----

TEST(KvCache, SharesThePromptOfAForkAndCopiesTheTailOnTheFirstWrite) {
  Bench kv(8);
  const Tokens prompt = range(0, 6);
  const Admitted first = kv.admit(prompt);
  kv.compute(first.seq, prompt);
  const SeqId fork = kv->fork(first.seq);
  EXPECT_EQ(kv.table(fork), (Ids{0, 1}));
  EXPECT_EQ(kv.counts().live, 2u);
  ASSERT_TRUE(kv.ensure(first.seq, 7));
  EXPECT_EQ(kv.orders.copies, (std::vector<CopyOrder>{{0, BlockId(1), BlockId(2), 2}}));
  EXPECT_EQ(kv.table(first.seq), (Ids{0, 2}));
  ASSERT_TRUE(kv.ensure(fork, 7));  // alone with it now: writes in place
  EXPECT_TRUE(kv.orders.copies.empty());
  kv->publish(first.seq, prompt + tokens({70}));
  kv->publish(fork, prompt + tokens({71}));
  kv->check_invariants();
  EXPECT_EQ(kv->estimate(kv.request(prompt + tokens({70, 0}))).cached_tokens, 7u);
  EXPECT_EQ(kv->estimate(kv.request(prompt + tokens({71, 0}))).cached_tokens, 7u);
  kv.release(first.seq);
  kv.release(fork);
  EXPECT_EQ(kv.counts().live, 0u);
}

TEST(KvCache, CopiesNothingForAForkAtABlockBoundary) {
  Bench kv(8);
  const Tokens prompt = range(0, 8);
  const Admitted first = kv.admit(prompt);
  kv.compute(first.seq, prompt);
  const SeqId fork = kv->fork(first.seq);
  ASSERT_TRUE(kv.ensure(first.seq, 9));
  EXPECT_TRUE(kv.orders.copies.empty());
  ASSERT_TRUE(kv.ensure(fork, 9));
  EXPECT_TRUE(kv.orders.copies.empty());
  EXPECT_EQ(kv.counts().live, 4u);
}

// ---- Entries and leases ----

constexpr TimeNs k5mNs = 300'000'000'000, k1hNs = 3'600'000'000'000;
constexpr LeaseClass k5m = LeaseClass::k5m, k1h = LeaseClass::k1h;

TEST(KvCacheLease, C11CreatesThenReadsAndAlwaysAddsUp) {
  Bench kv(128, 32);
  const Tokens system = range(0, 1200);
  EXPECT_EQ(kv.serve_marked(system + range(5000, 20), {{1200, k5m}}), (CacheUsage{0, 1200, 0, 20}));
  EXPECT_EQ(kv.serve_marked(system + range(5000, 20), {{1200, k5m}}), (CacheUsage{1200, 0, 0, 20}));
  EXPECT_EQ(kv.serve_marked(system + range(6000, 9), {{1200, k5m}}), (CacheUsage{1200, 0, 0, 9}));
  EXPECT_EQ(kv.serve_marked(system + range(5000, 20), {}), (CacheUsage{0, 0, 0, 1220}));
  EXPECT_EQ(kv->entries(), 1u);
  EXPECT_EQ(kv.counts().leased, 38u);  // 37 whole blocks and one of 16 positions
}

TEST(KvCacheLease, WritesAnEntryOnlyOnceThePrefillCoversIt) {
  Bench kv(64);
  const Tokens prompt = range(0, 20);
  const std::vector<CachePosition> positions = {{10}};
  const std::vector<CacheMarker> markers = {{0, k5m}};
  AdmitRequest request = kv.request(prompt);
  request.positions = positions;
  request.markers = markers;
  const Admitted admitted = kv.try_admit(request).value();
  EXPECT_EQ(admitted.usage, (CacheUsage{0, 10, 0, 10}));
  ASSERT_TRUE(kv.ensure(admitted.seq, 20));
  kv->publish(admitted.seq, std::span(prompt).first(9));
  EXPECT_EQ(kv->entries(), 0u);
  kv->publish(admitted.seq, std::span(prompt).first(10));
  EXPECT_EQ(kv->entries(), 1u);
}

TEST(KvCacheLease, WritesNothingForARequestThatWasCancelledBefore) {
  Bench kv(8);
  const Tokens prompt = range(0, 16);
  const std::vector<CachePosition> positions = {{16}};
  const std::vector<CacheMarker> markers = {{0, k5m}};
  AdmitRequest request = kv.request(prompt);
  request.positions = positions;
  request.markers = markers;
  for (int i = 0; i < 3; ++i) {  // what was promised is given back each time
    const Admitted admitted = kv.try_admit(request).value();
    EXPECT_EQ(admitted.usage.created_5m_tokens, 16u);
    kv.release(admitted.seq);
  }
  EXPECT_EQ(kv->entries(), 0u);
}

TEST(KvCacheLease, MeasuresFromTheStartOfTheRequestAndRefreshesByReading) {
  Bench kv(64);
  const Tokens prompt = range(0, 20);
  kv.serve_marked(prompt, {{16, k5m}});
  kv.set_time(k5mNs - 1);
  EXPECT_EQ(kv.serve_marked(prompt, {{16, k5m}}).read_tokens, 16u);
  kv.set_time(2 * k5mNs - 2);
  EXPECT_EQ(kv.serve_marked(prompt, {{16, k5m}}).read_tokens, 16u);
  kv.set_time(3 * k5mNs - 2);
  EXPECT_EQ(kv->entries(), 0u);
  EXPECT_EQ(kv.counts().leased, 0u);
  // Expired: a creation by the contract, though the blocks are still read.
  EXPECT_EQ(kv.serve_marked(prompt, {{16, k5m}}), (CacheUsage{0, 16, 0, 4}));
  EXPECT_EQ(kv->counters().leases_broken, 0u);
}

TEST(KvCacheLease, KeepsTheLargerClassWithoutACharge) {
  Bench kv(64);
  const Tokens prompt = range(0, 20);
  kv.serve_marked(prompt, {{16, k5m}});
  EXPECT_EQ(kv.serve_marked(prompt, {{16, k1h}}), (CacheUsage{16, 0, 0, 4}));
  kv.set_time(k1hNs - 1);
  EXPECT_EQ(kv.serve_marked(prompt, {{16, k5m}}).read_tokens, 16u);
  kv.set_time(2 * k1hNs - 2);  // it is an hour's entry now, whoever reads it
  EXPECT_EQ(kv->entries(), 1u);
  kv.set_time(2 * k1hNs - 1);
  EXPECT_EQ(kv->entries(), 0u);
}

/// The worked example of reference B4, ten tokens a content block.
TEST(KvCacheLease, LooksBackTwentyPositionsFromEachMarker) {
  Bench kv(256);
  const auto turn = [&](uint32_t blocks, std::vector<uint32_t> marked) {
    std::vector<CachePosition> positions;
    for (uint32_t i = 1; i <= blocks; ++i) positions.push_back({10 * i});
    std::vector<CacheMarker> markers;
    for (uint32_t block : marked) markers.push_back({block - 1, k5m});
    return kv.serve_positions(range(0, 10 * blocks + 3), positions, markers);
  };
  EXPECT_EQ(turn(10, {10}), (CacheUsage{0, 100, 0, 3}));
  EXPECT_EQ(turn(15, {15}), (CacheUsage{100, 50, 0, 3}));
  EXPECT_EQ(turn(34, {34}), (CacheUsage{150, 190, 0, 3}));  // 34..15 reaches it
  kv->clear();
  turn(10, {10});
  turn(15, {15});
  EXPECT_EQ(turn(35, {35}), (CacheUsage{0, 350, 0, 3}));  // 35..16 misses 15 by one
  kv->clear();
  turn(15, {15});
  EXPECT_EQ(turn(35, {15, 35}), (CacheUsage{150, 200, 0, 3}));  // a second marker on 15 finds it
}

TEST(KvCacheLease, CountsARunOfJoinedPositionsAsOneOfTheLookBack) {
  Bench kv(256);
  // Blocks from `joined` on are a run: calls of one answer, or their results.
  const auto turn = [&](uint32_t blocks, uint32_t marked, uint32_t joined) {
    std::vector<CachePosition> positions;
    for (uint32_t i = 1; i <= blocks; ++i) positions.push_back({10 * i, i > joined});
    const std::vector<CacheMarker> markers = {{marked - 1, k5m}};
    return kv.serve_positions(range(0, 10 * blocks + 3), positions, markers).read_tokens;
  };
  turn(15, 15, 99);
  EXPECT_EQ(turn(60, 60, 33), 150u);  // 60..33 is one position, and 32..15 are eighteen
  kv->clear();
  turn(15, 15, 99);
  EXPECT_EQ(turn(60, 60, 35), 0u) << "20 positions end at 16";
  kv->clear();
  turn(15, 12, 10);  // an entry inside a run is found, too
  EXPECT_EQ(turn(15, 15, 10), 120u);
}

TEST(KvCacheLease, DoesNotFindWhatNobodyMarked) {
  Bench kv(64);
  kv.serve(range(0, 20));
  EXPECT_EQ(kv.serve_marked(range(0, 20), {{16, k5m}}), (CacheUsage{0, 16, 0, 4}));
}

TEST(KvCacheLease, FindsAnEntryThatEndsInsideABlockWhateverFollowsIt) {
  Bench kv(64);
  const Tokens system = range(0, 10);  // two blocks and two positions
  kv.serve_marked(system + range(100, 5), {{10, k5m}});
  for (int32_t other = 200; other < 1000; other += 100) {
    EXPECT_EQ(kv.serve_marked(system + range(other, 5), {{10, k5m}}), (CacheUsage{10, 0, 0, 5}));
  }
  EXPECT_EQ(kv->entries(), 1u);
  // One token less in common, inside the same block: no read.
  EXPECT_EQ(kv.serve_marked(range(0, 9) + range(300, 5), {{10, k5m}}).read_tokens, 0u);
}

TEST(KvCacheLease, MovesAnEntryToTheBlockThatContinuesItAlsoInAnIndexThatHasGrown) {
  Bench kv(8);
  EXPECT_EQ(kv.serve_marked(range(0, 7), {{6, k5m}}), (CacheUsage{0, 6, 0, 1}));
  std::vector<std::string> names;
  for (int i = 0; i < 100; ++i) names.push_back("namespace " + std::to_string(i));
  const Tokens one = tokens({1});
  for (const std::string& name : names) {  // each open sequence keeps its root
    AdmitRequest request = kv.request(one);
    request.cache_namespace = name;
    ASSERT_TRUE(kv.try_admit(request).has_value());
  }
  kv.serve(range(0, 8));  // replaces the block of positions 4 to 6
  EXPECT_EQ(kv.counts().leased, 2u);
  EXPECT_EQ(kv.serve_marked(range(0, 6) + tokens({90}), {{6, k5m}}), (CacheUsage{6, 0, 0, 1}));
}

TEST(KvCacheLease, LeavesShortPrefixesAlone) {
  CacheConfig config;
  config.cache_tokens_min = 12;
  Bench kv(64, 4, config);
  EXPECT_EQ(kv.serve_marked(range(0, 20), {{11, k5m}}), (CacheUsage{0, 0, 0, 20}));
  EXPECT_EQ(kv.serve_marked(range(0, 20), {{11, k5m}}), (CacheUsage{0, 0, 0, 20}));
  EXPECT_EQ(kv->entries(), 0u);
  EXPECT_EQ(kv.serve_marked(range(0, 20), {{12, k5m}}), (CacheUsage{0, 12, 0, 8}));
}

TEST(KvCacheLease, TakesAtMostItsShareAndReportsNoCreationBeyond) {
  CacheConfig config;
  config.lease_share = 0.5;
  Bench kv(16, 4, config);
  EXPECT_EQ(kv.serve_marked(range(0, 25), {{24, k5m}}),
            (CacheUsage{0, 24, 0, 1}));  // 6 of 8 blocks
  EXPECT_EQ(kv.serve_marked(range(100, 13), {{12, k5m}}), (CacheUsage{0, 0, 0, 13}));
  EXPECT_EQ(kv->counters().leases_refused, 1u);
  // Of two markers the shorter one still fits.
  EXPECT_EQ(kv.serve_marked(range(200, 13), {{8, k5m}, {12, k5m}}), (CacheUsage{0, 8, 0, 5}));
  EXPECT_EQ(kv.counts().leased, 8u);
  // What is leased already takes no further share.
  EXPECT_EQ(kv.serve_marked(range(0, 25), {{16, k5m}}).input_tokens, 9u);
  EXPECT_EQ(kv->entries(), 3u);
}

TEST(KvCacheLease, HoldsANamespaceToItsOwnShare) {
  CacheConfig config;
  config.lease_share = 0.5;
  config.lease_share_namespace = 0.5;
  Bench kv(32, 4, config);  // 16 leased blocks, 8 for one namespace
  EXPECT_EQ(kv.serve_marked(range(0, 33), {{32, k5m}}).created_5m_tokens, 32u);
  EXPECT_EQ(kv.serve_marked(range(100, 5), {{4, k5m}}).created_5m_tokens, 0u);
  const Tokens prompt = range(100, 5);
  const std::vector<CachePosition> positions = {{4}};
  const std::vector<CacheMarker> markers = {{0, k5m}};
  AdmitRequest request = kv.request(prompt);
  request.cache_namespace = "another";
  request.positions = positions;
  request.markers = markers;
  EXPECT_EQ(kv.try_admit(request)->usage.created_5m_tokens, 4u);
}

TEST(KvCacheLease, CountsEqualPromisesOnce) {
  CacheConfig config;
  config.lease_share = 0.5;
  Bench kv(64, 4, config);
  const Tokens system = range(0, 80);  // 20 of 32 blocks
  const std::vector<CachePosition> positions = {{80}};
  const std::vector<CacheMarker> markers = {{0, k5m}};
  for (int32_t client = 0; client < 3; ++client) {
    const Tokens prompt = system + range(1000 + 10 * client, 2);
    AdmitRequest request = kv.request(prompt);
    request.positions = positions;
    request.markers = markers;
    EXPECT_EQ(kv.try_admit(request)->usage.created_5m_tokens, 80u) << client;
    kv->check_invariants();
  }
}

TEST(KvCacheLease, OutlivesUnleasedBlocksAndBreaksBeforeARequestWaits) {
  Bench kv(8);
  EXPECT_EQ(kv.serve_marked(range(0, 9), {{8, k5m}}), (CacheUsage{0, 8, 0, 1}));
  for (int32_t job = 1; job < 20; ++job) kv.serve(range(1000 * job, 20));
  EXPECT_EQ(kv.serve_marked(range(0, 9), {{8, k5m}}), (CacheUsage{8, 0, 0, 1}));
  EXPECT_EQ(kv->counters().leases_broken, 0u);
  kv.serve(range(50000, 32));  // the whole pool
  EXPECT_EQ(kv->counters().leases_broken, 1u);
  EXPECT_EQ(kv->entries(), 0u);
  EXPECT_EQ(kv.serve_marked(range(0, 9), {{8, k5m}}), (CacheUsage{0, 8, 0, 1}));
}

TEST(KvCacheLease, BreaksTheLeastRecentlyReadFirst) {
  Bench kv(8);
  kv.serve_marked(range(0, 8), {{8, k5m}});
  kv.serve_marked(range(100, 8), {{8, k5m}});
  kv.serve_marked(range(0, 8), {{8, k5m}});
  kv.serve(range(1000, 24));
  EXPECT_EQ(kv->counters().leases_broken, 1u);
  EXPECT_EQ(kv.serve_marked(range(0, 8), {{8, k5m}}).read_tokens, 8u);
}

TEST(KvCacheLease, IgnoresPositionsAndMarkersThatCannotBe) {
  Bench kv(64);
  const std::vector<CachePosition> positions = {{0}, {8}, {4}, {999}};
  const std::vector<CacheMarker> markers = {{0, k5m}, {3, k5m}, {1, k5m}, {7, k1h}};
  EXPECT_EQ(kv.serve_positions(range(0, 12), positions, markers), (CacheUsage{0, 8, 0, 4}));
  EXPECT_EQ(kv.serve_positions(range(0, 12), positions, markers), (CacheUsage{8, 0, 0, 4}));
}

// ---- Sliding windows ----

/// A full group and one behind a window, with as many blocks each as given.
class Windowed {
 public:
  Windowed(uint32_t full_blocks, uint32_t sliding_blocks, uint32_t window,
           uint32_t block_tokens = 4, CacheConfig config = {}) {
    config.block_tokens = block_tokens;
    config.groups = {{full_blocks, 0}, {sliding_blocks, window}};
    cache_ = std::move(KvCache::create(config)).value();
  }
  KvCache* operator->() { return cache_.get(); }

  Admitted admit(const Tokens& prompt, const std::vector<uint32_t>& marks = {}) {
    std::vector<CachePosition> positions;
    std::vector<CacheMarker> markers;
    for (const uint32_t mark : marks) {
      markers.push_back({static_cast<uint32_t>(positions.size()), LeaseClass::k5m});
      positions.push_back({mark});
    }
    AdmitRequest request;
    request.tokens = prompt;
    request.positions = positions;
    request.markers = markers;
    request.cover_tokens = static_cast<uint32_t>(prompt.size());
    Orders orders;
    Result<Admitted> admitted = cache_->admit(request, orders);
    EXPECT_TRUE(admitted.has_value());
    return admitted.value();
  }
  /// Computes what is not computed of `all`, `chunk` tokens a step.
  void compute(SeqId seq, const Tokens& all, uint32_t chunk = 4) {
    const auto size = static_cast<uint32_t>(all.size());
    while (cache_->tokens_computed(seq) < size) {
      const uint32_t end = std::min(size, cache_->tokens_computed(seq) + chunk);
      Orders orders;
      ASSERT_TRUE(cache_->ensure(seq, end, orders));
      cache_->publish(seq, std::span(all).first(end));
      cache_->check_invariants();
    }
  }
  /// Computes the prompt and leaves; returns what was read from the cache.
  uint32_t serve(const Tokens& prompt, const std::vector<uint32_t>& marks = {}) {
    const Admitted admitted = admit(prompt, marks);
    compute(admitted.seq, prompt);
    cache_->release(admitted.seq);
    cache_->check_invariants();
    return admitted.cached_tokens;
  }
  uint32_t hit(const Tokens& prompt) {
    AdmitRequest request;
    request.tokens = prompt;
    return cache_->estimate(request).cached_tokens;
  }
  std::vector<bool> held(SeqId seq, uint32_t group) const {
    std::vector<bool> held;
    for (const BlockId block : cache_->table(seq, group)) held.push_back(block.valid());
    return held;
  }

 private:
  std::unique_ptr<KvCache> cache_;
};

TEST(KvCacheWindow, HoldsOnlyTheWindowAndNullBlocksBehindIt) {
  Windowed kv(16, 16, 6);
  const Tokens prompt = range(0, 20);
  const Admitted one = kv.admit(prompt);
  EXPECT_EQ(kv->table(one.seq, 0).size(), 5u);  // the whole prompt is covered
  EXPECT_EQ(kv->table(one.seq, 1).size(), 0u);  // step by step
  kv.compute(one.seq, range(0, 9));
  EXPECT_EQ(kv.held(one.seq, 1), (std::vector<bool>{true, true, true}));  // positions 3 to 8
  kv.compute(one.seq, range(0, 10));
  EXPECT_EQ(kv.held(one.seq, 1), (std::vector<bool>{false, true, true}));  // 4 to 9
  kv.compute(one.seq, prompt);
  EXPECT_EQ(kv.held(one.seq, 1), (std::vector<bool>{false, false, false, true, true}));
  EXPECT_EQ(kv.held(one.seq, 0), (std::vector<bool>(5, true)));
  EXPECT_EQ(kv->counts(1).live, 2u);
  EXPECT_EQ(kv->counts(1).cached, 3u);
  kv->release(one.seq);
}

TEST(KvCacheWindow, BehavesLikeFullAttentionWhileSequencesAreShorterThanTheWindow) {
  Windowed kv(32, 32, 600);
  EXPECT_EQ(kv.serve(range(0, 50)), 0u);
  EXPECT_EQ(kv.serve(range(0, 50)), 49u);
  EXPECT_EQ(kv.serve(range(0, 23) + range(500, 5)), 23u);
  EXPECT_EQ(kv->counts(0), kv->counts(1));
}

TEST(KvCacheWindow, HitsWhereTheWindowIsStillThereAndNotBeyond) {
  Windowed kv(64, 64, 6);
  kv.serve(range(0, 40));
  EXPECT_EQ(kv.hit(range(0, 40)), 39u);
  EXPECT_EQ(kv.hit(range(0, 17) + range(500, 8)), 17u);  // blocks behind the window are still there
  // Another prompt takes the sliding blocks that were passed, and nothing else.
  Windowed small(64, 12, 6);
  small.serve(range(0, 40));
  small.serve(range(1000, 40));
  EXPECT_EQ(small.hit(range(0, 40)), 39u);
  EXPECT_EQ(small.hit(range(1000, 40)), 39u);
  EXPECT_EQ(small.hit(range(0, 17) + range(500, 8)), 0u);
  EXPECT_EQ(small->counts(0).cached, 20u);
}

TEST(KvCacheWindow, AHitMayEndAnywhereInTheBlockBeforeAPromptsEnd) {
  for (uint32_t length = 30; length < 40; ++length) {
    Windowed kv(64, 9, 6);
    const Tokens prompt = range(0, length);
    const Admitted one = kv.admit(prompt);
    kv.compute(one.seq, prompt + range(100, 60));  // a long answer passes over the prompt
    kv->release(one.seq);
    for (uint32_t back = 1; back <= 4; ++back) {
      const uint32_t shared = length - back;
      EXPECT_EQ(kv.hit(range(0, shared) + range(900, back)), shared) << length << " " << back;
    }
    EXPECT_EQ(kv.hit(prompt), length - 1);
    EXPECT_EQ(kv.hit(prompt + range(100, 60) + range(900, 3)), length + 60);
  }
}

TEST(KvCacheWindow, ComputesWhatTheWindowLacksAndFillsTheGap) {
  Windowed kv(64, 8, 6);
  const Tokens first = range(0, 24);
  kv.serve(first);
  for (int32_t i = 1; i <= 3; ++i) kv.serve(range(1000 * i, 24));
  EXPECT_EQ(kv.hit(first), 0u);  // the full group has all of it, the sliding one nothing
  EXPECT_EQ(kv->counts(0).cached, 24u);
  EXPECT_EQ(kv.serve(first), 0u);
  EXPECT_EQ(kv.hit(first), 23u);
  EXPECT_EQ(kv->counts(0).cached, 24u);  // what was computed again is not kept twice
}

TEST(KvCacheWindow, ALeaseCoversTheWindowBeforeItsMarker) {
  Windowed kv(64, 12, 6);
  const Tokens prompt = range(0, 41);
  kv.serve(prompt, {22});
  EXPECT_EQ(kv->counts(0).leased, 6u);
  EXPECT_EQ(kv->counts(1).leased, 3u);  // positions 16 to 21, and the block before them
  for (int32_t i = 1; i <= 4; ++i) kv.serve(range(1000 * i, 40));
  const Admitted again = kv.admit(range(0, 22) + range(500, 9), {22});
  EXPECT_EQ(again.cached_tokens, 22u);
  EXPECT_EQ(again.usage.read_tokens, 22u);
  kv->release(again.seq);
  EXPECT_EQ(kv->counters().leases_broken, 0u);
  kv->set_time(300'000'000'000);
  EXPECT_EQ(kv->counts(1).leased, 0u);
  kv->check_invariants();
}

TEST(KvCacheWindow, AnEntryThatLosesItsWindowIsBrokenAndCounted) {
  Windowed kv(64, 6, 6);
  kv.serve(range(0, 12), {12});
  EXPECT_EQ(kv->entries(), 1u);
  const Admitted large = kv.admit(range(1000, 24));
  kv.compute(large.seq, range(1000, 24), 24);  // needs the whole pool for a step
  EXPECT_EQ(kv->entries(), 0u);
  EXPECT_EQ(kv->counters().leases_broken, 1u);
  kv->release(large.seq);
  kv->check_invariants();
}

TEST(KvCacheWindow, PromisesNothingForAMarkerWhoseWindowIsGone) {
  Windowed kv(64, 9, 6);
  const Tokens prompt = range(0, 40);
  kv.serve(prompt);
  kv.serve(range(1000, 40));  // takes what the first has passed
  const Admitted marked = kv.admit(prompt, {10, 40});
  EXPECT_EQ(marked.cached_tokens, 39u);
  EXPECT_EQ(kv->counters().leases_unreachable, 1u);
  EXPECT_EQ(marked.usage.created_5m_tokens, 40u);
  kv.compute(marked.seq, prompt);
  kv->release(marked.seq);
  EXPECT_EQ(kv->entries(), 1u);
  kv->check_invariants();
}

TEST(KvCacheWindow, LeasesOfASlidingGroupStayWithinTheirShare) {
  CacheConfig config;
  config.lease_share = 0.5;
  Windowed kv(64, 10, 6, 4, config);  // room for 5 leased blocks: one marker's 3
  const Admitted one = kv.admit(range(0, 40), {20, 40});
  EXPECT_EQ(kv->counters().leases_refused, 1u);
  EXPECT_EQ(one.usage.created_5m_tokens, 20u);
  kv.compute(one.seq, range(0, 40));
  kv->release(one.seq);
  EXPECT_EQ(kv->counts(1).leased, 3u);
}

TEST(KvCacheWindow, AdmissionsLeaveRoomForTheWindowsOfThoseBefore) {
  Windowed kv(64, 8, 8);  // a window takes three blocks at rest
  AdmitRequest request;
  const Tokens a = range(0, 30), b = range(100, 30), c = range(200, 30);
  request.cover_tokens = 30;
  Orders orders;
  request.tokens = a;
  ASSERT_TRUE(kv->admit(request, orders));
  request.tokens = b;
  ASSERT_TRUE(kv->admit(request, orders));
  request.tokens = c;
  EXPECT_FALSE(kv->estimate(request).fits_now);
  EXPECT_TRUE(kv->estimate(request).fits_ever);
  EXPECT_EQ(kv->admit(request, orders).status().code(), ErrorCode::kPoolExhausted);
}

TEST(KvCacheWindow, NeedsNoMoreBlocksThanAWindowForAnyLength) {
  Windowed kv(64, 3, 6);
  const Tokens prompt = range(0, 120);
  const Admitted one = kv.admit(prompt);
  for (uint32_t computed = 0; computed < 120;) {
    computed = kv->coverable(one.seq, 120);
    Orders orders;
    ASSERT_TRUE(kv->ensure(one.seq, computed, orders));
    kv->publish(one.seq, std::span(prompt).first(computed));
    kv->check_invariants();
  }
  kv->release(one.seq);
  EXPECT_EQ(kv.hit(prompt), 116u);  // three blocks leave no room for a copy
}

TEST(KvCacheWindow, ForksShareTheWindowAndPartOnTheFirstWrite) {
  Windowed kv(32, 32, 6);
  const Tokens prompt = range(0, 22);
  const Admitted one = kv.admit(prompt);
  kv.compute(one.seq, prompt);
  const SeqId fork = kv->fork(one.seq);
  EXPECT_EQ(kv->counts(1).live, 2u);
  EXPECT_EQ(kv.held(fork, 1), kv.held(one.seq, 1));
  kv.compute(one.seq, prompt + range(100, 20));
  kv.compute(fork, prompt + range(200, 20));
  kv->release(one.seq);
  kv->release(fork);
  EXPECT_EQ(kv.hit(prompt + range(100, 21)), 42u);
  EXPECT_EQ(kv.hit(prompt + range(200, 21)), 42u);
  EXPECT_EQ(kv->counts(1).live, 0u);
}

TEST(KvCacheWindow, WorksWithoutAnyFullGroup) {
  CacheConfig config;
  config.block_tokens = 4;
  config.groups = {{6, 6}};
  auto cache = std::move(KvCache::create(config)).value();
  Orders orders;
  const Tokens prompt = range(0, 400);
  AdmitRequest request;
  request.tokens = prompt;
  for (int round = 0; round < 2; ++round) {
    const Admitted one = cache->admit(request, orders).value();
    EXPECT_EQ(one.cached_tokens, round == 0 ? 0u : 399u);
    for (uint32_t end = one.cached_tokens + 1; end <= 400; ++end) {
      orders.clear();
      ASSERT_TRUE(cache->ensure(one.seq, end, orders));
      cache->publish(one.seq, std::span(prompt).first(end));
      cache->check_invariants();
    }
    cache->release(one.seq);
    cache->check_invariants();
  }
  EXPECT_GT(cache->clear(), 0u);
  EXPECT_EQ(cache->counts(0).free, 6u);
}

TEST(KvCache, TellsWhichFreeBlocksHaveBeenHandedOutAndForHowLong) {
  Bench kv(8);
  EXPECT_FALSE(kv->oldest_idle());  // never handed out: they take no memory
  kv.set_time(100);
  const Admitted one = kv.admit(range(0, 8));
  ASSERT_TRUE(kv.ensure(one.seq, 8));
  EXPECT_FALSE(kv->oldest_idle());
  kv.release(one.seq);  // nothing was computed: its blocks are free
  EXPECT_EQ(kv->oldest_idle(), 100);
  kv.set_time(150);
  const Admitted two = kv.admit(range(0, 4));
  ASSERT_TRUE(kv.ensure(two.seq, 4));  // block 0 again
  std::vector<BlockId> idle;
  kv->take_idle(0, 99, idle);
  EXPECT_TRUE(idle.empty());
  kv->take_idle(0, 100, idle);
  EXPECT_EQ(idle, (std::vector<BlockId>{BlockId(1)}));
  kv.release(two.seq);
  EXPECT_EQ(kv->oldest_idle(), 150);
  kv.serve(range(0, 8));  // what stays cached is in use
  EXPECT_FALSE(kv->oldest_idle());
  EXPECT_EQ(kv.counts().cached, 2u);
  kv->clear();
  EXPECT_EQ(kv->oldest_idle(), 150);
}

TEST(KvCacheResize, RefusesWhatSequencesHoldAndSaysBothNumbers) {
  Bench kv(10);
  const Admitted running = kv.admit(range(0, 12));
  kv.compute(running.seq, range(0, 12));
  std::vector<FreshBlock> dropped;
  const uint32_t two[] = {2}, three[] = {3}, none[] = {0};
  const Status refused = kv->resize(two, dropped);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.code(), ErrorCode::kPoolExhausted);
  EXPECT_EQ(refused.error().message, "3 KV blocks are in use, 2 would be left of 10");
  EXPECT_EQ(kv->resize(none, dropped).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(kv.counts(), (BlockCounts{10, 3, 0, 7, 0}));
  ASSERT_TRUE(kv->resize(three, dropped).has_value());
  kv->check_invariants();
  EXPECT_EQ(kv.counts(), (BlockCounts{3, 3, 0, 0, 0}));
  EXPECT_EQ(kv.table(running.seq), (Ids{0, 1, 2}));
  EXPECT_FALSE(kv.ensure(running.seq, 13));
  const uint32_t five[] = {5};
  ASSERT_TRUE(kv->resize(five, dropped).has_value());
  EXPECT_TRUE(kv.ensure(running.seq, 20));
  kv.release(running.seq);
}

TEST(KvCacheResize, GivesUpCachedBlocksInTheUsualOrderAndLeasesLast) {
  CacheConfig config;
  config.lease_share = 1;
  Bench kv(10, 4, config);
  kv.serve_marked(range(0, 8), {{8, LeaseClass::k5m}});
  kv.serve(range(100, 12));
  EXPECT_EQ(kv.counts(), (BlockCounts{10, 0, 5, 5, 2}));
  std::vector<FreshBlock> dropped;
  const uint32_t three[] = {3}, one[] = {1};
  ASSERT_TRUE(kv->resize(three, dropped).has_value());
  kv->check_invariants();
  EXPECT_EQ(kv.counts(), (BlockCounts{3, 0, 3, 0, 2}));
  EXPECT_EQ(kv->counters().leases_broken, 0u);
  EXPECT_EQ(kv->counters().evictions, 2u);
  EXPECT_EQ(dropped.size(), 2u) << "five ids were never handed out and have no memory";
  EXPECT_EQ(kv.serve(range(0, 9)), 8u) << "what is under a lease is still there";
  ASSERT_TRUE(kv->resize(one, dropped).has_value());
  kv->check_invariants();
  EXPECT_EQ(kv->counters().leases_broken, 1u);
  EXPECT_EQ(kv.counts().pool, 1u);
}

TEST(KvCacheResize, LeasesKeepToTheirShareOfTheSmallerPool) {
  Bench kv(20);  // half of it may be leased
  kv.serve_marked(range(0, 16), {{16, LeaseClass::k1h}});
  kv.serve_marked(range(100, 16), {{16, LeaseClass::k5m}});
  EXPECT_EQ(kv.counts().leased, 8u);
  std::vector<FreshBlock> dropped;
  const uint32_t ten[] = {10};
  ASSERT_TRUE(kv->resize(ten, dropped).has_value());
  kv->check_invariants();
  EXPECT_EQ(kv.counts().leased, 4u);
  EXPECT_EQ(kv->counters().leases_broken, 1u);
  EXPECT_EQ(kv.serve_marked(range(0, 17), {{16, LeaseClass::k1h}}).read_tokens, 16u)
      << "the entry that ends later stays";
}

TEST(KvCacheResize, ACreationThatLosesItsRoomIsCountedAsBroken) {
  Bench kv(20);
  const Tokens prompt = range(0, 32);
  AdmitRequest asked = kv.request(prompt);
  const std::vector<CachePosition> positions = {{32}};
  const std::vector<CacheMarker> markers = {{0, LeaseClass::k5m}};
  asked.positions = positions;
  asked.markers = markers;
  Result<Admitted> admitted = kv.try_admit(asked);
  ASSERT_TRUE(admitted.has_value());
  EXPECT_EQ(admitted->usage.created_5m_tokens, 32u);
  std::vector<FreshBlock> dropped;
  const uint32_t ten[] = {10};
  ASSERT_TRUE(kv->resize(ten, dropped).has_value());
  kv.compute(admitted->seq, prompt);
  EXPECT_EQ(kv->entries(), 0u);
  EXPECT_EQ(kv->counters().leases_broken, 1u);
  EXPECT_EQ(kv->leases_broken(""), 1u);
  kv.release(admitted->seq);
}

// What was promised to a sequence whose namespace was cleared meanwhile is broken by a smaller pool
// like any other promise, and counts where it belongs.
TEST(KvCacheResize, APromiseOfAClearedNamespaceThatLosesItsRoomCountsThere) {
  Bench kv(20);
  const Tokens prompt = range(0, 32);
  const std::vector<CachePosition> positions = {{32}};
  const std::vector<CacheMarker> markers = {{0, LeaseClass::k5m}};
  AdmitRequest asked = kv.request(prompt);
  asked.cache_namespace = "acme/salt";
  asked.positions = positions;
  asked.markers = markers;
  const SeqId other = kv.admit(range(500, 4)).seq;
  kv.compute(other, range(500, 4));
  Result<Admitted> admitted = kv.try_admit(asked);
  ASSERT_TRUE(admitted.has_value());
  ASSERT_TRUE(kv.ensure(admitted->seq, 32));
  kv->publish(admitted->seq, std::span(prompt).first(16));
  kv->clear("acme");
  std::vector<FreshBlock> dropped;
  const uint32_t ten[] = {10};
  ASSERT_TRUE(kv->resize(ten, dropped).has_value());
  kv->check_invariants();
  EXPECT_EQ(kv->leases_broken("acme"), kv->counters().leases_broken);
  EXPECT_EQ(kv->leases_broken(""), 0u);
  EXPECT_EQ(kv->leases_broken("ac"), 0u);
  kv.release(admitted->seq);
  kv.release(other);
}

TEST(KvCache, ClearsOneNamespaceOrAll) {
  Bench kv(64);
  const Tokens prompt = range(0, 20);
  kv.serve_marked(prompt, {{16, k5m}});
  AdmitRequest other = kv.request(prompt);
  other.cache_namespace = "another";
  const Admitted running = kv.try_admit(other).value();
  kv.compute(running.seq, prompt);
  EXPECT_EQ(kv->clear(""), 5u);
  EXPECT_EQ(kv->entries(), 0u);
  EXPECT_EQ(kv->counters().leases_broken, 0u);
  EXPECT_EQ(kv->estimate(kv.request(prompt)).cached_tokens, 0u);
  EXPECT_EQ(kv->estimate(other).cached_tokens, 19u);
  kv->clear();
  EXPECT_EQ(kv->estimate(other).cached_tokens, 0u);
  kv.compute(running.seq, prompt + tokens({7}));  // runs on, but enters no more
  kv.release(running.seq);
  EXPECT_EQ(kv.counts().free, 64u);
}

TEST(KvCache, RefusesAConfigurationThatCannotWork) {
  const auto code = [](CacheConfig config) { return KvCache::create(config).status().code(); };
  CacheConfig good;
  good.groups = {{4, 0}};
  EXPECT_EQ(code(good), ErrorCode::kOk);
  CacheConfig sliding = good;
  sliding.groups.push_back({4, 512});
  EXPECT_EQ(code(sliding), ErrorCode::kOk);
  CacheConfig empty = good;
  empty.groups[0].blocks = 0;
  EXPECT_EQ(code(empty), ErrorCode::kInvalidArgument);
  CacheConfig none = good;
  none.groups.clear();
  EXPECT_EQ(code(none), ErrorCode::kInvalidArgument);
  CacheConfig zero = good;
  zero.block_tokens = 0;
  EXPECT_EQ(code(zero), ErrorCode::kInvalidArgument);
  CacheConfig share = good;
  share.lease_share = 1.5;
  EXPECT_EQ(code(share), ErrorCode::kInvalidArgument);
  for (const TimeNs lease : {TimeNs{0}, TimeNs{-1}, INT64_MAX}) {
    CacheConfig leases = good;
    leases.lease_5m_ns = lease;
    EXPECT_EQ(code(leases), ErrorCode::kInvalidArgument);
  }
}

TEST(KvCacheDeathTest, StopsOnASequenceThatIsNotOpen) {
  Bench kv(8);
  const Admitted admitted = kv.admit(range(0, 3));
  kv.release(admitted.seq);
  EXPECT_DEATH(kv->release(admitted.seq), "open");
}

}  // namespace
}  // namespace pagewise::kv
