// SPDX-License-Identifier: Apache-2.0
#include "engine/core.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "base/check.h"

namespace pagewise::engine {
namespace {

// Room that admission leaves for the sequences that are already decoding: this many tokens each, so
// that a newcomer is not admitted only to be preempted a few steps later; at most an eighth of the
// pool.
constexpr uint32_t kHeadroomTokens = 16;

// Rows of logits that a step computes beside those it samples from, for prompts whose own tokens
// are to be scored: each is reduced to a few numbers before the next step, so this many rows of the
// vocabulary is all the memory that it takes (32 x 49,152 x 4 B = 6 MiB).
constexpr uint32_t kScoredRowsMax = 32;

// Smaller chunks of a prompt are not worth a step: the weights are read for each anew.
constexpr uint32_t kChunkMin = 32;

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

// ---- Requests in, requests out ----------------------------------------------------------------

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

// ---- Admission ----------------------------------------------------------------------------------

uint32_t Core::slots_used() const {
  auto used = static_cast<uint32_t>(running_.size());
  for (const Sequence* sequence : running_) used += sequence->job->slots_reserved();
  return used;
}

uint32_t Core::headroom_tokens() const {
  return std::min(static_cast<uint32_t>(running_.size()) * kHeadroomTokens, pool_tokens_ / 8);
}

void Core::admit_waiting() {
  // Nobody overtakes a preempted sequence, or a request that waits for room. Only a request that
  // waits for a prefix being computed right now lets others pass.
  if (!resume_preempted()) return;
  std::size_t i = 0;
  while (i < waiting_.size()) {
    Job& job = *waiting_[i];
    if (slots_used() + job.request.choices > options_.seqs_max) return;
    switch (try_admit(*job.sequences.front())) {
      case Admit::kAdmitted:
        waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
        break;
      case Admit::kDeferred:
        ++i;
        break;
      case Admit::kFailed:
        break;  // it is gone
      case Admit::kNoRoom:
        return;
    }
  }
}

bool Core::resume_preempted() {
  while (!preempted_.empty()) {
    Sequence& sequence = *preempted_.front();
    if (slots_used() + 1 + sequence.job->slots_reserved() > options_.seqs_max) return false;
    switch (try_admit(sequence)) {
      case Admit::kAdmitted:
        preempted_.pop_front();
        break;
      case Admit::kFailed:
        break;
      case Admit::kNoRoom:
      case Admit::kDeferred:
        return false;
    }
  }
  return true;
}

kv::AdmitRequest Core::admit_request(const Sequence& sequence) const {
  const Job& job = *sequence.job;
  kv::AdmitRequest request;
  request.tokens = sequence.tokens;
  request.cache_namespace = job.request.cache.cache_namespace;
  request.use_cache = job.use_cache;
  request.read_cache = job.reads_cache();
  // Once the prompt has been computed its marked prefixes are written; until then they are
  // promised, also again after a preemption.
  if (job.use_cache && sequence.generated == 0 && job.request.prompt_logprobs < 0) {
    request.positions = job.request.cache.positions;
    request.markers = job.request.cache.markers;
  }
  request.cover_tokens = static_cast<uint32_t>(sequence.tokens.size());
  request.start = job.submitted_ns;
  if (job.admitted) {
    const auto all = static_cast<uint32_t>(sequence.tokens.size());
    request.resumes_from = sequence.generated > 0 ? all : sequence.computed_most;
  }
  return request;
}

Core::Admit Core::try_admit(Sequence& sequence) {
  Job& job = *sequence.job;
  if (prefix_is_coming(job)) return Admit::kDeferred;
  const TimeNs begin_ns = clock_.now();
  kv::AdmitRequest request = admit_request(sequence);
  request.cover_tokens += headroom_tokens();
  const kv::AdmitEstimate estimate = cache_->estimate(request);
  if (!job.admitted && find_coming_prefix(job, estimate.cached_tokens)) {
    if (!std::exchange(job.joined, true)) ++counters_.prefix_waits;
    return Admit::kDeferred;
  }
  request.cover_tokens -= headroom_tokens();
  // Alone it must be tried whatever the estimate says: waiting would change nothing.
  if (!estimate.fits_now && !running_.empty()) return Admit::kNoRoom;

  orders_.clear();
  Result<kv::Admitted> admitted = cache_->admit(request, orders_);
  if (!admitted) {
    if (!running_.empty() && admitted.error().code == ErrorCode::kPoolExhausted) {
      return Admit::kNoRoom;
    }
    end_early(job, admitted.status(), FinishReason::kError);
    return Admit::kFailed;
  }
  sequence.kv = admitted->seq;
  sequence.computed = admitted->cached_tokens;
  insert_running(sequence);
  if (Status status = prepare(orders_); !status) {
    end_early(job, status, FinishReason::kError);
    return Admit::kFailed;
  }
  if (!job.admitted) report_admission(job, *admitted, clock_.now() - begin_ns);
  return Admit::kAdmitted;
}

void Core::report_admission(Job& job, const kv::Admitted& admitted, TimeNs lookup_ns) {
  job.admitted = true;
  job.admitted_ns = clock_.now();
  Admission admission;
  admission.request = job.id;
  admission.prompt_tokens = job.prompt_tokens;
  admission.cached_tokens = admitted.cached_tokens;
  admission.cache_read_tokens = admitted.usage.read_tokens;
  admission.cache_created_5m_tokens = admitted.usage.created_5m_tokens;
  admission.cache_created_1h_tokens = admitted.usage.created_1h_tokens;
  admission.input_tokens = admitted.usage.input_tokens;
  const kv::Geometry& geometry = executor_.geometry();
  for (const kv::GroupGeometry& group : geometry.groups) {
    admission.blocks += static_cast<uint32_t>(
        kv::blocks_held(job.prompt_tokens, group.window, geometry.block_tokens));
  }
  admission.blocks_shared = admitted.blocks_shared;
  admission.queue_ns = job.admitted_ns - job.submitted_ns - lookup_ns;
  admission.lookup_ns = lookup_ns;

  counters_.prompt_tokens += job.prompt_tokens;
  if (job.use_cache && job.reads_cache()) {
    counters_.prefix_query_tokens += job.prompt_tokens;
    counters_.prefix_hit_tokens += admitted.cached_tokens;
  }
  const std::span<const TokenId> prompt =
      std::span(job.sequences.front()->tokens).first(job.prompt_tokens);
  if (curve_ && job.use_cache) {
    const auto found =
        job.reads_cache() ? std::optional(admitted.cached_tokens) : std::optional<uint32_t>();
    job.visit = curve_->admitted(job.request.cache.cache_namespace, prompt, found);
    counters_.predicted_hit_rates = curve_->predicted();
  }
  const double token_ns =
      prefill_rows_ == 0 ? 0
                         : static_cast<double>(prefill_ns_) / static_cast<double>(prefill_rows_);
  ledger_.admit({job.request.cache, admission, prompt, cache_->marker_tokens_min(), token_ns,
                 job.admitted_ns});
  counters_.cache_read_tokens += admitted.usage.read_tokens;
  counters_.cache_created_tokens +=
      admitted.usage.created_5m_tokens + admitted.usage.created_1h_tokens;
  job.sink->on_admitted(admission);
}

/// Whether the prefix that the request was found to share is still being computed.
bool Core::prefix_is_coming(const Job& job) const {
  if (!job.prefix_of.valid()) return false;
  return std::any_of(running_.begin(), running_.end(), [&](const Sequence* other) {
    return other->kv == job.prefix_of && other->computed < job.prefix_tokens;
  });
}

/// In-flight sharing: looks for a running sequence that is about to compute more of this prompt
/// than the cache holds, by a block at least, and remembers it.
bool Core::find_coming_prefix(Job& job, uint32_t cached_tokens) const {
  job.prefix_of = SeqId();
  if (!job.use_cache || !job.reads_cache()) return false;
  const std::vector<TokenId>& tokens = job.sequences.front()->tokens;
  uint32_t longest = cached_tokens + cache_->block_tokens() - 1;
  for (const Sequence* other : running_) {
    if (other->decoding() || !other->job->use_cache) continue;
    if (other->job->request.cache.cache_namespace != job.request.cache.cache_namespace) continue;
    // The last prompt token is computed by everyone himself.
    const std::size_t most = std::min(other->tokens.size(), tokens.size() - 1);
    const auto common = static_cast<uint32_t>(
        std::mismatch(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(most),
                      other->tokens.begin())
            .first -
        tokens.begin());
    if (common <= longest || common <= other->computed) continue;
    longest = common;
    job.prefix_of = other->kv;
    job.prefix_tokens = common;
  }
  return job.prefix_of.valid();
}

// ---- One step
// -------------------------------------------------------------------------------------

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

// ---- Looking in ---------------------------------------------------------------------------------

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
