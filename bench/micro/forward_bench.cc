// SPDX-License-Identifier: Apache-2.0
// Speed of the forward pass alone, without engine and server: decode at several context lengths,
// prefill of several lengths, and a batch of decoding sequences. Medians and spread of several
// runs.
#include <fmt/format.h>

#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/clock.h"
#include "base/prng.h"
#include "gguf/gguf.h"
#include "kernels/isa.h"
#include "micro/rows.h"
#include "model/batch_driver.h"
#include "model/cpu_executor.h"
#include "model/spec.h"

namespace {

using namespace pagewise;
using model::testing::BatchDriver;

struct Flags {
  std::string model;
  uint32_t threads = 0;
  uint32_t repeats = 5;
  uint32_t block_tokens = 32;
  std::string only;
  std::string isa;
  bool cpu_time = false;
  bool json = false;
};

/// Processor time of the whole process: what is left to measure on a machine that others keep busy.
class CpuClock final : public Clock {
 public:
  TimeNs now() const override {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec * TimeNs{1'000'000'000} + time.tv_nsec;
  }
};

void report(bool json, const std::string& what, std::vector<double> rates) {
  std::sort(rates.begin(), rates.end());
  const double median = rates[rates.size() / 2];
  bench::print_row(json, "forward",
                   {{"work", what},
                    {"tok_per_s", median},
                    {"tok_per_s_min", rates.front()},
                    {"tok_per_s_max", rates.back()}},
                   fmt::format("{:<34} {:8.1f} tok/s  ({:.1f} to {:.1f})", what, median,
                               rates.front(), rates.back()));
  std::fflush(stdout);
}

int run(const Flags& flags) {
#ifndef NDEBUG
  std::fprintf(stderr, "a debug build says nothing about speed\n");
  return 1;
#endif
  if (!flags.isa.empty() && !kernels::use_isa(flags.isa)) {
    std::fprintf(stderr, "--isa %s: not on this machine\n", flags.isa.c_str());
    return 1;
  }
  const SystemClock wall_clock;
  const CpuClock cpu_clock;
  const Clock& clock = flags.cpu_time ? static_cast<const Clock&>(cpu_clock) : wall_clock;
  const auto seconds_since = [&](TimeNs start) {
    return static_cast<double>(clock.now() - start) / 1e9;
  };
  auto file = gguf::File::open(flags.model);
  if (!file) return std::fprintf(stderr, "%s\n", file.error().message.c_str()), 1;
  const auto spec = model::spec_from_gguf(**file);
  if (!spec) return std::fprintf(stderr, "%s\n", spec.error().message.c_str()), 1;
  const auto geometry = model::make_geometry(*spec, flags.block_tokens, KvType::kF16, KvType::kF16);
  model::CpuExecutorOptions options;
  options.threads = flags.threads;
  options.blocks.assign(geometry->groups.size(), 10240 / flags.block_tokens);
  const TimeNs load_start = clock.now();
  const auto made = model::CpuExecutor::create(**file, *spec, *geometry, options);
  if (!made) return std::fprintf(stderr, "%s\n", made.error().message.c_str()), 1;
  model::CpuExecutor& executor = **made;
  const double load_s = seconds_since(load_start);
  const double weights_mib = static_cast<double>(executor.weight_bytes()) / (1 << 20);
  const double scratch_mib = static_cast<double>(executor.scratch_bytes()) / (1 << 20);
  const std::string isa(executor.isa());
  // The name is the file's text: left out of the JSON, where nothing is escaped.
  bench::print_row(
      flags.json, "load",
      {{"isa", isa},
       {"threads", static_cast<double>(executor.threads())},
       {"s", load_s},
       {"weights_mib", weights_mib},
       {"scratch_mib", scratch_mib}},
      fmt::format("{}, {}, {} threads; loaded in {:.2f} s; weights {:.1f} MiB, "
                  "scratch {:.1f} MiB",
                  spec->name, isa, executor.threads(), load_s, weights_mib, scratch_mib));

  Prng prng(1);
  const auto tokens = [&](std::size_t count) {
    std::vector<TokenId> out;
    for (std::size_t i = 0; i < count; ++i) {
      out.emplace_back(static_cast<int32_t>(prng.below(spec->vocab_size)));
    }
    return out;
  };
  const auto wanted = [&](const std::string& what) {
    return flags.only.empty() || what.find(flags.only) != std::string::npos;
  };
  const BatchDriver::Sink nowhere = [](std::size_t, uint32_t, std::span<const float>) {};

  for (const uint32_t length : {128U, 512U, 2048U}) {
    const std::string what = fmt::format("prefill {}", length);
    if (!wanted(what) || length > executor.limits().context_max) continue;
    std::vector<double> rates;
    for (uint32_t i = 0; i < flags.repeats; ++i) {
      BatchDriver driver(executor, 1);
      const std::size_t s = driver.add(tokens(length), length - 1);
      const TimeNs start = clock.now();
      driver.finish(s, executor.limits().step_tokens_max, nowhere);
      rates.push_back(length / seconds_since(start));
    }
    report(flags.json, what, rates);
  }
  for (const uint32_t context : {16U, 1024U, 4096U}) {
    const std::string what = fmt::format("decode at {}", context);
    constexpr uint32_t kTokens = 32;
    if (!wanted(what) || context + kTokens > executor.limits().context_max) continue;
    BatchDriver driver(executor, 1);
    const std::size_t s = driver.add(tokens(context + kTokens * flags.repeats), context);
    driver.step(std::vector<BatchDriver::Part>{{s, 1}}, nowhere);
    while (driver.done(s) < context) {
      const BatchDriver::Part part = {s, std::min(512U, context - driver.done(s))};
      driver.step({&part, 1}, nowhere);
    }
    std::vector<double> rates;
    for (uint32_t i = 0; i < flags.repeats; ++i) {
      const TimeNs start = clock.now();
      for (uint32_t t = 0; t < kTokens; ++t) {
        const BatchDriver::Part part = {s, 1};
        driver.step({&part, 1}, nowhere);
      }
      rates.push_back(kTokens / seconds_since(start));
    }
    report(flags.json, what, rates);
  }
  for (const uint32_t sequences : {4U, 8U, 32U}) {
    const std::string what = fmt::format("decode {} sequences at 128", sequences);
    if (!wanted(what)) continue;
    constexpr uint32_t kTokens = 8;
    BatchDriver driver(executor, 1);
    std::vector<BatchDriver::Part> parts;
    for (uint32_t i = 0; i < sequences; ++i) {
      parts.push_back({driver.add(tokens(128 + kTokens * flags.repeats), 128), 1});
      const BatchDriver::Part prompt = {i, 128};
      driver.step({&prompt, 1}, nowhere);
    }
    std::vector<double> rates;
    for (uint32_t i = 0; i < flags.repeats; ++i) {
      const TimeNs start = clock.now();
      for (uint32_t t = 0; t < kTokens; ++t) driver.step(parts, nowhere);
      rates.push_back(sequences * kTokens / seconds_since(start));
    }
    report(flags.json, what, rates);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Speed of the forward pass: decode, prefill, batch"};
  Flags flags;
  app.add_option("model", flags.model, "A GGUF file")->required();
  app.add_option("--threads", flags.threads, "0: one a core")->capture_default_str();
  app.add_option("--repeats", flags.repeats, "Runs of each row")->capture_default_str();
  app.add_option("--block-tokens", flags.block_tokens, "Positions of a KV block")
      ->capture_default_str();
  app.add_option("--only", flags.only, "Rows whose name has this in it");
  app.add_option("--isa", flags.isa, "Use this instruction set: AVX2, AVX3, AVX3_DL, EMU128");
  app.add_flag("--json", flags.json, "One JSON object a row");
  app.add_flag("--cpu-time", flags.cpu_time, "Processor time, not wall time; one thread only");
  CLI11_PARSE(app, argc, argv);
  if (flags.cpu_time) flags.threads = 1;
  return run(flags);
}
