// SPDX-License-Identifier: Apache-2.0
#include "base/percent.h"

#include <cstddef>

namespace pagewise {
namespace {

/// The value of a hexadecimal digit, or -1.
int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool coded =
        text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0;
    out.push_back(coded ? static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]))
                        : text[i]);
    if (coded) i += 2;
  }
  return out;
}

}  // namespace pagewise
