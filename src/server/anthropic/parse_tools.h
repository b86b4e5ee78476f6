// SPDX-License-Identifier: Apache-2.0
// Tools of the messages route: definitions, the choice among them, and the order of calls and their
// results (reference A4, A5).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/json.h"
#include "server/fields.h"
#include "server/generation.h"

namespace pagewise::server::anthropic {

/// `tools` and `tool_choice`. The vendor's own tools are refused by their type.
void parse_tools(Fields& fields, const json::object& body, GenerationRequest& request);

/// A `tool_use` block.
ContentBlock parse_tool_use(Fields& fields, const json::object& block, const std::string& path);

/// Each result answers a call of the assistant message before it, and each call is answered in the
/// next message (table E, 32 and 33). Gives results the name of what they answer.
/// `message_of_turn`: of the turns from `first` on.
void settle_results(Fields& fields, std::vector<Turn>& turns, std::size_t first,
                    const std::vector<std::size_t>& message_of_turn);

}  // namespace pagewise::server::anthropic
