// SPDX-License-Identifier: Apache-2.0
// Boost.JSON under one name. Objects keep their keys in the order in which they were written, which
// prompt rendering depends on (C05).
#pragma once

#include <boost/json.hpp>

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pagewise {

namespace json = boost::json;

/// Strict JSON, UTF-8 checked, at most `max_depth` levels. Errors: kInvalidArgument with the
/// offset.
Result<json::value> parse_json(std::string_view text, std::size_t max_depth = 64);

/// The first key that stands twice in one object, of which parse_json() keeps the last; nullopt:
/// none does. For files that people write. Requires: text that parse_json() reads.
std::optional<std::string> doubled_key(std::string_view text);

}  // namespace pagewise
