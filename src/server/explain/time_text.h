// SPDX-License-Identifier: Apache-2.0
// Times and dates in running text: the many ways in which people and programs write them.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace pagewise::server::explain {

/// A run of text that names a moment or a day.
struct TimeSpan {
  std::size_t begin = 0, end = 0;
  bool has_time = false;  // a time of day is in it; else only a date
  /// In relation to now: "today", "3 minutes ago", seconds since 1970.
  bool is_relative = false;
};

/// The span that `offset` lies in or at the edge of. Understands ISO 8601, RFC 2822, syslog, the
/// usual orders of day, month and year with names in seven languages, times of 12 and 24 hours with
/// zones, seconds to nanoseconds since 1970, and "N minutes ago".
/// Cost: O(1): looks at a few hundred bytes around the offset, on its line.
std::optional<TimeSpan> time_span_at(std::string_view text, std::size_t offset);

}  // namespace pagewise::server::explain
