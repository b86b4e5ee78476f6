// SPDX-License-Identifier: Apache-2.0
#include "server/explain/history.h"

#include <algorithm>
#include <utility>

namespace pagewise::server::explain {

std::size_t Remembered::bytes() const {
  std::size_t bytes = sizeof(Remembered) + id.size() + document.model.size() +
                      tokens.size() * sizeof(TokenId) + ends.size() * sizeof(uint32_t);
  for (const Block& block : document.blocks) {
    bytes += sizeof(Block) + block.role.size() + block.text.size();
  }
  return bytes;
}

bool is_within(std::string_view name, std::string_view cleared) {
  return name == cleared ||
         (name.size() > cleared.size() && name.starts_with(cleared) && name[cleared.size()] == '/');
}

void PromptHistory::drop_oldest(Spaces::iterator space) {
  const std::size_t freed = space->second.prompts.front()->bytes();
  space->second.prompts.pop_front();
  space->second.bytes -= freed;
  bytes_ -= freed;
}

void PromptHistory::drop_old(TimeNs now) {
  for (auto space = spaces_.begin(); space != spaces_.end();) {
    while (!space->second.prompts.empty() && space->second.prompts.front()->at + kKeep <= now)
      drop_oldest(space);
    space = space->second.prompts.empty() ? spaces_.erase(space) : std::next(space);
  }
}

void PromptHistory::add(std::string_view name_space, Entry prompt, TimeNs now) {
  const std::size_t bytes = prompt->bytes();
  if (bytes > kBytesMaxNamespace) return;
  std::lock_guard lock(mutex_);
  drop_old(now);
  const auto space = spaces_.try_emplace(std::string(name_space)).first;
  while (!space->second.prompts.empty() && (space->second.bytes + bytes > kBytesMaxNamespace ||
                                            space->second.prompts.size() >= kPromptsMaxNamespace))
    drop_oldest(space);
  space->second.prompts.push_back(std::move(prompt));
  space->second.bytes += bytes;
  bytes_ += bytes;
  while (bytes_ > kBytesMax) {
    const auto oldest =
        std::min_element(spaces_.begin(), spaces_.end(), [](const auto& a, const auto& b) {
          return a.second.prompts.front()->at < b.second.prompts.front()->at;
        });
    drop_oldest(oldest);
    if (oldest->second.prompts.empty()) spaces_.erase(oldest);
  }
}

std::vector<PromptHistory::Entry> PromptHistory::recent(std::string_view name_space, TimeNs now,
                                                        std::size_t count) {
  std::lock_guard lock(mutex_);
  drop_old(now);
  const auto space = spaces_.find(name_space);
  if (space == spaces_.end()) return {};
  const auto& prompts = space->second.prompts;
  const auto kept = static_cast<std::ptrdiff_t>(std::min(count, prompts.size()));
  return {prompts.rbegin(), prompts.rbegin() + kept};
}

void PromptHistory::clear(std::optional<std::string_view> name_space) {
  std::lock_guard lock(mutex_);
  for (auto space = spaces_.begin(); space != spaces_.end();) {
    if (name_space && !is_within(space->first, *name_space)) {
      ++space;
      continue;
    }
    bytes_ -= space->second.bytes;
    space = spaces_.erase(space);
  }
}

std::size_t PromptHistory::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace pagewise::server::explain
