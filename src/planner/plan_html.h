// SPDX-License-Identifier: Apache-2.0
// A plan as one page for a browser: the tables of its JSON, and charts of what can be drawn.
#pragma once

#include <string>

#include "base/result.h"
#include "planner/plan.h"

namespace pagewise::planner {

/// One self-contained HTML file: no script runs, nothing is fetched. Every number of the plan's
/// JSON stands in an element with data-key (its path there, "rows.0.kv_bytes") and data-value, and
/// the JSON itself in <script id="plan" type="application/json">.
std::string plan_html(const PlanInput& input, const Plan& plan);

/// The chart of KV against length alone, as one SVG file. Errors: kInvalidArgument when the plan
/// has fewer than two lengths.
Result<std::string> plan_svg(const PlanInput& input, const Plan& plan);

}  // namespace pagewise::planner
