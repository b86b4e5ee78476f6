// SPDX-License-Identifier: Apache-2.0
// What became of every account's tokens, in two columns. Physical: prompt tokens that were computed
// and that were reused. Contractual: what the answers' usage said (B7, C7), which is what a hosted
// service would have billed. And which marked prefixes were written and never read often enough to
// be worth it.
//
// Everything is counted in whole tokens, apart for each tariff (a line of the caller's price table;
// prices themselves are not known here), so that a sum over answers is exact and a cost is a
// product at the end.
//
// Bounded: kAccountsMax accounts (those beyond share one), kPrefixesMax marked prefixes of each.
// Memory is taken at admissions only: a new account, a new marked prefix.
//
// Thread: engine thread only. Time is told.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "engine/request.h"
#include "kv/cache_marker.h"

namespace pagewise::engine {

/// Tokens of admitted requests. computed + reused == input + created + read == all prompt tokens.
struct TokenUse {
  uint64_t requests = 0;
  uint64_t computed = 0, reused = 0;                             // physical
  uint64_t input = 0, created_5m = 0, created_1h = 0, read = 0;  // contractual, as reported
  uint64_t generated = 0;                                        // of all choices

  uint64_t created() const { return created_5m + created_1h; }
  uint64_t prompt() const { return computed + reused; }
  TokenUse& operator+=(const TokenUse& other);
  bool operator==(const TokenUse&) const = default;
};

/// A marked prefix. Its own part is what a creation wrote: the tokens behind the prefix that was
/// read, or behind the marker before.
struct PrefixUse {
  uint64_t digest = 0;  // of namespace and tokens
  uint64_t parent = 0;  // the prefix that its own part stands behind; 0: none
  uint32_t tokens = 0;  // from the start of the prompt
  uint32_t own = 0;     // of these, its own part
  uint32_t tariff = 0;  // of who wrote it last
  LeaseClass lease = LeaseClass::k5m;
  uint32_t writes = 0, reads = 0;
  uint64_t created_5m = 0, created_1h = 0;  // tokens written, all writes
  uint64_t read = 0;                        // tokens of its own part that reads saved
  TimeNs used = 0;                          // written or read last
};

/// One account's page.
struct LedgerPage {
  std::vector<TokenUse> by_tariff;  // [0, Options::tariffs)
  TimeNs prefill_saved_ns = 0;
  std::vector<PrefixUse> prefixes;  // at most kPrefixesMax, in no order
  /// Prefixes that made room for newer ones without having been read, and what they had written.
  uint64_t unread_forgotten = 0, unread_forgotten_tokens = 0;

  TokenUse total() const;
};

/// The usage as the answer of a request reports it: by markers alone, or (BillRule::kReuse) with
/// what was physically reused as read, and only what is behind it as created.
kv::CacheUsage reported_usage(const Admission& admission, BillRule rule);

class Ledger {
 public:
  static constexpr std::size_t kAccountsMax = 4096;
  static constexpr std::size_t kPrefixesMax = 128;
  /// Where accounts beyond kAccountsMax count.
  static constexpr std::string_view kOthers = "(others)";

  /// `tariffs`: at least one.
  explicit Ledger(uint32_t tariffs);

  struct Admitted {
    const CacheOptions& cache;  // a tariff that is none counts as tariff 0
    const Admission& admission;
    std::span<const TokenId> prompt;
    uint32_t marker_tokens_min = 0;
    double prefill_token_ns = 0;  // what computing a prompt token takes
    TimeNs now = 0;
  };
  /// Cost: O(prompt) for a request with markers, else O(log accounts).
  void admit(const Admitted& admitted);
  /// Tokens that an admitted request has generated.
  void generated(const CacheOptions& cache, uint64_t tokens);

  const std::map<std::string, LedgerPage, std::less<>>& pages() const { return pages_; }
  TimeNs prefill_saved_ns() const { return prefill_saved_ns_; }

 private:
  LedgerPage& page(std::string_view account);
  TokenUse& use(LedgerPage& page, uint32_t tariff) const;
  void note_prefixes(LedgerPage& page, const Admitted& admitted);
  static PrefixUse* find(LedgerPage& page, uint64_t digest);
  static PrefixUse& find_or_add(LedgerPage& page, uint64_t digest);

  const uint32_t tariffs_;
  std::map<std::string, LedgerPage, std::less<>> pages_;
  TimeNs prefill_saved_ns_ = 0;
};

}  // namespace pagewise::engine
