// SPDX-License-Identifier: Apache-2.0
#include "engine/ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/allocation_count_testing.h"
#include "engine/test_support.h"

namespace pagewise::engine {
namespace {

constexpr LeaseClass k5m = LeaseClass::k5m, k1h = LeaseClass::k1h;

std::vector<TokenId> prompt_of(uint32_t count, uint64_t seed) {
  Prng prng(seed);
  return random_tokens(prng, count, 64);
}

/// An admission as the engine reports it.
Admission admission_of(uint32_t prompt, uint32_t cached, kv::CacheUsage usage) {
  Admission out;
  out.prompt_tokens = prompt;
  out.cached_tokens = cached;
  out.cache_read_tokens = usage.read_tokens;
  out.cache_created_5m_tokens = usage.created_5m_tokens;
  out.cache_created_1h_tokens = usage.created_1h_tokens;
  out.input_tokens = usage.input_tokens;
  return out;
}

/// A ledger and requests with marked prefixes of one account, in a few words.
class Book {
 public:
  explicit Book(uint32_t tariffs = 1) : ledger(tariffs) {}

  void admit(const std::vector<TokenId>& prompt, std::vector<kv::MarkedPrefix> marks,
             uint32_t read) {
    CacheOptions cache;
    cache.account = "a";
    cache.cache_namespace = "a/1";
    for (const kv::MarkedPrefix& mark : marks) {
      cache.markers.push_back({static_cast<uint32_t>(cache.positions.size()), mark.lease});
      cache.positions.push_back({mark.tokens});
    }
    const auto tokens = static_cast<uint32_t>(prompt.size());
    const Admission admission = admission_of(tokens, read, kv::cache_usage(tokens, read, marks, 1));
    ledger.admit({cache, admission, prompt, 1, 1000, ++now_});
  }
  const LedgerPage& page() const { return ledger.pages().at("a"); }
  const PrefixUse& prefix(uint32_t tokens) const {
    const auto& all = page().prefixes;
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](const PrefixUse& p) { return p.tokens == tokens; });
    EXPECT_NE(found, all.end()) << tokens;
    return *found;
  }

  Ledger ledger;

 private:
  TimeNs now_ = 0;
};

TEST(ReportedUsage, OfMarkersIsTheirArithmeticWhateverWasReused) {
  const Admission admission = admission_of(100, 99, {40, 20, 30, 10});
  EXPECT_EQ(reported_usage(admission, BillRule::kMarkers), (kv::CacheUsage{40, 20, 30, 10}));
}

TEST(ReportedUsage, OfReuseReadsAllThatWasReusedAndWritesOnlyWhatIsBehindIt) {
  const auto usage = [](uint32_t cached, kv::CacheUsage markers) {
    return reported_usage(admission_of(100, cached, markers), BillRule::kReuse);
  };
  EXPECT_EQ(usage(0, {0, 0, 0, 100}), (kv::CacheUsage{0, 0, 0, 100}));
  EXPECT_EQ(usage(70, {0, 0, 0, 100}), (kv::CacheUsage{70, 0, 0, 30})) << "no marker at all";
  EXPECT_EQ(usage(0, {0, 60, 30, 10}), (kv::CacheUsage{0, 60, 30, 10})) << "cold";
  EXPECT_EQ(usage(10, {0, 60, 30, 10}), (kv::CacheUsage{10, 60, 20, 10}));
  EXPECT_EQ(usage(50, {0, 60, 30, 10}), (kv::CacheUsage{50, 40, 0, 10}));
  EXPECT_EQ(usage(95, {0, 60, 30, 10}), (kv::CacheUsage{95, 0, 0, 5})) << "all of it was there";
  EXPECT_EQ(usage(99, {100, 0, 0, 0}), (kv::CacheUsage{99, 0, 0, 1}))
      << "the last token is computed by everyone";
}

TEST(ReportedUsage, AlwaysAddsUpToThePrompt) {
  Prng prng(5);
  std::printf("seed 5\n");
  for (int i = 0; i < 20'000; ++i) {
    const auto prompt = 1 + static_cast<uint32_t>(prng.below(60));
    const auto read = static_cast<uint32_t>(prng.below(prompt + 1));
    std::vector<kv::MarkedPrefix> marks;
    for (uint32_t at = 1; at <= prompt && marks.size() < 4; ++at) {
      if (prng.below(8) == 0) marks.push_back({at, prng.below(2) == 0 ? k5m : k1h});
    }
    const auto cached = static_cast<uint32_t>(prng.below(prompt));
    const Admission admission =
        admission_of(prompt, cached, kv::cache_usage(prompt, read, marks, 1));
    for (const BillRule rule : {BillRule::kMarkers, BillRule::kReuse}) {
      const kv::CacheUsage usage = reported_usage(admission, rule);
      ASSERT_EQ(uint64_t{usage.read_tokens} + usage.created_5m_tokens + usage.created_1h_tokens +
                    usage.input_tokens,
                prompt);
    }
    ASSERT_EQ(reported_usage(admission, BillRule::kReuse).read_tokens, cached);
  }
}

