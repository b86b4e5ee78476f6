// SPDX-License-Identifier: Apache-2.0
// One step: who computes what next, and the blocks for it. What becomes of its logits:
// core_output.cc.
#include <algorithm>
#include <vector>

#include "base/check.h"
#include "engine/core.h"

namespace pagewise::engine {
namespace {

// Rows of logits that a step computes beside those it samples from, for prompts whose own tokens
// are to be scored: each is reduced to a few numbers before the next step, so this many rows of the
// vocabulary is all the memory that it takes (32 x 49,152 x 4 B = 6 MiB).
constexpr uint32_t kScoredRowsMax = 32;

// Smaller chunks of a prompt are not worth a step: the weights are read for each anew.
constexpr uint32_t kChunkMin = 32;

}  // namespace

bool Core::step() {
  if (jobs_.empty()) return false;
  tend();
  runs_.clear();
  admit_waiting();
  cover_next_tokens();
  plan_runs();
  cover_runs();
  if (runs_.empty()) return !jobs_.empty();

  step_runs_scratch_.clear();
  tables_.clear();
  tables_.reserve(runs_.size() * groups_);  // spans of it are taken below
  for (Run& run : runs_) {
    const std::size_t first_table = tables_.size();
    for (uint32_t g = 0; g < groups_; ++g) {
      tables_.push_back(cache_->table(run.sequence->kv, g));
      note_held(run, g, counters_.groups[g].sequence_step_max);
    }
    model::StepRun step_run;
    step_run.tokens = std::span(run.sequence->tokens).subspan(run.sequence->computed, run.tokens);
    step_run.position = run.sequence->computed;
    step_run.tables = std::span(tables_).subspan(first_table, groups_);
    step_run.logits_rows = logits_rows(run);
    step_runs_scratch_.push_back(step_run);
  }
  const TimeNs begin_ns = clock_.now();
  const Result<model::LogitsView> logits = executor_.step(step_runs_scratch_);
  const TimeNs end_ns = clock_.now();
  learn_step_time(end_ns - begin_ns);
  cache_->set_time(end_ns);  // what becomes free now has not been idle during the step
  ++counters_.steps;
  if (logits) {
    complete_runs(*logits);
  } else {
    fail_runs(logits.status());
  }
  return !jobs_.empty();
}

void Core::note_held(const Run& run, uint32_t group, uint32_t& most) const {
  most = std::max(most, cache_->held(run.sequence->kv, group));
}

/// What the cache ordered, before anything else can be handed out.
Status Core::prepare(const kv::Orders& orders) {
  for (uint32_t g = 0; g < groups_; ++g) {
    fresh_.clear();
    for (const kv::FreshBlock& fresh : orders.fresh) {
      if (fresh.group == g) fresh_.push_back(fresh.block);
    }
    if (!fresh_.empty()) PW_RETURN_IF_ERROR(executor_.commit(g, fresh_));
  }
  for (const kv::CopyOrder& copy : orders.copies) {
    executor_.copy(copy.group, copy.from, copy.to, copy.positions);
  }
  return Status::ok();
}

void Core::tend() {
  const TimeNs now = clock_.now();
  cache_->set_time(now);
  for (uint32_t g = 0; g < groups_; ++g) {
    idle_.clear();
    cache_->take_idle(g, now - options_.idle_release_ns, idle_);
    if (!idle_.empty()) executor_.release(g, idle_);
    counters_.blocks_returned += idle_.size();
  }
}

std::optional<TimeNs> Core::next_tend() const {
  std::optional<TimeNs> next = cache_->next_expiry();
  if (const std::optional<TimeNs> since = cache_->oldest_idle()) {
    const TimeNs due = *since + options_.idle_release_ns;
    if (!next || due < *next) next = due;
  }
  return next;
}

/// Room for the next position of every sequence, oldest first; when a pool has no block left, the
/// youngest sequence gives up its own. Prompts have it since their admission, but in sliding
/// groups.
void Core::cover_next_tokens() {
  std::size_t i = 0;
  while (i < running_.size()) {
    Sequence& sequence = *running_[i];
    orders_.clear();
    Status status = cache_->ensure(sequence.kv, sequence.computed + 1, orders_);
    if (status) {
      status = prepare(orders_);
      if (status) {
        ++i;
        continue;
      }
    } else if (status.code() == ErrorCode::kPoolExhausted && running_.size() > 1) {
      preempt(*running_.back());  // perhaps this very one: then the loop has reached its end
      continue;
    }
    end_early(*sequence.job, status, FinishReason::kError);
    i = 0;  // several sequences may have left; what is covered stays covered
  }
}

/// Prompt positions from here on that the next `tokens` rows of a sequence are the first to tell
/// the log-probabilities behind: [begin, end), empty for who did not ask.
Core::Positions Core::positions_to_score(const Sequence& sequence, uint32_t tokens) {
  const Job& job = *sequence.job;
  if (job.prompt_told()) return {};
  // The row at position p tells of token p + 1, and token 0 has none.
  const uint32_t begin = std::max(sequence.computed, std::max(job.told_tokens, 1U) - 1);
  const uint32_t end = std::min(sequence.computed + tokens, job.prompt_tokens - 1);
  return {begin, std::max(begin, end)};
}

/// Rows whose logits a run needs: the prompt's that are to be scored, and the last one to sample
/// from. Both together are consecutive, because a prompt is told before its answer begins.
std::span<const uint32_t> Core::logits_rows(const Run& run) const {
  const Positions score = positions_to_score(*run.sequence, run.tokens);
  const uint32_t begin =
      score.size() > 0 ? score.begin - run.sequence->computed : run.tokens - (run.logits ? 1 : 0);
  const uint32_t count = score.size() + (run.logits ? 1 : 0);
  PW_CHECK(begin + count <= run.tokens);
  return std::span(row_numbers_).subspan(begin, count);
}

void Core::add_run(Sequence& sequence, uint32_t tokens) {
  Run run;
  run.sequence = &sequence;
  run.tokens = tokens;
  run.logits = tokens == sequence.remaining() && sequence.job->tokens_max > 0;
  runs_.push_back(run);
}

void Core::plan_runs() {
  uint32_t budget = step_tokens_;
  std::size_t decodes = 0;
  for (const Sequence* sequence : running_) decodes += sequence->decoding() ? 1 : 0;
  // Prompts get what the decodes leave; of a step that decodes alone could fill, a quarter, so that
  // prompts are not shut out for as long as answers last. A step of one row alternates.
  std::size_t rows = std::min(budget, step_runs_);
  if (decodes >= rows && decodes < running_.size()) {
    rows -= rows >= 2 ? std::max<std::size_t>(1, rows / 4) : counters_.steps % 2;
  }
  const std::size_t fit = std::min(decodes, rows);
  // All decodes, or as many as fit, taking turns.
  std::size_t skip = fit < decodes ? decode_turn_ % decodes : 0;
  for (std::size_t round = 0; round < 2 && runs_.size() < fit; ++round) {
    for (Sequence* sequence : running_) {
      if (runs_.size() == fit) break;
      if (!sequence->decoding()) continue;
      if (skip > 0) {
        --skip;
      } else {
        add_run(*sequence, 1);
      }
    }
  }
  decode_turn_ = fit < decodes ? (decode_turn_ + fit) % decodes : 0;
  budget = prompt_budget(budget - static_cast<uint32_t>(fit), fit);
  uint32_t score_budget = kScoredRowsMax;
  for (Sequence* sequence : running_) {
    if (budget == 0 || runs_.size() == step_runs_) break;
    if (sequence->decoding()) continue;
    uint32_t tokens = std::min(budget, sequence->remaining());
    const Positions score = positions_to_score(*sequence, tokens);
    if (score.size() > score_budget) tokens = score.begin + score_budget - sequence->computed;
    if (tokens == 0) continue;
    add_run(*sequence, tokens);
    score_budget -= std::min(score.size(), score_budget);
    budget -= tokens;
  }
}

/// Room for the whole of every run. Where a sliding group lacks blocks for it, the run is cut to
/// what there is: its first token at least.
void Core::cover_runs() {
  std::size_t i = 0;
  while (i < runs_.size()) {
    Run& run = runs_[i++];
    Sequence& sequence = *run.sequence;
    if (run.tokens == 1) continue;
    const uint32_t end = cache_->coverable(sequence.kv, sequence.computed + run.tokens);
    PW_CHECK(end > sequence.computed);
    if (end < sequence.computed + run.tokens) {
      run.tokens = end - sequence.computed;
      run.logits = false;
    }
    orders_.clear();
    Status status = cache_->ensure(sequence.kv, end, orders_);
    PW_CHECK(status.has_value());
    status = prepare(orders_);
    if (status) continue;
    Job* const job = sequence.job;
    std::erase_if(runs_, [&](const Run& other) { return other.sequence->job == job; });
    end_early(*job, status, FinishReason::kError);
    i = 0;  // earlier runs may have left; what is covered stays covered
  }
}

/// Prompt tokens of a step that `decodes` sequences decode in: what the budget of tokens leaves, or
/// less where that would take too long. How a prompt is cut never shows in the results.
uint32_t Core::prompt_budget(uint32_t budget, std::size_t decodes) const {
  if (decodes == 0 || options_.step_ns_target == 0 || prefill_token_ns_ == 0) return budget;
  const auto rows = static_cast<uint64_t>(options_.step_ns_target / prefill_token_ns_);
  const uint64_t tokens = rows - std::min<uint64_t>(rows, decodes);
  return static_cast<uint32_t>(std::min<uint64_t>(budget, std::max<uint64_t>(tokens, kChunkMin)));
}

void Core::learn_step_time(TimeNs step_ns) {
  uint32_t rows = 0;
  for (const Run& run : runs_) rows += run.tokens;
  // A step of few rows tells nothing: the weights dominate it.
  if (rows >= std::min(kChunkMin, step_tokens_) && rows > runs_.size()) {
    prefill_token_ns_ = step_ns / rows;
    prefill_ns_ += step_ns;
    prefill_rows_ += rows;
  }
}

/// The step did not happen: whoever had a part in it ends with the executor's words.
void Core::fail_runs(const Status& status) {
  std::vector<RequestId> failed;
  for (const Run& run : runs_) failed.push_back(run.sequence->job->id);
  fail(failed, status);
}

/// Those of the requests that are still here end with an error; an id may stand there twice.
void Core::fail(std::span<const RequestId> requests, const Status& status) {
  for (const RequestId id : requests) {
    const auto it = jobs_.find(id);
    if (it != jobs_.end()) end_early(*it->second, status, FinishReason::kError);
  }
}

}  // namespace pagewise::engine
