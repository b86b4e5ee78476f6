// SPDX-License-Identifier: Apache-2.0
// Generated tokens to text as they come: never half a character, never a piece of a stop string.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace pagewise::text {

/// Holds back bytes that may still become a character; bytes that cannot become U+FFFD at once, one
/// for each maximal ill-formed subpart (Unicode 15, section 3.9, as WHATWG decoders do).
class Utf8Assembler {
 public:
  /// Appends to `out` every character that `bytes` completes.
  void push(std::string_view bytes, std::string& out);
  /// No more bytes will come: an incomplete tail is dropped. The answer was cut inside a character,
  /// and half of it is nothing to show; the same in streams and whole answers (C12).
  void finish() { pending_.clear(); }
  bool empty() const { return pending_.empty(); }
  /// What is held back: the beginning of a character, at most 3 bytes.
  std::string_view pending() const { return pending_; }

 private:
  std::string pending_;
};

/// Finds a stop string across pieces; holds back only text that can still become one (C13). The
/// stop that is complete first wins, because generation ends there; of two complete at the same
/// byte the longer, so that nothing of a matched stop is ever sent. How the text is cut into pieces
/// does not matter.
class StopMatcher {
 public:
  /// Requires: no empty string in `stops`; the caller refuses those.
  explicit StopMatcher(std::vector<std::string> stops);
  /// Appends to `out` what is safe to send. Returns the index of the stop that matched; nothing of
  /// it is in `out`, and further calls are not allowed.
  std::optional<std::size_t> push(std::string_view text, std::string& out);
  /// What was held back and never became a stop.
  void finish(std::string& out);

 private:
  struct Stop {
    std::string text;
    std::vector<std::size_t> borders;
    std::size_t matched = 0;  // bytes of `text` that end what was pushed so far
  };

  std::vector<Stop> stops_;
  std::string held_;  // the longest `matched` of all stops
  bool matched_ = false;
};

}  // namespace pagewise::text
