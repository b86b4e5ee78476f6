// SPDX-License-Identifier: Apache-2.0
// One simulated server: the engine's own core on a simulated machine, with a clock of its own.
//
//   offer(request) ──▶ refused (too long, queue full)
//        │
//        ▼
//   core: queue, scheduler, pool, index ──▶ executor: the clock moves by what the step costs
//        │
//        └──▶ sinks: when was the first token, how long were the gaps
//
// Thread: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "engine/core.h"
#include "kv/pool_split.h"
#include "simulate/histogram.h"
#include "simulate/machine.h"
#include "workload/calibration.h"
#include "workload/trace.h"

namespace pagewise::simulate {

struct ReplicaOptions {
  workload::Calibration calibration = workload::default_calibration();
  kv::Geometry geometry;         // of the model's cache
  std::vector<uint32_t> blocks;  // of each group
  uint32_t split_sequences = 1;  // kv::PoolWish::sequences, of which the blocks were made
  engine::Options engine;        // queue_max counts here, too
  /// What `serve` would divide so much memory by.
  kv::PoolWish split_wish(uint64_t bytes) const {
    return {bytes, engine.context_max, engine.step_tokens, split_sequences};
  }
  /// Every prompt marks its first piece and its end, as agents mark what each call begins with and
  /// what the next turn continues; look-back walks the ends of its pieces. None: no markers.
  std::optional<kv::LeaseClass> mark;
  /// Steps of nothing but decodes are taken in one move. The same figures come without, later.
  bool leap = true;
  TimeNs sample_ns = 1'000'000'000;  // how often memory is looked at, at first
};

/// What happened, in numbers.
struct Measured {
  uint64_t offered = 0, served = 0, failed = 0;
  uint64_t refused_queue = 0, refused_context = 0;  // 529 and 400 of a server
  uint64_t prompt_tokens = 0, cached_tokens = 0;    // of what was admitted
  uint64_t output_tokens = 0;
  Histogram first_token;  // arrival to first token, of what was served
  Histogram gap;          // between two tokens of an answer
  Histogram queue;        // arrival to admission
  TimeNs last_ns = 0;     // when the last one ended
  TimeNs busy_ns = 0;
  uint64_t preemptions = 0, evictions = 0, evictions_ceiling = 0, evictions_below_floor = 0;
  uint64_t prefix_waits = 0, steps = 0;
  // Of markers: tokens that answers would have called read and created, entries that lost a block
  // before they expired, and markers that took no lease because the leases' share was used up.
  uint64_t marked_read_tokens = 0, marked_created_tokens = 0;
  uint64_t leases_broken = 0, leases_refused = 0;
  /// Blocks of each group: how many one sequence held at most, between steps and in them.
  std::vector<uint32_t> sequence_rest_max, sequence_step_max;
  // Of the looks at memory at which something ran: positions that were allocated, those of them
  // without a token, and what reserving each answer's full length at once would have taken. A
  // group's positions count by its share of a token's bytes.
  uint64_t positions_held = 0, positions_unused = 0, positions_reserved = 0;

  void merge(const Measured& other);
  bool operator==(const Measured&) const = default;
};

class Replica {
 public:
  /// Errors: those of engine::Core::create.
  /// Requires: a calibration's geometry, or a model's, and blocks for each of its groups.
  static Result<std::unique_ptr<Replica>> create(const ReplicaOptions& options);
  ~Replica();

  /// A request arrives. `pieces` of its prompt are where markers may stand. Requires:
  /// run_until(arrival_ns) before; ids ascend.
  void offer(RequestId id, std::vector<TokenId> prompt, std::span<const workload::Piece> pieces,
             uint32_t output_tokens, TimeNs arrival_ns);

  /// Does every step that begins before `until_ns`. Errors: kInvalidArgument when the simulated
  /// time goes beyond 70 years.
  Status run_until(TimeNs until_ns);
  /// Until nothing is left to do.
  Status finish() { return run_until(INT64_MAX); }

  // For routing.

  /// Prompt tokens that an arrival would find here.
  uint32_t cached_tokens(const std::vector<TokenId>& prompt) const;
  uint32_t requests_open() const { return requests_open_; }
  /// Prompt tokens of those whose answers have not begun; without what they found here, once that
  /// is known.
  uint64_t prompt_tokens_open() const { return prompt_tokens_open_; }

  Measured measured() const;
  uint64_t leaps() const { return leaps_; }
  const engine::Core& core() const { return *core_; }

 private:
  class Client;
  explicit Replica(const ReplicaOptions& options);
  void leap_or_step(TimeNs until_ns);
  void look_at_memory();
  uint64_t positions_live() const;

  const ReplicaOptions options_;
  SimClock clock_;
  SimulatedExecutor executor_;
  const WordlessTokenizer tokenizer_;
  std::unique_ptr<engine::Core> core_;
  Measured measured_;
  uint32_t requests_open_ = 0;
  uint64_t prompt_tokens_open_ = 0;
  TimeNs next_sample_ns_;
  std::optional<TimeNs> leap_first_ns_;  // during a leap: when its first step ended
  uint64_t leaps_ = 0;
  engine::Stats stats_;  // scratch
};

}  // namespace pagewise::simulate
