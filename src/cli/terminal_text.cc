// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal_text.h"

#include <unistd.h>

#include <cstdint>
#include <cstdio>

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

void print_generated(std::string_view text) {
  static const bool terminal = isatty(STDOUT_FILENO) != 0;
  const std::string safe = terminal ? terminal_safe(text) : std::string();
  const std::string_view printed = terminal ? safe : text;
  std::fwrite(printed.data(), 1, printed.size(), stdout);
  std::fflush(stdout);
}

}  // namespace pagewise::cli
