// SPDX-License-Identifier: Apache-2.0
#include "base/bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

namespace pagewise {

Result<uint64_t> parse_size(std::string_view text) {
  const auto bad = [&] {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("'{}' is not a size: give bytes or a number with KiB, MiB, GiB or TiB", text)};
  };
  const std::size_t unit_at = text.find_first_not_of("0123456789.");
  const std::string_view digits = text.substr(0, unit_at);
  std::string unit(unit_at == std::string_view::npos ? std::string_view() : text.substr(unit_at));
  std::transform(unit.begin(), unit.end(), unit.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  uint64_t factor = 0;
  if (unit.empty() || unit == "b") factor = 1;
  if (unit == "kib") factor = kKiB;
  if (unit == "mib") factor = kMiB;
  if (unit == "gib") factor = kGiB;
  if (unit == "tib") factor = 1024 * kGiB;
  if (factor == 0 || digits.empty()) return bad();
  uint64_t whole = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), whole);
  if (error == std::errc() && end == digits.data() + digits.size()) {
    if (whole > (uint64_t{1} << 63) / factor) return bad();
    return whole * factor;
  }
  double value = 0;
  const auto [dend, derror] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (derror != std::errc() || dend != digits.data() + digits.size() || factor == 1) return bad();
  const double bytes = value * static_cast<double>(factor);
  if (!(bytes < 0x1.0p63)) return bad();
  return static_cast<uint64_t>(std::llround(bytes));
}

std::string format_size(uint64_t bytes) {
  static constexpr std::string_view kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < kKiB) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024.0;
  std::size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < std::size(kUnits)) {
    value /= 1024.0;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace pagewise
