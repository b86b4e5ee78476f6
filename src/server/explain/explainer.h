// SPDX-License-Identifier: Apache-2.0
// A cache that explains its misses: remembers what prompts looked like, notices places where they
// keep missing, and answers POST /v1/cache/explain.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/json.h"
#include "engine/request.h"
#include "server/explain/explanation.h"
#include "server/explain/history.h"
#include "server/explain/misses.h"
#include "server/generation.h"
#include "server/http.h"
#include "server/prompt.h"
#include "server/served_model.h"

namespace pagewise::server::explain {

/// How fast this server computes prompts: of the last ones, weighted by their tokens. Thread: any.
class PrefillSpeed {
 public:
  void add(uint32_t tokens, TimeNs spent);
  /// nullopt: nothing was computed yet.
  std::optional<double> token_ms() const;

 private:
  mutable std::mutex mutex_;
  double tokens_ = 0, ms_ = 0;  // guarded by mutex_
};

/// Which of the two APIs a body speaks that is sent to neither's route: what `route` in it says;
/// else what its fields tell. docs/explain.md has the rule.
Format format_of(const HttpRequest& request, const json::object& body);

/// Thread: any.
class Explainer {
 public:
  Explainer(const ServedModel& model, const Clock& clock, std::function<void(std::string_view)> log)
      : model_(model), clock_(clock), log_(std::move(log)) {}

  /// What will be remembered of a prompt when it is admitted.
  static Asked note(const GenerationRequest& request, const Prompt& prompt);

  /// A request was admitted: remembers it, and finds out why it missed when it did. `asked` is from
  /// note(). Cost: comparing with the namespace's last few prompts when much had to be computed.
  void admitted(const std::string& name_space, const std::string& id, Asked&& asked, Format format,
                const engine::Admission& admission);
  void finished(const engine::Admission& admission, const engine::Finished& finished);

  /// What answer() needs to know of the engine. Requires: the prompt has tokens.
  static engine::LookUp question(const GenerationRequest& request, const Prompt& prompt,
                                 std::string name_space);

  /// Where prompts keep missing; see MissLog::list.
  json::array misses(std::optional<std::string_view> name_space) {
    return misses_.list(name_space, clock_.now());
  }
  /// With the cache itself: forgets one namespace and those below it, or all.
  void clear(std::optional<std::string_view> name_space = std::nullopt) {
    history_.clear(name_space);
    misses_.clear(name_space);
  }

  /// The answer to the route, once the engine has told what it knows.
  json::object answer(const Asked& asked, Format format, std::string_view name_space,
                      bool use_cache, const engine::LookedUp& known);

 private:
  const ServedModel& model_;
  const Clock& clock_;
  const std::function<void(std::string_view)> log_;
  PromptHistory history_;
  MissLog misses_;
  PrefillSpeed speed_;
};

/// "messages.2.content.0" or "messages[2].content[0]"; "system.0" for the system field.
std::string path_of(const Place& place, Format format);

}  // namespace pagewise::server::explain
