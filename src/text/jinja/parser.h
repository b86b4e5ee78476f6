// SPDX-License-Identifier: Apache-2.0
// Template source to syntax tree.
#pragma once

#include <string_view>

#include "base/result.h"
#include "text/jinja/ast.h"

namespace pagewise::text::jinja {

struct Parsed {
  Body body;
  /// Calls strftime_now without asking first whether it is defined.
  bool needs_time = false;
};

/// Errors: kMalformed ("line N: ...") for wrong syntax; kUnsupported ("filter 'x' at line N is not
/// supported") for what the language has and this interpreter does not offer.
Result<Parsed> parse(std::string_view source);

}  // namespace pagewise::text::jinja
