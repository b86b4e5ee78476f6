// SPDX-License-Identifier: Apache-2.0
#include "server/diagnostics.h"

#include <algorithm>
#include <span>

#include "base/hash.h"

namespace pagewise::server {
namespace {

uint64_t digest(std::string_view text, uint64_t seed) {
  return xxh3(std::as_bytes(std::span(text.data(), text.size())), seed);
}

json::value miss(std::string_view type, uint32_t missed) {
  return json::object{
      {"cache_miss_reason", json::object{{"type", type}, {"cache_missed_input_tokens", missed}}}};
}

}  // namespace

Fingerprint make_fingerprint(const GenerationRequest& request, const Prompt& prompt) {
  Fingerprint out;
  out.model = request.model;
  out.tokens = static_cast<uint32_t>(prompt.tokens.size());
  // What the template is told beside the messages stands before them, as the system text does.
  for (const json::value& told :
       {json::value(request.chat.variables), json::value(request.chat.documents)}) {
    out.system = digest(json::serialize(told), out.system);
  }
  std::size_t index = 0;
  for (std::size_t t = 0; t < request.turns.size(); ++t) {
    const Turn& turn = request.turns[t];
    const bool leading_system = t == 0 && turn.role == "system";
    uint64_t speaker = digest(turn.role, 0);
    if (!turn.fields.empty()) speaker = digest(json::serialize(turn.fields), speaker);
    for (const ContentBlock& block : turn.blocks) {
      const uint32_t end = index < prompt.positions.size() ? prompt.positions[index].tokens : 0;
      ++index;
      if (leading_system) {
        // Chained, so that order counts.
        out.system = digest(block.text, out.system + 1);
        out.system_end = end;
      } else {
        out.blocks.push_back(digest(block.text, speaker));
        out.ends.push_back(end);
      }
    }
  }
  return out;
}

json::value compare(const Fingerprint& before, const Fingerprint& now) {
  if (before.model != now.model) return miss("model_changed", now.tokens);
  if (before.system != now.system) return miss("system_changed", now.tokens);
  const std::size_t common = std::min(before.blocks.size(), now.blocks.size());
  for (std::size_t i = 0; i < common; ++i) {
    if (before.blocks[i] == now.blocks[i]) continue;
    const uint32_t kept = i == 0 ? now.system_end : now.ends[i - 1];
    return miss("messages_changed", now.tokens - std::min(now.tokens, kept));
  }
  return nullptr;
}

json::value DiagnosticsLog::exchange(const std::string& cache_namespace,
                                     const std::string& previous_id, const std::string& id,
                                     Fingerprint now, TimeNs at) {
  std::lock_guard lock(mutex_);
  std::size_t drop = 0;
  while (drop < order_.size() &&
         (order_[drop].first + kKeep <= at || order_.size() - drop >= kEntriesMax)) {
    entries_.erase(order_[drop++].second);
  }
  order_.erase(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(drop));
  json::value answer = nullptr;
  if (!previous_id.empty()) {
    const auto found = entries_.find({cache_namespace, previous_id});
    answer = found == entries_.end()
                 ? json::object{{"cache_miss_reason",
                                 json::object{{"type", "previous_message_not_found"}}}}
                 : compare(found->second.fingerprint, now);
  }
  Key key{cache_namespace, id};
  order_.emplace_back(at, key);
  entries_[std::move(key)] = {std::move(now), at};
  return answer;
}

}  // namespace pagewise::server
