// SPDX-License-Identifier: Apache-2.0
// Kernels beside the limits of the machine they ran on. Shapes are SmolLM2-135M's: all layers'
// weights pass in every measurement, so decode reads them from memory as in a real step.
//
//   pagewise_bench_kernels [--threads 1,2] [--only linear,attention] [--types Q4_1,Q4_K]
//   [--kv-type q8_0] [--isa AVX2] [--seconds 0.25] [--json]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <span>
#include <string>
#include <vector>

#include "base/prng.h"
#include "kernels/attention/attention.h"
#include "kernels/half.h"
#include "kernels/isa.h"
#include "kernels/linear/linear.h"
#include "kernels/ops.h"
#include "kernels/thread_pool.h"
#include "micro/machine_limits.h"
#include "micro/rows.h"

namespace pagewise::bench {
namespace {

using kernels::Activations;
using kernels::AlignedArray;
using kernels::LinearWeights;
using kernels::PagedRun;
using kernels::Range;
using kernels::ThreadPool;

// On a busy machine the processor time of one thread is a steadier measure than the time on the
// wall.
bool use_cpu_time = false;

bool print_json = false;

// Of the caches that attention reads.
KvType kv_type = KvType::kF16;

double now_seconds() {
  if (use_cpu_time) {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Times {
  double median;
  double best;
  double worst;
};

// Repeats `body` for about `seconds`, at least five times.
template <typename Body>
Times measure(double seconds, Body&& body) {
  body();
  std::vector<double> times;
  const double end = now_seconds() + seconds;
  while (times.size() < 5 || (now_seconds() < end && times.size() < 10'000)) {
    const double start = now_seconds();
    body();
    times.push_back(now_seconds() - start);
  }
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front(), times.back()};
}

struct Limits {
  double read_gbs = 0;
  double fma_gflops = 0;
  double int_gops = 0;
};

Limits measure_limits(ThreadPool& pool, double seconds) {
  static const AlignedArray<uint8_t> buffer(std::size_t{256} << 20);
  Limits limits;
  std::vector<uint64_t> sums(pool.threads() * 8);
  const Times read = measure(seconds, [&] {
    pool.run([&](const ThreadPool::Context& context) {
      const Range mine = context.share(buffer.size() / 4096);
      sums[context.index() * 8] += read_all(buffer.data() + mine.begin * 4096, mine.size() * 4096);
    });
  });
  limits.read_gbs = static_cast<double>(buffer.size()) / read.median / 1e9;
  constexpr std::size_t kRounds = 1'000'000;
  double operations = 0;
  const auto run = [&](double (*loop)(std::size_t)) {
    pool.run([&](const ThreadPool::Context& context) {
      const double done = loop(kRounds);
      if (context.index() == 0) operations = done * static_cast<double>(context.threads());
    });
  };
  const Times fma = measure(seconds, [&] { run(fma_loop); });
  limits.fma_gflops = operations / fma.median / 1e9;
  const Times dot = measure(seconds, [&] { run(int_dot_loop); });
  limits.int_gops = operations / dot.median / 1e9;
  const double read_low = static_cast<double>(buffer.size()) / read.worst / 1e9;
  const double read_high = static_cast<double>(buffer.size()) / read.best / 1e9;
  const double fma_low = limits.fma_gflops * fma.median / fma.worst;
  const double fma_high = limits.fma_gflops * fma.median / fma.best;
  print_row(print_json, "limits",
            {{"isa", std::string(kernels::isa_name())},
             {"threads", static_cast<double>(pool.threads())},
             {"read_gb_per_s", limits.read_gbs},
             {"read_gb_per_s_min", read_low},
             {"read_gb_per_s_max", read_high},
             {"fma_gflop_per_s", limits.fma_gflops},
             {"fma_gflop_per_s_min", fma_low},
             {"fma_gflop_per_s_max", fma_high},
             {"dot_gop_per_s", limits.int_gops},
             {"dot_gop_per_s_min", limits.int_gops * dot.median / dot.worst},
             {"dot_gop_per_s_max", limits.int_gops * dot.median / dot.best}},
            fmt::format("threads {}: read {:.1f} GB/s [{:.1f}..{:.1f}], f32 FMA {:.0f} GFLOP/s "
                        "[{:.0f}..{:.0f}], integer dot {:.0f} GOP/s",
                        pool.threads(), limits.read_gbs, read_low, read_high, limits.fma_gflops,
                        fma_low, fma_high, limits.int_gops));
  return limits;
}

struct Shape {
  std::size_t outputs;
  std::size_t columns;
};

// The matrices of one layer: q, k and v, output, gate, up and down.
constexpr Shape kLayer[] = {{576, 576},  {192, 576},  {192, 576}, {576, 576},
                            {1536, 576}, {1536, 576}, {576, 1536}};
// The same for types whose blocks of 256 do not divide 576.
constexpr Shape kLayerOf256[] = {{512, 512},  {256, 512},  {256, 512}, {512, 512},
                                 {1536, 512}, {1536, 512}, {512, 1536}};

LinearWeights random_weights(Prng& prng, TensorType type, Shape shape, std::vector<std::byte>& data,
                             kernels::WeightArena& arena) {
  data.resize(shape.outputs * kernels::row_bytes(type, shape.columns));
  const TensorTypeInfo& info = *tensor_type_info(type);
  // Plain values: random bits would be infinities, and denormals, which are slow.
  if (info.block_elements == 1) {
    for (std::size_t at = 0; at < data.size(); at += info.block_bytes) {
      const auto value = static_cast<float>(prng.uniform() - 0.5);
      uint32_t bits = 0;
      std::memcpy(&bits, &value, 4);
      if (type == TensorType::kF16) bits = kernels::float_to_half(value);
      if (type == TensorType::kBF16) bits >>= 16;
      std::memcpy(data.data() + at, &bits, info.block_bytes);
    }
    return LinearWeights::pack(type, shape.outputs, shape.columns, data, &arena).value();
  }
  for (std::size_t i = 0; i + 8 <= data.size(); i += 8) {
    const uint64_t bits = prng.next();
    std::memcpy(data.data() + i, &bits, 8);
  }
  // Scales: any finite value; a NaN costs the same but would be unfair to look at.
  const std::size_t block = info.block_bytes;
  const uint16_t scale = kernels::float_to_half(0.01f);
  for (std::size_t at = 0; at + 4 <= data.size(); at += block) {
    const bool minimum = type == TensorType::kQ4_1 || type == TensorType::kQ5_1 ||
                         type == TensorType::kQ4_K || type == TensorType::kQ5_K;
    std::memcpy(data.data() + at + (type == TensorType::kQ6_K ? block - 2 : 0), &scale, 2);
    std::memcpy(data.data() + at + 2, &scale, minimum ? 2 : 0);
  }
  return LinearWeights::pack(type, shape.outputs, shape.columns, data, &arena).value();
}

void bench_linear(ThreadPool& pool, const Limits& limits, TensorType type, double seconds) {
  // Types that are decoded to f32 take so long that fewer layers say as much.
  const std::size_t layers = kernels::linear_packs(type) ? 30 : 4;
  Prng prng(1);
  const std::span<const Shape> shapes =
      tensor_type_info(type)->block_elements == 256 ? std::span<const Shape>(kLayerOf256) : kLayer;
  const std::size_t width = shapes[0].columns;
  kernels::WeightArena arena;  // where a model's weights stand, too
  std::vector<LinearWeights> weights;
  std::vector<std::vector<std::byte>> raw;
  double bytes = 0;
  double values = 0;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    for (const Shape shape : shapes) {
      raw.emplace_back();
      weights.push_back(random_weights(prng, type, shape, raw.back(), arena));
      bytes += static_cast<double>(weights.back().bytes());
      values += static_cast<double>(shape.outputs * shape.columns);
    }
  }
  constexpr std::size_t kRowsMax = 512;
  Activations narrow(kRowsMax, width);
  Activations wide(kRowsMax, 1536);
  AlignedArray<float> out(kRowsMax * 1536);
  for (Activations* x : {&narrow, &wide}) {
    for (std::size_t r = 0; r < kRowsMax; ++r) {
      for (std::size_t k = 0; k < x->columns(); ++k)
        x->row(r)[k] = static_cast<float>(prng.uniform() - 0.5);
      x->quantize(r);
    }
  }
  const bool integer = weights[0].family() == kernels::LinearFamily::kInteger;
  const double compute = integer ? limits.int_gops : limits.fma_gflops;
  for (const std::size_t rows : {1, 2, 4, 8, 32, 512}) {
    const Times times = measure(seconds, [&] {
      pool.run([&](const ThreadPool::Context& context) {
        for (const LinearWeights& w : weights) {
          const Activations& x = w.columns() == width ? narrow : wide;
          kernels::linear(w, x, {0, rows}, context.share(w.panels()), out.data(), w.outputs());
        }
        context.barrier();
      });
    });
    const double gbs = bytes / times.median / 1e9;
    const double gflops = 2 * values * static_cast<double>(rows) / times.median / 1e9;
    const double of_read = 100 * gbs / limits.read_gbs;
    const double of_compute = 100 * gflops / compute;
    const std::string name(tensor_type_info(type)->name);
    const char* unit = integer ? "integer dot" : "FMA";
    print_row(
        print_json, "linear",
        {{"type", name},
         {"threads", static_cast<double>(pool.threads())},
         {"rows", static_cast<double>(rows)},
         {"layers", static_cast<double>(layers)},
         {"ms", times.median * 1e3},
         {"ms_min", times.best * 1e3},
         {"ms_max", times.worst * 1e3},
         {"gb_per_s", gbs},
         {"percent_of_read", of_read},
         {"gflop_per_s", gflops},
         {"percent_of_compute", of_compute},
         {"compute", unit}},
        fmt::format("linear {:<6} threads {} rows {:3}: {:8.3f} ms [{:.3f}..{:.3f}] {:6.1f} GB/s "
                    "({:3.0f} % of read) {:7.1f} GFLOP/s ({:3.0f} % of {})",
                    name, pool.threads(), rows, times.median * 1e3, times.best * 1e3,
                    times.worst * 1e3, gbs, of_read, gflops, of_compute, unit));
  }
}

// Attention of SmolLM2: 9 query heads, 3 KV heads, 64 channels, f16, blocks of 32, 30 layers.
void bench_attention(ThreadPool& pool, const Limits& limits, const char* name, uint32_t sequences,
                     uint32_t rows, uint32_t context, uint32_t shared, double seconds) {
  constexpr uint32_t kLayers = 30;
  kernels::AttentionShape shape;
  shape.heads = 9;
  shape.kv_heads = 3;
  shape.key_dim = 64;
  shape.value_dim = 64;
  shape.block_tokens = 32;
  shape.scale = 0.125f;
  const uint32_t blocks_each = (context + 31) / 32;
  const uint32_t blocks_shared = shared / 32;
  std::vector<std::vector<BlockId>> tables(sequences);
  uint32_t next = blocks_shared;
  for (auto& table : tables) {
    for (uint32_t i = 0; i < blocks_shared; ++i) table.push_back(BlockId(i));
    while (table.size() < blocks_each) table.push_back(BlockId(next++));
  }
  kernels::PagedLayer layer;
  layer.block_tokens = 32;
  layer.kv_heads = 3;
  layer.key_dim = layer.value_dim = 64;
  layer.key_type = layer.value_type = kv_type;
  layer.value_offset = 32 * kv_row_bytes(kv_type, 64);
  layer.head_stride = 2 * layer.value_offset;
  const std::size_t layer_stride = 3 * layer.head_stride;
  layer.block_stride = kLayers * layer_stride;
  AlignedArray<uint16_t> arena(layer.block_stride * next / 2);
  Prng prng(2);
  for (std::size_t i = 0; i < arena.size(); ++i)
    arena[i] = static_cast<uint16_t>(0x3000 + (prng.next() & 0x8bff));
  const uint32_t total_rows = sequences * rows;
  AlignedArray<float> q(std::size_t{total_rows} * 576);
  AlignedArray<float> out(std::size_t{total_rows} * 576);
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = static_cast<float>(prng.uniform() - 0.5);
  std::vector<PagedRun> runs;
  for (uint32_t i = 0; i < sequences; ++i)
    runs.push_back({i * rows, rows, context - rows, tables[i]});
  kernels::AttentionPlan plan(
      shape, {total_rows, sequences, context, static_cast<uint32_t>(pool.threads())});
  const Times times = measure(seconds, [&] {
    plan.build(runs);
    pool.run([&](const ThreadPool::Context& ctx) {
      for (uint32_t l = 0; l < kLayers; ++l) {
        kernels::PagedLayer here = layer;
        here.base = reinterpret_cast<std::byte*>(arena.data()) + l * layer_stride;
        kernels::attention(plan, here, q.data(), 576, out.data(), 576, ctx);
        ctx.barrier();
      }
    });
  });
  const double products =
      static_cast<double>(sequences) * rows * (context - (rows - 1) / 2.0) * 9 * 64 * 2 * kLayers;
  const double bytes = static_cast<double>(layer_stride) * kLayers * next;
  const double gbs = bytes / times.median / 1e9;
  const double gflops = 2 * products / times.median / 1e9;
  print_row(print_json, "attention",
            {{"kind", name},
             {"threads", static_cast<double>(pool.threads())},
             {"kv_type", std::string(kv_type_name(kv_type))},
             {"sequences", static_cast<double>(sequences)},
             {"rows", static_cast<double>(rows)},
             {"context", static_cast<double>(context)},
             {"shared", static_cast<double>(shared)},
             {"ms", times.median * 1e3},
             {"ms_min", times.best * 1e3},
             {"ms_max", times.worst * 1e3},
             {"gb_per_s", gbs},
             {"percent_of_read", 100 * gbs / limits.read_gbs},
             {"gflop_per_s", gflops},
             {"percent_of_compute", 100 * gflops / limits.fma_gflops}},
            fmt::format("attention {:<7} threads {} sequences {:2} x {:3} rows, context {:4} ({} "
                        "shared): {:8.3f} ms [{:.3f}..{:.3f}] {:6.1f} GB/s ({:3.0f} % of read) "
                        "{:6.1f} GFLOP/s ({:3.0f} % of FMA)",
                        name, pool.threads(), sequences, rows, context, shared, times.median * 1e3,
                        times.best * 1e3, times.worst * 1e3, gbs, 100 * gbs / limits.read_gbs,
                        gflops, 100 * gflops / limits.fma_gflops));
}

/// The type of that name; kF32's number names no other, so a name that is none ends the program.
TensorType tensor_type_of(const std::string& name) {
  for (uint32_t number = 0; number < 64; ++number) {
    const auto type = static_cast<TensorType>(number);
    const TensorTypeInfo* info = tensor_type_info(type);
    if (info != nullptr && info->name == name) return type;
  }
  std::fprintf(stderr, "--types %s: no such tensor type\n", name.c_str());
  std::exit(2);
}

int run(int argc, char** argv) {
  CLI::App app{"Kernels beside the limits of this machine"};
  std::vector<std::size_t> threads = {1, 2};
  std::vector<std::string> only = {"linear", "attention"};
  std::vector<std::string> types = {"Q4_1", "Q8_0",   "Q5_0",  "Q4_K", "Q6_K", "Q4_0",
                                    "Q5_K", "IQ4_NL", "MXFP4", "F16",  "BF16"};
  std::string isa;
  double seconds = 0.25;
  app.add_option("--threads", threads, "Thread counts")->delimiter(',');
  app.add_option("--only", only, "linear, attention, decode, prefill, limits (which come always)")
      ->delimiter(',');
  app.add_option("--types", types, "Tensor types of linear")->delimiter(',');
  app.add_option("--isa", isa, "Use this instruction set: AVX2, AVX3, AVX3_DL, EMU128");
  app.add_option("--seconds", seconds, "Time for each measurement");
  std::string kv_type_text = "f16";
  app.add_option("--kv-type", kv_type_text, "Type of the caches that attention reads")
      ->check(CLI::IsMember({"f16", "bf16", "f32", "q8_0"}));
  app.add_flag("--json", print_json, "One JSON object a measurement");
  app.add_flag("--cpu-time", use_cpu_time,
               "Measure processor time, not wall time; needs --threads 1");
  CLI11_PARSE(app, argc, argv);
  kv_type = parse_kv_type(kv_type_text).value_or(KvType::kF16);
#ifndef NDEBUG
  std::fprintf(stderr, "this is not an optimised build: configure with --preset release\n");
  return 1;
#endif
  if (use_cpu_time && threads != std::vector<std::size_t>{1}) {
    std::fprintf(stderr, "--cpu-time sees one thread only: add --threads 1\n");
    return 1;
  }
  if (!isa.empty() && !kernels::use_isa(isa)) {
    std::fprintf(stderr, "--isa %s: not on this machine\n", isa.c_str());
    return 1;
  }
  const auto wanted = [&](const char* what) {
    return std::find(only.begin(), only.end(), what) != only.end();
  };
  setvbuf(stdout, nullptr, _IOLBF, 0);  // each line as it is measured, also into a pipe
  if (!print_json) std::printf("isa %s\n", std::string(kernels::isa_name()).c_str());
  for (const std::size_t count : threads) {
    if (count == 0) continue;
    ThreadPool pool(count);
    const Limits limits = measure_limits(pool, seconds);
    if (wanted("linear")) {
      for (const std::string& name : types) {
        bench_linear(pool, limits, tensor_type_of(name), seconds);
      }
    }
    if (wanted("decode") || wanted("attention")) {
      for (const uint32_t context : {128u, 512u, 1024u, 2048u, 4096u, 8192u}) {
        bench_attention(pool, limits, "decode", 1, 1, context, 0, seconds);
      }
      bench_attention(pool, limits, "decode", 32, 1, 160, 0, seconds);
      bench_attention(pool, limits, "shared", 8, 1, 4128, 4096, seconds);
      bench_attention(pool, limits, "shared", 32, 1, 4128, 4096, seconds);
      bench_attention(pool, limits, "prefix", 1, 16, 4112, 0, seconds);
    }
    if (wanted("prefill") || wanted("attention")) {
      for (const uint32_t context : {128u, 512u, 1024u, 2048u, 4096u, 8192u}) {
        bench_attention(pool, limits, "prefill", 1, std::min(context, 512u), context, 0, seconds);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace pagewise::bench

int main(int argc, char** argv) { return pagewise::bench::run(argc, argv); }
