// SPDX-License-Identifier: Apache-2.0
// What caching a prefix saves, in tokens at the price of an uncached input token, and when it pays.
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"

namespace pagewise::planner {

/// What one read or write of a cached token costs, in units of an uncached input token.
struct CachePrices {
  double read = 0.1;
  double write = 1.0;
};

/// When calls come, and how long an entry lives; each use of it begins its life anew.
struct CallTiming {
  double gap_s = 0;  // between two calls, on average
  double ttl_s = 0;
};

/// The bill when entries may expire between calls.
struct TimedBill {
  // Calls on the beat: every gap is `gap_s`.
  uint64_t even_writes = 0;
  uint64_t even_billed_tokens = 0;
  // Calls at random, independent of each other: exponential gaps, of which the share
  // e^(-ttl / gap) outlasts the entry. Expected values.
  double random_hit_share = 0;
  uint64_t random_billed_tokens = 0;
  // The mean gap of random calls beyond which caching loses in the long run. Absent when no gap
  // does (a write costs no more than an input token), or all do (a read costs as much).
  std::optional<double> random_gap_max_s;
};

struct PrefixBill {
  uint64_t uncached_tokens = 0;
  uint64_t billed_tokens = 0;  // one write, the other calls read; in tokens at the uncached price
  // The first call by which caching is cheaper in total; absent when no number of calls is.
  std::optional<uint64_t> break_even_calls;
  std::optional<TimedBill> timed;
};

/// Errors: kInvalidArgument naming the flag.
Result<PrefixBill> make_bill(uint64_t prefix, uint64_t calls, const CachePrices& prices,
                             const std::optional<CallTiming>& timing);

}  // namespace pagewise::planner
