// SPDX-License-Identifier: Apache-2.0
// Many decode steps in one move, for simulated machines.
//
// A step that only decodes changes four things of a sequence: a token is appended, the table grows
// where a block is full, what was written becomes findable, and counters move. Over several such
// steps all of that adds up, whatever the order, as long as three things hold:
//   - nobody waits who could be admitted: the queue is empty, or no slot is free for its head;
//   - the blocks that all tables will grow by can be had, so that nobody is preempted;
//   - no sequence writes what another one has written or is writing behind the same prefix. Which
//   of
//     two twins is findable, and whether the eviction of one loses anything, depends on the order.
//     Once a partly filled block of its own is findable, a sequence has left all known text.
#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"
#include "engine/core.h"

namespace pagewise::engine {

Core::QuietSteps Core::quiet_steps() const {
  if (running_.empty() || !preempted_.empty()) return {};
  if (running_.size() > std::min(step_tokens_, step_runs_)) return {};
  if (!waiting_.empty() && slots_used() + waiting_.front()->request.choices <= options_.seqs_max) {
    return {};
  }
  if (!options_.quotas.empty() || cache_->next_expiry()) return {};
  for (uint32_t g = 0; g < groups_; ++g) {
    if (cache_->window(g) != 0) return {};
  }
  const uint32_t block_tokens = cache_->block_tokens();
  QuietSteps quiet;
  quiet.rows = static_cast<uint32_t>(running_.size());
  uint64_t steps = UINT32_MAX;
  for (const Sequence* sequence : running_) {
    const Job& job = *sequence->job;
    const bool plain = job.request.choices == 1 && job.request.stops.empty() &&
                       job.request.prompt_logprobs < 0 && !sequence->matcher;
    if (!plain || !sequence->decoding()) return {};
    // The last token ends the sequence: that is for step.
    if (job.tokens_max < sequence->generated + 2) return {};
    steps = std::min<uint64_t>(steps, job.tokens_max - sequence->generated - 1);
    quiet.positions += sequence->computed;
    if (!job.use_cache) continue;
    if (sequence->computed % block_tokens == 0) return {};
    const BlockId tail = cache_->table(sequence->kv, 0)[sequence->computed / block_tokens];
    if (!cache_->findable(0, tail)) return {};
  }
  uint32_t available = UINT32_MAX;
  for (uint32_t g = 0; g < groups_; ++g) {
    available = std::min(available, cache_->counts(g).available());
  }
  const auto blocks_taken = [&](uint64_t count) {
    uint64_t blocks = 0;
    for (const Sequence* sequence : running_) {
      const uint64_t end = ceil_div(sequence->computed + count, block_tokens);
      const uint64_t have = cache_->table(sequence->kv, 0).size();
      blocks += end - std::min(end, have);
    }
    return blocks;
  };
  // The most steps whose blocks are there; usually all of them.
  uint64_t low = 0, high = steps;
  if (blocks_taken(high) <= available) low = high;
  while (low < high) {
    const uint64_t middle = low + (high - low + 1) / 2;
    if (blocks_taken(middle) <= available) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  quiet.steps = static_cast<uint32_t>(low);
  return quiet;
}

void Core::leap(uint32_t steps, TokenId token) {
  PW_CHECK(steps > 0 && !running_.empty());
  PW_CHECK(!tokenizer_.is_eog(token));
  for (Sequence* sequence : running_) {
    PW_CHECK(sequence->decoding());
    orders_.clear();
    PW_CHECK(cache_->ensure(sequence->kv, sequence->computed + steps, orders_).has_value());
    PW_CHECK(prepare(orders_).has_value());
    sequence->tokens.insert(sequence->tokens.end(), steps, token);
  }
  cache_->set_time(clock_.now());
  decode_turn_ = 0;  // all had theirs
  counters_.steps += steps;
  counters_.generation_tokens += uint64_t{steps} * running_.size();
  for (Sequence* sequence : running_) {
    sequence->computed += steps;
    sequence->generated += steps;
    sequence->job->completion_tokens += steps;
    cache_->publish(sequence->kv, std::span(sequence->tokens).first(sequence->computed));
    for (uint32_t g = 0; g < groups_; ++g) {
      const uint32_t held = cache_->held(sequence->kv, g);
      GroupStats& group = counters_.groups[g];
      group.sequence_rest_max = std::max(group.sequence_rest_max, held);
      group.sequence_step_max = std::max(group.sequence_step_max, held);
    }
    Delta delta;
    delta.choice = sequence->choice;
    delta.completion_tokens = sequence->generated;
    delta.logprob_sum = sequence->logprob_sum;
    sequence->job->sink->on_delta(std::move(delta));
  }
}

}  // namespace pagewise::engine
