// SPDX-License-Identifier: Apache-2.0
// `pagewise plan`: flags to a PlanInput, a Plan to text, JSON or a page.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/text_file.h"
#include "cli/commands.h"
#include "cli/plan_flags.h"
#include "cli/plan_live.h"
#include "cli/process.h"
#include "cli/terminal_text.h"
#include "gguf/gguf.h"
#include "model/spec.h"
#include "planner/plan.h"
#include "planner/plan_html.h"
#include "planner/plan_output.h"
#include "planner/server_memory.h"

namespace pagewise::cli {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;
constexpr int kExitDoesNotFit = 3;

/// What was typed stands in messages, and may be anything.
constexpr std::size_t kMessageCharactersMax = 2000;

int fail(const Error& error, int status) {
  fmt::print(stderr, "pagewise plan: {}\n", one_line(error.message, kMessageCharactersMax));
  return status;
}

/// What the server and its plan say of the same file.
Result<std::vector<LiveRow>> compare(const PlanFlags& flags, const planner::PlanInput& input) {
  if (flags.source.empty()) {
    return Error{ErrorCode::kInvalidArgument, "--live needs SOURCE: the file that the server runs"};
  }
  PW_ASSIGN_OR_RETURN(const std::string path, plan_source_path(flags));
  PW_ASSIGN_OR_RETURN(const auto file, gguf::File::open(path, {.header_only = true}));
  PW_ASSIGN_OR_RETURN(const model::ModelSpec spec, model::spec_from_gguf(*file));
  const planner::ServerMemory planned =
      planner::server_memory(spec, {.threads = std::max(1U, std::thread::hardware_concurrency())});
  PW_ASSIGN_OR_RETURN(const MetricsText metrics, fetch_metrics(flags.live, flags.key));
  return compare_live(input, planned, metrics);
}

int run_live(const PlanFlags& flags, const planner::PlanInput& input) {
  const auto rows = compare(flags, input);
  if (!rows.has_value()) {
    return fail(rows.error(), rows.error().code == ErrorCode::kIo ? kExitFailed : kExitUsage);
  }
  if (flags.json) {
    fmt::print("{}\n", live_json(*rows));
  } else {
    fmt::print("{}", live_text(*rows));
  }
  const bool holds =
      std::all_of(rows->begin(), rows->end(), [](const LiveRow& row) { return row.holds(); });
  return holds ? 0 : kExitFailed;
}

int run_plan(const PlanFlags& flags) {
  const Result<planner::PlanInput> input = parse_plan_flags(flags);
  if (!input.has_value()) return fail(input.error(), kExitUsage);
  if (!flags.live.empty()) return run_live(flags, *input);
  const Result<planner::Plan> plan = planner::make_plan(*input);
  if (!plan.has_value()) return fail(plan.error(), kExitUsage);
  if (!flags.html.empty()) {
    const Status written = write_text_file(flags.html, planner::plan_html(*input, *plan));
    if (!written) return fail(written.error(), kExitFailed);
  }
  if (!flags.svg.empty()) {
    const Result<std::string> chart = planner::plan_svg(*input, *plan);
    if (!chart.has_value()) return fail(chart.error(), kExitUsage);
    const Status written = write_text_file(flags.svg, *chart);
    if (!written) return fail(written.error(), kExitFailed);
  }
  if (flags.json) {
    fmt::print("{}\n", planner::plan_json(*input, *plan));
  } else {
    fmt::print("{}", planner::plan_text(*input, *plan));
  }
  return plan->fits.value_or(true) ? 0 : kExitDoesNotFit;
}

}  // namespace

void add_plan_command(CLI::App& app, int& exit_status) {
  CLI::App* plan = app.add_subcommand(
      "plan", "How much KV memory, how many requests, what to do when it does not fit");
  // Shared with the callback, which outlives this call.
  const auto flags = std::make_shared<PlanFlags>();
  add_plan_flags(*plan, *flags);
  plan->callback([flags, &exit_status] {
    exit_status = run_plan(*flags);
    finish("plan", Status::ok(), exit_status);
  });
}

}  // namespace pagewise::cli
