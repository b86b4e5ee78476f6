// SPDX-License-Identifier: Apache-2.0
// A plan as text for people, as one JSON object for programs.
#pragma once

#include <string>

#include "base/json.h"
#include "planner/plan.h"

namespace pagewise::planner {

/// Aligned tables, several lines, with units.
std::string plan_text(const PlanInput& input, const Plan& plan);

/// The object that plan_json writes.
json::object plan_object(const PlanInput& input, const Plan& plan);

/// One object on one line. Keys that do not apply are left out; the fields of a single row stand at
/// the top as well. Sizes are bytes. docs/capacity.md lists the keys.
std::string plan_json(const PlanInput& input, const Plan& plan);

}  // namespace pagewise::planner
