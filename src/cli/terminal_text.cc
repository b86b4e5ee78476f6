// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal_text.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>

#include "text/detokenizer.h"
#include "text/utf8.h"

namespace pagewise::cli {
namespace {

constexpr uint32_t kControlPictures = 0x2400;  // U+2400 + c shows the control character c
constexpr uint32_t kDeletePicture = 0x2421;
constexpr uint32_t kReplacement = 0xFFFD;

uint32_t shown(uint32_t code_point) {
  if (code_point == '\n' || code_point == '\t') return code_point;
  if (code_point < 0x20) return kControlPictures + code_point;
  if (code_point == 0x7F) return kDeletePicture;
  if (code_point >= 0x80 && code_point < 0xA0) return kReplacement;
  return code_point;
}

/// Embeddings, overrides and isolates of bidirectional text, and the separators of lines and
/// paragraphs: in a table they would show something other than what is there.
bool turns_direction(uint32_t code_point) {
  return (code_point >= 0x2028 && code_point <= 0x202E) ||
         (code_point >= 0x2066 && code_point <= 0x2069);
}

}  // namespace

std::string terminal_safe(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const text::Utf8Unit unit = text::utf8_unit(text);
    text::utf8_append(unit.kind == text::Utf8Kind::kCharacter
                          ? shown(text::utf8_decode(text.substr(0, unit.length)))
                          : kReplacement,
                      out);
    text.remove_prefix(unit.length);
  }
  return out;
}

std::string one_line(std::string_view text, std::size_t characters_max) {
  std::string out;
  std::size_t shown_characters = 0;
  while (!text.empty()) {
    if (shown_characters++ == characters_max) {
      return out + fmt::format("... ({} bytes more)", text.size());
    }
    const text::Utf8Unit unit = text::utf8_unit(text);
    const uint32_t code_point = unit.kind == text::Utf8Kind::kCharacter
                                    ? text::utf8_decode(text.substr(0, unit.length))
                                    : kReplacement;
    if (code_point == '\n' || code_point == '\r' || code_point == '\t') {
      out += code_point == '\n' ? "\\n" : code_point == '\r' ? "\\r" : "\\t";
    } else {
      text::utf8_append(turns_direction(code_point) ? kReplacement : shown(code_point), out);
    }
    text.remove_prefix(unit.length);
  }
  return out;
}

std::string well_formed(std::string_view text) {
  std::string out;
  text::Utf8Assembler assembler;
  assembler.push(text, out);
  if (!assembler.empty()) text::utf8_append(kReplacement, out);
  return out;
}

void print_generated(std::string_view text) {
  static const bool terminal = isatty(STDOUT_FILENO) != 0;
  const std::string safe = terminal ? terminal_safe(text) : std::string();
  const std::string_view printed = terminal ? safe : text;
  std::fwrite(printed.data(), 1, printed.size(), stdout);
  std::fflush(stdout);
}

}  // namespace pagewise::cli
