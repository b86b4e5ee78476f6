// SPDX-License-Identifier: Apache-2.0
// What one sampled token costs, in microseconds, by what the request asks: each figure is the
// median over single calls, taken in turn so that whatever else the machine does falls on all
// alike. Logits are near normal, as a model's are; the history is a prompt of 2,000 tokens and an
// answer of 500.
//
//   pagewise_bench_sampling [--vocabulary 49152] [--rounds 2000] [--json]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/prng.h"
#include "micro/rows.h"
#include "sampling/sampler.h"

namespace pagewise::bench {
namespace {

double now_us() {
  return static_cast<double>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                 std::chrono::steady_clock::now().time_since_epoch())
                                 .count()) *
         1e-3;
}

struct Row {
  std::string name;
  sampling::Params params;
  std::vector<double> us = {};
};

std::vector<Row> rows() {
  std::vector<Row> out;
  const auto add = [&](const char* name, auto change) {
    sampling::Params params;
    change(params);
    out.push_back({name, params});
  };
  add("greedy", [](auto& p) { p.temperature = 0; });
  add("sampled", [](auto&) {});
  add("top-k 40", [](auto& p) { p.top_k = 40; });
  add("greedy, logprobs 5", [](auto& p) { p.temperature = 0, p.logprobs = 5; });
  add("greedy, one bias", [](auto& p) {
    p.temperature = 0;
    p.logit_bias = {{TokenId(7), 1}};
  });
  add("greedy, frequency and presence",
      [](auto& p) { p.temperature = 0, p.frequency_penalty = 0.5F, p.presence_penalty = 0.5F; });
  add("greedy, repetition", [](auto& p) { p.temperature = 0, p.repetition_penalty = 1.1F; });
  add("greedy, all of them", [](auto& p) {
    p.temperature = 0, p.frequency_penalty = 0.5F, p.presence_penalty = 0.5F;
    p.repetition_penalty = 1.1F;
    p.logit_bias = {{TokenId(7), 1}};
  });
  return out;
}

int run(uint32_t vocabulary, int rounds, bool json) {
  Prng prng(1);
  std::vector<float> logits(vocabulary);
  for (float& logit : logits) {
    float sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<float>(prng.uniform()) - 0.5F;
    logit = sum * 6;
  }
  const auto tokens = [&](std::size_t count) {
    std::vector<TokenId> out;
    for (std::size_t i = 0; i < count; ++i) {
      out.emplace_back(static_cast<int32_t>(prng.below(vocabulary)));
    }
    return out;
  };
  const std::vector<TokenId> prompt = tokens(2000), answer = tokens(500);
  sampling::Sampler sampler(vocabulary);
  sampling::Sampled out;
  std::vector<Row> table = rows();
  for (int round = 0; round < rounds; ++round) {
    for (Row& row : table) {
      const double begin = now_us();
      if (!sampler.sample(logits, row.params, {prompt, answer}, 0, static_cast<uint64_t>(round),
                          out)) {
        std::abort();
      }
      row.us.push_back(now_us() - begin);
    }
  }
  if (!json) std::printf("vocabulary of %u, %d rounds\n", vocabulary, rounds);
  for (Row& row : table) {
    std::sort(row.us.begin(), row.us.end());
    const double median = row.us[row.us.size() / 2];
    const double tenth = row.us[row.us.size() / 10];
    const double ninetieth = row.us[row.us.size() * 9 / 10];
    print_row(json, "sampling",
              {{"asked", row.name},
               {"vocabulary", static_cast<double>(vocabulary)},
               {"us", median},
               {"us_tenth", tenth},
               {"us_ninetieth", ninetieth}},
              fmt::format("  {:<32} {:8.1f} us  (tenth {:.1f}, ninetieth {:.1f})", row.name, median,
                          tenth, ninetieth));
  }
  return 0;
}

}  // namespace
}  // namespace pagewise::bench

int main(int argc, char** argv) {
  CLI::App app{"What a sampled token costs"};
  uint32_t vocabulary = 49'152;
  int rounds = 2'000;
  app.add_option("--vocabulary", vocabulary)->check(CLI::Range(1'000, 1'000'000));
  app.add_option("--rounds", rounds)->check(CLI::Range(10, 1'000'000));
  bool json = false;
  app.add_flag("--json", json, "One JSON object a measurement");
  CLI11_PARSE(app, argc, argv);
  return pagewise::bench::run(vocabulary, rounds, json);
}
