// SPDX-License-Identifier: Apache-2.0
// The engine as the server sees it: submit, cancel, look. One thread owns all KV and scheduling
// state.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/operations.h"
#include "engine/request.h"
#include "kv/geometry.h"
#include "kv/kv_cache.h"
#include "model/executor.h"
#include "text/tokenizer.h"

namespace pagewise::engine {

struct Options {
  /// Served context, prompt and answer together; 0: no limit of its own. The engine lowers it to
  /// what executor and pool hold.
  uint32_t context_max = 0;
  uint32_t step_tokens = 512;
  /// While others decode, prompts are computed in chunks that are expected to keep a step within
  /// this time, by what earlier steps took; never under 32 tokens. 0: step_tokens alone decides. A
  /// long context makes each token dearer, so that a bound on tokens alone lets gaps grow with it
  /// (C21).
  TimeNs step_ns_target = 250'000'000;
  uint32_t seqs_max = 64;    // running sequences
  uint32_t queue_max = 256;  // waiting requests
  bool prefix_cache = true;
  bool cache_curve = false;  // keep what other sizes of memory would find (cache_curve.h)
  double protected_share = kv::CacheConfig().protected_share;  // eviction; 0: plain LRU
  bool shuffle_blocks = false;  // debug: block ids in shuffled order; the same bits must come
  uint64_t shuffle_seed = 0;
  TimeNs lease_5m_ns = 300'000'000'000;
  TimeNs lease_1h_ns = 3'600'000'000'000;
  double lease_share = 0.5;
  uint32_t cache_tokens_min = 0;  // markers below this many tokens do not count; 0: one block
  uint32_t tariffs = 1;           // that the ledger tells apart (CacheOptions::tariff)
  kv::CacheMode cache_mode = kv::CacheMode::kNative;  // what joining a running prefill is called
  std::vector<NamespaceQuota> quotas;  // by account (CacheOptions); floors must fit the pool
  /// Memory of blocks that have been free for so long goes back to the system.
  TimeNs idle_release_ns = 10'000'000'000;
};

/// One layer group's pool, and the most of its blocks that one sequence has held: at rest between
/// steps, and during a step (design section 4 bounds both for sliding groups).
struct GroupStats {
  kv::BlockCounts blocks;
  uint32_t sequence_rest_max = 0, sequence_step_max = 0;
};

/// A consistent snapshot, taken between steps. Blocks are summed over the layer groups, each with
/// its own pool: live + cached + free == pool holds for every group and so for the sums.
struct Stats {
  uint32_t blocks_pool = 0, blocks_live = 0, blocks_cached = 0, blocks_free = 0, blocks_leased = 0;
  uint32_t requests_running = 0, requests_waiting = 0;
  uint64_t slack_tokens = 0;  // allocated but unused positions of live sequences, longest tables
  uint64_t naive_reserve_bytes = 0;  // what reserving every running request's maximum would take
  // Counters, never decreasing. A finished request counts once, by the reason of its first choice.
  uint64_t prompt_tokens = 0, generation_tokens = 0;
  uint64_t prefix_query_tokens = 0, prefix_hit_tokens = 0;
  uint64_t cache_created_tokens = 0, cache_read_tokens = 0;  // contractual
  /// By kCurveFactors: the hit rate that so much memory would have; none without the curve, or
  /// with too little traffic for it.
  std::optional<std::array<double, kCurveFactors.size()>> predicted_hit_rates;
  /// What reused tokens would have taken to compute (docs/operating.md).
  TimeNs prefill_saved_ns = 0;
  uint64_t preemptions = 0, evictions = 0, leases_broken = 0, leases_refused = 0;
  uint64_t evictions_ceiling = 0, evictions_below_floor = 0;  // of the evictions (kv_cache.h)
  uint64_t prefix_waits = 0;     // requests that waited for a prefix that another was computing
  uint64_t copies_on_write = 0;  // blocks that a choice copied because another held them, too
  uint64_t blocks_returned = 0;  // whose memory went back to the system
  uint64_t pool_bytes = 0, committed_bytes = 0;  // the pool's ceiling, and the memory it takes now
  uint32_t context_max = 0;                      // served
  uint64_t pool_resizes = 0;
  uint64_t finished_stop = 0, finished_length = 0, finished_cancelled = 0, finished_error = 0;
  uint64_t steps = 0;
  std::vector<GroupStats> groups;  // as in Geometry::groups
};

/// Thread: submit, cancel, look_up, stats and what operators ask from any thread; everything else
/// on the engine's own.
class Engine {
 public:
  /// All must outlive the engine. Starts the engine thread.
  Engine(model::Executor& executor, const text::Tokenizer& tokenizer, const Clock& clock,
         Options options);
  ~Engine();  // finishes every request with kCancelled

  /// Why the engine could not start (options that leave no room, times or shares that mean
  /// nothing); submit then refuses everything with the same reason.
  const Status& start_status() const;

  /// Refusals that need no waiting come back here: kContextTooLong (message has both numbers),
  /// kInvalidArgument, kOverloaded (queue full). Otherwise `sink` hears the rest; the engine keeps
  /// it alive until on_finished has returned.
  Result<RequestId> submit(Request request, std::shared_ptr<RequestSink> sink);
  /// Frees the request's blocks within one step; its sink hears on_finished(kCancelled). Unknown
  /// ids are ignored.
  void cancel(RequestId request);
  Stats stats() const;

  // What is asked between two steps. `done` is called once, on the engine thread before the next
  // step, after statistics know of it, and must not block; with kCancelled when the engine stops
  // before, and on this thread with kOverloaded when too many such calls wait.
  template <typename T>
  using Done = std::function<void(Result<T>)>;
  /// Error, on this thread: kInvalidArgument for no tokens.
  void look_up(LookUp asked, Done<LookedUp> done);
  // For operators (Core has what each does).
  void resize(std::vector<uint32_t> blocks, Done<PoolReport> done);
  void report_pool(Done<PoolReport> done);
  void report_cache(Done<CacheReport> done);
  void report_curve(Done<CurveReport> done);
  void clear_cache(std::optional<std::string> name, Done<Cleared> done);

  /// As given, with context_max lowered to what was served at the start.
  const Options& options() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pagewise::engine
