// SPDX-License-Identifier: Apache-2.0
// Cells in columns: numbers to the right, words to the left.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pagewise::planner {

class TextTable {
 public:
  enum class Align : uint8_t { kLeft, kRight };
  explicit TextTable(std::vector<Align> columns) : columns_(std::move(columns)) {}

  /// Requires: at most a cell a column.
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  /// A line a row, indented by two.
  std::string text() const;

 private:
  std::vector<Align> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace pagewise::planner
