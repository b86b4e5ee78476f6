// SPDX-License-Identifier: Apache-2.0
#include "planner/text_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace pagewise::planner {

std::string TextTable::text() const {
  std::vector<std::size_t> widths(columns_.size(), 0);
  for (const auto& cells : rows_) {
    for (std::size_t c = 0; c < cells.size(); ++c) widths[c] = std::max(widths[c], cells[c].size());
  }
  std::string out;
  for (const auto& cells : rows_) {
    std::string line;
    for (std::size_t c = 0; c < cells.size(); ++c) {
      line += "  ";
      line += columns_[c] == Align::kRight ? fmt::format("{:>{}}", cells[c], widths[c])
                                           : fmt::format("{:<{}}", cells[c], widths[c]);
      if (c + 1 < cells.size()) line += ' ';
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

}  // namespace pagewise::planner
