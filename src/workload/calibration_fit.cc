// SPDX-License-Identifier: Apache-2.0
#include "workload/calibration_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <string>

#include "base/check.h"

namespace pagewise::workload {
namespace {

constexpr double Calibration::*kNumbers[] = {
    &Calibration::step_ns,
    &Calibration::weights_ns,
    &Calibration::prompt_token_ns,
    &Calibration::prompt_position_ns,
    &Calibration::row_ns,
    &Calibration::row_position_ns,
    &Calibration::prompt_window_position_ns,
    &Calibration::row_window_position_ns,
};
constexpr std::size_t kCount = std::size(kNumbers);
using Vector = std::array<double, kCount>;
using Matrix = std::array<Vector, kCount>;

constexpr int kRoundsMax = 200;
constexpr double kConverged = 1e-12;  // of the sum of squares, relative
constexpr double kDampingStart = 1e-2, kDampingMin = 1e-12, kDampingMax = 1e12;
/// Below this part of its column's own square, a pivot is rounding: the column says nothing new.
constexpr double kPivotMin = 1e-12;

Vector numbers_of(const Calibration& calibration) {
  Vector out;
  for (std::size_t i = 0; i < kCount; ++i) out[i] = calibration.*kNumbers[i];
  return out;
}
void set_numbers(Calibration& calibration, const Vector& numbers) {
  for (std::size_t i = 0; i < kCount; ++i) calibration.*kNumbers[i] = numbers[i];
}

double rounded(double value) {
  const std::string text = fmt::format("{:.6g}", value);
  double out = 0;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

double sum_of_squares(const Calibration& calibration, std::span<const MeasuredStep> steps) {
  double sum = 0;
  for (const MeasuredStep& step : steps) sum += std::pow(deviation(calibration, step), 2);
  return sum;
}

/// What each number adds to the step's time if it grows by one.
Vector slopes(const Calibration& calibration, const StepWork& work) {
  const auto count = [](uint64_t value) { return static_cast<double>(value); };
  const double tokens_ns = calibration.prompt_token_ns * count(work.prompt_tokens) +
                           calibration.row_ns * count(work.rows);
  const double soft_ns = std::hypot(calibration.weights_ns, tokens_ns);
  // At zero the soft maximum has no slope; a plain sum's does.
  const double of_weights = soft_ns == 0 ? 1 : calibration.weights_ns / soft_ns;
  const double of_tokens = soft_ns == 0 ? 1 : tokens_ns / soft_ns;
  return {1,
          of_weights,
          of_tokens * count(work.prompt_tokens),
          count(work.prompt_positions),
          of_tokens * count(work.rows),
          count(work.row_positions),
          count(work.prompt_window_positions),
          count(work.row_window_positions)};
}

/// min x'Ax - 2b'x over x >= 0 with x[i] = 0 for every i that is not in `free`: by elimination; no
/// value when one of them would be negative or the rest do not determine it.
struct Solution {
  bool found = false;
  double value = std::numeric_limits<double>::infinity();
  Vector x{};
};
Solution solve(const Matrix& a, const Vector& b, uint32_t free) {
  std::array<std::size_t, kCount> index;
  std::size_t n = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    if ((free >> i & 1) != 0) index[n++] = i;
  }
  // Cholesky: A = L L'.
  Matrix l{};
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = a[index[i]][index[j]];
      for (std::size_t k = 0; k < j; ++k) sum -= l[i][k] * l[j][k];
      if (i != j) {
        l[i][j] = sum / l[j][j];
      } else if (sum <= kPivotMin * a[index[i]][index[i]]) {
        return {};
      } else {
        l[i][i] = std::sqrt(sum);
      }
    }
  }
  Vector y{};
  for (std::size_t i = 0; i < n; ++i) {
    y[i] = b[index[i]];
    for (std::size_t k = 0; k < i; ++k) y[i] -= l[i][k] * y[k];
    y[i] /= l[i][i];
  }
  Solution out;
  out.found = true;
  out.value = 0;
  for (std::size_t i = n; i-- > 0;) {
    double x = y[i];
    for (std::size_t k = i + 1; k < n; ++k) x -= l[k][i] * out.x[index[k]];
    x /= l[i][i];
    if (!(x >= 0)) return {};
    out.x[index[i]] = x;
    out.value -= y[i] * y[i];
  }
  return out;
}