TEST(Ledger, KeepsBothColumnsApartByAccountAndTariff) {
  Ledger ledger(3);
  const std::vector<TokenId> prompt = prompt_of(100, 1);
  CacheOptions cache;
  cache.account = "a";
  cache.tariff = 2;
  ledger.admit({cache, admission_of(100, 60, {40, 20, 30, 10}), prompt, 1, 500, 1});
  ledger.generated(cache, 7);
  cache.tariff = 9;  // none of the table's: without a price
  cache.bill = BillRule::kReuse;
  ledger.admit({cache, admission_of(100, 60, {0, 0, 0, 100}), prompt, 1, 500, 2});
  cache.account = "b";
  ledger.generated(cache, 1);
  const LedgerPage& page = ledger.pages().at("a");
  EXPECT_EQ(page.by_tariff[2], (TokenUse{1, 40, 60, 10, 20, 30, 40, 7}));
  EXPECT_EQ(page.by_tariff[0], (TokenUse{1, 40, 60, 40, 0, 0, 60, 0}));
  EXPECT_EQ(page.by_tariff[1], TokenUse{});
  EXPECT_EQ(page.prefill_saved_ns, 2 * 60 * 500);
  EXPECT_EQ(ledger.prefill_saved_ns(), 2 * 60 * 500);
  EXPECT_EQ(ledger.pages().at("b").total().generated, 1U);
}

TEST(Ledger, AReadCountsForItsPrefixAndForThoseBeforeIt) {
  Book book;
  const std::vector<TokenId> prompt = prompt_of(100, 1);
  book.admit(prompt, {{40, k1h}, {70, k5m}}, 0);
  EXPECT_EQ(book.prefix(40).created_1h, 40U);
  EXPECT_EQ(book.prefix(70).created_5m, 30U) << "its own part: what stands behind the first marker";
  // The next turn reads up to 70, which holds the 40, and writes on.
  book.admit(prompt, {{40, k1h}, {90, k5m}}, 70);
  EXPECT_EQ(book.prefix(90).own, 20U);
  EXPECT_EQ(book.prefix(70).reads, 1U);
  EXPECT_EQ(book.prefix(70).read, 30U);
  EXPECT_EQ(book.prefix(40).reads, 1U);
  EXPECT_EQ(book.prefix(40).read, 40U);
  book.admit(prompt, {{90, k5m}}, 90);
  EXPECT_EQ(book.prefix(90).read, 20U);
  EXPECT_EQ(book.prefix(70).read, 60U);
  EXPECT_EQ(book.prefix(40).read, 80U);
  uint64_t own = 0;
  for (const PrefixUse& prefix : book.page().prefixes) own += prefix.read;
  EXPECT_EQ(own, 70U + 90U) << "every token that was read is one prefix's own";
}

TEST(Ledger, APrefixIsItsTokensInItsNamespace) {
  Book book;
  book.admit(prompt_of(50, 1), {{40, k5m}}, 0);
  book.admit(prompt_of(50, 1), {{40, k5m}}, 0);  // it had expired
  EXPECT_EQ(book.page().prefixes.size(), 1U);
  EXPECT_EQ(book.prefix(40).writes, 2U);
  EXPECT_EQ(book.prefix(40).created_5m, 80U);
  book.admit(prompt_of(50, 2), {{40, k5m}}, 0);
  EXPECT_EQ(book.page().prefixes.size(), 2U);
}

TEST(Ledger, AMarkerThatCreatedNothingIsNoPrefix) {
  Ledger ledger(1);
  CacheOptions cache;
  cache.account = "a";
  cache.positions = {{20}, {40}};
  cache.markers = {{0, k5m}, {1, k5m}, {7, k5m}};
  const std::vector<TokenId> prompt = prompt_of(50, 1);
  // The longer one took no lease.
  ledger.admit({cache, admission_of(50, 0, {0, 20, 0, 30}), prompt, 1, 0, 1});
  ASSERT_EQ(ledger.pages().at("a").prefixes.size(), 1U);
  EXPECT_EQ(ledger.pages().at("a").prefixes[0].tokens, 20U);
}

TEST(Ledger, IsBoundedInPrefixesAndForgetsThoseUsedLongestAgo) {
  Book book;
  const std::vector<TokenId> kept = prompt_of(30, 1);
  book.admit(kept, {{20, k5m}}, 0);
  for (uint32_t i = 0; i < 2 * Ledger::kPrefixesMax; ++i) {
    book.admit(prompt_of(60, 1000 + i), {{50, k5m}}, 0);
    book.admit(kept, {{20, k5m}}, 20);
  }
  EXPECT_EQ(book.page().prefixes.size(), Ledger::kPrefixesMax);
  EXPECT_EQ(book.prefix(20).reads, 2 * Ledger::kPrefixesMax);
  EXPECT_EQ(book.page().unread_forgotten, Ledger::kPrefixesMax + 1);
  EXPECT_EQ(book.page().unread_forgotten_tokens, 50 * (Ledger::kPrefixesMax + 1));
}

