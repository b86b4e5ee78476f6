// SPDX-License-Identifier: Apache-2.0
#include "simulate/replica.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace pagewise::simulate {
namespace {

constexpr TimeNs kClockNsMax = TimeNs{1} << 61;
// Memory is looked at in every sample_ns, or in this part of the time so far.
constexpr TimeNs kLooksMin = 1024;

void mark(engine::CacheOptions& cache, std::span<const workload::Piece> pieces,
          kv::LeaseClass lease) {
  uint32_t end = 0;
  for (const workload::Piece& piece : pieces) cache.positions.push_back({end += piece.tokens});
  cache.markers.push_back({0, lease});
  if (pieces.size() > 1) cache.markers.push_back({static_cast<uint32_t>(pieces.size()) - 1, lease});
}

void raise_to(std::vector<uint32_t>& most, const std::vector<uint32_t>& other) {
  most.resize(std::max(most.size(), other.size()), 0);
  for (std::size_t i = 0; i < other.size(); ++i) most[i] = std::max(most[i], other[i]);
}

}  // namespace

void Measured::merge(const Measured& other) {
  offered += other.offered;
  served += other.served;
  failed += other.failed;
  refused_queue += other.refused_queue;
  refused_context += other.refused_context;
  prompt_tokens += other.prompt_tokens;
  cached_tokens += other.cached_tokens;
  output_tokens += other.output_tokens;
  first_token.merge(other.first_token);
  gap.merge(other.gap);
  queue.merge(other.queue);
  last_ns = std::max(last_ns, other.last_ns);
  busy_ns += other.busy_ns;
  preemptions += other.preemptions;
  evictions += other.evictions;
  evictions_ceiling += other.evictions_ceiling;
  evictions_below_floor += other.evictions_below_floor;
  prefix_waits += other.prefix_waits;
  steps += other.steps;
  marked_read_tokens += other.marked_read_tokens;
  marked_created_tokens += other.marked_created_tokens;
  leases_broken += other.leases_broken;
  leases_refused += other.leases_refused;
  raise_to(sequence_rest_max, other.sequence_rest_max);
  raise_to(sequence_step_max, other.sequence_step_max);
  positions_held += other.positions_held;
  positions_unused += other.positions_unused;
  positions_reserved += other.positions_reserved;
}

/// What one request's client would see.
class Replica::Client final : public engine::RequestSink {
 public:
  Client(Replica& replica, uint32_t prompt_tokens)
      : replica_(replica), prompt_tokens_(prompt_tokens) {}

  void on_admitted(const engine::Admission& admission) override {
    Measured& measured = replica_.measured_;
    measured.prompt_tokens += admission.prompt_tokens;
    measured.cached_tokens += admission.cached_tokens;
    measured.marked_read_tokens += admission.cache_read_tokens;
    measured.marked_created_tokens +=
        admission.cache_created_5m_tokens + admission.cache_created_1h_tokens;
    measured.queue.add(admission.queue_ns);
    replica_.prompt_tokens_open_ -= admission.cached_tokens;
    prompt_tokens_ -= admission.cached_tokens;
  }
  void on_delta(engine::Delta&& delta) override {
    if (delta.completion_tokens == 0) return;
    const TimeNs now = replica_.clock_.now();
    if (last_ns_ < 0) {
      answer_begins();
    } else {
      // Of a leap's tokens the first alone: not all that run get one in every step before.
      replica_.measured_.gap.add(replica_.leap_first_ns_.value_or(now) - last_ns_);
    }
    last_ns_ = now;
  }
  void on_finished(const engine::Finished& finished) override {
    answer_begins();
    --replica_.requests_open_;
    Measured& measured = replica_.measured_;
    measured.output_tokens += finished.completion_tokens;
    measured.last_ns = std::max(measured.last_ns, replica_.clock_.now());
    if (finished.status) {
      ++measured.served;
      measured.first_token.add(finished.first_ns);
    } else {
      ++measured.failed;
    }
  }

 private:
  void answer_begins() { replica_.prompt_tokens_open_ -= std::exchange(prompt_tokens_, 0); }

  Replica& replica_;
  uint32_t prompt_tokens_;  // 0 once the answer has begun
  TimeNs last_ns_ = -1;     // of the last token
};

Replica::Replica(const ReplicaOptions& options)
    : options_(options),
      executor_(options_.calibration, options_.geometry, options.blocks, clock_),
      next_sample_ns_(options.sample_ns) {
  PW_CHECK(options.sample_ns > 0);
}

// What still runs ends now, and its clients count that.
Replica::~Replica() { core_.reset(); }

