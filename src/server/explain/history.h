// SPDX-License-Identifier: Apache-2.0
// What the last prompts of each namespace looked like, so that a new one can be compared with them
// after their blocks are gone: the index knows tokens, not messages, and forgets what is evicted.
// In memory only: texts of prompts never reach a log or a disk from here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "server/explain/cause.h"

namespace pagewise::server::explain {

/// One prompt that was admitted.
struct Remembered {
  std::string id;  // of the answer: "msg_..."
  Document document;
  std::vector<TokenId> tokens;
  std::vector<uint32_t> ends;  // tokens from the start through each block of the document
  TimeNs at = 0;

  std::size_t bytes() const;
};

/// Thread: any.
class PromptHistory {
 public:
  /// All namespaces together; the oldest go first. 9 bytes a token are usual: some 7 million
  /// tokens.
  static constexpr std::size_t kBytesMax = 64U << 20;
  /// One namespace, so that nobody's prompts push out everybody else's.
  static constexpr std::size_t kBytesMaxNamespace = 16U << 20;
  static constexpr std::size_t kPromptsMaxNamespace = 64;
  static constexpr TimeNs kKeep = 3'600'000'000'000;

  using Entry = std::shared_ptr<const Remembered>;

  void add(std::string_view name_space, Entry prompt, TimeNs now);
  /// Newest first, at most `count`.
  std::vector<Entry> recent(std::string_view name_space, TimeNs now,
                            std::size_t count = kPromptsMaxNamespace);
  /// Forgets one namespace and those below it ("name" and "name/..."), or all.
  void clear(std::optional<std::string_view> name_space = std::nullopt);
  std::size_t bytes() const;

 private:
  struct Kept {
    std::deque<Entry> prompts;  // oldest first
    std::size_t bytes = 0;
  };
  using Spaces = std::map<std::string, Kept, std::less<>>;

  void drop_oldest(Spaces::iterator space);
  void drop_old(TimeNs now);

  mutable std::mutex mutex_;
  Spaces spaces_;          // guarded by mutex_; none is empty
  std::size_t bytes_ = 0;  // guarded by mutex_
};

/// Whether clearing `cleared` clears `name`, too.
bool is_within(std::string_view name, std::string_view cleared);

}  // namespace pagewise::server::explain
