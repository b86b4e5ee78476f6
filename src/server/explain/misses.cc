// SPDX-License-Identifier: Apache-2.0
#include "server/explain/misses.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "server/explain/history.h"

namespace pagewise::server::explain {

std::string short_name(std::string_view name_space) {
  constexpr std::size_t kDigits = 8;
  const std::size_t slash = name_space.find('/');
  if (slash == std::string_view::npos) return std::string(name_space);
  return std::string(name_space.substr(0, slash + 1 + kDigits));
}

void MissLog::drop_quiet(TimeNs now) {
  std::erase_if(places_, [&](const auto& entry) { return entry.second.last + kKeep <= now; });
  while (places_.size() >= kPlacesMax) {
    places_.erase(std::min_element(
        places_.begin(), places_.end(),
        [](const auto& a, const auto& b) { return a.second.last < b.second.last; }));
  }
}

std::optional<std::string> MissLog::add(std::string_view name_space, const Miss& miss, TimeNs now) {
  std::lock_guard lock(mutex_);
  const Key key{std::string(name_space), miss.path, miss.cause};
  if (!places_.contains(key)) drop_quiet(now);
  Place& place = places_[key];
  ++place.misses;
  place.lost_tokens += miss.lost_tokens;
  place.token = miss.token;
  place.last = now;
  if (place.misses < kTellFrom || (place.told && *place.told + kTellAgain > now))
    return std::nullopt;
  place.told = now;
  return fmt::format(
      "cache: prompts of namespace {} keep missing at {} (token {}), {} times: {}; about {} tokens "
      "each could be read; POST /v1/cache/explain shows one",
      short_name(name_space), miss.path, miss.token, place.misses, cause_name(miss.cause),
      place.lost_tokens / place.misses);
}

json::array MissLog::list(std::optional<std::string_view> name_space, TimeNs now) {
  std::lock_guard lock(mutex_);
  drop_quiet(now);
  std::vector<std::map<Key, Place>::const_iterator> found;
  for (auto it = places_.cbegin(); it != places_.cend(); ++it) {
    const bool wanted = !name_space || is_within(std::get<0>(it->first), *name_space);
    if (wanted && it->second.misses >= kTellFrom) found.push_back(it);
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return a->second.lost_tokens > b->second.lost_tokens;
  });
  json::array out;
  for (const auto& it : found) {
    const auto& [space, path, cause] = it->first;
    out.push_back({{"namespace", short_name(space)},
                   {"path", path},
                   {"cause", cause_name(cause)},
                   {"misses", it->second.misses},
                   {"token", it->second.token},
                   {"lost_tokens", it->second.lost_tokens},
                   {"age_s", (now - it->second.last) / 1'000'000'000}});
  }
  return out;
}

void MissLog::clear(std::optional<std::string_view> name_space) {
  std::lock_guard lock(mutex_);
  std::erase_if(places_, [&](const auto& entry) {
    return !name_space || is_within(std::get<0>(entry.first), *name_space);
  });
}

}  // namespace pagewise::server::explain
