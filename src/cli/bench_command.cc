// SPDX-License-Identifier: Apache-2.0
// `pagewise bench`: how long this machine takes for a model's steps, as a table and as a
// calibration for `pagewise simulate` and `pagewise plan`.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/file_hash.h"
#include "base/replace_file.h"
#include "base/system_memory.h"
#include "cli/calibrate.h"
#include "cli/commands.h"
#include "cli/model_argument.h"
#include "cli/model_file.h"
#include "cli/pool_size.h"
#include "cli/process.h"
#include "cli/shared_flags.h"
#include "cli/terminal_text.h"
#include "model/cpu_executor.h"
#include "sampling/sampler.h"
#include "workload/calibration_fit.h"

namespace pagewise::cli {
namespace {

constexpr int kExitUsage = 2;

/// Contexts are measured up to here: attention is linear in them, and beyond nothing new shows.
constexpr uint32_t kContextMax = 8448;
/// Positions in memory at once, for all sequences of a step together.
constexpr uint64_t kPositionsMax = 40'960;
/// Above this, what was measured is more of other programs than of the model.
constexpr double kSpreadMax = 0.15;

struct BenchFlags {
  ModelArgument model;
  std::string calibrate;
  ComputeFlags compute;
  uint32_t max_context = 0;
  bool quick = false;
};

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(':');
    if (colon != std::string::npos && colon + 2 < line.size()) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

std::string utc_minute() {
  const std::time_t now = unix_time_s();
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &utc);
  return text;
}

/// The largest of the model's windows; models that have any have one.
uint32_t window_of(const kv::Geometry& geometry) {
  uint32_t window = 0;
  for (const kv::GroupGeometry& group : geometry.groups) window = std::max(window, group.window);
  return window;
}

/// How many positions fit into half of what is free behind the weights, as the server takes it.
Result<uint64_t> positions_that_fit(const model::ModelSpec& spec, const kv::Geometry& geometry,
                                    uint32_t threads) {
  PW_ASSIGN_OR_RETURN(const uint64_t available, available_memory());
  const uint32_t step_tokens = model::CpuExecutorOptions().step_tokens_max;
  const uint64_t fixed =
      fixed_memory(spec, {.kv_memory = "", .step_tokens = step_tokens, .threads = threads});
  const uint64_t left = available - std::min(available, fixed);
  const uint64_t positions = left / 2 / geometry.token_bytes();
  if (positions >= 2 * model::StepMeter::kOriginalPositions) {
    return std::min(positions, kPositionsMax);
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("not enough memory: {} are free, weights and working memory take {}",
                           format_size(available), format_size(fixed))};
}

/// Blocks of each group for the largest of the kinds.
std::vector<uint32_t> blocks_for(const std::vector<workload::StepKind>& kinds,
                                 const kv::Geometry& geometry) {
  std::vector<uint32_t> blocks;
  for (uint32_t g = 0; g < geometry.groups.size(); ++g) {
    uint64_t most = geometry.blocks_for(model::StepMeter::kOriginalPositions);
    for (const workload::StepKind& kind : kinds) {
      most = std::max(most, model::blocks_needed(geometry, runs_of(kind), g));
    }
    blocks.push_back(static_cast<uint32_t>(most));
  }
  return blocks;
}

/// The middle one of the steps' spreads.
double typical_spread(const std::vector<workload::MeasuredStep>& steps) {
  std::vector<double> spreads;
  for (const workload::MeasuredStep& step : steps) {
    spreads.push_back(static_cast<double>(step.high_ns - step.low_ns) /
                      static_cast<double>(step.median_ns));
  }
  const auto middle = spreads.begin() + static_cast<std::ptrdiff_t>(spreads.size() / 2);
  std::nth_element(spreads.begin(), middle, spreads.end());
  return *middle;
}

Result<MeasurePlan> plan_for(const BenchFlags& flags, const model::ModelSpec& spec,
                             const kv::Geometry& geometry, uint32_t context) {
  PW_ASSIGN_OR_RETURN(const uint64_t positions,
                      positions_that_fit(spec, geometry, flags.compute.threads));
  MeasurePlan plan;
  plan.kinds = step_kinds(context, positions, flags.quick);
  if (plan.kinds.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("a context of {} tokens is too short to measure", context)};
  }
  if (flags.quick) {
    plan.rounds = 2;
    plan.visit_ns /= 5;
  }
  return plan;
}

