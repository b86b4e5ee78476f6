// SPDX-License-Identifier: Apache-2.0
#include "sim/simulation.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include "engine/test_support.h"
#include "sim/client.h"
#include "sim/oracle.h"
#include "sim/scenario.h"

namespace pagewise::engine::sim {
namespace {

// Scenario and events are drawn apart, so that a crowd of fewer requests meets the same machine.
constexpr uint64_t kEvents = 0x6576656e74730000ULL;
constexpr uint64_t kQuestions = 0x7175657374696f6eULL;

/// One seed on its way.
class Simulation {
 public:
  Simulation(uint64_t seed, const std::optional<std::vector<uint32_t>>& only, bool questions,
             Coverage& coverage)
      : coverage_(coverage), events_(mix64(seed ^ kEvents)) {
    if (questions) questions_.emplace(mix64(seed ^ kQuestions));
    Prng prng(mix64(seed));
    scenario_ = make_scenario(prng);
    if (!only) return;
    std::vector<Request> kept;
    for (const uint32_t i : *only) kept.push_back(scenario_.requests.at(i));
    scenario_.requests = std::move(kept);
  }

  uint64_t trace() const { return trace_.hash(); }
  const Scenario& scenario() const { return scenario_; }

  void run() {
    FakeExecutorOptions executor = scenario_.executor;
    executor.on_step = [this](std::span<const model::StepRun> runs) { on_step(runs); };
    bench_ = std::make_unique<Bench>(executor, scenario_.options);
    serve();
    check_end();
    add_coverage();
    bench_.reset();  // expects that the executor saw no violation
  }

 private:
  /// Steps take time, so that chunks are cut by time as well.
  void on_step(std::span<const model::StepRun> runs) {
    for (const model::StepRun& run : runs) {
      bench_->clock.advance(scenario_.token_ns * static_cast<TimeNs>(run.tokens.size()));
      trace_.add(run.position);
      trace_.add(run.tokens.size());
      for (const std::span<const BlockId> table : run.tables) {
        for (const BlockId block : table) trace_.add(block.value);
      }
      if (run.tokens.size() > 1 && run.logits_rows.empty()) ++coverage_.chunked;
    }
  }

