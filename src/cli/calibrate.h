// SPDX-License-Identifier: Apache-2.0
// Which steps are measured for a calibration, and how often: single decodes and crowds of them,
// chunks of prompts of several sizes, each at several lengths of context, and both in one step.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/step_meter.h"
#include "workload/calibration.h"

namespace pagewise::cli {

/// The kinds for a server of `context` tokens a sequence, with at most `positions` in memory at
/// once; cheap ones first. `quick`: a few of each.
std::vector<workload::StepKind> step_kinds(uint32_t context, uint64_t positions, bool quick);

/// What a meter is asked for.
std::vector<model::RunShape> runs_of(const workload::StepKind& kind);

/// How much is measured.
struct MeasurePlan {
  std::vector<workload::StepKind> kinds;
  uint32_t rounds = 5;  // over all kinds, so that a slow moment harms few steps of many kinds
  TimeNs visit_ns = 50'000'000;        // a kind's steps in one round: as many as begin within
  TimeNs step_ns_max = 8'000'000'000;  // kinds that would take longer than this are left out
};

/// Whether these say what a sequence, a token and a position cost each: decodes of two numbers and
/// behind two positions, and three kinds of prompts. Errors: kInvalidArgument.
Status check_tell_apart(std::span<const workload::MeasuredStep> steps);

/// Measures all kinds that fit the meter. `progress` is told the share done, [0, 1]; may be empty.
/// Errors: those of StepMeter.
Result<std::vector<workload::MeasuredStep>> measure_steps(
    model::StepMeter& meter, const MeasurePlan& plan, const std::function<void(double)>& progress);

}  // namespace pagewise::cli
