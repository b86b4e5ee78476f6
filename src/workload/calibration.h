// SPDX-License-Identifier: Apache-2.0
// How long a machine takes for a step: a few numbers, and what was measured to get them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace pagewise::workload {

/// What one step computes.
struct StepWork {
  uint64_t prompt_tokens = 0;     // in chunks of two or more rows
  uint64_t prompt_positions = 0;  // that these rows attend to, their own included, summed
  uint64_t rows = 0;              // of one token: mostly decodes
  uint64_t row_positions = 0;     // before these rows, summed
  // The same sums as layers with a sliding window see them: of each row at most the window.
  uint64_t prompt_window_positions = 0;
  uint64_t row_window_positions = 0;

  /// `sequences` of them compute `tokens` new ones behind `position` others each. `window`:
  /// Calibration::window of the machine whose time is asked for.
  void add(uint64_t tokens, uint64_t position, uint32_t window, uint64_t sequences = 1);
  bool operator==(const StepWork&) const = default;
};

/// A step by its shape: `rows` decodes behind `row_position` tokens each, and a prompt's chunk.
struct StepKind {
  uint32_t rows = 0, row_position = 0;
  uint32_t prompt_tokens = 0, prompt_position = 0;

  StepWork work(uint32_t window) const;
  bool operator==(const StepKind&) const = default;
};

/// One that was timed.
struct MeasuredStep : StepKind {
  uint32_t samples = 0;
  TimeNs median_ns = 0;
  TimeNs low_ns = 0, high_ns = 0;  // a quarter of the samples is below, a quarter above

  bool operator==(const MeasuredStep&) const = default;
};

/// On what the numbers were measured, and how well they fit.
struct CalibrationRecord {
  std::string model;   // name of the file
  std::string sha256;  // of its bytes, in hexadecimal
  std::string cpu, isa;
  uint32_t threads = 0;
  std::string kv_type;
  uint32_t block_tokens = 0;
  std::string time;      // UTC: "2026-12-01 04:00"
  double spread = 0;     // (high - low) / median, the median over all steps
  double deviation = 0;  // |fitted / measured - 1|, the largest
  std::vector<MeasuredStep> steps;
  bool operator==(const CalibrationRecord&) const = default;
};

/// step = step_ns                                      whatever it computes
///      + soft maximum of weights_ns                   the weights are read once,
///        and prompt_token_ns, row_ns x tokens, rows   and multiplied with every token meanwhile
///      + prompt_position_ns, row_position_ns x positions    attention
///      + the same again for layers with a window
///
/// The soft maximum of a and b is sqrt(a^2 + b^2): near the larger one where they differ much, and
/// 1.4 times either where they are equal, because reading and computing never overlap wholly. With
/// weights_ns = 0 the step is a plain sum.
struct Calibration {
  std::string name;
  uint64_t kv_bytes_per_token = 0;
  double step_ns = 0;
  double weights_ns = 0;
  double prompt_token_ns = 0;
  double prompt_position_ns = 0;
  double row_ns = 0;
  double row_position_ns = 0;
  uint32_t window = 0;  // of the model's sliding layers; 0: it has none, nor the next two
  double prompt_window_position_ns = 0;
  double row_window_position_ns = 0;
  std::optional<CalibrationRecord> measured;
};

/// At least 1 ns, at most three hours. A pure function: equal work takes equal time.
TimeNs step_time_ns(const Calibration& calibration, const StepWork& work);
/// Before rounding and bounds, in nanoseconds.
double step_time_exact(const Calibration& calibration, const StepWork& work);

/// SmolLM2-135M (Q4_1, KV f16: 30 layers x 3 KV heads x 64 x 2 x 2 bytes) on two threads of an AMD
/// EPYC with AVX-512 VNNI: the numbers of examples/calibration_smollm2.json, which
/// `pagewise bench MODEL --calibrate FILE` wrote and a test compares.
Calibration default_calibration();

/// One JSON object (docs/simulate.md, "Time"). `name` stands in messages. Unknown fields are
/// errors. Errors: kMalformed naming the field.
Result<Calibration> parse_calibration(std::string_view text, std::string_view name);
/// Errors: kIo and kInvalidArgument, too.
Result<Calibration> read_calibration(const std::string& path);
/// What parse_calibration() reads, with a line for each field and each measured step; the same
/// numbers to the last bit.
std::string calibration_text(const Calibration& calibration);

}  // namespace pagewise::workload
