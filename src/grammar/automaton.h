// SPDX-License-Identifier: Apache-2.0
// A grammar as an automaton whose states are made when they are first met.
//
// A reading of what was written so far is a stack of frames: the part that is being read, and below
// it those that go on when it is complete. A state is the set of all readings, and what a byte
// makes of it is worked out once. Frames are shared between stacks and stand in a table, each once,
// so that two stacks are the same exactly when their top frames have the same number.
//
//   state 7 = { frame 31, frame 12 }      frame 31: literal "true", 2 bytes read   ─▶ 9
//                                         frame 12: string, inside                 ─▶ 9
//                                         frame 9:  repeat, 3 items so far         ─▶ 4 ─▶ ... ─▶ 0
//
// Every reading can be completed (Builder saw to it), so a state is dead only when it is empty. Of
// more than kReadingsMax readings the later ones are dropped: the output still is one that the
// grammar has.
//
// Memory is bounded: beyond so many bytes the table is made anew with only those states that
// somebody stands in.
//
// Thread: one at a time.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "grammar/grammar.h"
#include "grammar/string_lexer.h"

namespace pagewise::grammar {

/// Alternatives that begin alike: 512 of them are followed at once.
inline constexpr std::size_t kReadingsMax = 512;

class Automaton {
 public:
  using State = uint32_t;
  static constexpr State kDead = 0;

  Automaton(std::shared_ptr<const Grammar> grammar, std::size_t bytes_max);

  State current() const { return current_; }
  void set_current(State state) { current_ = state; }
  bool may_end(State state) const { return sets_[state].may_end; }
  bool must_end(State state) const { return sets_[state].may_end && sets_[state].count == 0; }

  /// May renumber states: current() and those in live() are still right afterwards, others are not.
  State step(State state, uint8_t byte) {
    const State known = rows_[std::size_t{state} * classes_ + byte_class_[byte]];
    return known != kUnknown ? known : step_anew(state, byte);
  }
  /// States that a caller keeps while it calls step: all entries must be states.
  std::vector<State>& live() { return live_; }

  /// A reading inside a JSON string, between two characters.
  struct InString {
    uint32_t min_left = 0;  // characters that must come before the quote
    uint32_t max_left = std::numeric_limits<uint32_t>::max();  // and that may
    State closed = kDead;                                      // behind the quote
  };
  /// Parts the readings of a state in those inside of unexceptional strings and the rest, whose
  /// state is returned. Renumbers nothing.
  State part_strings(State state, std::vector<InString>& strings);
  /// Room for part_strings' list, kept.
  std::vector<InString>& strings() { return strings_; }
  /// For callers of part_strings: makes room first, so that nothing has to be renumbered.
  void make_room();

  /// Masks of states that took long to work out. Cleared when states are renumbered.
  std::vector<uint64_t>* kept_mask(State state);
  std::vector<uint64_t>& keep_mask(State state);

 private:
  static constexpr State kUnknown = std::numeric_limits<State>::max();
  static constexpr std::size_t kMasksKept = 16;

  struct Frame {
    uint32_t node = 0;
    uint32_t place = 0;  // in the node: bytes, parts or items so far, a place of a tree
    uint32_t below = 0;
    uint32_t nest = 0;  // levels of nesting that it is in, its own included
  };
  struct Set {
    uint32_t first = 0, count = 0;  // of members_, ascending
    bool may_end = false;
  };
  /// Numbers by hash, open addressing; 0 is an empty cell.
  struct Index {
    std::vector<uint32_t> cells = std::vector<uint32_t>(64);
    std::size_t used = 0;
  };
  struct KeptMask {
    State state = kDead;
    uint64_t used = 0;
    std::vector<uint64_t> mask;
  };

  State step_anew(State state, uint8_t byte);
  void clear();
  std::size_t bytes() const;
  void compact(State& state);

  // Making one set: begin, any of the rest, finish.
  void begin_set();
  State finish_set();
  void enter(uint32_t node, uint32_t below);
  void leave(uint32_t frame);
  void enter_item(uint32_t node, uint32_t number, uint32_t below);
  void advance(uint32_t frame, uint8_t byte);
  void advance_string(const Frame& frame, uint8_t byte);
  void advance_text(const Frame& frame, uint8_t byte);
  void add_reading(uint32_t node, uint32_t place, uint32_t below);
  bool seen(uint64_t key);

  uint32_t frame(uint32_t node, uint32_t place, uint32_t below);
  State intern_set();
  uint32_t child(uint32_t node, uint32_t number) const {
    return program_->children[program_->nodes[node].first + number];
  }

  std::shared_ptr<const Grammar> grammar_;
  const Program* program_;
  const uint8_t* byte_class_;
  uint32_t classes_;

  std::vector<Frame> frames_;  // 0: below all others
  Index frame_index_;
  std::vector<Set> sets_;  // 0: dead
  std::vector<uint32_t> members_;
  Index set_index_;
  std::vector<State> rows_;  // [state][class]
  const std::size_t bytes_asked_;
  std::size_t bytes_max_;  // more than was asked while the states that are stood in need it

  State current_ = kDead;
  std::vector<State> live_;
  std::vector<InString> strings_;
  std::vector<KeptMask> masks_;
  uint64_t mask_clock_ = 0;

  // Of the set that is being made.
  std::vector<uint32_t> readings_, rest_;
  bool may_end_ = false;
  std::vector<uint64_t> seen_;  // open addressing; 0 is an empty cell
  std::size_t seen_count_ = 0;
};

}  // namespace pagewise::grammar
