// SPDX-License-Identifier: Apache-2.0
// Calls of a conversation and their results, in whichever shape an API sends them: each result
// answers a call of the assistant's turn before it, and each call is answered in the turns behind
// it (table E, 32 and 33).
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "server/generation.h"

namespace pagewise::server::tools {

/// What is said of a conversation where that does not hold, in the API's own words.
struct ResultComplaints {
  /// `ids`: of the calls of `turn` without a result, with commas between.
  std::function<void(std::size_t turn, const std::string& ids)> unanswered;
  /// `turn` answers `id`, which is none of the calls before it.
  std::function<void(std::size_t turn, std::string_view id)> unexpected;
};

/// Looks through the turns from `first` on up to the first complaint. Gives results that have no
/// name that of what they answer. Requires: turns of the role "tool" have a `tool_call_id`.
void settle_results(std::vector<Turn>& turns, std::size_t first,
                    const ResultComplaints& complaints);

}  // namespace pagewise::server::tools
