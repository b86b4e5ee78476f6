// SPDX-License-Identifier: Apache-2.0
// Boost.JSON under one name. Objects keep their keys in the order in which they were written, which
// prompt rendering depends on (C05).
#pragma once

#include <boost/json.hpp>

#include <string_view>

#include "base/result.h"

namespace pagewise {

namespace json = boost::json;

/// Strict JSON, UTF-8 checked, at most `max_depth` levels. Errors: kInvalidArgument with the
/// offset.
Result<json::value> parse_json(std::string_view text, std::size_t max_depth = 64);

}  // namespace pagewise
