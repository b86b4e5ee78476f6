// SPDX-License-Identifier: Apache-2.0
// Template source to syntax tree.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/jinja/ast.h"

namespace pagewise::text::jinja {

/// Of a template's source.
inline constexpr std::size_t kSourceBytesMax = std::size_t{1} << 20;

struct Parsed {
  Body body;
  /// Every name that stands where a variable is read; also those that the template sets itself.
  std::set<std::string, std::less<>> names_read;
  /// Calls strftime_now without asking first whether it is defined.
  bool needs_time = false;
};

/// Errors: kMalformed ("line N: ...") for wrong syntax; kUnsupported ("filter 'x' at line N is not
/// supported") for what the language has and this interpreter does not offer.
Result<Parsed> parse(std::string_view source);

}  // namespace pagewise::text::jinja
