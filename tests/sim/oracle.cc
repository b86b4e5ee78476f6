// SPDX-License-Identifier: Apache-2.0
#include "sim/oracle.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace pagewise::engine::sim {
namespace {

/// The request on its own, on the same machine without a cache.
std::shared_ptr<Recorder> alone(const Scenario& scenario, const Request& request) {
  Options options = scenario.options;
  options.prefix_cache = false;
  options.quotas.clear();
  options.shuffle_blocks = false;
  options.step_tokens = 512;
  FakeExecutorOptions executor = scenario.executor;
  executor.step_tokens_max = 4096;
  executor.step_runs_max = 256;
  if (scenario.resize_share > 0) {  // as large as the pool may have become
    executor.blocks *= 2;
    for (uint32_t& blocks : executor.group_blocks) blocks *= 2;
  }
  return Bench(executor, options).serve(request);
}

/// A request whose prompt is scored computes all of it.
bool reads_cache(const Request& request) {
  return request.cache.use_cache && request.prompt_logprobs < 0;
}

void check_admission(const Request& request, const Admission& admission) {
  const auto prompt = static_cast<uint32_t>(request.prompt.size());
  EXPECT_EQ(admission.prompt_tokens, prompt);
  EXPECT_LT(admission.cached_tokens, prompt);
  EXPECT_EQ(admission.input_tokens + admission.cache_read_tokens +
                admission.cache_created_5m_tokens + admission.cache_created_1h_tokens,
            prompt);
  if (!reads_cache(request)) {
    EXPECT_EQ(admission.cached_tokens, 0U);
  }
  if (request.cache.markers.empty() || request.prompt_logprobs >= 0) {
    EXPECT_EQ(admission.input_tokens, prompt);
  }
  EXPECT_LE(admission.blocks_shared, admission.blocks);
}

/// An answer of a form is the beginning of one that has it, and the whole of one where it stopped
/// of itself.
void check_form(const Request& request, const ChoiceRecord& choice, uint32_t vocab_size,
                const std::string& what) {
  const FakeTokenizer tokenizer(vocab_size);
  grammar::Matcher matcher(request.grammar);
  for (const TokenId token : choice.tokens) {
    if (tokenizer.is_eog(token)) break;
    const bool accepted = tokenizer.is_control(token)
                              ? matcher.accept(grammar::control_spelling(token))
                              : matcher.accept(tokenizer.token_bytes(token));
    ASSERT_TRUE(accepted) << what << ": " << choice.text;
  }
  if (choice.finish == FinishReason::kStop) {
    EXPECT_TRUE(matcher.may_end()) << what << ": " << choice.text;
  }
}

void check_answer(const Scenario& scenario, const Client& client, const std::string& what) {
  const Request& request = client.request;
  const Recorder& answer = client.answer;
  ASSERT_TRUE(client.ended()) << what;
  if (answer.admission) check_admission(request, *answer.admission);
  const Status& status = answer.finished->status;
  if (client.cancelled || !status) {
    EXPECT_TRUE(!status) << what;
    if (scenario.failure_share == 0) {
      EXPECT_EQ(status.code(), ErrorCode::kCancelled) << what;
    }
  }
  const std::shared_ptr<Recorder> expected = alone(scenario, request);
  if (status.has_value()) {
    EXPECT_EQ(answer.prompt.size(), request.prompt_logprobs < 0 ? 0 : request.prompt.size());
    expect_equal(expected->prompt, answer.prompt, what);
  }
  for (uint32_t c = 0; c < request.choices; ++c) {
    const ChoiceRecord& got = answer.choices[c];
    const ChoiceRecord& want = expected->choices[c];
    if (request.grammar != nullptr) check_form(request, got, scenario.executor.vocab_size, what);
    // An answer that filled a context which the pool had cut shorter is as right as it is long.
    const bool cut = scenario.resize_share > 0 && got.finish == FinishReason::kContext;
    if (status.has_value() && !cut) {
      expect_equal(want, got, what + ", choice " + std::to_string(c));
    } else {
      // What came before the end was right all the same.
      EXPECT_EQ(want.text.substr(0, got.text.size()), got.text) << what;
      ASSERT_LE(got.tokens.size(), want.tokens.size()) << what;
      EXPECT_TRUE(std::equal(got.tokens.begin(), got.tokens.end(), want.tokens.begin())) << what;
    }
  }
}

uint32_t common_prefix(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
  const std::size_t most = std::min(a.size(), b.size());
  return static_cast<uint32_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(most), b.begin()).first -
      a.begin());
}

/// Whether `reader` may read what `writer` computed.
bool share_cache(const Client& reader, const Client& writer) {
  return reads_cache(reader.request) && writer.request.cache.use_cache && !writer.refused &&
         reader.request.cache.cache_namespace == writer.request.cache.cache_namespace;
}

/// What one choice had computed, by what was delivered of it; `known` of its tokens.
std::vector<TokenId> computed_by(const Client& client, const ChoiceRecord& choice,
                                 std::size_t known) {
  std::vector<TokenId> tokens = client.request.prompt;
  const auto most = static_cast<std::ptrdiff_t>(std::min(known, choice.tokens.size()));
  tokens.insert(tokens.end(), choice.tokens.begin(), choice.tokens.begin() + most);
  return tokens;
}

