// SPDX-License-Identifier: Apache-2.0
#include "cli/calibrate.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"

namespace pagewise::cli {
namespace {

using workload::StepKind;

/// Below this, steps hardly differ.
constexpr uint32_t kContextMin = 64;

/// A kind that is being measured.
struct Samples {
  StepKind kind;
  std::vector<model::RunShape> runs;
  std::vector<TimeNs> ns;
};

/// The sample behind a share of all of them, from the shortest on.
TimeNs quantile(std::vector<TimeNs>& ns, double share) {
  const auto at =
      ns.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(ns.size() - 1) + 0.5);
  std::nth_element(ns.begin(), at, ns.end());
  return *at;
}

/// How long `kind` takes at least, by those with less of everything that were measured.
TimeNs at_least(const StepKind& kind, const std::vector<Samples>& measured) {
  TimeNs most = 0;
  for (const Samples& other : measured) {
    const bool smaller = other.kind.rows <= kind.rows &&
                         other.kind.row_position <= kind.row_position &&
                         other.kind.prompt_tokens <= kind.prompt_tokens &&
                         other.kind.prompt_position <= kind.prompt_position;
    if (!smaller) continue;
    // Chunks of 32 tokens and more are bound by arithmetic: twice the tokens, twice the time.
    const double times = other.kind.prompt_tokens >= 32
                             ? static_cast<double>(kind.prompt_tokens) / other.kind.prompt_tokens
                             : 1.0;
    most = std::max(most, static_cast<TimeNs>(static_cast<double>(other.ns.front()) * times));
  }
  return most;
}

/// The kind's steps in one round. The first of several finds caches as another kind left them, and
/// does not count.
Status visit(model::StepMeter& meter, const MeasurePlan& plan, Samples& samples) {
  TimeNs spent = 0;
  std::vector<TimeNs> ns;
  do {
    PW_ASSIGN_OR_RETURN(const TimeNs step_ns, meter.measure(samples.runs));
    ns.push_back(step_ns);
    spent += step_ns;
  } while (spent < plan.visit_ns);
  samples.ns.insert(samples.ns.end(), ns.begin() + (ns.size() > 1 ? 1 : 0), ns.end());
  return Status::ok();
}

}  // namespace

std::vector<model::RunShape> runs_of(const StepKind& kind) {
  std::vector<model::RunShape> out(kind.rows, model::RunShape{1, kind.row_position});
  if (kind.prompt_tokens > 0) out.push_back({kind.prompt_tokens, kind.prompt_position});
  return out;
}

std::vector<StepKind> step_kinds(uint32_t context, uint64_t positions, bool quick) {
  std::vector<StepKind> kinds;
  if (context < kContextMin) return kinds;
  const auto add = [&](StepKind kind) {
    const uint64_t row_end = uint64_t{kind.row_position} + 1;
    const uint64_t prompt_end = uint64_t{kind.prompt_position} + kind.prompt_tokens;
    if (std::max(row_end, prompt_end) > context) return;
    if (kind.rows * row_end + prompt_end > positions) return;
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
  };
  const std::vector<uint32_t> rows =
      quick ? std::vector<uint32_t>{1, 8} : std::vector<uint32_t>{1, 2, 4, 8, 16, 32};
  const std::vector<uint32_t> chunks =
      quick ? std::vector<uint32_t>{32, 96} : std::vector<uint32_t>{32, 128, 512};
  std::vector<uint32_t> contexts =
      quick ? std::vector<uint32_t>{64, 512} : std::vector<uint32_t>{64, 1024, 4096};
  // As far as the context goes, in whole chunks.
  if (!quick && context > 8192) contexts.push_back(8192);
  if (!quick && context > 1024) contexts.push_back(std::min(context, 8192U) - 512);
  // Of a short context, a half and nearly all: behind one position alone, what a sequence costs and
  // what a position costs could not be told apart.
  if (context <= 1024) contexts = {64, context / 2, context - std::min(context, 33U)};
  for (const uint32_t count : rows) {
    for (const uint32_t position : contexts) add({.rows = count, .row_position = position});
  }
  for (const uint32_t tokens : chunks) {
    add({.prompt_tokens = tokens});
    for (const uint32_t position : contexts) {
      if (position >= 512 || context <= 1024)
        add({.prompt_tokens = tokens, .prompt_position = position});
    }
  }
  add({.rows = 4, .row_position = 512, .prompt_tokens = 64, .prompt_position = 0});
  if (quick) return kinds;
  add({.rows = 8, .row_position = 512, .prompt_tokens = 128, .prompt_position = 512});
  add({.rows = 1, .row_position = 1024, .prompt_tokens = 256, .prompt_position = 1024});
  return kinds;
}

Status check_tell_apart(std::span<const workload::MeasuredStep> steps) {
  std::set<uint32_t> rows, row_positions;
  std::set<std::pair<uint32_t, uint32_t>> prompts;
  for (const StepKind& kind : steps) {
    if (kind.rows > 0) {
      rows.insert(kind.rows);
      row_positions.insert(kind.row_position);
    }
    if (kind.prompt_tokens > 0) prompts.insert({kind.prompt_tokens, kind.prompt_position});
  }
  if (rows.size() >= 2 && row_positions.size() >= 2 && prompts.size() >= 3) return Status::ok();
  return {
      ErrorCode::kInvalidArgument,
      "too few kinds of steps could be measured to tell what a token and what a position costs: "
      "the context is too short, or this machine takes too long for a step"};
}

Result<std::vector<workload::MeasuredStep>> measure_steps(
    model::StepMeter& meter, const MeasurePlan& plan, const std::function<void(double)>& progress) {
  PW_CHECK(plan.rounds > 0);
  PW_RETURN_IF_ERROR(meter.fill());
  std::vector<Samples> all;
  // The first round also finds out what would take too long.
  for (std::size_t i = 0; i < plan.kinds.size(); ++i) {
    if (progress) {
      progress(static_cast<double>(i) / static_cast<double>(plan.kinds.size() * plan.rounds));
    }
    Samples samples{plan.kinds[i], runs_of(plan.kinds[i]), {}};
    if (!meter.fits(samples.runs) || at_least(samples.kind, all) > plan.step_ns_max) continue;
    // Blocks are filled, and pages are there, before anything counts.
    PW_RETURN_IF_ERROR(meter.measure(samples.runs).status());
    PW_RETURN_IF_ERROR(visit(meter, plan, samples));
    all.push_back(std::move(samples));
  }
  for (uint32_t round = 1; round < plan.rounds; ++round) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (progress) {
        progress((round + static_cast<double>(i) / static_cast<double>(all.size())) / plan.rounds);
      }
      PW_RETURN_IF_ERROR(visit(meter, plan, all[i]));
    }
  }
  if (progress) progress(1);
  std::vector<workload::MeasuredStep> out;
  for (Samples& samples : all) {
    workload::MeasuredStep step{samples.kind};
    step.samples = static_cast<uint32_t>(samples.ns.size());
    step.low_ns = quantile(samples.ns, 0.25);
    step.median_ns = quantile(samples.ns, 0.5);
    step.high_ns = quantile(samples.ns, 0.75);
    out.push_back(step);
  }
  return out;
}

}  // namespace pagewise::cli
