// SPDX-License-Identifier: Apache-2.0
// What /metrics shows. Names are vLLM's where the meaning is the same (counters count tokens and
// end in _total), so that existing dashboards and cache-aware routers work; `pagewise_*` for the
// rest.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace pagewise::telemetry {

/// The layers of one attention kind: a pool of its own.
struct GroupInfo {
  uint32_t window = 0;       // 0: full attention
  uint64_t block_bytes = 0;  // that one block takes in memory
};

/// What does not change while the server runs; pool and context are those at the start.
struct StaticInfo {
  std::string model_name;
  uint32_t block_tokens = 0;
  uint32_t blocks_pool = 0;
  uint64_t block_bytes = 0;  // of one block of each group, without rounding to pages
  uint64_t tokens_held = 0;  // that can be kept in all (kv/pool_split.h)
  uint32_t context_max = 0;
  std::string kv_type;
  bool prefix_cache = true;
  std::vector<GroupInfo> groups;
  uint64_t weight_bytes = 0;   // of memory
  uint64_t working_bytes = 0;  // that computing takes beside weights and KV, from the start
};

/// One group at one moment.
struct GroupSnapshot {
  uint32_t blocks_pool = 0, blocks_live = 0, blocks_cached = 0, blocks_free = 0;
  /// The most blocks that one sequence has held, since start.
  uint32_t sequence_rest_max = 0, sequence_step_max = 0;
};

/// The hit rate that the prefix cache would have with so many times the memory.
struct PredictedHits {
  double memory_factor = 1, ratio = 0;
};

/// The engine's numbers at one moment; counters are totals since start.
struct EngineSnapshot {
  uint32_t blocks_pool = 0, blocks_live = 0, blocks_cached = 0, blocks_free = 0, blocks_leased = 0;
  uint32_t requests_running = 0, requests_waiting = 0;
  uint64_t slack_tokens = 0;
  uint64_t naive_reserve_bytes = 0;
  uint64_t prompt_tokens = 0, generation_tokens = 0;
  uint64_t prefix_query_tokens = 0, prefix_hit_tokens = 0;
  uint64_t cache_created_tokens = 0, cache_read_tokens = 0;
  uint64_t preemptions = 0, evictions = 0, blocks_returned = 0, leases_broken = 0;
  uint64_t evictions_ceiling = 0, evictions_below_floor = 0;
  std::vector<PredictedHits> predicted_hits;  // always of the same factors; none: not known
  double prefill_saved_s = 0;
  uint64_t finished_stop = 0, finished_length = 0, finished_cancelled = 0, finished_error = 0;
  uint64_t steps = 0;
  std::vector<GroupSnapshot> groups;  // as in StaticInfo
  // The pool may be resized: what it may take, what it takes, and the context that it serves.
  uint64_t pool_bytes = 0, committed_bytes = 0;
  uint64_t tokens_held = 0;  // that can be kept in all
  uint32_t context_max = 0;
  uint64_t pool_resizes = 0;
  uint64_t resident_bytes = 0;  // of the whole process; 0: not known
};

/// One finished request. Times in seconds; negative: it never got that far.
struct RequestSample {
  double queue_s = -1, prefill_s = -1, first_token_s = -1, total_s = -1;
  uint32_t prompt_tokens = 0, computed_tokens = 0, completion_tokens = 0;
  uint32_t choices = 1;
  uint64_t max_tokens = 0;
};

/// Thread: any.
class Metrics {
 public:
  explicit Metrics(const StaticInfo& info);
  ~Metrics();

  void observe_request(const RequestSample& sample);
  /// `count` tokens came `gap_s` after the ones before them.
  void observe_tokens(double gap_s, uint32_t count);
  /// One HTTP answer, by route and status.
  void count_http(std::string_view route, int status);

  /// A request that was refused because too much was under way already.
  enum class Limit : uint8_t { kQueue, kKeyRequests, kKeyTokens };
  void count_refusal(Limit limit);

  /// The Prometheus text format, with the engine's numbers of now.
  std::string render(const EngineSnapshot& snapshot);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pagewise::telemetry
