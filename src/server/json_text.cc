// SPDX-License-Identifier: Apache-2.0
#include "server/json_text.h"

#include <algorithm>

#include "text/detokenizer.h"

namespace pagewise::server {

std::string valid_utf8(std::string_view bytes) {
  std::string out;
  text::Utf8Assembler assembler;
  assembler.push(bytes, out);
  if (!assembler.empty()) out += "\xEF\xBF\xBD";
  return out;
}

bool is_valid_utf8(std::string_view bytes) { return valid_utf8(bytes) == bytes; }

std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](unsigned char c) { return (c & 0xC0) != 0x80; }));
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos;
}

}  // namespace pagewise::server
