// SPDX-License-Identifier: Apache-2.0
#include "sim/scenario.h"

#include <algorithm>
#include <initializer_list>
#include <string>

#include "base/bytes.h"
#include "engine/test_support.h"

namespace pagewise::engine::sim {
namespace {

uint32_t pick(Prng& prng, std::initializer_list<uint32_t> values) {
  return *(values.begin() + prng.below(values.size()));
}

uint32_t below(Prng& prng, uint64_t bound) { return static_cast<uint32_t>(prng.below(bound)); }

/// Block size and pool: mostly so small that requests push each other out, sometimes plenty.
void draw_pool(Prng& prng, FakeExecutorOptions& executor) {
  executor.block_tokens = prng.below(3) ? pick(prng, {1, 2, 3, 4, 7, 8, 16, 16, 32, 64, 128, 256})
                                        : 1 + below(prng, 1U << prng.below(9));
  if (prng.below(4)) {
    const uint32_t tokens = 1U << (5 + prng.below(7));
    executor.blocks = std::clamp(tokens / executor.block_tokens, 8U, 512U);
  } else {
    const uint32_t least = 8U << prng.below(6);
    executor.blocks = least + below(prng, least + 1);
  }
}

/// The layer groups: one that sees everything, two, or some behind windows, each with its own pool.
void draw_groups(Prng& prng, FakeExecutorOptions& executor) {
  const auto window = [&] {
    const uint32_t most = prng.below(4) == 0 ? 300 : 3 * std::min(executor.block_tokens, 20U) + 2;
    return 2 + below(prng, most);
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
  executor.group_blocks.push_back(executor.blocks);
  while (executor.group_blocks.size() < executor.windows.size()) {
    executor.group_blocks.push_back(4 + below(prng, executor.blocks));
  }
}

void draw_options(Prng& prng, Options& options) {
  options.step_tokens = pick(prng, {1, 3, 16, 64, 512});
  options.seqs_max = pick(prng, {1, 2, 5, 16, 64});
  options.prefix_cache = prng.below(8) != 0;
  options.cache_curve = true;
  options.shuffle_blocks = prng.below(2) == 0;
  options.shuffle_seed = prng.next();
  options.lease_share = prng.uniform();
  options.lease_5m_ns =
      1 + static_cast<TimeNs>(prng.below(5'000'000'000ULL >> (2 * prng.below(6))));
  options.lease_1h_ns = options.lease_5m_ns * 12;
  options.idle_release_ns = 1 + static_cast<TimeNs>(prng.below(100'000'000));
  options.cache_tokens_min = prng.below(2) ? 0 : 1 + below(prng, 40);
  if (prng.below(3) == 0) options.cache_mode = kv::CacheMode::kStrict;
}

void append_random(Prng& prng, std::vector<TokenId>& tokens, uint64_t count, uint32_t vocab_size) {
  for (const TokenId token : random_tokens(prng, count, vocab_size)) tokens.push_back(token);
}

/// The blocks that quotas are counted in (kv/quota.h).
uint32_t measure_of(const FakeExecutorOptions& executor) {
  uint32_t full = UINT32_MAX, any = UINT32_MAX;
  for (std::size_t g = 0; g < executor.windows.size(); ++g) {
    const uint32_t blocks =
        executor.group_blocks.empty() ? executor.blocks : executor.group_blocks[g];
    any = std::min(any, blocks);
    if (executor.windows[g] == 0) full = std::min(full, blocks);
  }
  return full == UINT32_MAX ? any : full;
}

/// A tree of prefixes that prompts begin with.
std::vector<std::vector<TokenId>> draw_prefixes(Prng& prng, uint64_t context, uint32_t vocab_size) {
  std::vector<std::vector<TokenId>> prefixes;
  for (uint64_t i = 0, count = 1 + prng.below(4); i < count; ++i) {
    std::vector<TokenId> base;
    if (!prefixes.empty() && prng.below(2)) {
      base = prefixes[prng.below(prefixes.size())];
      base.resize(prng.below(base.size() + 1));
    }
    append_random(prng, base, 1 + prng.below(context), vocab_size);
    prefixes.push_back(base);
  }
  return prefixes;
}

/// `context`: prompts are shorter, but for the few that are as long as what is `served` at most.
std::vector<TokenId> draw_prompt(Prng& prng, const std::vector<std::vector<TokenId>>& prefixes,
                                 uint64_t context, uint64_t served, uint32_t vocab_size) {
  std::vector<TokenId> prompt;
  if (prng.below(5) != 0) {
    prompt = prefixes[prng.below(prefixes.size())];
    if (prng.below(3) == 0) prompt.resize(prng.below(prompt.size() + 1));
  }
  append_random(prng, prompt, prng.below(1 + context / 4), vocab_size);
  if (prompt.empty()) prompt.push_back(TokenId(3));
  if (prompt.size() >= context) prompt.resize(1 + prng.below(context - 1));
  if (served <= 1100 && prng.below(12) == 0) {  // one short of what can be served at all
    prompt.resize(std::min<std::size_t>(prompt.size(), served - 1));
    append_random(prng, prompt, served - 1 - prompt.size(), vocab_size);
  }
  return prompt;
}

void draw_sampling(Prng& prng, uint32_t vocab_size, sampling::Params& sampling) {
  sampling.temperature = prng.below(2) ? 0.0F : 1.0F;
  sampling.top_k = prng.below(3) ? 0 : 1 + below(prng, 20);
  sampling.top_p = prng.below(3) ? 1.0F : 0.9F;
  sampling.seed = prng.below(5);
  sampling.logprobs = static_cast<int32_t>(prng.below(4)) - 1;
  const auto penalty = [&] { return static_cast<float>(prng.uniform() * 4 - 2); };
  if (prng.below(4) == 0) sampling.frequency_penalty = penalty();
  if (prng.below(4) == 0) sampling.presence_penalty = penalty();
  if (prng.below(4) == 0) sampling.repetition_penalty = 0.5F + static_cast<float>(prng.uniform());
  if (prng.below(4) == 0) {
    for (uint32_t id = 0; id < vocab_size; id += 1 + below(prng, 20)) {
      sampling.logit_bias.push_back({TokenId(static_cast<int32_t>(id)), 2 * penalty()});
    }
  }
}

void draw_stops(Prng& prng, std::vector<std::string>& stops) {
  for (uint64_t s = 0, count = 1 + prng.below(3); s < count; ++s) {
    std::string stop;
    for (uint64_t c = 0, length = 1 + prng.below(3); c < length; ++c) {
      stop.push_back(static_cast<char>('a' + prng.below(26)));
    }
    stops.push_back(stop);
  }
}

/// Forms of an answer that every vocabulary of the simulation can write: it has "a" and "b".
std::shared_ptr<const grammar::Grammar> draw_grammar(Prng& prng) {
  grammar::Builder builder;
  const grammar::NodeId word = builder.words({"a", "ab", "bba"});
  grammar::NodeId root = word;
  switch (prng.below(4)) {
    case 0:  // must end
      root = builder.repeat(word, std::nullopt, 1, 1 + below(prng, 12));
      break;
    case 1:  // may end
      root = builder.repeat(word, std::nullopt, below(prng, 10), grammar::kUnbounded);
      break;
    default: {  // free text, then something else
      const std::string trigger = prng.below(2) == 0 ? "b" : grammar::control_spelling(TokenId(1));
      const grammar::NodeId then = builder.repeat(word, std::nullopt, 1, 5);
      root = builder.repeat(builder.text_until({{trigger, then}}, prng.below(2) == 0), std::nullopt,
                            1, 3);
    }
  }
  return builder.build(root).value();
}

/// Positions mostly at the same places, as the blocks of a growing conversation are.
void draw_markers(Prng& prng, uint32_t stride, std::size_t prompt_tokens, CacheOptions& cache) {
  for (uint32_t at = stride; at <= prompt_tokens; at += stride) {
    const bool moved = prng.below(16) == 0;
    cache.positions.push_back({at - (moved ? below(prng, stride) : 0)});
  }
  const auto positions = static_cast<uint32_t>(cache.positions.size());
  LeaseClass lease = LeaseClass::k1h;
  for (uint32_t p = 0; p < positions && cache.markers.size() < 4; ++p) {
    if (prng.below(3)) continue;
    if (prng.below(2)) lease = LeaseClass::k5m;
    cache.markers.push_back({p, lease});
  }
}

/// Floors that may sum to the whole pool, and ceilings, of the two namespaces.
void draw_quotas(Prng& prng, const FakeExecutorOptions& executor, Options& options) {
  uint32_t rest = measure_of(executor);
  const uint32_t most = rest;
  for (const char* const name : {"", "other"}) {
    if (prng.below(3) == 0) continue;
    NamespaceQuota quota;
    quota.name = name;
    if (prng.below(3) != 0) {
      // All of what is left is the hardest for the others.
      quota.floor_blocks = prng.below(4) == 0 ? rest : below(prng, rest + 1);
      rest -= quota.floor_blocks;
    }
    if (prng.below(3) == 0) {
      quota.ceiling_blocks = std::max(1U, quota.floor_blocks) + below(prng, 1 + most / 2);
    }
    options.quotas.push_back(quota);
  }
}

/// Makes it a request that must be refused, in one of the ways that Core::check knows.
void spoil(Prng& prng, const Scenario& scenario, uint64_t served, Request& request) {
  switch (prng.below(4)) {
    case 0:  // too long, by one token or by many
      append_random(prng, request.prompt, served - request.prompt.size() + prng.below(50),
                    scenario.executor.vocab_size);
      return;
    case 1:
      request.choices = scenario.options.seqs_max + 1;
      return;
    case 2:
      request.prompt[prng.below(request.prompt.size())] =
          TokenId(static_cast<int32_t>(scenario.executor.vocab_size));
      return;
    default:
      break;
  }
  request.prompt.clear();
}

}  // namespace

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
  FakeExecutorOptions& executor = scenario.executor;
  draw_pool(prng, executor);
  draw_groups(prng, executor);
  executor.vocab_size = pick(prng, {12, 64, 64, 200});
  executor.step_tokens_max = pick(prng, {8, 64, 512});
  executor.step_runs_max = pick(prng, {1, 4, 64, 256});
  if (prng.below(3) == 0) executor.context_max = 8 + below(prng, 300);
  draw_options(prng, scenario.options);
  // Swarm: a kind of event is often absent altogether.
  if (prng.below(2) == 0) scenario.cancel_share = prng.uniform() * 0.5;
  if (prng.below(3) == 0) scenario.vanish_share = prng.uniform() * 0.2;
  if (prng.below(4) == 0) scenario.failure_share = prng.uniform() * 0.05;
  // And sometimes nothing goes wrong at all: then every hit must have its full length.
  if (prng.below(8) == 0) {
    scenario.cancel_share = scenario.vanish_share = scenario.failure_share = 0;
    scenario.options.prefix_cache = true;
    executor.blocks = 512;
    executor.windows = {0};
    executor.group_blocks.clear();
  }
  scenario.arrivals_max = pick(prng, {1, 2, 8, 64});
  scenario.token_ns = 1 + static_cast<TimeNs>(prng.below(8'000'000));

  const uint64_t pool_tokens = pool_tokens_of(executor);
  // What ends the longest answer in a large pool, or in one that grows (behind windows to any
  // length), is the context, to stay quick.
  const uint32_t context_bound = pool_tokens > 2100 ? 500 : 2100;
  executor.context_max =
      std::min(executor.context_max, std::max(context_bound, 4 * executor.block_tokens));
  const uint64_t served = std::min<uint64_t>(pool_tokens, executor.context_max);
  // Long enough for a few blocks.
  const uint64_t context = std::min<uint64_t>(served, std::max(220U, 3 * executor.block_tokens));
  const std::vector<std::vector<TokenId>> prefixes =
      draw_prefixes(prng, context, executor.vocab_size);
  const bool with_choices = prng.below(3) == 0;
  const bool with_stops = prng.below(2) == 0;
  const bool with_markers = prng.below(2) == 0;
  const bool with_grammars = prng.below(3) == 0;
  const bool with_spoiled = prng.below(4) == 0;
  const uint32_t stride = 1 + below(prng, 60);
  const uint64_t count = 2 + prng.below(prng.below(4) == 0 ? 63 : 15);
  for (uint64_t i = 0; i < count; ++i) {
    Request request;
    request.prompt = draw_prompt(prng, prefixes, context, served, executor.vocab_size);
    request.max_tokens = prng.below(10) == 0 ? ~uint64_t{0} : prng.below(40);
    if (with_choices && prng.below(2))
      request.choices = 1 + below(prng, std::min(scenario.options.seqs_max, 6U));
    draw_sampling(prng, executor.vocab_size, request.sampling);
    if (prng.below(6) == 0) request.prompt_logprobs = static_cast<int32_t>(prng.below(3));
    request.ignore_eos = prng.below(2) == 0;
    request.want_control_text = prng.below(4) == 0;
    if (with_stops && prng.below(2)) draw_stops(prng, request.stops);
    if (with_grammars && prng.below(2)) request.grammar = draw_grammar(prng);
    request.cache.use_cache = prng.below(8) != 0;
    request.cache.cache_namespace = prng.below(4) ? "" : "other";
    if (with_markers && prng.below(4))
      draw_markers(prng, stride, request.prompt.size(), request.cache);
    if (with_spoiled && prng.below(6) == 0) spoil(prng, scenario, served, request);
    scenario.requests.push_back(std::move(request));
  }
  if (prng.below(3) == 0) draw_quotas(prng, executor, scenario.options);
  if (prng.below(4) == 0) scenario.resize_share = prng.uniform() * 0.3;
  return scenario;
}

}  // namespace pagewise::engine::sim
