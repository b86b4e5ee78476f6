// SPDX-License-Identifier: Apache-2.0
// Who runs: the queue, look-up and admission, and waiting for a prefix that another one computes.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/core.h"

namespace pagewise::engine {
namespace {

// Room that admission leaves for the sequences that are already decoding: this many tokens each, so
// that a newcomer is not admitted only to be preempted a few steps later; at most an eighth of the
// pool.
constexpr uint32_t kHeadroomTokens = 16;

}  // namespace

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

}  // namespace pagewise::engine
