// SPDX-License-Identifier: Apache-2.0
#include "planner/prefix_bill.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace pagewise::planner {
namespace {

constexpr uint64_t kSizeMax = (uint64_t{1} << 63) - 1;
// A century: longer than any entry lives.
constexpr double kSecondsMax = 3.2e9;

Error invalid(std::string message) {
  return Error{ErrorCode::kInvalidArgument, std::move(message)};
}

/// `writes` calls write and `reads` read a prefix.
Result<uint64_t> billed(uint64_t prefix, long double writes, long double reads,
                        const CachePrices& prices) {
  const long double tokens =
      static_cast<long double>(prefix) * (writes * static_cast<long double>(prices.write) +
                                          reads * static_cast<long double>(prices.read));
  if (tokens > static_cast<long double>(kSizeMax)) {
    return invalid("--calls: more than 2^63 billed tokens");
  }
  return static_cast<uint64_t>(std::llround(tokens));
}

Result<TimedBill> make_timed(uint64_t prefix, uint64_t calls, const CachePrices& prices,
                             const CallTiming& timing) {
  for (const auto& [flag, seconds] :
       {std::pair("--every", timing.gap_s), std::pair("--ttl", timing.ttl_s)}) {
    if (!(seconds > 0 && seconds <= kSecondsMax)) {
      return invalid(fmt::format("{}: {} s are not above 0 and at most a century", flag, seconds));
    }
  }
  TimedBill bill;
  bill.even_writes = timing.gap_s <= timing.ttl_s ? 1 : calls;
  PW_ASSIGN_OR_RETURN(bill.even_billed_tokens,
                      billed(prefix, static_cast<long double>(bill.even_writes),
                             static_cast<long double>(calls - bill.even_writes), prices));
  const double miss = std::exp(-timing.ttl_s / timing.gap_s);
  bill.random_hit_share = 1 - miss;
  const long double later = static_cast<long double>(calls - 1);
  PW_ASSIGN_OR_RETURN(bill.random_billed_tokens,
                      billed(prefix, 1 + later * miss, later * (1 - miss), prices));
  // In the long run a call costs miss * write + (1 - miss) * read, against 1.
  if (prices.write > 1 && prices.read < 1) {
    const double miss_max = (1 - prices.read) / (prices.write - prices.read);
    bill.random_gap_max_s = timing.ttl_s / -std::log(miss_max);
  }
  return bill;
}

}  // namespace

Result<PrefixBill> make_bill(uint64_t prefix, uint64_t calls, const CachePrices& prices,
                             const std::optional<CallTiming>& timing) {
  if (calls == 0) return invalid("--calls: 0 calls cost nothing");
  for (const auto& [flag, price] :
       {std::pair("--read-price", prices.read), std::pair("--write-price", prices.write)}) {
    if (!(price >= 0 && price <= 1000)) {
      return invalid(fmt::format("{}: {} is not in 0 to 1000", flag, price));
    }
  }
  PrefixBill bill;
  if (__builtin_mul_overflow(prefix, calls, &bill.uncached_tokens) ||
      bill.uncached_tokens > kSizeMax) {
    return invalid(fmt::format("{} x {} tokens exceed 2^63", prefix, calls));
  }
  PW_ASSIGN_OR_RETURN(bill.billed_tokens,
                      billed(prefix, 1, static_cast<long double>(calls - 1), prices));
  // write + (n - 1) * read < n, solved for the least whole n.
  if (prices.write < 1) {
    bill.break_even_calls = 1;
  } else if (prices.read < 1) {
    const double calls_needed = (prices.write - prices.read) / (1 - prices.read);
    bill.break_even_calls = static_cast<uint64_t>(std::floor(calls_needed)) + 1;
  }
  if (timing) {
    PW_ASSIGN_OR_RETURN(bill.timed, make_timed(prefix, calls, prices, *timing));
  }
  return bill;
}

}  // namespace pagewise::planner
