// SPDX-License-Identifier: Apache-2.0
// Cache diagnostics of the Messages API (reference B13): where a request first differs from an
// earlier one. It compares what was asked, whether or not the cache hit, and keeps digests and
// counts only.
#pragma once

#include <cstdint>
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
  std::string model;
  uint64_t system = 0;
  uint32_t system_end = 0;
  std::vector<uint64_t> blocks;
  std::vector<uint32_t> ends;
  uint32_t tokens = 0;  // of the whole prompt
};

Fingerprint make_fingerprint(const GenerationRequest& request, const Prompt& prompt);
/// null, or {"cache_miss_reason": {"type", "cache_missed_input_tokens"}} for the earliest
/// difference.
json::value compare(const Fingerprint& before, const Fingerprint& now);

/// Fingerprints of the last hour, by namespace and response id; at most kEntriesMax, oldest out
/// first. Thread: any.
class DiagnosticsLog {
 public:
  static constexpr std::size_t kEntriesMax = 4096;
  static constexpr TimeNs kKeep = 3'600'000'000'000;

  /// Compares with the request that was answered under `previous_id` (empty: the first turn), then
  /// keeps `now` under `id`.
  json::value exchange(const std::string& cache_namespace, const std::string& previous_id,
                       const std::string& id, Fingerprint now, TimeNs at);

 private:
  using Key = std::pair<std::string, std::string>;
  struct Entry {
    Fingerprint fingerprint;
    TimeNs at = 0;
  };
  std::mutex mutex_;
  std::map<Key, Entry> entries_;               // guarded by mutex_
  std::vector<std::pair<TimeNs, Key>> order_;  // oldest first; guarded by mutex_
};

}  // namespace pagewise::server
