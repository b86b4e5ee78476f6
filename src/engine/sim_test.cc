// SPDX-License-Identifier: Apache-2.0
// The whole engine under random load, deterministic to the last bit.
//
// A seed makes a machine (pool, block size, limits), a crowd of requests (shared prefixes, several
// choices, stop strings, markers, namespaces, every kind of sampling) and a course of events
// (arrivals, cancellations, failing steps, time). After every step all invariants are proved; at
// the end every request has ended, nothing is live, and every answer equals that of the same
// request alone on an engine without a cache.
//
//   PAGEWISE_SIM_SEED=n    replays one seed
//   PAGEWISE_SIM_COUNT=n   runs n seeds instead of the default
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "base/bytes.h"
#include "engine/test_support.h"

namespace pagewise::engine {
namespace {

struct Scenario {
  FakeExecutorOptions executor;
  Options options;
  std::vector<Request> requests;
  double cancel_share = 0;
  double failure_share = 0;   // of steps
  uint32_t arrivals_max = 4;  // a step
};

uint32_t pick(Prng& prng, std::initializer_list<uint32_t> values) {
  return *(values.begin() + prng.below(values.size()));
}

/// The layer groups: one that sees everything, two, or some behind windows, each with its own pool.
void draw_groups(Prng& prng, FakeExecutorOptions& executor) {
  const auto window = [&] {
    const uint32_t most = prng.below(4) == 0 ? 300 : 3 * std::min(executor.block_tokens, 20U) + 2;
    return 2 + static_cast<uint32_t>(prng.below(most));
  };
  switch (prng.below(8)) {
    case 0:
      executor.windows = {0, 0};
      return;
    case 1:
      executor.windows = {0, window()};
      break;
    case 2:
      executor.windows = {window(), 0};
      break;
    case 3:
      executor.windows = {0, window(), window()};
      break;
    case 4:
      executor.windows = {window()};
      break;
    default:
      return;
  }
  for (std::size_t g = 0; g < executor.windows.size(); ++g) {
    executor.group_blocks.push_back(4 + static_cast<uint32_t>(prng.below(executor.blocks)));
  }
}

/// Every kind of sampling that a request may ask for.
void draw_sampling(Prng& prng, uint32_t vocab_size, Request& request) {
  sampling::Params& params = request.sampling;
  params.temperature = prng.below(2) ? 0.0F : 1.0F;
  params.top_k = prng.below(3) ? 0 : 1 + static_cast<uint32_t>(prng.below(20));
  params.top_p = prng.below(3) ? 1.0F : 0.9F;
  params.seed = prng.below(5);
  params.logprobs = static_cast<int32_t>(prng.below(4)) - 1;
  const auto penalty = [&] { return static_cast<float>(prng.uniform() * 4 - 2); };
  if (prng.below(4) == 0) params.frequency_penalty = penalty();
  if (prng.below(4) == 0) params.presence_penalty = penalty();
  if (prng.below(4) == 0) params.repetition_penalty = 0.5F + static_cast<float>(prng.uniform());
  if (prng.below(4) == 0) {
    for (uint32_t id = 0; id < vocab_size; id += 1 + static_cast<uint32_t>(prng.below(20))) {
      params.logit_bias.push_back({TokenId(static_cast<int32_t>(id)), penalty() * 2});
    }
  }
  if (prng.below(6) == 0) request.prompt_logprobs = static_cast<int32_t>(prng.below(3));
}

/// What the pools hold of one sequence.
uint64_t pool_tokens_of(const FakeExecutorOptions& executor) {
  uint64_t tokens = 1U << 20;
  for (std::size_t g = 0; g < executor.windows.size(); ++g) {
    const uint32_t blocks =
        executor.group_blocks.empty() ? executor.blocks : executor.group_blocks[g];
    if (executor.windows[g] == 0 ||
        blocks < ceil_div(executor.windows[g], executor.block_tokens) + 1) {
      tokens = std::min(tokens, uint64_t{blocks} * executor.block_tokens);
    }
  }
  return tokens;
}

Scenario make_scenario(Prng& prng) {
  Scenario scenario;
  scenario.executor.block_tokens = pick(prng, {1, 2, 3, 4, 7, 8, 16, 16, 32, 64, 256});
  // Pools from a few blocks, where everybody is preempted, to plenty; small enough to stay quick.
  const uint32_t tokens = 1U << (5 + prng.below(7));
  scenario.executor.blocks = std::clamp(tokens / scenario.executor.block_tokens, 8U, 512U);
  draw_groups(prng, scenario.executor);
  scenario.executor.vocab_size = pick(prng, {12, 64, 64, 200});
  scenario.executor.step_tokens_max = pick(prng, {8, 64, 512});
  scenario.executor.step_runs_max = pick(prng, {1, 4, 64, 256});
  if (prng.below(3) == 0)
    scenario.executor.context_max = 8 + static_cast<uint32_t>(prng.below(300));
  scenario.options.step_tokens = pick(prng, {1, 3, 16, 64, 512});
  scenario.options.seqs_max = pick(prng, {1, 2, 5, 16, 64});
  scenario.options.prefix_cache = prng.below(8) != 0;
  scenario.options.shuffle_blocks = prng.below(2) == 0;
  scenario.options.shuffle_seed = prng.next();
  scenario.options.lease_share = prng.uniform();
  scenario.options.lease_5m_ns = 1 + static_cast<TimeNs>(prng.below(5'000'000'000));
  scenario.options.lease_1h_ns = scenario.options.lease_5m_ns * 12;
  scenario.options.idle_release_ns = 1 + static_cast<TimeNs>(prng.below(100'000'000));
  scenario.options.cache_tokens_min = prng.below(2) ? 0 : 1 + static_cast<uint32_t>(prng.below(40));
  // Swarm: a kind of event is often absent altogether.
  if (prng.below(2) == 0) scenario.cancel_share = prng.uniform() * 0.5;
  if (prng.below(4) == 0) scenario.failure_share = prng.uniform() * 0.05;
  scenario.arrivals_max = pick(prng, {1, 2, 8, 64});

  const uint64_t pool_tokens = pool_tokens_of(scenario.executor);
  if (pool_tokens > 4096)  // only windows: what ends an answer is the context
    scenario.executor.context_max = std::min(scenario.executor.context_max, 500U);
  const uint64_t context = std::min<uint64_t>({pool_tokens, scenario.executor.context_max, 220});
  std::vector<std::vector<TokenId>> prefixes;
  for (uint64_t i = 0, count = 1 + prng.below(4); i < count; ++i) {
    std::vector<TokenId> base;
    if (!prefixes.empty() && prng.below(2)) {  // a tree of prefixes
      base = prefixes[prng.below(prefixes.size())];
      base.resize(prng.below(base.size() + 1));
    }
    for (const TokenId token :
         random_tokens(prng, 1 + prng.below(context), scenario.executor.vocab_size)) {
      base.push_back(token);
    }
    prefixes.push_back(base);
  }
  const bool with_choices = prng.below(3) == 0;
  const bool with_stops = prng.below(2) == 0;
  const bool with_markers = prng.below(2) == 0;
  const auto stride = 1 + static_cast<uint32_t>(prng.below(60));
  const uint64_t count = 2 + prng.below(prng.below(4) == 0 ? 63 : 15);
  for (uint64_t i = 0; i < count; ++i) {
    Request request;
    if (prng.below(5) != 0) {
      request.prompt = prefixes[prng.below(prefixes.size())];
      if (prng.below(3) == 0) request.prompt.resize(prng.below(request.prompt.size() + 1));
    }
    for (const TokenId token :
         random_tokens(prng, prng.below(1 + context / 4), scenario.executor.vocab_size)) {
      request.prompt.push_back(token);
    }
    if (request.prompt.empty()) request.prompt.push_back(TokenId(3));
    if (request.prompt.size() >= context) request.prompt.resize(1 + prng.below(context - 1));
    const uint64_t served = std::min<uint64_t>(pool_tokens, scenario.executor.context_max);
    if (served <= 600 && prng.below(12) == 0) {  // one short of what can be served at all
      const std::size_t own = std::min<std::size_t>(request.prompt.size(), served - 1);
      request.prompt.resize(own);
      for (const TokenId token :
           random_tokens(prng, served - 1 - own, scenario.executor.vocab_size)) {
        request.prompt.push_back(token);
      }
    }
    request.max_tokens = prng.below(10) == 0 ? ~uint64_t{0} : prng.below(40);
    if (with_choices && prng.below(2)) {
      request.choices =
          1 + static_cast<uint32_t>(prng.below(std::min(scenario.options.seqs_max, 6U)));
    }
    draw_sampling(prng, scenario.executor.vocab_size, request);
    request.ignore_eos = prng.below(2) == 0;
    request.want_control_text = prng.below(4) == 0;
    if (with_stops && prng.below(2)) {
      for (uint64_t s = 0, stops = 1 + prng.below(3); s < stops; ++s) {
        std::string stop;
        for (uint64_t c = 0, length = 1 + prng.below(3); c < length; ++c) {
          stop.push_back(static_cast<char>('a' + prng.below(26)));
        }
        request.stops.push_back(stop);
      }
    }
    request.cache.use_cache = prng.below(8) != 0;
    request.cache.cache_namespace = prng.below(4) ? "" : "other";
    if (with_markers && prng.below(4)) {
      // Mostly at the same places, as the blocks of a growing conversation are.
      for (uint32_t at = stride; at <= request.prompt.size(); at += stride) {
        const bool moved = prng.below(16) == 0;
        request.cache.positions.push_back(
            {at - (moved ? static_cast<uint32_t>(prng.below(stride)) : 0)});
      }
      const auto positions = static_cast<uint32_t>(request.cache.positions.size());
      LeaseClass lease = LeaseClass::k1h;
      for (uint32_t p = 0; p < positions && request.cache.markers.size() < 4; ++p) {
        if (prng.below(3)) continue;
        if (prng.below(2)) lease = LeaseClass::k5m;
        request.cache.markers.push_back({p, lease});
      }
    }
    scenario.requests.push_back(std::move(request));
  }
  return scenario;
}

/// The oracle: the request on its own, on the same machine without a cache.
std::shared_ptr<Recorder> alone(const Scenario& scenario, const Request& request) {
  Options options = scenario.options;
  options.prefix_cache = false;
  options.shuffle_blocks = false;
  options.step_tokens = 512;
  FakeExecutorOptions executor = scenario.executor;
  executor.step_tokens_max = 4096;
  executor.step_runs_max = 256;
  return Bench(executor, options).serve(request);
}

void check_admission(const Request& request, const Admission& admission) {
  const auto prompt = static_cast<uint32_t>(request.prompt.size());
  EXPECT_EQ(admission.prompt_tokens, prompt);
  EXPECT_LT(admission.cached_tokens, prompt);
  EXPECT_EQ(admission.input_tokens + admission.cache_read_tokens +
                admission.cache_created_5m_tokens + admission.cache_created_1h_tokens,
            prompt);
  if (!request.cache.use_cache || request.prompt_logprobs >= 0) {
    EXPECT_EQ(admission.cached_tokens, 0U);
  }
  if (request.cache.markers.empty() || request.prompt_logprobs >= 0) {
    EXPECT_EQ(admission.input_tokens, prompt);
  }
  EXPECT_LE(admission.blocks_shared, admission.blocks);
}

uint32_t common_prefix(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
  const std::size_t most = std::min(a.size(), b.size());
  return static_cast<uint32_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(most), b.begin()).first -
      a.begin());
}

/// What a request says it read must have been there: computed, or marked, by another request of its
/// namespace that uses the cache.
void check_reads(const std::vector<Request>& requests,
                 const std::vector<std::shared_ptr<Recorder>>& answers, std::size_t i) {
  const Request& request = requests[i];
  const Admission& admission = *answers[i]->admission;
  uint32_t readable = 0;
  bool marked = admission.cache_read_tokens == 0;
  for (std::size_t j = 0; j < answers.size(); ++j) {
    const CacheOptions& other = requests[j].cache;
    if (j == i || !other.use_cache || other.cache_namespace != request.cache.cache_namespace)
      continue;
    for (const ChoiceRecord& choice : answers[j]->choices) {
      std::vector<TokenId> computed = requests[j].prompt;
      computed.insert(computed.end(), choice.tokens.begin(), choice.tokens.end());
      readable = std::max(readable, common_prefix(request.prompt, computed));
    }
    const uint32_t common = common_prefix(request.prompt, requests[j].prompt);
    for (const CacheMarker& marker : other.markers) {
      const uint32_t tokens = other.positions[marker.position].tokens;
      marked |= tokens == admission.cache_read_tokens && tokens <= common;
    }
  }
  // Tokens behind a stop string were computed, too, but not delivered.
  const bool stops = std::any_of(requests.begin(), requests.end(),
                                 [](const Request& r) { return !r.stops.empty(); });
  if (!stops) {
    EXPECT_LE(admission.cached_tokens, readable) << "request " << i;
  }
  EXPECT_TRUE(marked) << "request " << i << " reads a prefix that nobody marked";
}

struct Totals {
  uint64_t requests = 0, steps = 0, hit_tokens = 0, preemptions = 0, cancelled = 0, failed = 0;
  uint64_t copies = 0, evictions = 0, broken = 0, reads = 0;
  uint64_t window_hits = 0, window_preemptions = 0;
  uint64_t scored_tokens = 0;
};

void run_seed(uint64_t seed, Totals& totals) {
  Prng prng(mix64(seed));
  const Scenario scenario = make_scenario(prng);
  // Steps take time, so that chunks are cut by time as well; how long is part of the seed.
  SimClock* clock = nullptr;
  FakeExecutorOptions executor = scenario.executor;
  const auto token_ns = static_cast<TimeNs>(1 + prng.below(8'000'000));
  executor.on_step = [&clock, token_ns](std::span<const model::StepRun> runs) {
    for (const model::StepRun& run : runs) {
      clock->advance(token_ns * static_cast<TimeNs>(run.tokens.size()));
    }
  };
  Bench bench(executor, scenario.options);
  clock = &bench.clock;
  struct Client {
    std::shared_ptr<Recorder> recorder;
    RequestId id;
    bool cancelled = false;
  };
  std::vector<Client> clients;
  Stats last;
  uint64_t steps = 0;
  while (clients.size() < scenario.requests.size() || !bench.core->idle()) {
    for (uint64_t i = 0, n = prng.below(scenario.arrivals_max + 1); i < n; ++i) {
      if (clients.size() == scenario.requests.size()) break;
      Client client;
      client.recorder = bench.submit(scenario.requests[clients.size()]);
      client.id = bench.last_id;
      clients.push_back(client);
    }
    if (!clients.empty() && prng.uniform() < scenario.cancel_share) {
      Client& client = clients[prng.below(clients.size())];
      client.cancelled |= !client.recorder->finished.has_value();
      bench.core->cancel(client.id);
      ASSERT_TRUE(client.recorder->finished.has_value());
      bench.core->check_invariants();
    }
    if (prng.uniform() < scenario.failure_share) {
      if (prng.below(3) == 0) {
        bench.executor.fail_next_commits(1);
      } else {
        bench.executor.fail_next_steps(1);
      }
    }
    bench.step();
    bench.clock.advance(static_cast<TimeNs>(prng.below(20'000'000)));
    if (prng.below(4) == 0) bench.core->tend();
    ASSERT_LT(++steps, 200'000U) << "the engine makes no progress";
    const Stats stats = bench.core->stats();
    ASSERT_EQ(stats.blocks_live + stats.blocks_cached + stats.blocks_free, stats.blocks_pool);
    ASSERT_LE(stats.blocks_leased, stats.blocks_live + stats.blocks_cached);
    ASSERT_GE(stats.prompt_tokens, last.prompt_tokens);
    ASSERT_GE(stats.leases_broken, last.leases_broken);
    last = stats;
    ASSERT_TRUE(bench.executor.violations().empty()) << bench.executor.violations()[0];
  }
  const Stats stats = bench.core->stats();
  EXPECT_EQ(stats.blocks_live, 0U);
  EXPECT_EQ(stats.requests_running + stats.requests_waiting, 0U);
  EXPECT_EQ(
      stats.finished_stop + stats.finished_length + stats.finished_cancelled + stats.finished_error,
      clients.size());
  for (std::size_t i = 0; i < clients.size(); ++i) {
    const Client& client = clients[i];
    const Request& request = scenario.requests[i];
    ASSERT_TRUE(client.recorder->finished.has_value());
    if (client.recorder->admission) check_admission(request, *client.recorder->admission);
    const std::string what = "request " + std::to_string(i);
    const Status& status = client.recorder->finished->status;
    if (client.cancelled || !status) {
      EXPECT_TRUE(!status) << what;
      if (scenario.failure_share == 0) {
        EXPECT_EQ(status.code(), ErrorCode::kCancelled) << what;
      }
      ++(status.code() == ErrorCode::kCancelled ? totals.cancelled : totals.failed);
    }
    const auto expected = alone(scenario, request);
    if (status.has_value()) {
      expect_equal(expected->prompt, client.recorder->prompt, what);
      EXPECT_EQ(expected->prompt.size(), request.prompt_logprobs < 0 ? 0 : request.prompt.size());
      totals.scored_tokens += expected->prompt.size();
    }
    for (uint32_t c = 0; c < request.choices; ++c) {
      const ChoiceRecord& got = client.recorder->choices[c];
      const ChoiceRecord& want = expected->choices[c];
      if (status.has_value()) {
        expect_equal(want, got, what + ", choice " + std::to_string(c));
      } else {
        // What came before the end was right all the same.
        EXPECT_EQ(want.text.substr(0, got.text.size()), got.text) << what;
        ASSERT_LE(got.tokens.size(), want.tokens.size()) << what;
        EXPECT_TRUE(std::equal(got.tokens.begin(), got.tokens.end(), want.tokens.begin())) << what;
      }
    }
  }
  std::vector<std::shared_ptr<Recorder>> answers;
  uint64_t computed = 0;
  for (const Client& client : clients) answers.push_back(client.recorder);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (!answers[i]->admission) continue;
    computed += answers[i]->admission->prompt_tokens - answers[i]->admission->cached_tokens;
    // The last sampled token of a choice is never fed.
    for (const ChoiceRecord& choice : answers[i]->choices) {
      computed += std::max(choice.completion_tokens, 1U) - 1;
    }
    if (scenario.cancel_share == 0) check_reads(scenario.requests, answers, i);
  }
  if (scenario.cancel_share == 0 && scenario.failure_share == 0 && stats.preemptions == 0) {
    EXPECT_EQ(bench.executor.tokens_computed(), computed)
        << "a cached token was computed after all";
  }
  totals.requests += clients.size();
  totals.steps += steps;
  totals.hit_tokens += stats.prefix_hit_tokens;
  totals.preemptions += stats.preemptions;
  totals.copies += bench.executor.copies();
  totals.evictions += stats.evictions;
  totals.broken += stats.leases_broken;
  totals.reads += stats.cache_read_tokens;
  if (std::any_of(scenario.executor.windows.begin(), scenario.executor.windows.end(),
                  [](uint32_t window) { return window != 0; })) {
    totals.window_hits += stats.prefix_hit_tokens;
    totals.window_preemptions += stats.preemptions;
  }
}

TEST(Simulation, EveryAnswerEqualsTheSameRequestAloneWithoutACache) {
  const char* replay = std::getenv("PAGEWISE_SIM_SEED");
  const char* count_text = std::getenv("PAGEWISE_SIM_COUNT");
  const uint64_t first = replay != nullptr ? std::strtoull(replay, nullptr, 10) : 1;
  const uint64_t count = replay != nullptr       ? 1
                         : count_text != nullptr ? std::strtoull(count_text, nullptr, 10)
                                                 : 2000;
  Totals totals;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    run_seed(seed, totals);
    if (HasFailure()) {
      FAIL() << "replay with PAGEWISE_SIM_SEED=" << seed;
    }
  }
  std::printf(
      "seeds %llu..%llu: %llu requests, %llu steps, %llu hit tokens, %llu preemptions, %llu "
      "copies, "
      "%llu evictions, %llu leases broken, %llu tokens read, %llu cancelled, %llu failed\n",
      static_cast<unsigned long long>(first), static_cast<unsigned long long>(first + count - 1),
      static_cast<unsigned long long>(totals.requests),
      static_cast<unsigned long long>(totals.steps),
      static_cast<unsigned long long>(totals.hit_tokens),
      static_cast<unsigned long long>(totals.preemptions),
      static_cast<unsigned long long>(totals.copies),
      static_cast<unsigned long long>(totals.evictions),
      static_cast<unsigned long long>(totals.broken), static_cast<unsigned long long>(totals.reads),
      static_cast<unsigned long long>(totals.cancelled),
      static_cast<unsigned long long>(totals.failed));
  std::printf("with windows: %llu hit tokens, %llu preemptions\n",
              static_cast<unsigned long long>(totals.window_hits),
              static_cast<unsigned long long>(totals.window_preemptions));
  if (replay != nullptr) return;
  // A simulation that never meets these proves nothing about them.
  EXPECT_GT(totals.hit_tokens, 0U);
  EXPECT_GT(totals.preemptions, 0U);
  EXPECT_GT(totals.copies, 0U);
  EXPECT_GT(totals.evictions, 0U);
  EXPECT_GT(totals.reads, 0U);
  EXPECT_GT(totals.cancelled, 0U);
  EXPECT_GT(totals.failed, 0U);
  EXPECT_GT(totals.window_hits, 0U);
  EXPECT_GT(totals.scored_tokens, 0U);
  EXPECT_GT(totals.window_preemptions, 0U);
}

TEST(Simulation, TheSameSeedTakesTheSameCourse) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Totals first, second;
    run_seed(seed, first);
    run_seed(seed, second);
    EXPECT_EQ(first.steps, second.steps);
    EXPECT_EQ(first.hit_tokens, second.hit_tokens);
    EXPECT_EQ(first.preemptions, second.preemptions);
    EXPECT_EQ(first.evictions, second.evictions);
  }
}

}  // namespace
}  // namespace pagewise::engine
