// SPDX-License-Identifier: Apache-2.0
// Sizes as people write them: "512MiB", "40GiB", "1073741824".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pagewise {

inline constexpr uint64_t kKiB = 1024;
inline constexpr uint64_t kMiB = 1024 * kKiB;
inline constexpr uint64_t kGiB = 1024 * kMiB;

/// Accepts plain bytes, KiB, MiB, GiB, TiB (any case, fractions allowed with a unit: "1.5GiB").
/// Errors: kInvalidArgument naming the text; also when it exceeds 2^63 - 1.
Result<uint64_t> parse_size(std::string_view text);

/// "96.0 MiB", "1.0 GiB", "512 B": one decimal, the largest unit that gives at least 1.
std::string format_size(uint64_t bytes);

constexpr uint64_t round_up(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr uint64_t ceil_div(uint64_t value, uint64_t divisor) {
  return (value + divisor - 1) / divisor;
}

}  // namespace pagewise
