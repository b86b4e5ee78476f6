// SPDX-License-Identifier: Apache-2.0
#include "planner/numbers.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

namespace pagewise::planner {

std::string grouped(uint64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

std::string duration(TimeNs ns) {
  constexpr struct {
    double ns;    // of the unit
    double most;  // of these units are shown
    std::string_view name;
  } kUnits[] = {{1e3, 1e3, "us"},
                {1e6, 1e3, "ms"},
                {1e9, 120, "s"},
                {60e9, 120, "min"},
                {3600e9, 48, "h"},
                {86400e9, 730, "days"},
                {31557600e9, HUGE_VAL, "years"}};
  const double time = static_cast<double>(ns);
  for (const auto& unit : kUnits) {
    // What would round to the limit is shown in the next unit.
    if (time / unit.ns >= 0.9995 * unit.most) continue;
    return fmt::format("{:.3g} {}", time / unit.ns, unit.name);
  }
  return {};  // the last unit has no limit
}

std::string short_tokens(uint64_t tokens) {
  return tokens >= 1024 && tokens % 1024 == 0 ? grouped(tokens / 1024) + "k" : grouped(tokens);
}

}  // namespace pagewise::planner