Result<std::unique_ptr<Replica>> Replica::create(const ReplicaOptions& options) {
  auto replica = std::unique_ptr<Replica>(new Replica(options));
  PW_ASSIGN_OR_RETURN(replica->core_, engine::Core::create(replica->executor_, replica->tokenizer_,
                                                           replica->clock_, options.engine));
  return replica;
}

void Replica::offer(RequestId id, std::vector<TokenId> prompt,
                    std::span<const workload::Piece> pieces, uint32_t output_tokens,
                    TimeNs arrival_ns) {
  ++measured_.offered;
  // An idle machine has waited.
  if (core_->idle()) clock_.set(std::max(clock_.now(), arrival_ns));
  engine::Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = output_tokens;
  request.sampling.temperature = 0;
  request.ignore_eos = true;
  if (options_.mark) mark(request.cache, pieces, *options_.mark);
  if (!core_->check(request)) {
    ++measured_.refused_context;
    return;
  }
  if (core_->waiting() >= options_.engine.queue_max) {
    ++measured_.refused_queue;
    return;
  }
  const auto prompt_tokens = static_cast<uint32_t>(request.prompt.size());
  ++requests_open_;
  prompt_tokens_open_ += prompt_tokens;
  core_->submit(id, std::move(request), std::make_shared<Client>(*this, prompt_tokens), arrival_ns);
}

Status Replica::run_until(TimeNs until_ns) {
  while (!core_->idle() && clock_.now() < until_ns) {
    if (clock_.now() > kClockNsMax) {
      return {ErrorCode::kInvalidArgument,
              "the simulated time goes beyond 70 years: a faster calibration, or fewer requests"};
    }
    leap_or_step(until_ns);
    if (clock_.now() >= next_sample_ns_) look_at_memory();
  }
  return Status::ok();
}

void Replica::leap_or_step(TimeNs until_ns) {
  // What a window saves is known of each sequence, not of their sum.
  const bool leap = options_.leap && options_.calibration.window == 0;
  const engine::Core::QuietSteps quiet = leap ? core_->quiet_steps() : engine::Core::QuietSteps();
  if (quiet.steps < 2) {
    core_->step();
    return;
  }
  // Arrivals and looks at memory come between steps: here, too.
  const TimeNs end_ns = std::min(until_ns, next_sample_ns_);
  workload::StepWork work;
  work.rows = quiet.rows;
  work.row_positions = quiet.positions;
  executor_.take(work);
  leap_first_ns_ = clock_.now();
  uint32_t steps = 1;
  for (; steps < quiet.steps && clock_.now() < end_ns; ++steps) {
    work.row_positions += quiet.rows;
    measured_.gap.add(executor_.take(work), quiet.rows);
  }
  core_->leap(steps, workload::kAnswerToken);
  leap_first_ns_.reset();
  ++leaps_;
}

/// A look costs as much as there are requests, so looks become rarer as time goes on, and count for
/// as many sample_ns as they are apart.
void Replica::look_at_memory() {
  const TimeNs now = clock_.now();
  const TimeNs apart = std::max(options_.sample_ns, now / kLooksMin);
  const auto weight = static_cast<uint64_t>(apart / options_.sample_ns);
  next_sample_ns_ = now + apart;
  core_->stats(stats_);
  measured_.positions_held += weight * positions_live();
  measured_.positions_unused += weight * stats_.slack_tokens;
  measured_.positions_reserved +=
      weight * (stats_.naive_reserve_bytes / options_.geometry.token_bytes());
}

/// As of `stats_`.
uint64_t Replica::positions_live() const {
  unsigned __int128 bytes = 0;
  for (uint32_t g = 0; g < stats_.groups.size(); ++g) {
    bytes += static_cast<unsigned __int128>(stats_.groups[g].blocks.live) *
             options_.geometry.block_bytes(g);
  }
  return static_cast<uint64_t>(bytes / options_.geometry.token_bytes());
}

uint32_t Replica::cached_tokens(const std::vector<TokenId>& prompt) const {
  engine::LookUp asked;
  asked.tokens = prompt;
  return core_->look_up(asked).found.cached_tokens;
}

Measured Replica::measured() const {
  Measured all = measured_;
  const engine::Stats stats = core_->stats();
  all.busy_ns = executor_.busy_ns();
  all.preemptions = stats.preemptions;
  all.evictions = stats.evictions;
  all.evictions_ceiling = stats.evictions_ceiling;
  all.evictions_below_floor = stats.evictions_below_floor;
  all.prefix_waits = stats.prefix_waits;
  all.steps = stats.steps;
  all.leases_broken = stats.leases_broken;
  all.leases_refused = stats.leases_refused;
  for (const engine::GroupStats& group : stats.groups) {
    all.sequence_rest_max.push_back(group.sequence_rest_max);
    all.sequence_step_max.push_back(group.sequence_step_max);
  }
  return all;
}

}  // namespace pagewise::simulate