/// What a request says it read must have been there: computed, or marked, by another request of its
/// namespace that uses the cache.
void check_reads(const Clients& clients, const Client& reader, const std::string& what) {
  const Admission& admission = *reader.answer.admission;
  uint32_t readable = 0;
  bool marked = admission.cache_read_tokens == 0;
  bool stops = false;
  for (const std::shared_ptr<Client>& writer : clients) {
    stops |= !writer->request.stops.empty();
    if (writer.get() == &reader || !share_cache(reader, *writer)) continue;
    for (const ChoiceRecord& choice : writer->answer.choices) {
      readable = std::max(
          readable,
          common_prefix(reader.request.prompt, computed_by(*writer, choice, choice.tokens.size())));
    }
    const uint32_t common = common_prefix(reader.request.prompt, writer->request.prompt);
    const CacheOptions& cache = writer->request.cache;
    for (const CacheMarker& marker : cache.markers) {
      const uint32_t tokens = cache.positions[marker.position].tokens;
      marked |= tokens == admission.cache_read_tokens && tokens <= common;
    }
  }
  // Tokens behind a stop string were computed, too, but not delivered.
  if (!stops) {
    EXPECT_LE(admission.cached_tokens, readable) << what;
  }
  EXPECT_TRUE(marked) << what << " reads a prefix that nobody marked";
}

/// Where nothing was ever given up, all that requests before had computed is read, to the token.
void check_longest_hit(const Client& reader, const std::string& what) {
  if (!reads_cache(reader.request)) return;
  uint32_t there = 0;
  for (const Client* writer : reader.ended_before) {
    if (!share_cache(reader, *writer) || !writer->answer.ok()) continue;
    for (const ChoiceRecord& choice : writer->answer.choices) {
      // The last sampled token of a choice is never fed.
      const std::size_t fed = choice.tokens.empty() ? 0 : choice.tokens.size() - 1;
      there =
          std::max(there, common_prefix(reader.request.prompt, computed_by(*writer, choice, fed)));
    }
  }
  const auto most = static_cast<uint32_t>(reader.request.prompt.size()) - 1;
  EXPECT_GE(reader.answer.admission->cached_tokens, std::min(there, most))
      << what << " computes what is there";
}

/// Where nothing was ever given up, a prefix that several requests share was computed once, also
/// when they came together: but for less than a block of each, for which nobody waits, and the last
/// token.
void check_computed_once(const Scenario& scenario, const Clients& clients) {
  std::map<std::string, std::set<std::vector<TokenId>>> prompts;  // by namespace
  uint64_t computed = 0, allowed = 0;
  for (const std::shared_ptr<Client>& client : clients) {
    if (!client->answer.admission || !reads_cache(client->request)) continue;
    prompts[client->request.cache.cache_namespace].insert(client->request.prompt);
    computed += client->request.prompt.size() - client->answer.admission->cached_tokens;
    allowed += scenario.executor.block_tokens;
  }
  for (const auto& [name, sorted] : prompts) {
    const std::vector<TokenId>* before = nullptr;
    for (const std::vector<TokenId>& prompt : sorted) {
      allowed += prompt.size() - (before == nullptr ? 0 : common_prefix(*before, prompt));
      before = &prompt;
    }
  }
  EXPECT_LE(computed, allowed) << "a shared prefix was computed more than once";
}

}  // namespace

void check_answers(const Scenario& scenario, const Clients& clients) {
  for (std::size_t i = 0; i < clients.size(); ++i) {
    if (!clients[i]->refused) check_answer(scenario, *clients[i], "request " + std::to_string(i));
  }
}

bool check_numbers(const Scenario& scenario, const Clients& clients, const Stats& stats,
                   uint64_t tokens_computed) {
  // Of who left early it is not known how far it had come.
  if (scenario.cancel_share > 0 || scenario.vanish_share > 0) return false;
  const bool windows =
      std::any_of(scenario.executor.windows.begin(), scenario.executor.windows.end(),
                  [](uint32_t window) { return window != 0; });
  const bool nothing_lost = scenario.options.prefix_cache && scenario.failure_share == 0 &&
                            stats.evictions == 0 && stats.preemptions == 0 && !windows;
  uint64_t computed = 0;
  for (std::size_t i = 0; i < clients.size(); ++i) {
    const Client& client = *clients[i];
    if (!client.answer.admission) continue;
    const std::string what = "request " + std::to_string(i);
    const Admission& admission = *client.answer.admission;
    computed += admission.prompt_tokens - admission.cached_tokens;
    // The last sampled token of a choice is never fed.
    for (const ChoiceRecord& choice : client.answer.choices) {
      computed += std::max(choice.completion_tokens, 1U) - 1;
    }
    check_reads(clients, client, what);
    if (nothing_lost) check_longest_hit(client, what);
  }
  if (nothing_lost) check_computed_once(scenario, clients);
  if (scenario.failure_share == 0 && stats.preemptions == 0) {
    EXPECT_EQ(tokens_computed, computed) << "a cached token was computed after all";
  }
  return nothing_lost;
}

}  // namespace pagewise::engine::sim
