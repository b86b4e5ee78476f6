// SPDX-License-Identifier: Apache-2.0
// A grammar as its matcher reads it: a table of nodes. Builder (grammar.h) writes it.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace pagewise::grammar {

using ByteSet = std::bitset<256>;

/// `first` to `last`, both of them in it. Requires: ASCII.
inline ByteSet byte_range(char first, char last) {
  ByteSet set;
  for (int c = first; c <= last; ++c) set.set(static_cast<std::size_t>(c));
  return set;
}

struct Node {
  enum class Kind : uint8_t {
    kLiteral,   // bytes [first, first + count) of Program::text; none: the empty string
    kByteOf,    // one byte of Program::sets[first]
    kWords,     // one of the words of Program::tries[first]
    kString,    // a JSON string by Program::strings[first], with its quotes
    kText,      // free text by Program::texts[first]
    kSequence,  // Program::children [first, first + count), one after the other
    kChoice,    // one of them
    kRepeat,    // children [first] the item, [first + 1] the separator if count is 2; min to max
    kNest,      // the child, one level deeper
    kForward,   // the child; count 0: not defined yet
  };
  Kind kind = Kind::kLiteral;
  bool can_be_empty = false;  // by build()
  uint32_t first = 0, count = 0;
  uint32_t min = 0, max = 0;  // kRepeat
  uint32_t nest_min = 0;      // levels that its shortest derivation needs; by build()
};

/// Byte strings as a tree. Node 0 is the empty string.
struct Trie {
  struct Edge {
    uint8_t byte = 0;
    uint32_t to = 0;
  };
  struct Place {
    std::vector<Edge> edges;
    int32_t word = -1;        // its number, when a word is complete here
    uint32_t shorter = 0;     // Text: the place of the longest proper suffix that is in the tree
    bool in_control = false;  // Text: in the middle of a control token's spelling
  };
  std::vector<Place> places = {Place()};

  static constexpr uint32_t kNowhere = std::numeric_limits<uint32_t>::max();
  uint32_t next(uint32_t place, uint8_t byte) const {
    for (const Edge& edge : places[place].edges) {
      if (edge.byte == byte) return edge.to;
    }
    return kNowhere;
  }
  void insert(const std::string& word, int32_t number);
};

/// Requires: a word that is in `except` is never complete. With `except`, no length bounds and no
/// escapes.
struct StringRule {
  uint32_t min = 0;  // characters
  uint32_t max = std::numeric_limits<uint32_t>::max();
  bool escapes = true;
  int32_t except = -1;  // into Program::tries

  bool plain() const { return escapes && except < 0; }
};

struct TextRule {
  Trie triggers;               // with Place::shorter
  std::vector<uint32_t> then;  // by word of the trie
  bool may_end = false;
};

struct Program {
  std::string text;
  std::vector<Node> nodes;
  std::vector<uint32_t> children;
  std::vector<ByteSet> sets;
  std::vector<Trie> tries;
  std::vector<StringRule> strings;
  std::vector<TextRule> texts;
  uint32_t root = 0;
  // Bytes that no node tells apart have one class: tables of the matcher have a column a class.
  std::vector<uint8_t> byte_class;  // [256]
  uint32_t classes = 0;
};

}  // namespace pagewise::grammar
