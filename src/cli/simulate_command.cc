// SPDX-License-Identifier: Apache-2.0
// `pagewise simulate`: flags to a trace and a machine; text, JSON or a page.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/text_file.h"
#include "cli/commands.h"
#include "cli/model_argument.h"
#include "cli/model_file.h"
#include "cli/process.h"
#include "cli/shared_flags.h"
#include "cli/terminal_text.h"
#include "gguf/gguf.h"
#include "kv/pool_split.h"
#include "model/spec.h"
#include "planner/step_times.h"
#include "simulate/report.h"
#include "workload/generators.h"
#include "workload/trace_reader.h"

namespace pagewise::cli {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;
constexpr uint64_t kPoolBlocksMax = uint64_t{1} << 24;

struct SimulateFlags {
  std::string trace, kind, requests, calibration, kv_memory = "16GiB", svg;
  std::string policy = "default", routing = "prefix-aware", mark;
  uint64_t pool_tokens = 0;
  ModelArgument model;
  ComputeFlags compute;  // block size and KV types of it
  workload::GeneratorOptions generator;
  workload::Changes changes;
  simulate::SimulationOptions options;
  bool curve = false, no_prefix_cache = false, step_by_step = false;
  bool json = false, html = false;
};

Error invalid(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message)}; }

/// "A:B", either of which may be missing.
Status parse_range(std::string_view text, workload::Changes& changes) {
  const std::size_t colon = text.find(':');
  const auto parse = [&](std::string_view part, uint64_t& value) {
    if (part.empty()) return true;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    return error == std::errc() && end == part.data() + part.size();
  };
  if (colon == std::string_view::npos || !parse(text.substr(0, colon), changes.begin) ||
      !parse(text.substr(colon + 1), changes.end)) {
    return invalid(fmt::format("--requests: '{}' is not FROM:TO, two numbers of requests", text));
  }
  if (changes.begin >= changes.end) {
    return invalid(fmt::format("--requests: '{}' is no request at all", text));
  }
  return Status::ok();
}

Result<workload::Trace> read_or_make(const SimulateFlags& flags) {
  if (flags.trace.empty() == flags.kind.empty()) {
    return invalid("give a trace, or --generate KIND: one of " + workload::generator_names());
  }
  if (flags.kind.empty()) return workload::read_trace(flags.trace);
  return workload::generate(flags.kind, flags.generator);
}

Status check_pool(const simulate::ReplicaOptions& replica) {
  for (uint32_t g = 0; g < replica.blocks.size(); ++g) {
    if (replica.blocks[g] <= kPoolBlocksMax) continue;
    return invalid(
        fmt::format("the pool has {} blocks of {} tokens, {} each: at most {} can be "
                    "simulated; change --kv-memory or --pool-tokens",
                    replica.blocks[g], replica.geometry.block_tokens,
                    format_size(replica.geometry.block_stride(g)), kPoolBlocksMax));
  }
  return Status::ok();
}

/// The cache of a model that nothing but the size of a token's KV is known of.
Status size_plain_pool(const SimulateFlags& flags, simulate::ReplicaOptions& replica) {
  const uint64_t block_bytes = replica.geometry.block_bytes(0);
  PW_ASSIGN_OR_RETURN(const uint64_t memory, parse_size(flags.kv_memory));
  const uint64_t blocks = flags.pool_tokens > 0 ? flags.pool_tokens / replica.geometry.block_tokens
                                                : memory / block_bytes;
  if (blocks < 1) {
    return invalid(fmt::format(
        "the pool has no block of {} tokens, {} each; change --kv-memory or --pool-tokens",
        replica.geometry.block_tokens, format_size(block_bytes)));
  }
  replica.blocks = {static_cast<uint32_t>(std::min<uint64_t>(blocks, UINT32_MAX))};
  return check_pool(replica);
}

