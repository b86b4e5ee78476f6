// SPDX-License-Identifier: Apache-2.0
// What a benchmark program prints: for people a line of text, with --json one object a line, which
// bench/run.py collects into a result file.
#pragma once

#include <cstdio>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>

namespace pagewise::bench {

struct Field {
  std::string_view name;  // unit last: "ms", "gb_per_s"
  std::variant<std::string, double> value;
};

/// Prints one measurement. `text` is the line for people, without its end. Names and texts are the
/// program's own: nothing in them needs escaping.
inline void print_row(bool json, std::string_view table, std::initializer_list<Field> fields,
                      const std::string& text) {
  if (!json) {
    std::printf("%s\n", text.c_str());
    return;
  }
  std::string line = "{\"table\":\"" + std::string(table) + "\"";
  for (const Field& field : fields) {
    line += ",\"" + std::string(field.name) + "\":";
    if (const auto* words = std::get_if<std::string>(&field.value)) {
      line += "\"" + *words + "\"";
    } else {
      char number[32];
      std::snprintf(number, sizeof number, "%.6g", std::get<double>(field.value));
      line += number;
    }
  }
  std::printf("%s}\n", line.c_str());
}

}  // namespace pagewise::bench
