// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal_text.h"

#include <gtest/gtest.h>

#include <string>

#include "text/utf8.h"

namespace pagewise::cli {
namespace {

TEST(TerminalText, NoControlCharacterIsLeft) {
  std::string all;
  for (uint32_t c = 0; c < 0x100; ++c) text::utf8_append(c, all);
  const std::string safe = terminal_safe(all);
  for (std::size_t at = 0; at < safe.size();) {
    const std::string_view rest = std::string_view(safe).substr(at);
    const text::Utf8Unit unit = text::utf8_unit(rest);
    ASSERT_EQ(unit.kind, text::Utf8Kind::kCharacter);
    const uint32_t c = text::utf8_decode(rest.substr(0, unit.length));
    EXPECT_TRUE(c == '\n' || c == '\t' || (c >= 0x20 && c < 0x7F) || c >= 0xA0) << c;
    at += unit.length;
  }
  EXPECT_EQ(terminal_safe("\x1b[2J"), "\xE2\x90\x9B[2J");  // shown, not obeyed
  EXPECT_EQ(terminal_safe("\xC2\x9B"
                          "2J"),
            "\xEF\xBF\xBD"
            "2J");  // the eight-bit form of ESC [
}

TEST(TerminalText, TextStaysAsItIs) {
  const std::string text =
      "gr\xC3\xB6\xC3\x9F"
      "e\t\xE6\xBC\xA2\xE5\xAD\x97\n\xF0\x9F\x99\x82";
  EXPECT_EQ(terminal_safe(text), text);
  EXPECT_EQ(well_formed(text), text);
}

TEST(TerminalText, BytesThatAreNoUtf8AreReplaced) {
  EXPECT_EQ(terminal_safe("a\x9B"
                          "b"),
            "a\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(terminal_safe("a\xE6\xBC"), "a\xEF\xBF\xBD");
  EXPECT_EQ(well_formed("a\x9B"
                        "b\xC3"),
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD");
}

TEST(TerminalText, OneLineSpellsBreaksAndSaysWhatItLeavesOut) {
  EXPECT_EQ(one_line("a\nb\tc\rd", 100), "a\\nb\\tc\\rd");
  EXPECT_EQ(one_line("abcdef", 6), "abcdef");
  EXPECT_EQ(one_line("abcdef", 3), "abc... (3 bytes more)");
  EXPECT_EQ(one_line("", 0), "");
  // U+202E would show what follows from right to left.
  EXPECT_EQ(one_line("a\xE2\x80\xAE"
                     "b",
                     10),
            "a\xEF\xBF\xBD"
            "b");
}

}  // namespace
}  // namespace pagewise::cli
