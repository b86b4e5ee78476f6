// SPDX-License-Identifier: Apache-2.0
#include "grammar/vocabulary.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "base/check.h"
#include "grammar/automaton.h"
#include "grammar/grammar.h"
#include "grammar/string_lexer.h"

namespace pagewise::grammar {
namespace {

// A mask that took longer than this many places of the tree is kept for when its state comes again.
constexpr std::size_t kPlacesWorthKeeping = 2048;

void set_bit(std::span<uint64_t> mask, int32_t token) {
  mask[static_cast<std::size_t>(token) / 64] |= uint64_t{1} << (token % 64);
}

bool can_be_text(std::string_view bytes) {
  return std::none_of(bytes.begin(), bytes.end(),
                      [](char c) { return static_cast<uint8_t>(c) >= 0xFE; });
}

}  // namespace

Vocabulary::Vocabulary(std::span<const TokenText> tokens) {
  std::vector<int32_t> order;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto token = static_cast<int32_t>(i);
    if (tokens[i].control) {
      spellings_ += control_spelling(TokenId(token));
    } else if (can_be_text(tokens[i].bytes)) {
      spellings_ += tokens[i].bytes;
    }
    spelling_ends_.push_back(static_cast<uint32_t>(spellings_.size()));
    if (!spelling(TokenId(token)).empty()) order.push_back(token);
  }
  std::sort(order.begin(), order.end(), [this](int32_t a, int32_t b) {
    const int compared = spelling(TokenId(a)).compare(spelling(TokenId(b)));
    return compared != 0 ? compared < 0 : a < b;
  });
  same_.assign(tokens.size(), -1);
  std::vector<uint32_t> path;  // the places of the bytes of the token before
  std::string_view before;
  const auto close = [&](std::size_t depth) {  // places deeper than this end here
    for (; path.size() > depth; path.pop_back()) {
      places_[path.back()].skip = static_cast<uint32_t>(places_.size());
    }
  };
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::string_view bytes = spelling(TokenId(order[i]));
    if (bytes == before) {  // not the first: none is empty
      same_[static_cast<std::size_t>(order[i])] = places_[path.back()].token;
      places_[path.back()].token = order[i];
      continue;
    }
    const auto common = static_cast<std::size_t>(
        std::mismatch(bytes.begin(), bytes.end(), before.begin(), before.end()).first -
        bytes.begin());
    close(common);
    for (std::size_t j = common; j < bytes.size(); ++j) {
      path.push_back(static_cast<uint32_t>(places_.size()));
      places_.push_back({static_cast<uint8_t>(bytes[j]), static_cast<uint32_t>(j + 1), 0, -1});
    }
    places_.back().token = order[i];
    depth_max_ = std::max(depth_max_, bytes.size());
    before = bytes;
  }
  close(0);
  read_strings();
}

std::string_view Vocabulary::spelling(TokenId token) const {
  const auto i = static_cast<std::size_t>(token.value);
  PW_CHECK(i < spelling_ends_.size());
  const uint32_t begin = i == 0 ? 0 : spelling_ends_[i - 1];
  return std::string_view(spellings_).substr(begin, spelling_ends_[i] - begin);
}

/// What every token does from the inside of a string.
void Vocabulary::read_strings() {
  struct At {
    StringPlace place = StringPlace::kInside;
    uint32_t characters = 0;  // begun
  };
  std::vector<At> path(depth_max_ + 1);
  inside_.assign(mask_words(), 0);
  for (std::vector<uint64_t>& mask : inside_up_to_) mask.assign(mask_words(), 0);
  for (uint32_t i = 0; i < places_.size();) {
    const Place& place = places_[i];
    const At from = path[place.depth - 1];
    if (from.place == StringPlace::kInside && place.byte == '"') {
      exits_.push_back({i, from.characters});
      i = place.skip;
      continue;
    }
    At to = from;
    to.place = next_in_string(from.place, place.byte);
    if (to.place == StringPlace::kRefused) {
      i = place.skip;
      continue;
    }
    if (from.place == StringPlace::kInside) ++to.characters;
    path[place.depth] = to;
    for (int32_t token = place.token; token >= 0; token = same_[static_cast<std::size_t>(token)]) {
      set_bit(inside_, token);
      if (to.characters > kLengthMasks) inside_long_.push_back({TokenId(token), to.characters});
      for (uint32_t most = to.characters; most <= kLengthMasks; ++most) {
        set_bit(inside_up_to_[most], token);
      }
    }
    ++i;
  }
  std::stable_sort(
      inside_long_.begin(), inside_long_.end(),
      [](const LongToken& a, const LongToken& b) { return a.characters > b.characters; });
}

