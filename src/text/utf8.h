// SPDX-License-Identifier: Apache-2.0
// UTF-8, one unit at a time: what stands at the start of some bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pagewise::text {

enum class Utf8Kind {
  kCharacter,   // a well-formed character
  kIllFormed,   // a maximal ill-formed subpart: no continuation can repair it
  kIncomplete,  // the bytes end inside what may still become a character
};

struct Utf8Unit {
  Utf8Kind kind = Utf8Kind::kIllFormed;
  uint32_t length = 1;  // bytes, >= 1
};

/// The first unit of `bytes`. Requires: not empty.
/// Source: Unicode 15, table 3-7 (well-formed sequences) and section 3.9 (maximal subparts).
Utf8Unit utf8_unit(std::string_view bytes);

/// The code point of a well-formed character of `unit.length` bytes.
uint32_t utf8_decode(std::string_view character);

void utf8_append(uint32_t code_point, std::string& out);

/// The number of leading bytes that are whole, well-formed characters.
std::size_t utf8_valid_prefix(std::string_view bytes);

}  // namespace pagewise::text
