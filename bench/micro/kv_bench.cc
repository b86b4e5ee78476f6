// SPDX-License-Identifier: Apache-2.0
// Two questions about KV management. What does it cost? Nanoseconds per decode step and per prompt
// token, which must vanish beside a step of the model. And what does the eviction policy keep? Hit
// rates of plain LRU and of the default policy, on a trace of requests in Mooncake's form (JSON
// lines with "hash_ids", each a run of tokens; one id is taken as one token, so blocks of the trace
// are blocks here) or on a synthetic mix of conversations, shared system prompts and a batch job.
//
//   pagewise_bench_kv [--trace FILE.jsonl] [--scan] [--only costs] [--json]
//   (--scan: a single-use prompt after every second request)
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/prng.h"
#include "kv/kv_cache.h"
#include "micro/rows.h"

namespace pagewise::bench {
namespace {

using Tokens = std::vector<TokenId>;
using Trace = std::vector<Tokens>;

bool print_json = false;

/// With a window, a sliding group beside the full one.
std::unique_ptr<kv::KvCache> make_cache(uint32_t blocks, uint32_t block_tokens,
                                        double protected_share, uint32_t window = 0) {
  kv::CacheConfig config;
  config.block_tokens = block_tokens;
  config.groups = {{blocks, 0}};
  if (window != 0) config.groups.push_back({blocks, window});
  config.protected_share = protected_share;
  return std::move(kv::KvCache::create(config)).value();
}

double now_ns() {
  return static_cast<double>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                 std::chrono::steady_clock::now().time_since_epoch())
                                 .count());
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Tokens random_tokens(Prng& prng, std::size_t count) {
  Tokens tokens;
  for (std::size_t i = 0; i < count; ++i)
    tokens.emplace_back(static_cast<int32_t>(prng.below(50000)));
  return tokens;
}

void costs(uint32_t window) {
  constexpr uint32_t kPrompt = 4096, kDecodes = 2000, kRuns = 21, kStep = 512;
  Prng prng(1);
  auto cache = make_cache(8192, 32, 0.25, window);
  kv::Orders orders;
  // A thousand conversations behind one system prompt, so that the tree has a wide place.
  const Tokens system = random_tokens(prng, 1000);
  Tokens tokens;
  const auto serve = [&](uint32_t decodes, std::vector<double>* admit_ns,
                         std::vector<double>* decode_ns) {
    kv::AdmitRequest request;
    request.tokens = tokens;
    request.cover_tokens = static_cast<uint32_t>(tokens.size());
    orders.clear();
    double begin = now_ns();
    const kv::Admitted admitted = cache->admit(request, orders).value();
    const auto size = static_cast<uint32_t>(tokens.size());
    for (uint32_t end = admitted.cached_tokens; end < size;) {
      end = std::min(size, end + kStep);
      if (!cache->ensure(admitted.seq, end, orders)) break;
      cache->publish(admitted.seq, std::span(tokens).first(end));
    }
    if (admit_ns) admit_ns->push_back((now_ns() - begin) / static_cast<double>(tokens.size()));
    begin = now_ns();
    for (uint32_t i = 0; i < decodes; ++i) {
      tokens.emplace_back(static_cast<int32_t>(i));
      orders.clear();
      if (!cache->ensure(admitted.seq, static_cast<uint32_t>(tokens.size()), orders)) break;
      cache->publish(admitted.seq, tokens);
    }
    if (decode_ns) decode_ns->push_back((now_ns() - begin) / decodes);
    cache->release(admitted.seq);
  };
  for (int i = 0; i < 1000; ++i) {
    const Tokens own = random_tokens(prng, 20);
    tokens = system;
    tokens.insert(tokens.end(), own.begin(), own.end());
    serve(0, nullptr, nullptr);
  }
  std::vector<double> cold, warm, decode;
  for (uint32_t run = 0; run < kRuns; ++run) {
    const Tokens own = random_tokens(prng, kPrompt - system.size());
    tokens = system;
    tokens.insert(tokens.end(), own.begin(), own.end());
    const Tokens prompt = tokens;
    serve(kDecodes, &cold, &decode);
    tokens = prompt;
    serve(0, &warm, nullptr);
  }
  if (!print_json) {
    std::printf("cost, medians of %u runs, pool of 8192 blocks of 32", kRuns);
    if (window != 0) std::printf(", a second group with a window of %u", window);
    std::printf("\n");
  }
  const auto print = [&](const std::string& what, const char* unit, std::vector<double>& times) {
    std::sort(times.begin(), times.end());
    print_row(print_json, "kv",
              {{"work", what},
               {"unit", unit},
               {"window", static_cast<double>(window)},
               {"ns", median(times)},
               {"ns_min", times.front()},
               {"ns_max", times.back()}},
              fmt::format("  {:<52} {:6.2f} {}", what, median(times), unit));
  };
  print(fmt::format("a prompt of {}, a quarter known", kPrompt), "ns a token", cold);
  print("the same prompt again", "ns a token", warm);
  print("one decode step of one sequence", "ns", decode);
}

/// Requests of 300 conversations over 20 system prompts (popular ones more often), most of them
/// short-lived, with a batch job of single-use prompts between them.
Trace synthetic_trace() {
  Prng prng(2);
  struct Conversation {
    Tokens tokens;
    uint64_t turns_left;
  };
  int32_t next = 0;
  const auto fresh = [&](std::size_t count) {
    Tokens tokens;
    for (std::size_t i = 0; i < count; ++i) tokens.emplace_back(next++);
    return tokens;
  };
  std::vector<Tokens> systems;
  for (int i = 0; i < 20; ++i) systems.push_back(fresh(10));
  std::vector<Conversation> open;
  Trace trace;
  while (trace.size() < 12000) {
    if (open.size() < 40) {
      const double popular = prng.uniform();
      const auto which = static_cast<std::size_t>(popular * popular * popular * 20);
      open.push_back({systems[which], 1 + prng.below(6)});
    }
    const std::size_t at = prng.below(open.size());
    Conversation& conversation = open[at];
    const Tokens turn = fresh(1 + prng.below(4));
    conversation.tokens.insert(conversation.tokens.end(), turn.begin(), turn.end());
    trace.push_back(conversation.tokens);
    if (--conversation.turns_left == 0) open.erase(open.begin() + static_cast<std::ptrdiff_t>(at));
    if (prng.below(3) == 0) trace.push_back(fresh(12));
  }
  return trace;
}

bool read_trace(const std::string& path, Trace& trace) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const Result<json::value> request = parse_json(line);
    const json::object* object = request ? request->if_object() : nullptr;
    const json::value* ids = object ? object->if_contains("hash_ids") : nullptr;
    if (!ids || !ids->is_array()) {
      std::fprintf(stderr, "%s: line %zu has no list hash_ids\n", path.c_str(), trace.size() + 1);
      return false;
    }
    Tokens tokens;
    for (const json::value& id : ids->get_array()) tokens.emplace_back(id.to_number<int32_t>());
    if (!tokens.empty()) trace.push_back(std::move(tokens));
  }
  if (trace.empty()) std::fprintf(stderr, "%s: no requests in it\n", path.c_str());
  return !trace.empty();
}

