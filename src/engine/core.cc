// SPDX-License-Identifier: Apache-2.0
#include "engine/core.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "base/check.h"

namespace pagewise::engine {
namespace {

uint32_t limit(uint32_t a, uint32_t b) { return a == 0 ? b : b == 0 ? a : std::min(a, b); }

}  // namespace

Result<std::unique_ptr<Core>> Core::create(model::Executor& executor,
                                           const text::Tokenizer& tokenizer, const Clock& clock,
                                           const Options& options) {
  const kv::Geometry& geometry = executor.geometry();
  kv::CacheConfig config;
  config.block_tokens = geometry.block_tokens;
  for (uint32_t g = 0; g < geometry.groups.size(); ++g) {
    config.groups.push_back({executor.blocks(g), geometry.groups[g].window});
  }
  config.protected_share = options.protected_share;
  config.shuffle_blocks = options.shuffle_blocks;
  config.shuffle_seed = options.shuffle_seed;
  config.lease_5m_ns = options.lease_5m_ns;
  config.lease_1h_ns = options.lease_1h_ns;
  config.lease_share = options.lease_share;
  config.cache_tokens_min = options.cache_tokens_min;
  config.cache_mode = options.cache_mode;
  config.quotas = options.quotas;
  PW_ASSIGN_OR_RETURN(auto cache, kv::KvCache::create(config));
  auto core =
      std::unique_ptr<Core>(new Core(executor, tokenizer, clock, options, std::move(cache)));
  if (core->options_.context_max < 2) {
    return {ErrorCode::kInvalidArgument,
            "the context is " + std::to_string(core->options_.context_max) +
                " tokens: a prompt and an answer need at least 2; give more KV memory"};
  }
  if (core->step_tokens_ == 0 || core->step_runs_ == 0 || options.seqs_max == 0) {
    return {ErrorCode::kInvalidArgument, "step tokens and running sequences must be at least 1"};
  }
  return core;
}

Core::Core(model::Executor& executor, const text::Tokenizer& tokenizer, const Clock& clock,
           const Options& options, std::unique_ptr<kv::KvCache> cache)
    : executor_(executor),
      tokenizer_(tokenizer),
      clock_(clock),
      options_(options),
      groups_(cache->groups()),
      cache_(std::move(cache)),
      sampler_(executor.vocab_size()),
      ledger_(std::max(options.tariffs, 1U)) {
  const model::ExecutorLimits limits = executor.limits();
  std::vector<uint32_t> blocks;
  for (uint32_t g = 0; g < groups_; ++g) blocks.push_back(cache_->counts(g).pool);
  counters_.groups.resize(groups_);
  context_asked_ = limit(options.context_max, limits.context_max);
  serve_context(pool_tokens_of(executor.geometry(), blocks));
  step_tokens_ = limits.step_tokens_max == 0
                     ? options.step_tokens
                     : std::min(options.step_tokens, limits.step_tokens_max);
  step_runs_ =
      limits.step_runs_max == 0 ? std::numeric_limits<uint32_t>::max() : limits.step_runs_max;
  row_numbers_.resize(step_tokens_);
  std::iota(row_numbers_.begin(), row_numbers_.end(), 0U);
  if (options.cache_curve && options.prefix_cache) {
    curve_.emplace(cache_->block_tokens(), cached_tokens_max());
  }
}

Core::~Core() { cancel_all(); }

Status Core::check(const Request& request) const {
  const auto invalid = [](std::string message) {
    return Status(ErrorCode::kInvalidArgument, std::move(message));
  };
  if (request.prompt.empty()) return invalid("prompt: must have at least one token");
  const uint32_t context = context_served_;
  if (request.prompt.size() >= context) {
    std::string message = "prompt has " + std::to_string(request.prompt.size()) +
                          " tokens, the context is " + std::to_string(context) +
                          " tokens for prompt and answer together";
    if (context == pool_tokens_) message += " (as much as the KV memory holds)";
    return {ErrorCode::kContextTooLong, std::move(message)};
  }
  const uint32_t vocab_size = executor_.vocab_size();
  for (const TokenId token : request.prompt) {
    if (token.value < 0 || static_cast<uint32_t>(token.value) >= vocab_size) {
      return invalid("prompt: token id " + std::to_string(token.value) +
                     " is outside the vocabulary of " + std::to_string(vocab_size));
    }
  }
  if (request.choices == 0) return invalid("n: must be at least 1");
  if (request.choices > options_.seqs_max) {
    return invalid("n: " + std::to_string(request.choices) + " choices asked, at most " +
                   std::to_string(options_.seqs_max) + " sequences run at once");
  }
  for (const std::string& stop : request.stops) {
    if (stop.empty()) return invalid("stop: a stop string must not be empty");
  }
  if (request.grammar != nullptr) vocabulary();
  for (const sampling::TokenBias& bias : request.sampling.logit_bias) {
    if (bias.token.value < 0 || static_cast<uint32_t>(bias.token.value) >= vocab_size) {
      return invalid("logit_bias: token id " + std::to_string(bias.token.value) +
                     " is outside the vocabulary of " + std::to_string(vocab_size));
    }
  }
  return Status::ok();
}

void Core::submit(RequestId id, Request request, std::shared_ptr<RequestSink> sink,
                  TimeNs submitted_ns) {
  PW_CHECK(sink != nullptr);
  PW_CHECK(!request.prompt.empty());
  if (request.prompt.size() >= options_.context_max) {
    Finished finished;
    finished.status = check(request);
    ++counters_.finished_error;
    return sink->on_finished(finished);
  }
  PW_CHECK(jobs_.empty() || jobs_.rbegin()->first < id);
  auto job = std::make_unique<Job>();
  job->id = id;
  job->request = std::move(request);
  job->sink = std::move(sink);
  job->submitted_ns = submitted_ns;
  job->prompt_tokens = static_cast<uint32_t>(job->request.prompt.size());
  const uint32_t room = options_.context_max - job->prompt_tokens;
  job->clamped = job->request.max_tokens > room;
  job->tokens_max = job->clamped ? room : static_cast<uint32_t>(job->request.max_tokens);
  job->use_cache = options_.prefix_cache && job->request.cache.use_cache;
  job->choices_left = job->request.choices;

  auto sequence = std::make_unique<Sequence>();
  sequence->job = job.get();
  sequence->tokens = std::move(job->request.prompt);
  begin_output(*sequence);
  job->sequences.push_back(std::move(sequence));
  waiting_.push_back(job.get());
  jobs_.emplace(id, std::move(job));
}

void Core::cancel(RequestId id) {
  const auto it = jobs_.find(id);
  if (it == jobs_.end()) return;
  end_early(*it->second, Status(ErrorCode::kCancelled, "the request was cancelled"),
            FinishReason::kCancelled);
}

void Core::cancel_all() {
  while (!jobs_.empty()) cancel(jobs_.begin()->first);
}

void Core::end_early(Job& job, const Status& status, FinishReason reason) {
  std::erase(waiting_, &job);
  std::size_t left = 0;
  for (const auto& sequence : job.sequences) {
    if (sequence->kv.valid()) release(*sequence);
    std::erase(preempted_, sequence.get());
    left += sequence->finish == FinishReason::kNone ? 1 : 0;
  }
  for (const auto& sequence : job.sequences) {
    if (sequence->finish == FinishReason::kNone) end_visit(*sequence, --left > 0);
  }
  finish_job(job, status, reason);
}

void Core::finish_choice(Sequence& sequence, FinishReason reason) {
  Job& job = *sequence.job;
  release(sequence);
  end_visit(sequence, job.choices_left > 1);
  sequence.finish = reason;
  sequence.tokens = {};
  sequence.matcher.reset();
  if (--job.choices_left == 0) finish_job(job, Status::ok(), job.sequences.front()->finish);
}

void Core::finish_job(Job& job, const Status& status, FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
    case FinishReason::kStopString:
      ++counters_.finished_stop;
      break;
    case FinishReason::kLength:
    case FinishReason::kContext:
      ++counters_.finished_length;
      break;
    case FinishReason::kCancelled:
      ++counters_.finished_cancelled;
      break;
    case FinishReason::kError:
    case FinishReason::kNone:
      ++counters_.finished_error;
      break;
  }
  Finished finished;
  finished.status = status;
  finished.completion_tokens = job.completion_tokens;
  if (job.first_ns != 0) {
    finished.prefill_ns = job.first_ns - job.admitted_ns;
    finished.first_ns = job.first_ns - job.submitted_ns;
  }
  finished.total_ns = clock_.now() - job.submitted_ns;
  if (job.admitted) ledger_.generated(job.request.cache, job.completion_tokens);
  job.sink->on_finished(finished);
  jobs_.erase(job.id);
}

