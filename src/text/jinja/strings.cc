// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/strings.h"

#include "text/utf8.h"

namespace pagewise::text::jinja {

namespace {

struct Character {
  std::size_t bytes = 0;
  bool white_space = false;
};

Character first_character(std::string_view text) {
  const Utf8Unit unit = utf8_unit(text);
  if (unit.kind != Utf8Kind::kCharacter) return {1, false};
  return {unit.length, is_white_space(utf8_decode(text.substr(0, unit.length)))};
}

}  // namespace

bool is_white_space(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

std::size_t leading_space(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const Character character = first_character(text.substr(at));
    if (!character.white_space) break;
    at += character.bytes;
  }
  return at;
}

std::size_t trailing_space(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    // Back to the lead byte; a white-space character has at most three bytes.
    std::size_t begin = end - 1;
    while (begin > 0 && end - begin < 3 &&
           (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) {
      --begin;
    }
    const Character character = first_character(text.substr(begin, end - begin));
    if (!character.white_space || begin + character.bytes != end) break;
    end = begin;
  }
  return text.size() - end;
}

std::vector<uint32_t> character_offsets(std::string_view text) {
  std::vector<uint32_t> offsets;
  offsets.reserve(text.size() + 1);
  std::size_t at = 0;
  while (at < text.size()) {
    offsets.push_back(static_cast<uint32_t>(at));
    at += first_character(text.substr(at)).bytes;
  }
  offsets.push_back(static_cast<uint32_t>(text.size()));
  return offsets;
}

std::size_t find_text(std::string_view text, std::string_view wanted, std::size_t from) {
  if (wanted.size() <= kFindShortBytes) return text.find(wanted, from);
  // borders[i]: the longest proper prefix of wanted[0..i] that is also its suffix (Knuth, Morris,
  // Pratt).
  std::vector<uint32_t> borders(wanted.size(), 0);
  uint32_t border = 0;
  for (std::size_t i = 1; i < wanted.size(); ++i) {
    while (border > 0 && wanted[i] != wanted[border]) border = borders[border - 1];
    if (wanted[i] == wanted[border]) ++border;
    borders[i] = border;
  }
  uint32_t matched = 0;
  for (std::size_t i = from; i < text.size(); ++i) {
    while (matched > 0 && text[i] != wanted[matched]) matched = borders[matched - 1];
    if (text[i] == wanted[matched]) ++matched;
    if (matched == wanted.size()) return i + 1 - wanted.size();
  }
  return std::string_view::npos;
}

std::size_t character_count(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); ++count) at += first_character(text.substr(at)).bytes;
  return count;
}

}  // namespace pagewise::text::jinja