/// One mask. What a walk stands in is in Automaton::live(), because a step may renumber states.
class MaskWalk {
 public:
  MaskWalk(Automaton& automaton, const Vocabulary& vocabulary, std::span<uint64_t> mask)
      : automaton_(automaton), vocabulary_(vocabulary), mask_(mask) {}

  /// Everything that current() allows.
  void run() {
    // The states of the strings' ends stay at the end of live(), behind those of the path.
    const std::size_t path = vocabulary_.depth_max_ + 1;
    std::vector<Automaton::InString>& strings = automaton_.strings();
    automaton_.live().clear();
    automaton_.make_room();
    const Automaton::State rest = automaton_.part_strings(automaton_.current(), strings);
    std::vector<Automaton::State>& live = automaton_.live();
    live.assign(path + strings.size(), Automaton::kDead);
    live[0] = rest;
    for (std::size_t i = 0; i < strings.size(); ++i) live[path + i] = strings[i].closed;
    if (rest != Automaton::kDead) {
      walk(0, static_cast<uint32_t>(vocabulary_.places_.size()));
    }
    for (std::size_t i = 0; i < strings.size(); ++i) add_string(strings[i], path + i);
  }

  std::size_t visited() const { return visited_; }

 private:
  void add_tokens(int32_t token) {
    for (; token >= 0; token = vocabulary_.same_[static_cast<std::size_t>(token)]) {
      set_bit(mask_, token);
    }
  }

  /// Places [begin, end) whose parents' states are in the path.
  void walk(uint32_t begin, uint32_t end) {
    std::vector<Automaton::State>& live = automaton_.live();
    for (uint32_t i = begin; i < end;) {
      const Vocabulary::Place& place = vocabulary_.places_[i];
      ++visited_;
      const Automaton::State next = automaton_.step(live[place.depth - 1U], place.byte);
      if (next == Automaton::kDead) {
        i = place.skip;
        continue;
      }
      live[place.depth] = next;
      add_tokens(place.token);
      ++i;
    }
  }

  void add_string(const Automaton::InString& string, std::size_t closed) {
    add_inside(string.max_left);
    for (const Vocabulary::Exit& exit : vocabulary_.exits_) {
      if (exit.characters < string.min_left || exit.characters > string.max_left) continue;
      const Vocabulary::Place& place = vocabulary_.places_[exit.place];
      add_tokens(place.token);
      if (place.skip == exit.place + 1) continue;
      automaton_.live()[place.depth] = automaton_.live()[closed];
      walk(exit.place + 1, place.skip);
    }
  }

  /// Tokens that stay in the string and begin at most so many characters.
  void add_inside(uint32_t characters_max) {
    const std::vector<Vocabulary::LongToken>& longer = vocabulary_.inside_long_;
    const bool all = longer.empty() || longer.front().characters <= characters_max;
    const uint32_t most = std::min(characters_max, Vocabulary::kLengthMasks);
    const std::vector<uint64_t>& inside = all && most == Vocabulary::kLengthMasks
                                              ? vocabulary_.inside_
                                              : vocabulary_.inside_up_to_[most];
    for (std::size_t i = 0; i < mask_.size(); ++i) mask_[i] |= inside[i];
    if (all) return;
    for (auto token = longer.rbegin(); token->characters <= characters_max; ++token) {
      set_bit(mask_, token->token.value);
    }
  }

  Automaton& automaton_;
  const Vocabulary& vocabulary_;
  std::span<uint64_t> mask_;
  std::size_t visited_ = 0;
};

void allowed(const Matcher& matcher, const Vocabulary& vocabulary, std::span<uint64_t> mask) {
  PW_CHECK(mask.size() == vocabulary.mask_words());
  Automaton& automaton = *matcher.automaton_;
  if (const std::vector<uint64_t>* kept = automaton.kept_mask(automaton.current())) {
    PW_CHECK(kept->size() == mask.size());
    std::copy(kept->begin(), kept->end(), mask.begin());
    return;
  }
  std::fill(mask.begin(), mask.end(), 0);
  MaskWalk walk(automaton, vocabulary, mask);
  walk.run();
  if (walk.visited() < kPlacesWorthKeeping) return;
  automaton.keep_mask(automaton.current()).assign(mask.begin(), mask.end());
}

}  // namespace pagewise::grammar
