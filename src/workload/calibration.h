// SPDX-License-Identifier: Apache-2.0
// How long a machine takes for a step: five numbers and what was measured to get them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace pagewise::workload {

/// What one step computes.
struct StepWork {
  uint64_t prompt_tokens = 0;     // in chunks of two or more rows
  uint64_t prompt_positions = 0;  // that these rows attend to, their own included, summed
  uint64_t rows = 0;              // of one token: mostly decodes
  uint64_t row_positions = 0;     // before these rows, summed
};

/// step = step_ns + what each token, row and position adds. A server reads its weights once a step
/// (step_ns), multiplies them with every token, and reads K and V of every position before it.
struct Calibration {
  std::string name;
  uint64_t kv_bytes_per_token = 0;
  double step_ns = 0;
  double prompt_token_ns = 0;
  double prompt_position_ns = 0;
  double row_ns = 0;
  double row_position_ns = 0;
};

/// At least 1 ns, at most three hours. A pure function: equal work takes equal time.
TimeNs step_time_ns(const Calibration& calibration, const StepWork& work);

/// SmolLM2-135M (Q4_1, KV f16: 30 layers x 3 KV heads x 64 x 2 x 2 bytes) on two threads of an AMD
/// EPYC with AVX-512 VNNI. From bench/results/peers-b040d557b06e-20261130T205625.md (`./dev bench
/// --peers`): decoding at short context and at 4,096 tokens (3.71 and 6.97 ms a token) give
/// row_position_ns; 32 sequences of 128 + 32 tokens (26.5 ms a step) split the rest into step_ns
/// and row_ns; a prompt of 512 tokens (308 ms) and one of 4,112 (5.35 s) give the other two.
Calibration default_calibration();

/// One JSON object with exactly the fields of Calibration. `name` stands in messages. Errors:
/// kMalformed naming the field.
Result<Calibration> parse_calibration(std::string_view text, std::string_view name);
/// Errors: kIo and kInvalidArgument, too.
Result<Calibration> read_calibration(const std::string& path);

}  // namespace pagewise::workload
