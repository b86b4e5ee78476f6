// SPDX-License-Identifier: Apache-2.0
// Places where the prompts of a namespace keep missing: counted, told once in the log, listed for
// the statistics. Places and causes only; no text of a prompt is here.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "base/clock.h"
#include "base/json.h"
#include "server/explain/cause.h"

namespace pagewise::server::explain {

struct Miss {
  std::string path;  // "system[0]", "messages[2].content[0]"
  Cause cause = Cause::kMoved;
  uint32_t token = 0;        // the first that was new
  uint32_t lost_tokens = 0;  // that could have been read
};

/// Thread: any.
class MissLog {
 public:
  /// A place is told of from so many misses on, and not again for a while.
  static constexpr uint32_t kTellFrom = 3;
  static constexpr TimeNs kTellAgain = 600'000'000'000;
  /// Places that have been quiet for so long are forgotten.
  static constexpr TimeNs kKeep = 3'600'000'000'000;
  static constexpr std::size_t kPlacesMax = 1024;  // the quietest go first

  /// The log line to write, if it is time for one.
  std::optional<std::string> add(std::string_view name_space, const Miss& miss, TimeNs now);
  /// [{"namespace", "path", "cause", "misses", "token", "lost_tokens", "age_s"}], most lost first;
  /// of one namespace and those below it, or of all. `age_s`: since the last miss.
  json::array list(std::optional<std::string_view> name_space, TimeNs now);
  /// Forgets one namespace and those below it, or all.
  void clear(std::optional<std::string_view> name_space = std::nullopt);

 private:
  using Key = std::tuple<std::string, std::string, Cause>;  // namespace, path, cause
  struct Place {
    uint64_t misses = 0, lost_tokens = 0;
    uint32_t token = 0;
    TimeNs last = 0;
    std::optional<TimeNs> told;
  };

  void drop_quiet(TimeNs now);

  std::mutex mutex_;
  std::map<Key, Place> places_;  // guarded by mutex_
};

/// How a namespace is named where people read: its account, and the beginning of the digest that
/// narrows it.
std::string short_name(std::string_view name_space);

}  // namespace pagewise::server::explain
