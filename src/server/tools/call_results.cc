// SPDX-License-Identifier: Apache-2.0
#include "server/tools/call_results.h"

#include <algorithm>

#include "server/tools/tool_checks.h"

namespace pagewise::server::tools {

void settle_results(std::vector<Turn>& turns, std::size_t first,
                    const ResultComplaints& complaints) {
  std::vector<const ContentBlock*> open;  // calls without a result
  std::size_t caller = first;             // the turn that made them
  const auto all_answered = [&] {
    if (open.empty()) return true;
    std::string ids;
    for (const ContentBlock* call : open) {
      if (!ids.empty()) ids += ", ";
      ids += call_id(*call);
    }
    complaints.unanswered(caller, ids);
    return false;
  };
  for (std::size_t i = first; i < turns.size(); ++i) {
    Turn& turn = turns[i];
    if (turn.role == "tool") {
      const std::string_view id(turn.fields.at("tool_call_id").as_string());
      const auto answered = std::find_if(
          open.begin(), open.end(), [&](const ContentBlock* call) { return call_id(*call) == id; });
      if (answered == open.end()) return complaints.unexpected(i, id);
      if (!turn.fields.contains("name")) turn.fields["name"] = call_name(**answered);
      open.erase(answered);
      continue;
    }
    if (!all_answered()) return;
    for (const ContentBlock& block : turn.blocks) {
      if (!block.call.empty()) open.push_back(&block);
    }
    caller = i;
  }
  all_answered();
}

}  // namespace pagewise::server::tools