/// The cache that `serve` would give the model: its groups, and their shares of the memory.
Status size_model_pool(const SimulateFlags& flags, simulate::ReplicaOptions& replica) {
  PW_ASSIGN_OR_RETURN(const uint64_t memory, parse_size(flags.kv_memory));
  const kv::PoolSplit split = kv::split_pool(replica.geometry, replica.split_wish(memory));
  if (split.context < 2) {
    return invalid(fmt::format("--kv-memory {} holds no block of {} tokens of {}",
                               format_size(memory), replica.geometry.block_tokens,
                               flags.options.model_name));
  }
  replica.blocks = split.blocks;
  return check_pool(replica);
}

/// The geometry: the model's, or one group of what the calibration says. Sizes the pool unless
/// there is only the curve to draw.
Status describe_cache(SimulateFlags& flags) {
  simulate::ReplicaOptions& replica = flags.options.replica;
  if (flags.model.text.empty()) {
    replica.geometry = simulate::plain_geometry(replica.calibration.kv_bytes_per_token,
                                                flags.compute.block_tokens);
    return flags.curve ? Status::ok() : size_plain_pool(flags, replica);
  }
  PW_ASSIGN_OR_RETURN(const NamedModel named, find_model(flags.model));
  PW_ASSIGN_OR_RETURN(const auto file, gguf::File::open(named.path, {.header_only = true}));
  PW_ASSIGN_OR_RETURN(const model::ModelSpec spec, model::spec_from_gguf(*file));
  PW_ASSIGN_OR_RETURN(replica.geometry, geometry_of(spec, flags.compute));
  flags.options.model_name = named.name;
  flags.options.kv_type_name = kv_types_text(flags.compute);
  uint32_t& context = replica.engine.context_max;
  if (context == 0) replica.split_sequences = replica.engine.seqs_max;
  context = context == 0 ? spec.context : std::min(context, spec.context);
  return flags.curve ? Status::ok() : size_model_pool(flags, replica);
}

Result<simulate::Report> make_report(SimulateFlags& flags, workload::Trace& trace) {
  if (!flags.requests.empty()) PW_RETURN_IF_ERROR(parse_range(flags.requests, flags.changes));
  simulate::ReplicaOptions& replica = flags.options.replica;
  if (!flags.calibration.empty()) {
    PW_ASSIGN_OR_RETURN(replica.calibration, workload::read_calibration(flags.calibration));
  }
  PW_ASSIGN_OR_RETURN(const workload::Trace whole, read_or_make(flags));
  PW_ASSIGN_OR_RETURN(trace, workload::changed(whole, flags.changes));
  PW_RETURN_IF_ERROR(describe_cache(flags));
  simulate::Report report;
  report.trace_name = flags.kind.empty()
                          ? flags.trace
                          : fmt::format("{} (seed {})", flags.kind, flags.generator.seed);
  report.trace = &trace;
  if (flags.curve) {
    report.curve = simulate::hit_rate_curve(trace, {});
  } else {
    replica.leap = !flags.step_by_step;
    replica.engine.prefix_cache = !flags.no_prefix_cache;
    if (flags.policy == "lru") replica.engine.protected_share = 0;
    if (!flags.mark.empty())
      replica.mark = flags.mark == "5m" ? kv::LeaseClass::k5m : kv::LeaseClass::k1h;
    // Simulated memory is not given back: nothing to look after between steps.
    replica.engine.idle_release_ns = INT64_MAX / 2;
    flags.options.routing = *simulate::parse_routing(flags.routing);
    flags.options.seed = flags.generator.seed;
    PW_ASSIGN_OR_RETURN(report.outcome, simulate::simulate(trace, flags.options));
  }
  report.options = flags.options;
  return report;
}

/// On standard error, because it is another one each time.
void tell_speed(const simulate::Report& report, std::chrono::steady_clock::time_point begin) {
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const auto requests = static_cast<double>(report.trace->requests().size());
  fmt::print(stderr, "{:.2f} s, {:.0f} requests a second\n", seconds,
             requests / std::max(seconds, 1e-9));
}

