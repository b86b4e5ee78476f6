// SPDX-License-Identifier: Apache-2.0
// What lets a number of users run at once in a memory: a KV type, a block size, a cap on the
// context, or more memory, each alone.
#pragma once

#include <vector>

#include "base/result.h"
#include "planner/plan.h"

namespace pagewise::planner {

/// Users differ in length as `members` do; each takes its blocks. Requires: input.users and
/// input.memory, members. Errors: those of KvCost.
Result<Reach> make_reach(const PlanInput& input, const KvCost& cost,
                         const std::vector<Member>& members);

}  // namespace pagewise::planner