double hit_rate(const Trace& trace, bool scan, uint32_t blocks, double protected_share) {
  auto cache = make_cache(blocks, 1, protected_share);
  kv::Orders orders;
  uint64_t asked = 0, hit = 0;
  int32_t single_use = -2;
  const auto serve = [&](const Tokens& tokens) {
    kv::AdmitRequest request;
    request.tokens = tokens;
    request.cover_tokens = static_cast<uint32_t>(tokens.size());
    orders.clear();
    const Result<kv::Admitted> admitted = cache->admit(request, orders);
    if (!admitted) return uint64_t{0};
    cache->publish(admitted->seq, tokens);
    cache->release(admitted->seq);
    return uint64_t{admitted->cached_tokens};
  };
  for (std::size_t i = 0; i < trace.size(); ++i) {
    asked += trace[i].size();
    hit += serve(trace[i]);
    if (!scan || i % 2 == 0) continue;
    Tokens once;
    for (int block = 0; block < 20; ++block) once.emplace_back(single_use--);
    serve(once);
  }
  return 100.0 * static_cast<double>(hit) / static_cast<double>(asked);
}

void evictions(const Trace& trace, bool scan) {
  const double begin = kv::CacheConfig().protected_share;
  std::printf("hit rate in %% of blocks asked for\n%10s%12s%12s\n", "pool", "plain LRU", "default");
  for (const uint32_t blocks :
       {500U, 1000U, 1500U, 2000U, 2500U, 3000U, 4000U, 6000U, 8000U, 12000U, 16000U, 32000U}) {
    std::printf("%10u%12.2f%12.2f\n", blocks, hit_rate(trace, scan, blocks, 0),
                hit_rate(trace, scan, blocks, begin));
  }
}

int run(int argc, char** argv) {
  CLI::App app("KV management: cost, and what the eviction policy keeps");
  std::string path;
  bool scan = false;
  std::string only;
  app.add_option("--trace", path, "requests as JSON lines with hash_ids");
  app.add_flag("--scan", scan, "put a single-use prompt after every second request");
  app.add_option("--only", only, "costs or evictions")
      ->check(CLI::IsMember({"costs", "evictions"}));
  app.add_flag("--json", print_json, "one JSON object a measurement (of the costs)");
  CLI11_PARSE(app, argc, argv);
#ifndef NDEBUG
  std::fprintf(stderr, "this is a debug build: its figures mean nothing\n");
  return 1;
#endif
  if (only != "evictions") {
    costs(0);
    costs(512);
  }
  if (only == "costs") return 0;
  Trace trace;
  if (path.empty()) {
    trace = synthetic_trace();
  } else if (!read_trace(path, trace)) {
    return 1;
  }
  evictions(trace, scan);
  return 0;
}

}  // namespace
}  // namespace pagewise::bench

int main(int argc, char** argv) { return pagewise::bench::run(argc, argv); }
