// SPDX-License-Identifier: Apache-2.0
// What a file or folder says, as JSON: text that need not be UTF-8, and values that may be missing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/terminal_text.h"

namespace pagewise::cli {

/// Text, or null where there is none.
inline json::value text_or_null(const std::string& text) {
  return text.empty() ? json::value(nullptr) : json::value(well_formed(text));
}

inline json::value number_or_null(const std::optional<uint64_t>& number) {
  return number ? json::value(*number) : json::value(nullptr);
}

inline json::array strings_json(const std::vector<std::string>& strings) {
  json::array out;
  for (const std::string& text : strings) out.emplace_back(well_formed(text));
  return out;
}

}  // namespace pagewise::cli