Vector solve_without_negatives(const Matrix& a, const Vector& b) {
  Solution best;
  for (uint32_t free = 0; free < 1U << kCount; ++free) {
    const Solution solution = solve(a, b, free);
    if (solution.found && solution.value < best.value) best = solution;
  }
  return best.x;  // the empty set always has one: all zero
}

/// One step of the iteration: where the squares of the deviations, as straight lines around the
/// numbers so far, are smallest; `damping` holds it back to those.
Vector next_numbers(const Calibration& from, std::span<const MeasuredStep> steps, double damping) {
  const Vector now = numbers_of(from);
  Matrix a{};
  Vector b{};
  for (const MeasuredStep& step : steps) {
    const StepWork work = step.work(from.window);
    const auto measured_ns = static_cast<double>(step.median_ns);
    Vector slope = slopes(from, work);
    double target = (measured_ns - step_time_exact(from, work)) / measured_ns;
    for (std::size_t i = 0; i < kCount; ++i) {
      slope[i] /= measured_ns;
      target += slope[i] * now[i];
    }
    for (std::size_t i = 0; i < kCount; ++i) {
      b[i] += slope[i] * target;
      for (std::size_t j = 0; j < kCount; ++j) a[i][j] += slope[i] * slope[j];
    }
  }
  for (std::size_t i = 0; i < kCount; ++i) {
    const double hold = damping * a[i][i];
    a[i][i] += hold;
    b[i] += hold * now[i];
  }
  return solve_without_negatives(a, b);
}

/// Goes downhill from the numbers that `fitted` has; returns the sum of squares.
double descend(Calibration& fitted, std::span<const MeasuredStep> steps) {
  double value = sum_of_squares(fitted, steps);
  double damping = kDampingStart;
  for (int round = 0; round < kRoundsMax && damping < kDampingMax; ++round) {
    Calibration next = fitted;
    set_numbers(next, next_numbers(fitted, steps, damping));
    const double next_value = sum_of_squares(next, steps);
    if (!(next_value < value)) {
      damping *= 8;
      continue;
    }
    const bool converged = value - next_value <= kConverged * value;
    fitted = next;
    value = next_value;
    damping = std::max(kDampingMin, damping / 4);
    if (converged) break;
  }
  return value;
}

}  // namespace

double deviation(const Calibration& calibration, const MeasuredStep& step) {
  return step_time_exact(calibration, step.work(calibration.window)) /
             static_cast<double>(step.median_ns) -
         1;
}

double worst_deviation(const Calibration& calibration, std::span<const MeasuredStep> steps) {
  double worst = 0;
  for (const MeasuredStep& step : steps) {
    worst = std::max(worst, std::fabs(deviation(calibration, step)));
  }
  return worst;
}

Calibration fit_calibration(std::span<const MeasuredStep> steps, uint32_t window) {
  PW_CHECK(!steps.empty());
  TimeNs shortest = steps.front().median_ns;
  for (const MeasuredStep& step : steps) {
    PW_CHECK(step.median_ns > 0);
    shortest = std::min(shortest, step.median_ns);
  }
  // A plain sum first: with weights_ns = 0 the problem is linear, and has one answer.
  Calibration best;
  best.window = window;
  set_numbers(best, next_numbers(best, steps, 0));
  const Calibration plain = best;
  double best_value = sum_of_squares(best, steps);
  // Where weights_ns is 0 it has no slope, so it cannot grow from there: it starts as parts of the
  // shortest step, and what a step takes by itself as the rest.
  for (const double share : {0.25, 0.5, 0.75, 1.0}) {
    Calibration fitted = plain;
    fitted.weights_ns = share * static_cast<double>(shortest);
    fitted.step_ns = (1 - share) * static_cast<double>(shortest);
    const double value = descend(fitted, steps);
    if (value >= best_value) continue;
    best = fitted;
    best_value = value;
  }
  Vector numbers = numbers_of(best);
  for (double& number : numbers) number = rounded(number);
  set_numbers(best, numbers);
  return best;
}

}  // namespace pagewise::workload
