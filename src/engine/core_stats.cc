// SPDX-License-Identifier: Apache-2.0
// What a core says of itself and of a prompt, and what always holds of it. Nothing here changes
// anything.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "engine/core.h"

namespace pagewise::engine {

LookedUp Core::look_up(const LookUp& asked) const {
  PW_CHECK(!asked.tokens.empty());
  kv::AdmitRequest request;
  request.tokens = asked.tokens;
  request.cache_namespace = asked.cache_namespace;
  request.use_cache = options_.prefix_cache && asked.use_cache;
  const TimeNs now = clock_.now();
  LookedUp answer;
  answer.prefix_cache = options_.prefix_cache;
  answer.found = cache_->inspect(request, now, asked.beyond_max);
  if (answer.found.lease) answer.lease_left_ns = answer.found.lease->expires - now;
  answer.prefill_token_ns = prefill_token_ns_;
  return answer;
}

/// Positions of the longest table without a token. Of a last block that forks still share, each of
/// them has an equal part, so that the sum over all counts it once.
double Core::slack_tokens(const Sequence& sequence) const {
  const uint64_t block_tokens = cache_->block_tokens();
  uint32_t longest = 0;
  for (uint32_t g = 1; g < groups_; ++g) {
    if (cache_->table(sequence.kv, g).size() > cache_->table(sequence.kv, longest).size()) {
      longest = g;
    }
  }
  const uint64_t covered = cache_->table(sequence.kv, longest).size() * block_tokens;
  const uint64_t tokens = sequence.tokens.size();
  if (tokens >= covered) return 0;
  const auto slack = static_cast<double>(covered - tokens);
  if (sequence.computed % block_tokens == 0 || tokens % block_tokens == 0) return slack;
  const uint32_t holders = cache_->tail_holders(sequence.kv, longest);
  const auto tail = static_cast<double>(block_tokens - tokens % block_tokens);
  return slack - tail + tail / holders;
}

void Core::stats(Stats& stats) const {
  stats = counters_;
  for (uint32_t g = 0; g < groups_; ++g) {
    const kv::BlockCounts counts = cache_->counts(g);
    stats.blocks_pool += counts.pool;
    stats.blocks_live += counts.live;
    stats.blocks_cached += counts.cached;
    stats.blocks_free += counts.free;
    stats.blocks_leased += counts.leased;
    stats.groups[g].blocks = counts;
    stats.pool_bytes += counts.pool * executor_.geometry().block_stride(g);
  }
  const kv::CacheCounters counters = cache_->counters();
  stats.committed_bytes = executor_.committed_bytes();
  stats.context_max = options_.context_max;
  stats.prefill_saved_ns = ledger_.prefill_saved_ns();
  stats.evictions = counters.evictions;
  stats.evictions_ceiling = counters.evictions_ceiling;
  stats.evictions_below_floor = counters.evictions_below_floor;
  stats.leases_broken = counters.leases_broken;
  stats.leases_refused = counters.leases_refused;
  stats.copies_on_write = counters.copies_on_write;
  const uint64_t token_bytes = executor_.geometry().token_bytes();
  double slack_tokens = 0;
  for (const Sequence* sequence : running_) slack_tokens += this->slack_tokens(*sequence);
  stats.slack_tokens = static_cast<uint64_t>(std::llround(slack_tokens));
  // A job's sequences stand side by side. Those that wait are not looked at: they may be many.
  const Job* counted = nullptr;
  for (const Sequence* sequence : running_) {
    const Job& job = *sequence->job;
    if (std::exchange(counted, &job) == &job) continue;
    ++stats.requests_running;
    stats.naive_reserve_bytes +=
        uint64_t{job.choices_left} * (job.prompt_tokens + job.tokens_max) * token_bytes;
  }
  stats.requests_waiting = static_cast<uint32_t>(jobs_.size()) - stats.requests_running;
}

void Core::check_invariants() const {
  cache_->check_invariants();
  if (curve_) curve_->check_invariants();
  for (std::size_t i = 1; i < running_.size(); ++i) PW_CHECK(older(*running_[i - 1], *running_[i]));
  for (std::size_t i = 1; i < preempted_.size(); ++i) {
    PW_CHECK(older(*preempted_[i - 1], *preempted_[i]));
  }
  if (!running_.empty() && !preempted_.empty()) {
    PW_CHECK(older(*running_.back(), *preempted_.front()));
  }
  PW_CHECK(cache_->sequences() == running_.size());
  for (uint32_t g = 0; g < groups_; ++g) {
    const kv::BlockCounts counts = cache_->counts(g);
    PW_CHECK(counts.live + counts.cached + counts.free == counts.pool);
    if (running_.empty()) PW_CHECK(counts.live == 0);
  }
  std::size_t unfinished = 0;
  for (const auto& [id, job] : jobs_) {
    PW_CHECK(job->choices_left > 0);
    PW_CHECK(job->told_tokens <= job->prompt_tokens);
    for (const auto& sequence : job->sequences) {
      if (sequence->finish != FinishReason::kNone) {
        PW_CHECK(!sequence->kv.valid());
        continue;
      }
      ++unfinished;
      PW_CHECK(sequence->computed <= sequence->tokens.size());
      if (sequence->kv.valid()) {
        PW_CHECK(sequence->computed <= cache_->tokens_covered(sequence->kv));
        PW_CHECK(sequence->tokens.size() <= options_.context_max);
      }
    }
  }
  PW_CHECK(unfinished == running_.size() + preempted_.size() + waiting_.size());
}

}  // namespace pagewise::engine
