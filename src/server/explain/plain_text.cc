// SPDX-License-Identifier: Apache-2.0
#include "server/explain/plain_text.h"

#include <algorithm>
#include <array>

namespace pagewise::server::explain {
namespace {

/// White space and invisible characters beyond ASCII.
constexpr std::array<std::string_view, 24> kWide = {
    "\xC2\x85",     "\xC2\xA0",     "\xC2\xAD",     "\xE1\x9A\x80", "\xE2\x80\x80", "\xE2\x80\x81",
    "\xE2\x80\x82", "\xE2\x80\x83", "\xE2\x80\x84", "\xE2\x80\x85", "\xE2\x80\x86", "\xE2\x80\x87",
    "\xE2\x80\x88", "\xE2\x80\x89", "\xE2\x80\x8A", "\xE2\x80\x8B", "\xE2\x80\x8C", "\xE2\x80\x8D",
    "\xE2\x80\xA8", "\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\xA0", "\xE3\x80\x80", "\xEF\xBB\xBF"};

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

}  // namespace

std::size_t common_text(std::string_view a, std::string_view b) {
  const auto parted = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  auto length = static_cast<std::size_t>(parted.first - a.begin());
  const auto inside = [&](std::string_view text) {
    return length < text.size() && is_continuation(text[length]);
  };
  while (length > 0 && (inside(a) || inside(b))) --length;
  return length;
}

std::size_t white_space_at(std::string_view text) {
  if (text.empty()) return 0;
  const char c = text.front();
  if (c == ' ' || (c >= '\t' && c <= '\r') || c == '\0') return 1;
  if (static_cast<unsigned char>(c) < 0x80) return 0;
  for (const std::string_view wide : kWide) {
    if (text.starts_with(wide)) return wide.size();
  }
  return 0;
}

std::size_t white_space_run(std::string_view text) {
  std::size_t length = 0;
  while (const std::size_t next = white_space_at(text.substr(length))) length += next;
  return length;
}

std::size_t white_space_begin(std::string_view text, std::size_t offset) {
  while (offset > 0) {
    std::size_t begin = offset - 1;
    while (begin > 0 && is_continuation(text[begin])) --begin;
    if (white_space_at(text.substr(begin)) != offset - begin) break;
    offset = begin;
  }
  return offset;
}

bool LooseMatch::convincing(std::size_t enough) const {
  if (a_ended && b_ended) return true;
  if (a_ended || b_ended) return characters >= 4;
  return characters >= enough;
}

LooseMatch loose_match(std::string_view a, std::string_view b) {
  LooseMatch match;
  std::size_t& i = match.a_offset;
  std::size_t& j = match.b_offset;
  while (true) {
    const std::size_t ahead_a = i + white_space_run(a.substr(i));
    const std::size_t ahead_b = j + white_space_run(b.substr(j));
    match.a_ended = ahead_a == a.size();
    match.b_ended = ahead_b == b.size();
    if (match.a_ended || match.b_ended || a[ahead_a] != b[ahead_b]) return match;
    i = ahead_a + 1;
    j = ahead_b + 1;
    if (!is_continuation(a[ahead_a])) ++match.characters;
  }
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool is_letter(char c) { return lower(c) >= 'a' && lower(c) <= 'z'; }
bool is_word(char c) {
  return is_digit(c) || is_letter(c) || static_cast<unsigned char>(c) >= 0x80;
}

std::string lowered(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), lower);
  return out;
}

bool all_of_text(std::string_view text, bool (*predicate)(char)) {
  return std::all_of(text.begin(), text.end(), predicate);
}

Range line_at(std::string_view text, std::size_t offset) {
  Range line{offset, offset};
  while (line.begin > 0 && text[line.begin - 1] != '\n') --line.begin;
  while (line.end < text.size() && text[line.end] != '\n') ++line.end;
  return line;
}

std::string_view trimmed(std::string_view text) {
  text.remove_prefix(white_space_run(text));
  return text.substr(0, white_space_begin(text, text.size()));
}

std::vector<std::string> words_before(std::string_view text, std::size_t offset,
                                      std::size_t count) {
  std::vector<std::string> words;
  std::size_t at = offset;
  const auto part_of_word = [&](std::size_t i) { return is_digit(text[i]) || is_letter(text[i]); };
  while (words.size() < count && at > 0 && text[at - 1] != '\n') {
    if (!part_of_word(at - 1)) {
      --at;
      continue;
    }
    const std::size_t end = at;
    while (at > 0 && part_of_word(at - 1)) {
      --at;
      // sessionId: two words.
      const bool hump = text[at] >= 'A' && text[at] <= 'Z' && at > 0 && text[at - 1] >= 'a' &&
                        text[at - 1] <= 'z';
      if (hump) break;
    }
    words.push_back(lowered(text.substr(at, end - at)));
  }
  return words;
}

}  // namespace pagewise::server::explain
