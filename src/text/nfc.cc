// SPDX-License-Identifier: Apache-2.0
#include "text/nfc.h"

#include <algorithm>
#include <iterator>

#include "text/nfc_data.h"
#include "text/utf8.h"

namespace pagewise::text {

namespace {

// Hangul syllables: leading consonant, vowel, and a trailing consonant that may be missing.
constexpr uint32_t kSyllables = 0xAC00, kLeads = 0x1100, kVowels = 0x1161, kTails = 0x11A7;
constexpr uint32_t kLeadCount = 19, kVowelCount = 21, kTailCount = 28;
constexpr uint32_t kSyllableCount = kLeadCount * kVowelCount * kTailCount;

struct Mark {
  uint32_t character = 0;
  uint8_t combining_class = 0;
};

uint8_t combining_class(uint32_t character) {
  const auto* const range = std::partition_point(
      std::begin(kCombiningClasses), std::end(kCombiningClasses),
      [character](const CombiningClass& entry) { return entry.last < character; });
  return range != std::end(kCombiningClasses) && range->first <= character ? range->value : 0;
}

const Decomposition* find_decomposition(uint32_t character) {
  const auto* const found = std::partition_point(
      std::begin(kDecompositions), std::end(kDecompositions),
      [character](const Decomposition& entry) { return entry.character < character; });
  return found != std::end(kDecompositions) && found->character == character ? found : nullptr;
}

uint64_t pair_of(uint32_t first, uint32_t second) { return uint64_t{first} << 32 | second; }

/// The pairs that become one character, sorted by the pair, and the characters that are the second
/// one of a pair.
struct Compositions {
  struct Entry {
    uint64_t pair;
    uint32_t character;
  };

  Compositions() {
    for (const Decomposition& entry : kDecompositions) {
      if (!entry.composes) continue;
      pairs.push_back({pair_of(entry.first, entry.second), entry.character});
      seconds.push_back(entry.second);
    }
    std::sort(pairs.begin(), pairs.end(),
              [](const Entry& a, const Entry& b) { return a.pair < b.pair; });
    std::sort(seconds.begin(), seconds.end());
    seconds.erase(std::unique(seconds.begin(), seconds.end()), seconds.end());
  }

  std::vector<Entry> pairs;
  std::vector<uint32_t> seconds;
};

const Compositions& compositions() {
  static const Compositions table;
  return table;
}

/// 0: the two stay two.
uint32_t composed(uint32_t first, uint32_t second) {
  if (first - kLeads < kLeadCount && second - kVowels < kVowelCount) {
    return kSyllables + ((first - kLeads) * kVowelCount + (second - kVowels)) * kTailCount;
  }
  if (first - kSyllables < kSyllableCount && (first - kSyllables) % kTailCount == 0 &&
      second > kTails && second - kTails < kTailCount) {
    return first + (second - kTails);
  }
  const auto& pairs = compositions().pairs;
  const uint64_t pair = pair_of(first, second);
  const auto found =
      std::partition_point(pairs.begin(), pairs.end(),
                           [pair](const Compositions::Entry& entry) { return entry.pair < pair; });
  return found != pairs.end() && found->pair == pair ? found->character : 0;
}

/// What a character does to its neighbours.
enum class Effect : uint8_t {
  kNone,      // nothing in front of it can change it, and it stays itself
  kChanges,   // it begins anew, but is another by itself
  kCombines,  // it may join or be ordered with what stands in front
};

Effect effect_of(uint32_t character) {
  if (character < 0x300) return Effect::kNone;
  const bool joins_a_syllable =
      character - kVowels < kVowelCount || (character > kTails && character - kTails < kTailCount);
  if (joins_a_syllable || combining_class(character) != 0) return Effect::kCombines;
  const auto& seconds = compositions().seconds;
  if (std::binary_search(seconds.begin(), seconds.end(), character)) return Effect::kCombines;
  const Decomposition* parts = find_decomposition(character);
  if (parts == nullptr || parts->composes) return Effect::kNone;
  // Three Tibetan vowels are of no class themselves and made of marks.
  return combining_class(parts->first) != 0 ? Effect::kCombines : Effect::kChanges;
}

void decompose(uint32_t character, std::vector<Mark>& out) {
  if (character - kSyllables < kSyllableCount) {
    const uint32_t index = character - kSyllables;
    out.push_back({kLeads + index / (kVowelCount * kTailCount), 0});
    out.push_back({kVowels + index / kTailCount % kVowelCount, 0});
    if (index % kTailCount != 0) out.push_back({kTails + index % kTailCount, 0});
    return;
  }
  const Decomposition* parts = find_decomposition(character);
  if (parts == nullptr) {
    out.push_back({character, combining_class(character)});
    return;
  }
  decompose(parts->first, out);  // at most three deep
  if (parts->second != 0) decompose(parts->second, out);
}

/// Marks behind one base stand in the order of their classes.
void order(std::vector<Mark>& marks) {
  for (auto begin = marks.begin(); begin != marks.end();) {
    if (begin->combining_class == 0) {
      ++begin;
      continue;
    }
    const auto end = std::find_if(begin, marks.end(),
                                  [](const Mark& mark) { return mark.combining_class == 0; });
    std::stable_sort(begin, end, [](const Mark& a, const Mark& b) {
      return a.combining_class < b.combining_class;
    });
    begin = end;
  }
}

/// Joins what can be joined, in place.
void join(std::vector<Mark>& marks) {
  std::size_t kept = 0;
  std::size_t base = marks.size();  // none yet
  int between = -1;                 // the class of the last mark kept behind the base; -1: none
  for (const Mark mark : marks) {
    if (base < kept && between < mark.combining_class) {
      const uint32_t whole = composed(marks[base].character, mark.character);
      if (whole != 0) {
        marks[base].character = whole;
        continue;
      }
    }
    if (mark.combining_class == 0) {
      base = kept;
      between = -1;
    } else {
      between = mark.combining_class;
    }
    marks[kept++] = mark;
  }
  marks.resize(kept);
}

}  // namespace

bool may_compose(std::string_view text) {
  // U+0300 is CC 80; below stand two bytes that begin with C2 to CB.
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) >= 0xCC; });
}