/// Whose times these are, when they are not the model's: what is cached is right all the same.
void tell_foreign_times(const simulate::Report& report) {
  const simulate::SimulationOptions& options = report.options;
  if (!report.outcome || options.model_name.empty()) return;
  const auto elsewhere =
      planner::taken_elsewhere(options.replica.calibration, options.replica.geometry.token_bytes());
  if (!elsewhere) return;
  fmt::print(stderr, "pagewise simulate: times are not those of {}: --calibration: {}\n",
             one_line(options.model_name, 200), one_line(*elsewhere, 1000));
}

int fail(const Error& error, int status) {
  fmt::print(stderr, "pagewise simulate: {}\n", one_line(error.message, 2000));
  return status;
}

int run_simulate(SimulateFlags& flags) {
  const auto begin = std::chrono::steady_clock::now();
  if (!flags.svg.empty() && !flags.curve) {
    return fail({ErrorCode::kInvalidArgument, "--svg needs --curve"}, kExitUsage);
  }
  workload::Trace trace;
  const Result<simulate::Report> report = make_report(flags, trace);
  if (!report) return fail(report.error(), kExitUsage);
  if (!flags.svg.empty()) {
    const Result<std::string> chart = simulate::report_svg(*report);
    if (!chart) return fail(chart.error(), kExitUsage);
    const Status written = write_text_file(flags.svg, *chart);
    if (!written) return fail(written.error(), kExitFailed);
  }
  tell_foreign_times(*report);
  if (flags.json) {
    fmt::print("{}\n", pagewise::json::serialize(simulate::report_json(*report)));
  } else if (flags.html) {
    fmt::print("{}", simulate::report_html(*report));
  } else {
    fmt::print("{}", simulate::report_text(*report));
    tell_speed(*report, begin);
  }
  return 0;
}

void add_trace_flags(CLI::App& command, SimulateFlags& flags) {
  const char* const group = "Trace";
  command.add_option("TRACE", flags.trace, "Requests as JSON lines or CSV (docs/simulate.md)");
  command
      .add_option("--generate", flags.kind,
                  "Make a trace in place of a file: " + workload::generator_names())
      ->group(group);
  command.add_option("--count", flags.generator.requests, "Requests of a made trace")
      ->capture_default_str()
      ->check(whole_in(1, workload::kGeneratedRequestsMax))
      ->group(group);
  command.add_option("--rate", flags.generator.rate, "Its requests a second, on average")
      ->capture_default_str()
      ->check(number_in(1e-6, 1e6, "rate"))
      ->group(group);
  command.add_option("--seed", flags.generator.seed, "Of a made trace, and of random routing")
      ->capture_default_str()
      ->check(whole_in(0, UINT64_MAX))
      ->group(group);
  command
      .add_option("--requests", flags.requests,
                  "Only the requests FROM:TO, counted from 0, without TO")
      ->group(group);
  command
      .add_option("--scale-lengths", flags.changes.lengths_divisor,
                  "Divide all lengths by N, rounded up")
      ->capture_default_str()
      ->check(whole_in(1, workload::kRequestTokensMax))
      ->group(group);
  command.add_option("--speed-up", flags.changes.speed_up, "Arrivals so many times faster")
      ->capture_default_str()
      ->check(number_in(1e-6, 1e6, "factor"))
      ->group(group);
}

