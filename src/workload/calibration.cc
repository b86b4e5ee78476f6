// SPDX-License-Identifier: Apache-2.0
#include "workload/calibration.h"

#include <algorithm>
#include <cmath>

namespace pagewise::workload {
namespace {

constexpr double kTimeNsMax = 1e13;

/// The sum of min(first + i, most) over i in [0, count).
uint64_t sum_up_to(uint64_t first, uint64_t count, uint64_t most) {
  const uint64_t below = first >= most ? 0 : std::min(count, most - first);
  return below * first + below * (below - std::min<uint64_t>(below, 1)) / 2 +
         (count - below) * most;
}

}  // namespace

void StepWork::add(uint64_t tokens, uint64_t position, uint32_t window, uint64_t sequences) {
  const uint64_t most = window == 0 ? 0 : window;
  if (tokens == 1) {
    rows += sequences;
    row_positions += sequences * position;
    if (window != 0) row_window_positions += sequences * std::min(position, most - 1);
    return;
  }
  prompt_tokens += sequences * tokens;
  prompt_positions += sequences * sum_up_to(position + 1, tokens, UINT64_MAX);
  if (window != 0) prompt_window_positions += sequences * sum_up_to(position + 1, tokens, most);
}

StepWork StepKind::work(uint32_t window) const {
  StepWork work;
  work.add(1, row_position, window, rows);
  if (prompt_tokens > 0) work.add(prompt_tokens, prompt_position, window);
  return work;
}

double step_time_exact(const Calibration& calibration, const StepWork& work) {
  const auto part = [](double each_ns, uint64_t count) {
    return each_ns * static_cast<double>(count);
  };
  const double tokens_ns =
      part(calibration.prompt_token_ns, work.prompt_tokens) + part(calibration.row_ns, work.rows);
  const double weights_ns = calibration.weights_ns;
  return calibration.step_ns + std::sqrt(weights_ns * weights_ns + tokens_ns * tokens_ns) +
         part(calibration.prompt_position_ns, work.prompt_positions) +
         part(calibration.row_position_ns, work.row_positions) +
         part(calibration.prompt_window_position_ns, work.prompt_window_positions) +
         part(calibration.row_window_position_ns, work.row_window_positions);
}

TimeNs step_time_ns(const Calibration& calibration, const StepWork& work) {
  const double ns = std::min(step_time_exact(calibration, work), kTimeNsMax);
  return std::max<TimeNs>(1, std::llround(ns));
}

Calibration default_calibration() {
  Calibration calibration;
  calibration.name = "SmolLM2-135M-Instruct.Q4_1, 2 threads of AMD EPYC (AVX3_DL)";
  calibration.kv_bytes_per_token = 23'040;
  calibration.step_ns = 265123;
  calibration.weights_ns = 2712680;
  calibration.prompt_token_ns = 409040;
  calibration.prompt_position_ns = 411.492;
  calibration.row_ns = 532556;
  calibration.row_position_ns = 876.886;
  return calibration;
}

}  // namespace pagewise::workload
