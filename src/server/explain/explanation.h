// SPDX-License-Identifier: Apache-2.0
// Why a prompt reads what it reads: the nearest earlier prompt, where the two part, and what is in
// the way. Pure: everything it needs is handed in.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/request.h"
#include "server/explain/cause.h"
#include "server/explain/history.h"
#include "text/tokenizer.h"

namespace pagewise::server::explain {

/// The prompt that is asked about.
struct Asked {
  Document document;
  std::vector<TokenId> tokens;
  std::vector<uint32_t> ends;  // as Remembered::ends
};

/// An earlier prompt that shares the most text with the one asked about.
struct Nearest {
  PromptHistory::Entry prompt;  // null: only the cache remembers its tokens
  Document document;            // what it said, as far as it is known
  std::vector<TokenId> tokens;
  uint32_t shared_tokens = 0;  // from the start
  uint32_t shared_behind = 0;  // behind the first that differs, wherever they stand
};

/// `beyond`: how a cached prompt goes on behind the `matched` tokens that the index knows; it holds
/// answers, too, which the history does not. nullopt: nothing of the namespace is known.
/// Cost: O(tokens of all candidates).
std::optional<Nearest> find_nearest(const Asked& asked,
                                    std::span<const PromptHistory::Entry> candidates,
                                    uint32_t matched, std::span<const TokenId> beyond,
                                    const text::Tokenizer& tokenizer);

struct Divergence {
  uint32_t token = 0;  // the first of the prompt that is new
  Place place;
  std::size_t block = 0;  // index into Asked::document.blocks
  /// The text on both sides from there on, and what both say in front of it: valid UTF-8, cut
  /// between characters.
  std::string context, cached_text, request_text;
};

struct Explanation {
  std::optional<Divergence> divergence;  // nullopt: nothing that is known says anything else
  std::optional<Cause> cause;
  uint32_t gain_tokens = 0;  // that would be read, too, were it not for the cause
};

/// `cached_tokens`: what would be read now.
Explanation explain(const Asked& asked, const Nearest& nearest, uint32_t cached_tokens,
                    const text::Tokenizer& tokenizer, std::string_view bos);

}  // namespace pagewise::server::explain
