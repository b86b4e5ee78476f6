// SPDX-License-Identifier: Apache-2.0
// From measured steps to the numbers of a calibration.
#pragma once

#include <cstdint>
#include <span>

#include "workload/calibration.h"

namespace pagewise::workload {

/// The numbers, none of them negative, that make the sum over all steps of (fitted / measured -
/// 1)^2 smallest: every step counts the same, however long it takes. Name, bytes and record stay
/// empty. Numbers that the steps say nothing about are 0: those of a window of 0, and those of a
/// kind of work that no step has. Requires: at least one step, medians above 0.
///
/// All numbers but weights_ns are linear; the soft maximum that this one is in is taken apart by
/// Gauss-Newton steps with a damping (Levenberg 1944, Marquardt 1963), each a linear problem with
/// bounds that is solved exactly, by trying every set of numbers that may be zero: there are 2^8.
/// Deterministic. Cost: milliseconds.
Calibration fit_calibration(std::span<const MeasuredStep> steps, uint32_t window);

/// fitted / measured - 1.
double deviation(const Calibration& calibration, const MeasuredStep& step);
/// The largest |deviation|.
double worst_deviation(const Calibration& calibration, std::span<const MeasuredStep> steps);

}  // namespace pagewise::workload
