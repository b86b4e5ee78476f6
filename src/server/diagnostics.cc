// SPDX-License-Identifier: Apache-2.0
#include "server/diagnostics.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/hash.h"
#include "server/template_input.h"
#include "server/tools/tool_checks.h"

namespace pagewise::server {
namespace {

uint64_t digest(std::string_view text, uint64_t seed) {
  return xxh3(std::as_bytes(std::span(text.data(), text.size())), seed);
}

json::value miss(std::string_view type, uint32_t missed) {
  return json::object{
      {"cache_miss_reason", json::object{{"type", type}, {"cache_missed_input_tokens", missed}}}};
}

json::value without_number(std::string_view type) {
  return json::object{{"cache_miss_reason", json::object{{"type", type}}}};
}

}  // namespace

std::size_t Fingerprint::bytes() const {
  return sizeof(Fingerprint) + model.size() + speed.size() +
         blocks.size() * (sizeof(uint64_t) + sizeof(uint32_t));
}

Fingerprint make_fingerprint(const GenerationRequest& request, const Prompt& prompt) {
  Fingerprint out;
  out.model = request.model;
  out.tokens = static_cast<uint32_t>(prompt.tokens.size());
  if (request.diagnostics) {
    out.speed = request.diagnostics->speed;
    out.parameters = digest(request.diagnostics->parameters, 1);
  }
  // In the client's order: another one is another prompt.
  for (const Tool& tool : request.tools) {
    out.tools = digest(json::serialize(tools::definition(tool)), out.tools + 1);
  }
  // What the template is told beside the messages stands before them, as the system text does.
  // What `thinking` and `effort` become there is compared as parameters, defaults left out.
  json::object variables = request.chat.variables;
  if (request.diagnostics) {
    variables.erase("reasoning_effort");
    for (const std::string_view name : kThinkingSwitches) variables.erase(name);
  }
  for (const json::value& told :
       {json::value(std::move(variables)), json::value(request.chat.documents)}) {
    out.system = digest(json::serialize(told), out.system);
  }
  // Tools come first.
  std::size_t index = request.tools.size();
  if (index > 0 && index <= prompt.positions.size()) {
    out.system_end = prompt.positions[index - 1].tokens;
  }
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
      } else if (out.blocks.size() == Fingerprint::kBlocksMax) {
        out.too_deep = true;
      } else {
        out.blocks.push_back(digest(block.text, speaker));
        out.ends.push_back(end);
      }
    }
  }
  return out;
}

json::value compare(const Fingerprint& before, const Fingerprint& now) {
  if (before.model != now.model || before.speed != now.speed)
    return miss("model_changed", now.tokens);
  if (before.tools != now.tools) return miss("tools_changed", now.tokens);
  if (before.system != now.system) return miss("system_changed", now.tokens);
  // With these, whose place in a prompt is the vendor's affair, messages cannot be compared.
  if (before.parameters != now.parameters) return without_number("unavailable");
  const std::size_t common = std::min(before.blocks.size(), now.blocks.size());
  for (std::size_t i = 0; i < common; ++i) {
    if (before.blocks[i] == now.blocks[i]) continue;
    const uint32_t kept = i == 0 ? now.system_end : now.ends[i - 1];
    return miss("messages_changed", now.tokens - std::min(now.tokens, kept));
  }
  if (before.too_deep && now.too_deep) return without_number("unavailable");
  return nullptr;
}

void DiagnosticsLog::drop_oldest() {
  const auto oldest = entries_.find(order_.front());
  bytes_ -= oldest->second.fingerprint.bytes();
  entries_.erase(oldest);
  order_.pop_front();
}

std::size_t DiagnosticsLog::size() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

json::value DiagnosticsLog::exchange(const std::string& cache_namespace,
                                     const std::string& previous_id, const std::string& id,
                                     Fingerprint now, TimeNs at) {
  std::lock_guard lock(mutex_);
  while (!order_.empty() && entries_.at(order_.front()).at + kKeep <= at) drop_oldest();
  json::value answer = nullptr;
  if (!previous_id.empty()) {
    const auto found = entries_.find({cache_namespace, previous_id});
    answer = found == entries_.end() ? without_number("previous_message_not_found")
                                     : compare(found->second.fingerprint, now);
  }
  const std::size_t bytes = now.bytes();
  while (!order_.empty() && (order_.size() >= kEntriesMax || bytes_ + bytes > kBytesMax))
    drop_oldest();
  Key key{cache_namespace, id};
  if (entries_.contains(key)) return answer;  // ids are drawn once
  order_.push_back(key);
  bytes_ += bytes;
  entries_[std::move(key)] = {std::move(now), at};
  return answer;
}

}  // namespace pagewise::server
