// SPDX-License-Identifier: Apache-2.0
// The inside of a JSON string, byte by byte: valid UTF-8, no control characters, valid escapes, and
// an escaped surrogate only as one of a pair.
#pragma once

#include <array>
#include <cstdint>

namespace pagewise::grammar {

enum class StringPlace : uint8_t {
  kOpen,     // in front of the opening quote
  kInside,   // between two characters
  kTail1,    // so many bytes of a character are left
  kTail2,    //
  kTail3,    //
  kAfterE0,  // the second byte has its own bounds: no overlong forms,
  kAfterED,  // no surrogates,
  kAfterF0,  // again no overlong forms,
  kAfterF4,  // nothing beyond U+10FFFF
  kEscape,   // behind a backslash
  kHex4,     // so many hexadecimal digits are left; of four the first may be D
  kHex3,
  kHex2,
  kHex1,
  kAfterD,  // \uD: a low surrogate may not come first
  kHigh2,   // of a high surrogate, two digits are left
  kHigh1,
  kPairBackslash,  // its low surrogate must follow
  kPairU,
  kPairD,
  kPairHigh,  // behind \uD: C to F
  kRefused,
};

inline constexpr uint32_t kStringPlaces = static_cast<uint32_t>(StringPlace::kRefused);
/// Bits that hold a place.
inline constexpr uint32_t kStringPlaceBits = 5;
static_assert(kStringPlaces < (1U << kStringPlaceBits));

/// Where a byte leads. The closing quote is not here: from kInside it ends the string.
using StringTable = std::array<std::array<StringPlace, 256>, kStringPlaces>;

namespace string_lexer_detail {

constexpr StringTable make_table() {
  using enum StringPlace;
  StringTable table{};
  for (auto& row : table) row.fill(kRefused);
  const auto set = [&table](StringPlace from, uint32_t first, uint32_t last, StringPlace to) {
    for (uint32_t byte = first; byte <= last; ++byte)
      table[static_cast<std::size_t>(from)][byte] = to;
  };
  const auto set_hex = [&set](StringPlace from, StringPlace to) {
    set(from, '0', '9', to);
    set(from, 'a', 'f', to);
    set(from, 'A', 'F', to);
  };
  set(kOpen, '"', '"', kInside);
  set(kInside, 0x20, 0x7F, kInside);
  set(kInside, '"', '"', kRefused);
  set(kInside, '\\', '\\', kEscape);
  set(kInside, 0xC2, 0xDF, kTail1);
  set(kInside, 0xE0, 0xE0, kAfterE0);
  set(kInside, 0xE1, 0xEF, kTail2);
  set(kInside, 0xED, 0xED, kAfterED);
  set(kInside, 0xF0, 0xF0, kAfterF0);
  set(kInside, 0xF1, 0xF3, kTail3);
  set(kInside, 0xF4, 0xF4, kAfterF4);
  set(kTail1, 0x80, 0xBF, kInside);
  set(kTail2, 0x80, 0xBF, kTail1);
  set(kTail3, 0x80, 0xBF, kTail2);
  set(kAfterE0, 0xA0, 0xBF, kTail1);
  set(kAfterED, 0x80, 0x9F, kTail1);
  set(kAfterF0, 0x90, 0xBF, kTail2);
  set(kAfterF4, 0x80, 0x8F, kTail2);
  for (const char c : {'"', '\\', '/', 'b', 'f', 'n', 'r', 't'}) {
    set(kEscape, static_cast<uint8_t>(c), static_cast<uint8_t>(c), kInside);
  }
  set(kEscape, 'u', 'u', kHex4);
  set_hex(kHex4, kHex3);
  set(kHex4, 'd', 'd', kAfterD);
  set(kHex4, 'D', 'D', kAfterD);
  set_hex(kHex3, kHex2);
  set_hex(kHex2, kHex1);
  set_hex(kHex1, kInside);
  set(kAfterD, '0', '7', kHex2);
  set(kAfterD, '8', '9', kHigh2);
  set(kAfterD, 'a', 'b', kHigh2);
  set(kAfterD, 'A', 'B', kHigh2);
  set_hex(kHigh2, kHigh1);
  set_hex(kHigh1, kPairBackslash);
  set(kPairBackslash, '\\', '\\', kPairU);
  set(kPairU, 'u', 'u', kPairD);
  set(kPairD, 'd', 'd', kPairHigh);
  set(kPairD, 'D', 'D', kPairHigh);
  set(kPairHigh, 'c', 'f', kHex2);
  set(kPairHigh, 'C', 'F', kHex2);
  return table;
}

}  // namespace string_lexer_detail

inline constexpr StringTable kStringTable = string_lexer_detail::make_table();

constexpr StringPlace next_in_string(StringPlace from, uint8_t byte) {
  return kStringTable[static_cast<std::size_t>(from)][byte];
}

}  // namespace pagewise::grammar
