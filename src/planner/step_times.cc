// SPDX-License-Identifier: Apache-2.0
#include "planner/step_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "planner/numbers.h"

namespace pagewise::planner {
namespace {

constexpr TimeNs kTimeNsMax = TimeNs{3'155'760'000} * 1'000'000'000;  // a century
// A prompt of 2^30 tokens in steps of 512 has 2^21 of them.
constexpr uint64_t kStepsMax = uint64_t{1} << 24;

Error too_long(std::string_view what) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("--calibration: {} would take longer than a century", what)};
}

/// `times` of `ns` each; expected values need not be whole.
Result<TimeNs> multiple(TimeNs ns, long double times) {
  const long double sum = static_cast<long double>(ns) * times;
  if (sum > static_cast<long double>(kTimeNsMax)) return too_long("all these calls");
  return static_cast<TimeNs>(std::llround(sum));
}

}  // namespace

std::optional<std::string> taken_elsewhere(const workload::Calibration& calibration,
                                           uint64_t token_bytes) {
  if (calibration.kv_bytes_per_token == token_bytes) return std::nullopt;
  const auto& measured = calibration.measured;
  return fmt::format(
      "it was taken where a token has {} bytes of KV{}, here it has {}: another model or "
      "--kv-type; calibrate this one with pagewise bench",
      grouped(calibration.kv_bytes_per_token),
      measured ? fmt::format(" ({}, {})", measured->model, measured->kv_type) : "",
      grouped(token_bytes));
}

Status StepTimes::take(const workload::StepWork& work, TimeNs& sum) {
  if (++steps_ > kStepsMax) {
    return {
        ErrorCode::kInvalidArgument,
        fmt::format("--calibration: more than {} steps of {} tokens to add up; ask for fewer or "
                    "shorter --tokens, or raise --step-tokens",
                    grouped(kStepsMax), step_tokens_)};
  }
  sum += workload::step_time_ns(calibration_, work);
  return sum <= kTimeNsMax ? Status::ok() : Status(too_long("this"));
}

Result<TimeNs> StepTimes::prefill(uint64_t tokens, uint64_t cached) {
  PW_CHECK(cached < tokens);
  TimeNs sum = 0;
  for (uint64_t position = cached; position < tokens;) {
    const uint64_t count = std::min<uint64_t>(step_tokens_, tokens - position);
    workload::StepWork work;
    work.add(count, position, calibration_.window);
    PW_RETURN_IF_ERROR(take(work, sum));
    position += count;
  }
  return sum;
}

Result<TimeNs> StepTimes::decode(uint64_t tokens, uint64_t batch) {
  PW_CHECK(batch > 0);
  TimeNs sum = 0;
  for (uint64_t left = batch; left > 0;) {
    const uint64_t count = std::min<uint64_t>(step_tokens_, left);
    workload::StepWork work;
    work.add(1, tokens, calibration_.window, count);
    PW_RETURN_IF_ERROR(take(work, sum));
    left -= count;
  }
  return sum;
}

Result<std::vector<TimesRow>> make_times_rows(StepTimes& times, std::span<const uint64_t> tokens,
                                              std::span<const uint64_t> batches,
                                              std::optional<uint64_t> prefix) {
  std::vector<TimesRow> rows;
  for (const uint64_t length : tokens) {
    TimesRow row{.tokens = length};
    PW_ASSIGN_OR_RETURN(row.first_token_ns, times.prefill(length, 0));
    if (prefix) {
      row.cached_tokens = std::min(*prefix, length - 1);
      PW_ASSIGN_OR_RETURN(row.first_token_cached_ns, times.prefill(length, row.cached_tokens));
    }
    for (const uint64_t batch : batches) {
      row.batch = batch;
      PW_ASSIGN_OR_RETURN(row.decode_token_ns, times.decode(length, batch));
      rows.push_back(row);
    }
  }
  return rows;
}

Result<PrefillBill> make_prefill_bill(StepTimes& times, uint64_t prefix, uint64_t calls,
                                      const PrefixBill& bill) {
  PrefillBill out;
  PW_ASSIGN_OR_RETURN(out.cached_ns, times.prefill(prefix, 0));
  PW_ASSIGN_OR_RETURN(out.uncached_ns, multiple(out.cached_ns, static_cast<long double>(calls)));
  if (!bill.timed) return out;
  PW_ASSIGN_OR_RETURN(out.even_ns,
                      multiple(out.cached_ns, static_cast<long double>(bill.timed->even_writes)));
  const long double misses = static_cast<long double>(calls - 1) *
                             (1 - static_cast<long double>(bill.timed->random_hit_share));
  PW_ASSIGN_OR_RETURN(out.random_ns, multiple(out.cached_ns, 1 + misses));
  return out;
}

}  // namespace pagewise::planner