/// Gives the blocks up: what is findable stays cached, the rest becomes free.
void Core::release(Sequence& sequence) {
  PW_CHECK(sequence.kv.valid());
  cache_->release(sequence.kv);
  sequence.kv = SeqId();
  sequence.computed_most = std::max(sequence.computed_most, sequence.computed);
  sequence.computed = 0;
  const auto it = std::find(running_.begin(), running_.end(), &sequence);
  PW_CHECK(it != running_.end());
  running_.erase(it);
}

/// The curve hears of a sequence that has ended. Of one that is preempted it does not: with more
/// memory it would have run on.
void Core::end_visit(const Sequence& sequence, bool others_go_on) {
  const Job& job = *sequence.job;
  if (!curve_ || !job.use_cache || !job.admitted) return;
  curve_->ended(job.visit, {job.request.cache.cache_namespace, sequence.tokens, job.prompt_tokens,
                            sequence.computed_most, others_go_on});
}

void Core::preempt(Sequence& sequence) {
  PW_CHECK(running_.back() == &sequence && running_.front() != &sequence);
  release(sequence);
  preempted_.push_front(&sequence);  // the youngest that ran is the oldest that waits
  ++counters_.preemptions;
}

void Core::insert_running(Sequence& sequence) {
  running_.insert(
      std::upper_bound(running_.begin(), running_.end(), &sequence,
                       [](const Sequence* a, const Sequence* b) { return older(*a, *b); }),
      &sequence);
}

}  // namespace pagewise::engine