Result<std::vector<workload::MeasuredStep>> time_steps(model::CpuExecutor& executor,
                                                       const MeasurePlan& plan) {
  sampling::Sampler sampler(executor.vocab_size());
  sampling::Sampled sampled;
  const SystemClock clock;
  model::StepMeter meter(executor, clock, [&](const model::LogitsView& logits) {
    // Greedy, as a server would; whether these tokens mean anything does not matter.
    for (uint32_t row = 0; row < logits.rows; ++row) {
      (void)sampler.sample(logits.row(row), {.temperature = 0}, {}, 0, 0, sampled);
    }
  });
  PW_ASSIGN_OR_RETURN(std::vector<workload::MeasuredStep> steps,
                      measure_steps(meter, plan, progress_line("measuring")));
  PW_RETURN_IF_ERROR(check_tell_apart(steps));
  return steps;
}

/// Who and where, beside what the steps themselves say.
workload::CalibrationRecord record_of(const BenchFlags& flags, const std::string& path,
                                      const Sha256& digest, const model::CpuExecutor& executor) {
  workload::CalibrationRecord record;
  record.model = path.substr(path.rfind('/') + 1);
  record.sha256 = to_hex(digest);
  record.cpu = cpu_name();
  record.isa = std::string(executor.isa());
  record.threads = executor.threads();
  record.kv_type = kv_types_text(flags.compute);
  record.block_tokens = flags.compute.block_tokens;
  record.time = utc_minute();
  return record;
}

/// Measures as the flags ask. What can be wrong with them is found before anything is measured.
Result<workload::Calibration> measure(const BenchFlags& flags) {
  PW_ASSIGN_OR_RETURN(const NamedModel named, find_model(flags.model));
  PW_ASSIGN_OR_RETURN(const ModelFile model, open_model(named.path, flags.max_context));
  const auto& [file, spec, tokenizer] = model;
  if (!flags.calibrate.empty()) PW_RETURN_IF_ERROR(check_replaceable(flags.calibrate));
  PW_ASSIGN_OR_RETURN(const kv::Geometry geometry, geometry_of(spec, flags.compute));
  const uint32_t asked = flags.max_context == 0 ? spec.context : flags.max_context;
  const uint32_t context = std::min({asked, spec.context, kContextMax});
  PW_ASSIGN_OR_RETURN(const MeasurePlan plan, plan_for(flags, spec, geometry, context));
  std::vector<std::string> paths;
  for (const gguf::Part& part : file->parts()) paths.push_back(part.path);
  PW_ASSIGN_OR_RETURN(const Sha256 digest, sha256_of_files(paths));

  model::CpuExecutorOptions options;
  options.threads = flags.compute.threads;
  options.blocks = blocks_for(plan.kinds, geometry);
  options.context_max = context;
  options.progress = load_progress();
  PW_ASSIGN_OR_RETURN(const std::unique_ptr<model::CpuExecutor> executor,
                      model::CpuExecutor::create(*file, spec, geometry, options));
  PW_ASSIGN_OR_RETURN(const std::vector<workload::MeasuredStep> steps, time_steps(*executor, plan));

  workload::Calibration calibration = workload::fit_calibration(steps, window_of(geometry));
  workload::CalibrationRecord record = record_of(flags, named.path, digest, *executor);
  record.spread = typical_spread(steps);
  record.deviation = workload::worst_deviation(calibration, steps);
  record.steps = steps;
  calibration.name = fmt::format("{}, {} of {} ({})", named.name, counted(record.threads, "thread"),
                                 record.cpu, record.isa);
  calibration.kv_bytes_per_token = geometry.token_bytes();
  calibration.measured = std::move(record);
  return calibration;
}

std::string milliseconds(double ns) { return fmt::format("{:.2f} ms", ns / 1e6); }

/// "4 behind 512", or nothing.
std::string part_text(uint32_t count, uint32_t position) {
  return count == 0 ? "" : fmt::format("{} behind {}", count, position);
}

