// SPDX-License-Identifier: Apache-2.0
// All tokens of a model as byte strings, arranged so that those which a grammar accepts from some
// state are found without asking for each: in the order of a tree, where a beginning that is
// refused takes everything behind it along; and for the inside of JSON strings, where nearly
// everything is accepted, worked out beforehand.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "grammar/matcher.h"

namespace pagewise::grammar {

struct TokenText {
  std::string_view bytes;  // what the token stands for; empty: never allowed
  bool control = false;    // no text: allowed only where the grammar asks for this very token
};

/// Thread: immutable, any number of threads at once.
/// Memory: about 20 bytes a node of the tree (49,152 tokens: 2.5 MiB; 262,144: 17 MiB).
class Vocabulary {
 public:
  /// tokens[i] is token i. Tokens with a byte FE or FF, which no UTF-8 has, are never allowed.
  explicit Vocabulary(std::span<const TokenText> tokens);

  uint32_t size() const { return static_cast<uint32_t>(spelling_ends_.size()); }
  /// Words of a mask: bit i % 64 of word i / 64 is token i.
  std::size_t mask_words() const { return (size() + 63) / 64; }
  /// What a matcher is told of a token: its bytes, or control_spelling. Empty: never allowed.
  /// Requires: token < size().
  std::string_view spelling(TokenId token) const;

 private:
  friend class MaskWalk;

  // The tree in depth-first order.
  struct Place {
    uint8_t byte = 0;
    uint32_t depth = 0;  // bytes from the root; 1 at least
    uint32_t skip = 0;   // the next place that is not behind this one
    int32_t token = -1;  // that is complete here; others in same_
  };
  /// A place where a JSON string that goes on in front of the token has just been closed by it.
  struct Exit {
    uint32_t place = 0;
    uint32_t characters = 0;  // in front of the quote
  };
  struct LongToken {
    TokenId token;
    uint32_t characters = 0;
  };
  static constexpr uint32_t kLengthMasks = 16;

  void read_strings();

  std::string spellings_;
  std::vector<uint32_t> spelling_ends_;
  std::vector<Place> places_;
  std::vector<int32_t> same_;  // by token: the next token with the same bytes, or -1
  std::size_t depth_max_ = 0;
  // From the inside of a JSON string: tokens that stay in it (with escapes and bytes of a
  // character perhaps begun), all of them and those with at most i characters.
  std::vector<uint64_t> inside_;
  std::array<std::vector<uint64_t>, kLengthMasks + 1> inside_up_to_;
  std::vector<LongToken> inside_long_;  // with more than kLengthMasks characters, longest first
  std::vector<Exit> exits_;
};

/// The tokens that the grammar accepts next: bits of `mask`, others zero. End-of-generation tokens
/// are the caller's affair (Matcher::may_end). Always with the same vocabulary for one matcher.
/// Requires: mask.size() == vocabulary.mask_words().
/// Cost: a few microseconds inside strings and between values; up to a walk over the whole tree in
/// free text, once for each state of it.
void allowed(const Matcher& matcher, const Vocabulary& vocabulary, std::span<uint64_t> mask);

}  // namespace pagewise::grammar
