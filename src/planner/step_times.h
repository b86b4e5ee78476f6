// SPDX-License-Identifier: Apache-2.0
// How long a machine takes for a prompt and for a token of an answer, from a calibration: what the
// server's steps would take that compute them, one after the other, each as long as
// workload::step_time_ns says.
//
// A prompt is computed in steps of at most `step_tokens`, alone on the machine; the last step gives
// its first token. What is cached in front of it is not computed, but read by every token behind.
// Sequences that decode get a token each from a step, or from several when they are more than
// `step_tokens`.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "planner/prefix_bill.h"
#include "workload/calibration.h"

namespace pagewise::planner {

/// As `pagewise serve` has it unless told.
inline constexpr uint32_t kStepTokens = 512;
inline constexpr uint32_t kStepTokensMax = 65536;

/// Times of so many sequences of a length.
struct TimesRow {
  uint64_t tokens = 0;
  uint64_t batch = 0;
  TimeNs first_token_ns = 0;  // of a prompt of that length, alone and with an empty cache
  uint64_t cached_tokens = 0;
  std::optional<TimeNs> first_token_cached_ns;  // the same when its first cached_tokens are there
  TimeNs decode_token_ns = 0;  // between two tokens of a sequence while all of them decode

  double tokens_per_s() const { return 1e9 / static_cast<double>(decode_token_ns); }  // of each
  double tokens_per_s_sum() const { return tokens_per_s() * static_cast<double>(batch); }
};

/// What computing a prefix takes in all the calls that send it; what is behind it is not counted.
struct PrefillBill {
  TimeNs uncached_ns = 0;  // every call computes it
  TimeNs cached_ns = 0;    // the first one does
  // When entries expire, as in TimedBill: calls on the beat, and at random.
  std::optional<TimeNs> even_ns, random_ns;
};

/// Why times by `calibration` are not those of a model with so much KV a token, as what follows a
/// flag's name and a colon; nullopt: they may be. They would look as good as the right ones.
std::optional<std::string> taken_elsewhere(const workload::Calibration& calibration,
                                           uint64_t token_bytes);

class StepTimes {
 public:
  StepTimes(const workload::Calibration& calibration, uint32_t step_tokens)
      : calibration_(calibration), step_tokens_(step_tokens) {}

  /// Of a prompt whose first `cached` tokens are in the cache. Requires: cached < tokens. Errors:
  /// kInvalidArgument for a prompt that takes longer than a century, or too many steps.
  /// Cost: some ns a step, of which all calls together may take 2^24.
  Result<TimeNs> prefill(uint64_t tokens, uint64_t cached);
  /// Until each of `batch` sequences with `tokens` tokens has one more. Requires: batch > 0.
  /// Errors and cost: as above.
  Result<TimeNs> decode(uint64_t tokens, uint64_t batch);

 private:
  Status take(const workload::StepWork& work, TimeNs& sum);

  workload::Calibration calibration_;
  uint32_t step_tokens_;
  uint64_t steps_ = 0;  // so far
};

/// Each length with each number of sequences, in that order. A server computes at least the last
/// token of a prompt, so of `prefix` tokens at most all but one count as cached. Requires: lengths
/// and batches of at least 1.
Result<std::vector<TimesRow>> make_times_rows(StepTimes& times, std::span<const uint64_t> tokens,
                                              std::span<const uint64_t> batches,
                                              std::optional<uint64_t> prefix);

/// `bill` is that of the same prefix and calls. Errors: those of StepTimes; kInvalidArgument when
/// the sum is longer than a century.
Result<PrefillBill> make_prefill_bill(StepTimes& times, uint64_t prefix, uint64_t calls,
                                      const PrefixBill& bill);

}  // namespace pagewise::planner
