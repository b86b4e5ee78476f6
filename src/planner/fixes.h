// SPDX-License-Identifier: Apache-2.0
// What to do about a plan that does not fit, cheapest first.
#pragma once

#include <vector>

#include "planner/plan.h"

namespace pagewise::planner {

/// For one row that does not fit `input.memory`. Requires: a memory size.
std::vector<Fix> row_fixes(const PlanInput& input, const KvCost& cost, const PlanRow& row);

/// For requests at the same time that do not fit even in blocks. Requires: a memory size.
std::vector<Fix> mix_fixes(const PlanInput& input, const PopulationPlan& mix);

/// The requests of `input` as a population.
std::vector<Member> members_of(const std::vector<RequestShape>& requests);

}  // namespace pagewise::planner
