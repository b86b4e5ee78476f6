// SPDX-License-Identifier: Apache-2.0
// A report as one HTML file: every figure of the JSON object in tables, the curve and the waiting
// times as inline SVG. Nothing is loaded from anywhere.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"

namespace pagewise::simulate {

/// `report` as made by report_json.
std::string make_page(const json::object& report);

/// The chart of its curve alone, as one SVG file. Errors: kInvalidArgument when there is none.
Result<std::string> make_svg(const json::object& report);

}  // namespace pagewise::simulate