TEST(Ledger, IsBoundedInAccountsAndCountsTheRestTogether) {
  Ledger ledger(1);
  const std::vector<TokenId> prompt = prompt_of(10, 1);
  CacheOptions cache;
  for (std::size_t i = 0; i < Ledger::kAccountsMax + 10; ++i) {
    cache.account = "account " + std::to_string(i);
    ledger.admit({cache, admission_of(10, 0, {0, 0, 0, 10}), prompt, 1, 0, 1});
  }
  EXPECT_EQ(ledger.pages().size(), Ledger::kAccountsMax + 1);
  EXPECT_EQ(ledger.pages().find(Ledger::kOthers)->second.total().requests, 10U);
}

TEST(Ledger, AllocatesNothingForAccountsAndPrefixesThatItKnows) {
  Ledger ledger(4);
  const std::vector<TokenId> prompt = prompt_of(100, 1);
  CacheOptions cache;
  cache.account = "an account with a name that is longer than a string holds by itself";
  cache.positions = {{40}, {90}};
  cache.markers = {{0, k1h}, {1, k5m}};
  const Admission cold = admission_of(100, 0, {0, 50, 40, 10});
  const Admission warm = admission_of(100, 90, {90, 0, 0, 10});
  ledger.admit({cache, cold, prompt, 1, 10, 1});
  const uint64_t before = testing::allocation_count();
  for (TimeNs now = 2; now < 1000; ++now) {
    ledger.admit({cache, now % 7 == 0 ? cold : warm, prompt, 1, 10, now});
    ledger.generated(cache, 5);
  }
  EXPECT_EQ(testing::allocation_count(), before);
}

TEST(CoreLedger, TheReportAddsUpToTheAdmissionsAndNamesWhoseLeasesBroke) {
  Options options;
  options.tariffs = 2;
  Bench bench(pool(4, 16), options);
  TokenUse said;
  const auto ask = [&](const std::string& account, std::vector<TokenId> prompt, uint32_t marked) {
    Request request = greedy(std::move(prompt), 3);
    request.cache.account = account;
    request.cache.cache_namespace = account + "/w";
    request.cache.tariff = 1;
    if (marked > 0) {
      request.cache.positions = {{marked}};
      request.cache.markers = {{0, k5m}};
    }
    const auto answer = bench.serve(std::move(request));
    const Admission& admission = *answer->admission;
    ++said.requests;
    said.computed += admission.prompt_tokens - admission.cached_tokens;
    said.reused += admission.cached_tokens;
    said.input += admission.input_tokens;
    said.created_5m += admission.cache_created_5m_tokens;
    said.read += admission.cache_read_tokens;
    said.generated += answer->finished->completion_tokens;
  };
  ask("a", prompt_of(20, 1), 16);
  ask("a", prompt_of(20, 1), 16);
  ask("b", prompt_of(12, 2), 8);
  ask("b", prompt_of(55, 3), 0);  // nearly the whole pool: leases of both must go
  const CacheReport report = bench.core->cache_report();
  ASSERT_EQ(report.accounts.size(), 2U);
  TokenUse sum;
  for (const AccountReport& account : report.accounts) {
    EXPECT_EQ(account.ledger.by_tariff[0], TokenUse{});
    sum += account.ledger.by_tariff[1];
  }
  EXPECT_EQ(sum, said);
  EXPECT_EQ(report.accounts[0].leases_broken + report.accounts[1].leases_broken,
            bench.core->stats().leases_broken);
  EXPECT_EQ(report.accounts[0].leases_broken, 1U);
  EXPECT_EQ(report.accounts[1].leases_broken, 1U);
}

// A prompt's token takes what it took on average in the steps that computed prompts.
TEST(CoreLedger, SavedPrefillIsWhatReusedTokensWouldHaveTaken) {
  SimClock* clock = nullptr;
  FakeExecutorOptions executor = pool(16, 64);
  executor.on_step = [&](std::span<const model::StepRun> runs) {
    for (const model::StepRun& run : runs)
      clock->advance(static_cast<TimeNs>(run.tokens.size()) * 2'000);
  };
  Bench bench(executor);
  clock = &bench.clock;
  const Request request = greedy(prompt_of(100, 1), 1);
  (void)bench.serve(request);
  EXPECT_EQ(bench.core->stats().prefill_saved_ns, 0);
  (void)bench.serve(request);
  EXPECT_EQ(bench.core->stats().prefill_saved_ns, 99 * 2'000);
}

}  // namespace
}  // namespace pagewise::engine
