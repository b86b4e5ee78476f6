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
  /// The incomplete tail as one U+FFFD, or nothing; the same in streams and whole answers (C12).
  void finish(std::string& out);
  bool empty() const { return pending_.empty(); }

 private:
  std::string pending_;
};

/// Finds the earliest of several stop strings across pieces; holds back only text that can still
/// become one (C13). Equal starts: the shorter completes first and wins.
class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops);
  /// Appends to `out` what is safe to send. Returns the index of the stop that matched; nothing of
  /// it is in `out`, and further calls are not allowed.
  std::optional<std::size_t> push(std::string_view text, std::string& out);
  /// What was held back and never became a stop.
  void finish(std::string& out);

 private:
  std::vector<std::string> stops_;
  std::string held_;
};

}  // namespace pagewise::text
