// SPDX-License-Identifier: Apache-2.0
// Cache diagnostics of the Messages API (reference B13): where a request first differs from an
// earlier one. It compares what was asked, whether or not the cache hit, and keeps digests and
// counts only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "server/generation.h"
#include "server/prompt.h"

namespace pagewise::server {

/// One request's parts as digests. `ends` are tokens from the start through each block.
struct Fingerprint {
  /// Blocks of messages that are compared; behind them the answer is "unavailable".
  static constexpr std::size_t kBlocksMax = 4096;

  std::string model;
  std::string speed;        // another speed is another model
  uint64_t tools = 0;       // 0: none
  uint64_t parameters = 0;  // others that belong to the prompt (tool_choice, thinking, effort)
  uint64_t system = 0;
  uint32_t system_end = 0;
  std::vector<uint64_t> blocks;
  std::vector<uint32_t> ends;
  bool too_deep = false;  // there are more blocks
  uint32_t tokens = 0;    // of the whole prompt

  std::size_t bytes() const;
};

Fingerprint make_fingerprint(const GenerationRequest& request, const Prompt& prompt);
/// null, or {"cache_miss_reason": {"type", "cache_missed_input_tokens"}} for the earliest
/// difference in the order model, tools, system, messages; without a number for "unavailable".
json::value compare(const Fingerprint& before, const Fingerprint& now);

/// Fingerprints of the last hour, by namespace and response id; at most kEntriesMax and kBytesMax,
/// oldest out first. Thread: any.
class DiagnosticsLog {
 public:
  static constexpr std::size_t kEntriesMax = 4096;
  static constexpr std::size_t kBytesMax = 16U << 20;
  static constexpr TimeNs kKeep = 3'600'000'000'000;

  /// Compares with the request that was answered under `previous_id` (empty: the first turn), then
  /// keeps `now` under `id`.
  json::value exchange(const std::string& cache_namespace, const std::string& previous_id,
                       const std::string& id, Fingerprint now, TimeNs at);
  std::size_t size() const;

 private:
  using Key = std::pair<std::string, std::string>;
  struct Entry {
    Fingerprint fingerprint;
    TimeNs at = 0;
  };
  void drop_oldest();

  mutable std::mutex mutex_;
  std::map<Key, Entry> entries_;  // guarded by mutex_
  std::deque<Key> order_;         // exactly the entries, oldest first; guarded by mutex_
  std::size_t bytes_ = 0;         // guarded by mutex_
};

}  // namespace pagewise::server