void add_machine_flags(CLI::App& command, SimulateFlags& flags) {
  const char* const group = "Machine";
  simulate::ReplicaOptions& replica = flags.options.replica;
  command
      .add_option("--calibration", flags.calibration,
                  "How long steps take, a JSON file; default: SmolLM2-135M on two CPU threads")
      ->group(group);
  CLI::Option* memory =
      command.add_option("--kv-memory", flags.kv_memory, "KV memory of a replica")
          ->capture_default_str()
          ->check(size_text())
          ->group(group);
  CLI::Option* pool_tokens =
      command.add_option("--pool-tokens", flags.pool_tokens, "The same in tokens")
          ->check(whole_in(1, uint64_t{1} << 40))
          ->excludes(memory)
          ->group(group);
  CLI::Option* model =
      command
          .add_option("--model", flags.model.text,
                      "Keep the KV of this model as serve would: a GGUF file, or a model's name "
                      "(pagewise models); only its header is read")
          ->excludes(pool_tokens)
          ->group(group);
  add_model_dir_flag(command, flags.model.folders);
  add_kv_type_flags(command, flags.compute);
  for (const char* name : {"--model-dir", "--kv-type", "--kv-type-k", "--kv-type-v"}) {
    command.get_option(name)->needs(model)->group(group);
  }
  command.add_option("--block-tokens", flags.compute.block_tokens, "Positions of a KV block")
      ->capture_default_str()
      ->check(CLI::IsMember({16U, 32U, 64U, 128U, 256U, 512U}))
      ->group(group);
  command.add_option("--policy", flags.policy, "Eviction: default or lru")
      ->capture_default_str()
      ->check(CLI::IsMember({"default", "lru"}))
      ->group(group);
  command
      .add_option("--mark", flags.mark,
                  "Every prompt marks its first piece and its end with cache_control: 5m or 1h")
      ->check(CLI::IsMember({"5m", "1h"}))
      ->group(group);
  command.add_option("--lease-share", replica.engine.lease_share, "As of serve")
      ->capture_default_str()
      ->check(number_in(0, 1, "share"))
      ->group(group);
  command
      .add_flag("--no-prefix-cache", flags.no_prefix_cache, "Compute every prompt from its start")
      ->group(group);
  command.add_option("--max-context", replica.engine.context_max, "As of serve; 0: the pool's")
      ->capture_default_str()
      ->check(whole_in(0, 1U << 30))
      ->group(group);
  command.add_option("--step-tokens", replica.engine.step_tokens, "As of serve")
      ->capture_default_str()
      ->check(whole_in(1, 1U << 16))
      ->group(group);
  command.add_option("--max-seqs", replica.engine.seqs_max, "As of serve")
      ->capture_default_str()
      ->check(whole_in(1, 1U << 16))
      ->group(group);
  command.add_option("--max-queue", replica.engine.queue_max, "As of serve")
      ->capture_default_str()
      ->check(whole_in(1, UINT32_MAX))
      ->group(group);
  command.add_option("--replicas", flags.options.replicas, "Servers behind a router")
      ->capture_default_str()
      ->check(whole_in(1, 1024))
      ->group(group);
  command.add_option("--routing", flags.routing, "Of replicas: random, least-loaded, prefix-aware")
      ->capture_default_str()
      ->check(CLI::IsMember({"random", "least-loaded", "prefix-aware"}))
      ->group(group);
}

}  // namespace

void add_simulate_command(CLI::App& app, int& exit_status) {
  CLI::App* command = app.add_subcommand(
      "simulate", "A trace of requests on the real scheduler and cache, under a virtual clock");
  // Shared with the callback, which outlives this call.
  const auto flags = std::make_shared<SimulateFlags>();
  add_trace_flags(*command, *flags);
  add_machine_flags(*command, *flags);
  command->add_flag("--curve", flags->curve,
                    "Only the hit rate against memory, for all sizes at once");
  command->add_flag("--step-by-step", flags->step_by_step,
                    "Take no steps together: the same figures, later");
  CLI::Option* json = command->add_flag("--json", flags->json, "One JSON object");
  command->add_flag("--html", flags->html, "One self-contained page")->excludes(json);
  command->add_option("--svg", flags->svg,
                      "With --curve: write the hit rate against memory as a chart to this file");
  command->callback([flags, &exit_status] {
    exit_status = run_simulate(*flags);
    finish("simulate", Status::ok(), exit_status);
  });
}

}  // namespace pagewise::cli
