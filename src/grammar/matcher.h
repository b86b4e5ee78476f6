// SPDX-License-Identifier: Apache-2.0
// The state of one output that a grammar holds to its form.
//
// A grammar can have several readings of the same beginning, each a stack of what is still to come:
// a matcher follows them all. Sets of stacks that were met get a number, and how a byte leads from
// one to the next is remembered, so that most steps are one look into a table (automaton.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "grammar/grammar.h"

namespace pagewise::grammar {

class Automaton;
class Vocabulary;

/// What a matcher remembers of the states that it has met.
inline constexpr std::size_t kMatcherBytes = std::size_t{2} << 20;

/// Memory: `bytes_max`, more only while one step needs it, and up to 16 masks; grows as new states
/// are met, and takes nothing while the output stays among those that it has been in.
///
/// Thread: one at a time; copies are apart from each other.
class Matcher {
 public:
  explicit Matcher(std::shared_ptr<const Grammar> grammar, std::size_t bytes_max = kMatcherBytes);
  Matcher(const Matcher& other);
  Matcher& operator=(const Matcher& other);
  Matcher(Matcher&&) noexcept;
  Matcher& operator=(Matcher&&) noexcept;
  ~Matcher();

  /// Goes on by these bytes. False when the grammar has none of them here: the matcher then stands
  /// where it stood.
  bool accept(std::string_view bytes);
  /// Whether the output may end here.
  bool may_end() const;
  /// Whether it must: nothing can follow.
  bool must_end() const;

 private:
  friend void allowed(const Matcher&, const Vocabulary&, std::span<uint64_t>);
  std::unique_ptr<Automaton> automaton_;
};

}  // namespace pagewise::grammar
