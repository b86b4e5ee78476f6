// SPDX-License-Identifier: Apache-2.0
// Texts with places for values, in Python's two ways: '%s: %d' % (a, b) and '{}: {}'.format(a, b).
// What comes from the format keeps its origin, and what comes from a value keeps its own.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "text/jinja/builtins.h"

namespace pagewise::text::jinja {

/// `format % values`. Errors: kInvalidArgument for values that are missing, left over or of another
/// type than their place asks for, and for conversions that Python does not have.
Result<Value> format_percent(const Rope& format, const Value& values, Session& session);

/// `format.format(*values, **named)`. Offered are fields by number, by name and in turn, with !s
/// and !r, fill, alignment, sign, width, grouping, precision and the types s d x X o b e f g %.
Result<Value> format_braces(const Rope& format, const std::vector<Value>& values,
                            const std::vector<std::pair<std::string, Value>>& named,
                            Session& session);

}  // namespace pagewise::text::jinja