  void serve() {
    while (arrived_ < scenario_.requests.size() || !bench_->core->idle()) {
      arrive();
      interfere();
      tend();
      if (questions_) ask();
      const uint64_t computed = bench_->executor.tokens_computed();
      bench_->step();
      // Whoever is oldest computes in every step, so that nobody waits for ever.
      if (scenario_.failure_share == 0 && !bench_->core->idle()) {
        EXPECT_GT(bench_->executor.tokens_computed(), computed)
            << "a step in which nobody advances";
      }
      bench_->clock.advance(static_cast<TimeNs>(events_.below(20'000'000)));
      ASSERT_LT(++steps_, 200'000U) << "the engine makes no progress";
      check_step();
      ASSERT_TRUE(bench_->executor.violations().empty()) << bench_->executor.violations()[0];
    }
  }

  void arrive() {
    for (uint64_t i = 0, n = events_.below(scenario_.arrivals_max + 1); i < n; ++i) {
      if (arrived_ == scenario_.requests.size()) return;
      const Request& request = scenario_.requests[arrived_++];
      auto client = std::make_shared<Client>(request, arrived_, trace_, admitted_);
      client->id = RequestId(arrived_);
      for (const std::shared_ptr<Client>& other : clients_) {
        if (other->ended()) client->ended_before.push_back(other.get());
      }
      clients_.push_back(client);
      const Status status = bench_->core->check(request);
      trace_.add(static_cast<uint64_t>(status.code()));
      client->refused = !status;
      if (status) {
        bench_->core->submit(client->id, request, client, bench_->clock.now());
      } else {
        check_refusal(request, status);
      }
    }
  }

  void check_refusal(const Request& request, const Status& status) {
    ++coverage_.refused;
    if (status.code() == ErrorCode::kInvalidArgument) return;
    EXPECT_EQ(status.code(), ErrorCode::kContextTooLong);
    const std::string& message = status.error().message;
    const uint32_t served = bench_->core->options().context_max;
    EXPECT_GE(request.prompt.size(), served);
    EXPECT_NE(message.find(std::to_string(request.prompt.size())), std::string::npos) << message;
    EXPECT_NE(message.find(std::to_string(served)), std::string::npos) << message;
  }

  /// Clients cancel; or they vanish, which the server sees some steps later; and the machine fails.
  void interfere() {
    if (!clients_.empty() && events_.uniform() < scenario_.cancel_share) {
      cancel(*clients_[events_.below(clients_.size())]);
    }
    if (!clients_.empty() && events_.uniform() < scenario_.vanish_share) {
      const std::shared_ptr<Client>& client = clients_[events_.below(clients_.size())];
      if (!client->refused && !client->ended()) {
        ++coverage_.vanished;
        gone_.push_back({client, steps_ + events_.below(10)});
      }
    }
    for (const auto& [client, noticed] : gone_) {
      if (noticed == steps_) cancel(*client);
    }
    if (scenario_.resize_share > 0 && events_.uniform() < scenario_.resize_share) resize();
    if (events_.uniform() < scenario_.failure_share) {
      if (events_.below(3) == 0) {
        bench_->executor.fail_next_commits(1);
      } else {
        bench_->executor.fail_next_steps(1);
      }
    }
  }

  /// Refused while something that was accepted needs more; all or nothing.
  void resize() {
    const FakeExecutorOptions& executor = scenario_.executor;
    std::vector<uint32_t> blocks;
    for (std::size_t g = 0; g < executor.windows.size(); ++g) {
      const uint32_t most =
          2 * (executor.group_blocks.empty() ? executor.blocks : executor.group_blocks[g]);
      blocks.push_back(1 + static_cast<uint32_t>(events_.below(most)));
    }
    const Stats before = bench_->core->stats();
    const Status status = bench_->core->resize(blocks);
    bench_->core->check_invariants();
    const Stats after = bench_->core->stats();
    trace_.add(static_cast<uint64_t>(status.code()));
    EXPECT_EQ(after.blocks_live, before.blocks_live);
    if (status) {
      EXPECT_EQ(after.blocks_pool, std::accumulate(blocks.begin(), blocks.end(), 0U));
      coverage_.pools_grown += after.blocks_pool > before.blocks_pool;
      coverage_.pools_shrunk += after.blocks_pool < before.blocks_pool;
    } else {
      ++coverage_.resizes_refused;
      EXPECT_EQ(after.blocks_pool, before.blocks_pool);
      EXPECT_EQ(after.context_max, before.context_max);
    }
  }

  void cancel(Client& client) {
    if (client.refused) return;
    if (client.ended()) {
      ++coverage_.cancelled_ended;
    } else {
      client.cancelled = true;
      ++(client.generated          ? coverage_.cancelled_decoding
         : client.answer.admission ? coverage_.cancelled_prefilling
                                   : coverage_.cancelled_waiting);
    }
    bench_->core->cancel(client.id);
    EXPECT_TRUE(client.ended());
    bench_->core->check_invariants();
  }

  void tend() {
    if (events_.below(4) != 0) return;
    const uint32_t leased = bench_->core->stats().blocks_leased;
    bench_->core->tend();
    coverage_.leases_expired += bench_->core->stats().blocks_leased < leased;
  }

  void ask() {
    const Request& request = scenario_.requests[questions_->below(scenario_.requests.size())];
    if (request.prompt.empty()) return;
    LookUp question;
    question.tokens = request.prompt;
    question.cache_namespace = request.cache.cache_namespace;
    question.use_cache = request.cache.use_cache;
    question.beyond_max = static_cast<uint32_t>(questions_->below(20));
    const kv::Inspection found = bench_->core->look_up(question).found;
    EXPECT_LT(found.cached_tokens, request.prompt.size());
    EXPECT_LE(found.cached_tokens, found.matched_tokens);
    EXPECT_LE(found.matched_tokens, request.prompt.size());
    EXPECT_LE(found.beyond.size(), question.beyond_max);
    if (!question.use_cache) {
      EXPECT_EQ(found.matched_tokens, 0U);
    }
    bench_->core->check_invariants();
  }

  void check_step() {
    const Stats stats = bench_->core->stats();
    EXPECT_EQ(stats.blocks_live + stats.blocks_cached + stats.blocks_free, stats.blocks_pool);
    EXPECT_LE(stats.blocks_leased, stats.blocks_live + stats.blocks_cached);
    EXPECT_GE(stats.prompt_tokens, last_.prompt_tokens);
    EXPECT_GE(stats.leases_broken, last_.leases_broken);
    // Promise 4: less than a block of slack for every sequence.
    uint64_t sequences = 0;
    for (const std::shared_ptr<Client>& client : clients_) {
      if (client->answer.admission && !client->ended()) sequences += client->request.choices;
    }
    EXPECT_LE(stats.slack_tokens, sequences * scenario_.executor.block_tokens);
    for (const uint64_t number :
         {uint64_t{stats.blocks_live}, uint64_t{stats.blocks_cached}, stats.preemptions}) {
      trace_.add(number);
    }
    last_ = stats;
    if (!scenario_.options.quotas.empty()) check_quotas();
  }

  /// Beyond a ceiling nothing is cached, and who is at his floor is so by the numbers told.
  void check_quotas() {
    for (const AccountReport& account : bench_->core->cache_report().accounts) {
      const kv::QuotaUse& quota = account.quota;
      if (quota.ceiling_blocks > 0 && scenario_.executor.windows.size() == 1 &&
          account.blocks_cached > 0) {
        EXPECT_LE(account.blocks_live + account.blocks_cached, quota.ceiling_blocks);
      }
      coverage_.floors_met += account.blocks_cached > 0 && quota.floor_blocks > 0 &&
                              account.blocks_cached <= quota.floor_blocks && last_.blocks_free == 0;
    }
  }

  void check_end() {
    const Stats stats = bench_->core->stats();
    EXPECT_EQ(stats.blocks_live, 0U);
    EXPECT_EQ(stats.requests_running + stats.requests_waiting, 0U);
    const auto accepted = static_cast<uint64_t>(
        std::count_if(clients_.begin(), clients_.end(),
                      [](const std::shared_ptr<Client>& client) { return !client->refused; }));
    EXPECT_EQ(stats.finished_stop + stats.finished_length + stats.finished_cancelled +
                  stats.finished_error,
              accepted);
    check_answers(scenario_, clients_);
    coverage_.nothing_lost +=
        check_numbers(scenario_, clients_, stats, bench_->executor.tokens_computed());
    // Only who waits for a prefix that is being computed lets others pass.
    if (stats.prefix_waits == 0) {
      EXPECT_TRUE(std::is_sorted(admitted_.begin(), admitted_.end())) << "the queue was overtaken";
    }
  }

  void add_coverage() {
    const Stats stats = bench_->core->stats();
    const uint32_t block_tokens = scenario_.executor.block_tokens;
    const bool windows =
        std::any_of(scenario_.executor.windows.begin(), scenario_.executor.windows.end(),
                    [](uint32_t window) { return window != 0; });
    coverage_.pool_blocks.add(scenario_.executor.blocks);
    coverage_.block_tokens.add(block_tokens);
    coverage_.requests_a_run.add(scenario_.requests.size());
    ++coverage_.runs;
    coverage_.requests += clients_.size();
    coverage_.steps += steps_;
    coverage_.tokens_generated += stats.generation_tokens;
    coverage_.hit_tokens += stats.prefix_hit_tokens;
    coverage_.joins += stats.prefix_waits;
    coverage_.preemptions += stats.preemptions;
    coverage_.evictions += stats.evictions;
    coverage_.blocks_returned += stats.blocks_returned;
    coverage_.copies_on_write += stats.copies_on_write;
    coverage_.leases_written_tokens += stats.cache_created_tokens;
    coverage_.leases_read_tokens += stats.cache_read_tokens;
    coverage_.leases_refused += stats.leases_refused;
    coverage_.leases_broken += stats.leases_broken;
    coverage_.windows += windows;
    coverage_.evictions_ceiling += stats.evictions_ceiling;
    coverage_.evictions_below_floor += stats.evictions_below_floor;
    const std::vector<NamespaceQuota>& quotas = scenario_.options.quotas;
    coverage_.floors += std::any_of(quotas.begin(), quotas.end(), [](const NamespaceQuota& quota) {
      return quota.floor_blocks > 0;
    });
    coverage_.ceilings += std::any_of(quotas.begin(), quotas.end(),
                                      [](const NamespaceQuota& q) { return q.ceiling_blocks > 0; });
    if (windows) {
      coverage_.window_hit_tokens += stats.prefix_hit_tokens;
      coverage_.window_preemptions += stats.preemptions;
    }
    std::set<std::string> namespaces;
    for (const std::shared_ptr<Client>& client : clients_) {
      if (client->refused) continue;
      namespaces.insert(client->request.cache.cache_namespace);
      if (client->answer.admission)
        coverage_.hits_partial += client->answer.admission->cached_tokens % block_tokens != 0;
      coverage_.failed += client->failed();
      coverage_.scored_tokens += client->answer.prompt.size();
      coverage_.penalized += client->generated && client->request.sampling.penalizes();
      if (client->generated) coverage_.forks += client->request.choices - 1;
    }
    coverage_.namespaces += namespaces.size() > 1;
  }

  Coverage& coverage_;
  Prng events_;
  std::optional<Prng> questions_;
  Scenario scenario_;
  Trace trace_;
  std::unique_ptr<Bench> bench_;
  std::vector<std::shared_ptr<Client>> clients_;
  std::vector<std::pair<std::shared_ptr<Client>, uint64_t>> gone_;  // and the step that notices
  std::size_t arrived_ = 0;
  std::vector<uint64_t> admitted_;  // numbers of clients, in order
  uint64_t steps_ = 0;
  Stats last_;
};

}  // namespace

Outcome run(uint64_t seed, Coverage& coverage, const std::optional<std::vector<uint32_t>>& only,
            bool questions) {
  Outcome outcome;
  // The engine's test support speaks gtest; here its complaints are collected instead of printed.
  ::testing::TestPartResultArray results;
  {
    ::testing::ScopedFakeTestPartResultReporter collect(
        ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
    Simulation simulation(seed, only, questions, coverage);
    simulation.run();
    outcome.trace = simulation.trace();
  }
  for (int i = 0; i < results.size(); ++i)
    outcome.failures.emplace_back(results.GetTestPartResult(i).message());
  return outcome;
}

std::string describe(uint64_t seed, const std::optional<std::vector<uint32_t>>& only) {
  Prng prng(mix64(seed));
  const Scenario scenario = make_scenario(prng);
  const FakeExecutorOptions& executor = scenario.executor;
  std::string text = "blocks of " + std::to_string(executor.block_tokens) + ", pools of";
  for (std::size_t g = 0; g < executor.windows.size(); ++g) {
    text += " " + std::to_string(executor.group_blocks.empty() ? executor.blocks
                                                               : executor.group_blocks[g]);
    if (executor.windows[g] > 0) text += " (window " + std::to_string(executor.windows[g]) + ")";
  }
  text += "; steps of " + std::to_string(scenario.options.step_tokens) + " tokens, " +
          std::to_string(scenario.options.seqs_max) + " sequences";
  if (!scenario.options.prefix_cache) text += ", no prefix cache";
  for (std::size_t i = 0; i < scenario.requests.size(); ++i) {
    if (only && !std::binary_search(only->begin(), only->end(), i)) continue;
    const Request& request = scenario.requests[i];
    text += "\nrequest " + std::to_string(i) + ": " + std::to_string(request.prompt.size()) +
            " prompt tokens, at most " + std::to_string(request.max_tokens) + " new, " +
            std::to_string(request.choices) + " choice(s), namespace '" +
            request.cache.cache_namespace + "', " + std::to_string(request.cache.markers.size()) +
            " marker(s)" + (request.cache.use_cache ? "" : ", no cache");
  }
  return text;
}

uint32_t requests_of(uint64_t seed) {
  Prng prng(mix64(seed));
  return static_cast<uint32_t>(make_scenario(prng).requests.size());
}

}  // namespace pagewise::engine::sim