void compose(std::string_view text, ComposedText& out) {
  out.text.clear();
  out.changes.clear();
  std::vector<Mark> marks;
  std::string stretch;
  std::size_t copied = 0;       // of `text`: what is in `out`
  std::size_t last_anchor = 0;  // the last character that stands for itself, whatever is in front
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Unit unit = utf8_unit(text.substr(at));
    const bool whole = unit.kind == Utf8Kind::kCharacter;
    const Effect effect =
        whole ? effect_of(utf8_decode(text.substr(at, unit.length))) : Effect::kNone;
    if (effect == Effect::kNone) {
      last_anchor = whole ? at : at + unit.length;
      at += unit.length;
      continue;
    }
    // From what this character may join to what no longer joins.
    const std::size_t begin = effect == Effect::kCombines ? std::max(last_anchor, copied) : at;
    std::size_t end = at + unit.length;
    while (end < text.size()) {
      const Utf8Unit next = utf8_unit(text.substr(end));
      if (next.kind != Utf8Kind::kCharacter ||
          effect_of(utf8_decode(text.substr(end, next.length))) != Effect::kCombines) {
        break;
      }
      end += next.length;
    }
    marks.clear();
    for (std::size_t i = begin; i < end;) {
      const uint32_t length = utf8_unit(text.substr(i)).length;
      decompose(utf8_decode(text.substr(i, length)), marks);
      i += length;
    }
    order(marks);
    join(marks);
    stretch.clear();
    for (const Mark& mark : marks) utf8_append(mark.character, stretch);
    out.text += text.substr(copied, begin - copied);
    const auto out_begin = static_cast<uint32_t>(out.text.size());
    out.text += stretch;
    if (stretch != text.substr(begin, end - begin)) {
      out.changes.push_back(
          {out_begin, static_cast<uint32_t>(out.text.size()), static_cast<uint32_t>(end)});
    }
    copied = at = last_anchor = end;
  }
  out.text += text.substr(copied);
}

uint32_t SourceOffsets::of(uint32_t offset) {
  while (!changes_.empty() && changes_.front().end <= offset) {
    end_ = changes_.front().end;
    source_end_ = changes_.front().source_end;
    changes_ = changes_.subspan(1);
  }
  if (!changes_.empty() && changes_.front().begin < offset) return changes_.front().source_end;
  return source_end_ + (offset - end_);
}

}  // namespace pagewise::text
