// SPDX-License-Identifier: Apache-2.0
// Tokens that are found by their spelling before any piece is cut: control tokens and added tokens.
//
// Who may spell them is the point (C16): each entry names the least trust that text must have.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace pagewise::text {

/// Ascending: what a spelling found in text of one trust may become, text of a higher trust may
/// too.
enum class Trust : uint8_t {
  kContent,   // a content block of a request: only white-space tokens, which carry no structure
  kPlain,     // text tokenised without control tokens: also the vocabulary's other added tokens
  kTemplate,  // the chat template, or a caller who asked for control tokens: all
};

/// Thread: immutable after build(); any thread.
class SpecialTokens {
 public:
  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
    TokenId token;
  };

  /// Requires: `spelling` not empty. The first of equal spellings wins.
  void add(std::string spelling, TokenId token, Trust trust_min);
  void build();

  /// The leftmost match at or behind `from`; of several at one place the longest.
  /// Cost: linear in the text, times the longest spelling where first bytes agree.
  std::optional<Match> find(std::string_view text, std::size_t from, Trust trust) const;

 private:
  struct Entry {
    std::string spelling;
    TokenId token;
    Trust trust_min;
  };
  std::vector<Entry> entries_;  // sorted by spelling
  uint32_t first_[257] = {};    // entries_[first_[b] .. first_[b+1]) begin with byte b
  bool starts_[3][256] = {};    // [trust][byte]: may a match begin here?
};

}  // namespace pagewise::text
