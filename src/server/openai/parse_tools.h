// SPDX-License-Identifier: Apache-2.0
// Tools of the chat route: definitions, the choice among them, calls and their results in messages
// (reference C2).
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "server/fields.h"
#include "server/generation.h"

namespace pagewise::server::openai {

/// `tools`, `tool_choice`, `parallel_tool_calls`; refuses the older `functions` and
/// `function_call` by name.
void parse_tools(Fields& fields, const json::object& body, GenerationRequest& request);

/// An assistant message's `tool_calls` as blocks behind its text.
void parse_tool_calls(Fields& fields, const json::object& message, const std::string& path,
                      Turn& turn);

/// Each tool message answers a call of the assistant message before it, and each call is answered
/// (table E, 32 and 33). Gives tool turns the name of what they answer.
void settle_results(Fields& fields, std::vector<Turn>& turns);

}  // namespace pagewise::server::openai
