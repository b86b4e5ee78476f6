// SPDX-License-Identifier: Apache-2.0
#include "grammar/automaton.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/prng.h"

namespace pagewise::grammar {
namespace {

using Kind = Node::Kind;

// Of a string with exceptions: the place in the tree of a text that is no beginning of any.
constexpr uint32_t kNoException = std::numeric_limits<uint32_t>::max() >> kStringPlaceBits;

uint64_t hash_frame(uint32_t node, uint32_t place, uint32_t below) {
  return mix64((uint64_t{node} << 32 | place) ^ mix64(below));
}

/// The number that `equal` takes for the sought one, or 0 with the empty cell's place in `cell`.
template <typename Cell, typename Equal>
Cell find_cell(const std::vector<Cell>& cells, uint64_t hash, const Equal& equal,
               std::size_t& cell) {
  const std::size_t mask = cells.size() - 1;
  for (cell = hash & mask; cells[cell] != 0; cell = (cell + 1) & mask) {
    if (equal(cells[cell])) return cells[cell];
  }
  return 0;
}

template <typename Cell, typename Hash>
void grow(std::vector<Cell>& cells, const Hash& hash_of) {
  std::vector<Cell> larger(cells.size() * 2);
  for (const Cell number : cells) {
    if (number == 0) continue;
    std::size_t cell = hash_of(number) & (larger.size() - 1);
    while (larger[cell] != 0) cell = (cell + 1) & (larger.size() - 1);
    larger[cell] = number;
  }
  cells = std::move(larger);
}

}  // namespace

Automaton::Automaton(std::shared_ptr<const Grammar> grammar, std::size_t bytes_max)
    : grammar_(std::move(grammar)),
      program_(&grammar_->program()),
      byte_class_(program_->byte_class.data()),
      classes_(program_->classes),
      bytes_asked_(bytes_max),
      bytes_max_(bytes_max),
      seen_(64) {
  clear();
  begin_set();
  enter(program_->root, 0);
  current_ = finish_set();
}

void Automaton::clear() {
  frames_.assign(1, Frame());
  frame_index_ = Index();
  sets_.assign(1, Set());
  members_.clear();
  set_index_ = Index();
  rows_.assign(classes_, kDead);
  for (KeptMask& kept : masks_) kept.state = kDead;
}

std::size_t Automaton::bytes() const {
  return frames_.size() * sizeof(Frame) + sets_.size() * sizeof(Set) +
         members_.size() * sizeof(uint32_t) + rows_.size() * sizeof(State) +
         (frame_index_.cells.size() + set_index_.cells.size()) * sizeof(uint32_t);
}

// ---- Frames and sets
// -------------------------------------------------------------------------------

uint32_t Automaton::frame(uint32_t node, uint32_t place, uint32_t below) {
  std::size_t cell = 0;
  const auto equal = [&](uint32_t number) {
    const Frame& other = frames_[number];
    return other.node == node && other.place == place && other.below == below;
  };
  const uint64_t hash = hash_frame(node, place, below);
  if (const uint32_t known = find_cell(frame_index_.cells, hash, equal, cell)) return known;
  const auto number = static_cast<uint32_t>(frames_.size());
  const uint32_t level = program_->nodes[node].kind == Kind::kNest ? 1 : 0;
  frames_.push_back({node, place, below, frames_[below].nest + level});
  frame_index_.cells[cell] = number;
  if (++frame_index_.used * 2 > frame_index_.cells.size()) {
    grow(frame_index_.cells, [this](uint32_t other) {
      return hash_frame(frames_[other].node, frames_[other].place, frames_[other].below);
    });
  }
  return number;
}

/// The number of the set in readings_ (ascending, each once) and may_end_.
Automaton::State Automaton::intern_set() {
  if (readings_.empty() && !may_end_) return kDead;
  const auto hash_of = [](std::span<const uint32_t> members, bool may_end) {
    uint64_t hash = may_end ? 1 : 0;
    for (const uint32_t member : members) hash = mix64(hash ^ member) + member;
    return hash;
  };
  const auto members = [this](State state) {
    return std::span<const uint32_t>(members_).subspan(sets_[state].first, sets_[state].count);
  };
  const auto equal = [&](State state) {
    return sets_[state].may_end == may_end_ && std::ranges::equal(members(state), readings_);
  };
  std::size_t cell = 0;
  const uint64_t hash = hash_of(readings_, may_end_);
  if (const State known = find_cell(set_index_.cells, hash, equal, cell)) return known;
  const auto state = static_cast<State>(sets_.size());
  sets_.push_back(
      {static_cast<uint32_t>(members_.size()), static_cast<uint32_t>(readings_.size()), may_end_});
  members_.insert(members_.end(), readings_.begin(), readings_.end());
  // Nothing follows what must end.
  rows_.resize(rows_.size() + classes_, readings_.empty() ? kDead : kUnknown);
  set_index_.cells[cell] = state;
  if (++set_index_.used * 2 > set_index_.cells.size()) {
    grow(set_index_.cells,
         [&](State other) { return hash_of(members(other), sets_[other].may_end); });
  }
  return state;
}

void Automaton::begin_set() {
  readings_.clear();
  may_end_ = false;
  if (seen_count_ > 0) std::fill(seen_.begin(), seen_.end(), 0);
  seen_count_ = 0;
}

Automaton::State Automaton::finish_set() {
  std::sort(readings_.begin(), readings_.end());
  readings_.erase(std::unique(readings_.begin(), readings_.end()), readings_.end());
  return intern_set();
}

/// Remembers `key` until the next set begins. Not 0.
bool Automaton::seen(uint64_t key) {
  std::size_t cell = 0;
  const auto equal = [key](uint64_t other) { return other == key; };
  if (find_cell(seen_, mix64(key), equal, cell) != 0) return true;
  seen_[cell] = key;
  if (++seen_count_ * 2 > seen_.size()) {
    grow(seen_, [](uint64_t other) { return mix64(other); });
  }
  return false;
}

// ---- What a byte does ---------------------------------------------------------------------------

void Automaton::add_reading(uint32_t node, uint32_t place, uint32_t below) {
  if (readings_.size() < kReadingsMax) readings_.push_back(frame(node, place, below));
}

/// Begins a part whose end is the affair of the frame `below`.
void Automaton::enter(uint32_t node, uint32_t below) {
  const Node& part = program_->nodes[node];
  if (frames_[below].nest + part.nest_min > kNestMax) return;  // could not be completed
  switch (part.kind) {
    case Kind::kLiteral:
      return part.count == 0 ? leave(below) : add_reading(node, 0, below);
    case Kind::kByteOf:
      return add_reading(node, 0, below);
    case Kind::kWords:
      add_reading(node, 0, below);
      if (program_->tries[part.first].places[0].word >= 0) leave(below);
      return;
    case Kind::kString:
      return add_reading(node, static_cast<uint32_t>(StringPlace::kOpen), below);
    case Kind::kText:
      add_reading(node, 0, below);
      may_end_ = may_end_ || program_->texts[part.first].may_end;
      return;
    default:
      break;
  }
  // The others can be come to in several ways.
  if (seen((uint64_t{below} << 32) + node + 1)) return;
  switch (part.kind) {
    case Kind::kSequence:
      if (part.count == 0) return leave(below);
      // The last part's end is the end of all.
      return enter(child(node, 0), part.count == 1 ? below : frame(node, 1, below));
    case Kind::kChoice:
      for (uint32_t i = 0; i < part.count; ++i) enter(child(node, i), below);
      return;
    case Kind::kRepeat:
      if (part.min == 0) leave(below);
      if (part.max > 0) enter_item(node, 1, below);
      return;
    case Kind::kNest:
      return enter(child(node, 0), frame(node, 0, below));
    case Kind::kForward:
      return enter(child(node, 0), below);
    default:
      PW_CHECK(false);
  }
}

/// Begins the item of this number (from 1) of a repeat. Without an upper bound numbers beyond the
/// lower one are all the same.
void Automaton::enter_item(uint32_t node, uint32_t number, uint32_t below) {
  const Node& part = program_->nodes[node];
  if (number == part.max) return enter(child(node, 0), below);
  if (part.max == kUnbounded) number = std::min(number, std::max(part.min, 1U));
  enter(child(node, 0), frame(node, number << 1, below));
}

/// A part is complete: goes on with the frame that it stood on.
void Automaton::leave(uint32_t number) {
  if (number == 0) {
    may_end_ = true;
    return;
  }
  const Frame top = frames_[number];
  const Node& part = program_->nodes[top.node];
  switch (part.kind) {
    case Kind::kSequence: {
      const uint32_t next = top.place + 1;
      return enter(child(top.node, top.place),
                   next == part.count ? top.below : frame(top.node, next, top.below));
    }
    case Kind::kRepeat: {
      const uint32_t items = top.place >> 1;
      if ((top.place & 1) != 0) return enter_item(top.node, items + 1, top.below);
      if (items >= part.min) leave(top.below);
      if (part.count == 1) return enter_item(top.node, items + 1, top.below);
      // Not a separator without the item behind it.
      if (frames_[top.below].nest + program_->nodes[child(top.node, 0)].nest_min > kNestMax) return;
      return enter(child(top.node, 1), frame(top.node, top.place | 1, top.below));
    }
    case Kind::kNest:
      return leave(top.below);
    default:
      PW_CHECK(false);
  }
}

void Automaton::advance(uint32_t number, uint8_t byte) {
  const Frame top = frames_[number];
  const Node& part = program_->nodes[top.node];
  switch (part.kind) {
    case Kind::kLiteral:
      if (static_cast<uint8_t>(program_->text[part.first + top.place]) != byte) return;
      return top.place + 1 == part.count ? leave(top.below)
                                         : add_reading(top.node, top.place + 1, top.below);
    case Kind::kByteOf:
      if (program_->sets[part.first].test(byte)) leave(top.below);
      return;
    case Kind::kWords: {
      const Trie& trie = program_->tries[part.first];
      const uint32_t next = trie.next(top.place, byte);
      if (next == Trie::kNowhere) return;
      if (!trie.places[next].edges.empty()) add_reading(top.node, next, top.below);
      if (trie.places[next].word >= 0) leave(top.below);
      return;
    }
    case Kind::kString:
      return advance_string(top, byte);
    case Kind::kText:
      return advance_text(top, byte);
    default:
      PW_CHECK(false);
  }
}

/// A frame's place is the lexer's, and above it characters so far, or a place in the tree of
/// exceptions.
void Automaton::advance_string(const Frame& top, uint8_t byte) {
  const StringRule& rule = program_->strings[program_->nodes[top.node].first];
  const auto at = static_cast<StringPlace>(top.place & ((1U << kStringPlaceBits) - 1));
  uint32_t beside = top.place >> kStringPlaceBits;
  const bool inside = at == StringPlace::kInside;
  if (inside && byte == '"') {
    const bool excepted =
        rule.except >= 0 && beside != kNoException &&
        program_->tries[static_cast<std::size_t>(rule.except)].places[beside].word >= 0;
    if (beside >= rule.min && !excepted) leave(top.below);
    return;
  }
  const StringPlace next = next_in_string(at, byte);
  if (next == StringPlace::kRefused || (next == StringPlace::kEscape && !rule.escapes)) return;
  if (rule.except >= 0) {
    if (at != StringPlace::kOpen && beside != kNoException) {
      const uint32_t to = program_->tries[static_cast<std::size_t>(rule.except)].next(beside, byte);
      beside = to == Trie::kNowhere ? kNoException : to;
    }
  } else if (inside) {  // a character begins
    if (beside == rule.max) return;
    ++beside;
    if (rule.max == kUnbounded) beside = std::min(beside, rule.min);
  }
  add_reading(top.node, static_cast<uint32_t>(next) | beside << kStringPlaceBits, top.below);
}

void Automaton::advance_text(const Frame& top, uint8_t byte) {
  const TextRule& rule = program_->texts[program_->nodes[top.node].first];
  const std::vector<Trie::Place>& places = rule.triggers.places;
  uint32_t at = top.place;
  uint32_t next = rule.triggers.next(at, byte);
  // A control token is no text: its spelling is read only as the whole of a trigger's.
  const bool control = places[at].in_control || byte >= 0xFE;
  while (next == Trie::kNowhere && at != 0 && !places[at].in_control) {
    at = places[at].shorter;
    next = rule.triggers.next(at, byte);
  }
  if (next == Trie::kNowhere) {
    if (control) return;
    next = 0;
  }
  const int32_t word = places[next].word;
  if (word >= 0) return enter(rule.then[static_cast<std::size_t>(word)], top.below);
  add_reading(top.node, next, top.below);
  may_end_ = may_end_ || (rule.may_end && !places[next].in_control);
}

Automaton::State Automaton::step_anew(State state, uint8_t byte) {
  if (bytes() > bytes_max_) compact(state);
  begin_set();
  for (uint32_t i = 0; i < sets_[state].count; ++i) advance(members_[sets_[state].first + i], byte);
  const State next = finish_set();
  rows_[std::size_t{state} * classes_ + byte_class_[byte]] = next;
  return next;
}

// ---- Masks' part --------------------------------------------------------------------------------

Automaton::State Automaton::part_strings(State state, std::vector<InString>& strings) {
  strings.clear();
  const Set set = sets_[state];
  rest_.clear();
  for (uint32_t i = 0; i < set.count; ++i) {
    const uint32_t member = members_[set.first + i];
    const Frame top = frames_[member];
    const Node& part = program_->nodes[top.node];
    const StringRule* rule = part.kind == Kind::kString ? &program_->strings[part.first] : nullptr;
    const uint32_t at = top.place & ((1U << kStringPlaceBits) - 1);
    if (rule == nullptr || !rule->plain() || at != static_cast<uint32_t>(StringPlace::kInside)) {
      rest_.push_back(member);
      continue;
    }
    const uint32_t characters = top.place >> kStringPlaceBits;
    InString string;
    string.min_left = rule->min - std::min(rule->min, characters);
    if (rule->max != kUnbounded) string.max_left = rule->max - characters;
    begin_set();
    leave(top.below);
    string.closed = finish_set();
    strings.push_back(string);
  }
  if (strings.empty()) return state;
  readings_.swap(rest_);
  may_end_ = false;
  return intern_set();
}

void Automaton::make_room() {
  State none = kDead;
  if (bytes() > bytes_max_) compact(none);
}

std::vector<uint64_t>* Automaton::kept_mask(State state) {
  for (KeptMask& kept : masks_) {
    if (kept.state != state) continue;
    kept.used = ++mask_clock_;
    return &kept.mask;
  }
  return nullptr;
}

std::vector<uint64_t>& Automaton::keep_mask(State state) {
  if (masks_.size() < kMasksKept) masks_.emplace_back();
  KeptMask& oldest =
      *std::min_element(masks_.begin(), masks_.end(),
                        [](const KeptMask& a, const KeptMask& b) { return a.used < b.used; });
  oldest.state = state;
  oldest.used = ++mask_clock_;
  return oldest.mask;
}

/// Starts the table anew with the states that somebody stands in; all of them get new numbers, and
/// `state` too.
void Automaton::compact(State& state) {
  const std::vector<Frame> frames = std::move(frames_);
  const std::vector<Set> sets = std::move(sets_);
  const std::vector<uint32_t> members = std::move(members_);
  std::vector<State> moved_sets(sets.size(), kUnknown);
  std::vector<uint32_t> moved_frames(frames.size(), kUnknown);
  clear();
  moved_sets[kDead] = kDead;
  moved_frames[0] = 0;
  std::vector<uint32_t> path;
  const auto move_frame = [&](uint32_t old) {
    for (; moved_frames[old] == kUnknown; old = frames[old].below) path.push_back(old);
    uint32_t top = moved_frames[old];
    for (; !path.empty(); path.pop_back()) {
      const Frame& other = frames[path.back()];
      top = moved_frames[path.back()] = frame(other.node, other.place, top);
    }
    return top;
  };
  const auto move_set = [&](State& old) {
    if (moved_sets[old] == kUnknown) {
      begin_set();
      for (uint32_t i = 0; i < sets[old].count; ++i) {
        readings_.push_back(move_frame(members[sets[old].first + i]));
      }
      may_end_ = sets[old].may_end;
      moved_sets[old] = finish_set();
    }
    old = moved_sets[old];
  };
  move_set(state);
  move_set(current_);
  for (State& live : live_) move_set(live);
  bytes_max_ = std::max(bytes_asked_, bytes() * 2);
}

}  // namespace pagewise::grammar
