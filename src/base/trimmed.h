// SPDX-License-Identifier: Apache-2.0
// Text without what stands blank around it.
#pragma once

#include <string_view>

namespace pagewise {

/// `text` without the characters of `blanks` at both ends. What is blank depends on the format: a
/// line of a file is not a chat message.
constexpr std::string_view trimmed(std::string_view text, std::string_view blanks) {
  const std::size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

}  // namespace pagewise