void print_steps(const workload::Calibration& calibration) {
  fmt::print("{:<16}{:<18}{:>12}{:>8}{:>12}{:>9}\n", "decodes", "prompt tokens", "measured",
             "spread", "fitted", "apart");
  for (const workload::MeasuredStep& step : calibration.measured->steps) {
    const auto median_ns = static_cast<double>(step.median_ns);
    const double apart = workload::deviation(calibration, step);
    fmt::print("{:<16}{:<18}{:>12}{:>6.1f} %{:>12}{:>+7.1f} %\n",
               part_text(step.rows, step.row_position),
               part_text(step.prompt_tokens, step.prompt_position), milliseconds(median_ns),
               100 * static_cast<double>(step.high_ns - step.low_ns) / median_ns,
               milliseconds(median_ns * (1 + apart)), 100 * apart);
  }
}

void print_numbers(const workload::Calibration& calibration) {
  const auto line = [](double ns, std::string_view what) {
    const std::string text = ns < 1e4   ? fmt::format("{:.1f} ns", ns)
                             : ns < 1e6 ? fmt::format("{:.1f} us", ns / 1e3)
                                        : milliseconds(ns);
    fmt::print("{:>12}  {}\n", text, what);
  };
  line(calibration.step_ns, "a step, whatever it computes");
  line(calibration.weights_ns, "the weights, read once a step while tokens are multiplied");
  line(calibration.prompt_token_ns, "a prompt's token");
  line(calibration.prompt_position_ns, "a position that it attends to");
  line(calibration.row_ns, "a decoding sequence");
  line(calibration.row_position_ns, "a position before it");
  if (calibration.window == 0) return;
  const std::string window = fmt::format(", up to {}, in layers with a window", calibration.window);
  line(calibration.prompt_window_position_ns,
       "a position that a prompt's token attends to" + window);
  line(calibration.row_window_position_ns, "a position before a decoding sequence" + window);
}

void print_calibration(const workload::Calibration& calibration) {
  const workload::CalibrationRecord& record = *calibration.measured;
  fmt::print("{}, KV {}\n\n", calibration.name, record.kv_type);
  print_steps(calibration);
  fmt::print("\n");
  print_numbers(calibration);
  fmt::print("\nlargest deviation {:.1f} %, typical spread {:.1f} %\n", 100 * record.deviation,
             100 * record.spread);
}

int run_bench(const BenchFlags& flags) {
#ifndef NDEBUG
  fmt::print(stderr, "pagewise bench: a debug build says nothing about speed\n");
  return 1;
#endif
  Result<workload::Calibration> calibration = measure(flags);
  Status status = calibration.status();
  if (status) print_calibration(*calibration);
  if (status && !flags.calibrate.empty()) {
    status = replace_file(flags.calibrate, workload::calibration_text(*calibration));
  }
  if (!status) {
    fmt::print(stderr, "pagewise bench: {}\n", one_line(status.error().message, 2000));
    return kExitUsage;
  }
  if (!flags.calibrate.empty()) fmt::print("wrote {}\n", flags.calibrate);
  if (calibration->measured->spread > kSpreadMax) {
    fmt::print(stderr,
               "pagewise bench: the same step took {:.0f} % longer at one time than at another: "
               "other programs run here; measure again when they do not\n",
               100 * calibration->measured->spread);
  }
  return 0;
}

}  // namespace

void add_bench_command(CLI::App& app, int& exit_status) {
  const auto flags = std::make_shared<BenchFlags>();
  CLI::App* command =
      app.add_subcommand("bench", "Measure how long this machine takes for a model's steps");
  add_model_argument(*command, flags->model, "A GGUF file, or a model's name (pagewise models)");
  command->add_option("--calibrate", flags->calibrate,
                      "Write a calibration for `pagewise simulate` and `pagewise plan` to FILE");
  add_compute_flags(*command, flags->compute);
  command
      ->add_option("--max-context", flags->max_context,
                   "Measure contexts up to here; 0: the model's, at most 8448")
      ->capture_default_str()
      ->check(whole_in(0, 1U << 30));
  command->add_flag("--quick", flags->quick, "Few steps, to try it: rough numbers in seconds");
  command->callback([flags, &exit_status] {
    exit_status = run_bench(*flags);
    finish("bench", Status::ok(), exit_status);
  });
}

}  // namespace pagewise::cli
