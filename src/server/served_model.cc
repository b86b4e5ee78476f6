// SPDX-License-Identifier: Apache-2.0
#include "server/served_model.h"

#include <algorithm>

namespace pagewise::server {

bool glob_match(std::string_view pattern, std::string_view text) {
  // The usual two-pointer walk: on a mismatch, let the last star take one character more.
  std::size_t p = 0, t = 0;
  std::size_t star = std::string_view::npos, star_text = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool ServedModel::answers_to(std::string_view asked) const {
  return asked == name ||
         std::any_of(aliases.begin(), aliases.end(),
                     [&](const std::string& alias) { return glob_match(alias, asked); });
}

std::vector<std::string> ServedModel::listed_names() const {
  std::vector<std::string> names{name};
  for (const std::string& alias : aliases) {
    if (alias.find_first_of("*?") == std::string::npos && alias != name) names.push_back(alias);
  }
  return names;
}

}  // namespace pagewise::server
