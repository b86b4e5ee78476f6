// SPDX-License-Identifier: Apache-2.0
// What both APIs ask of tools, in whichever shape they send them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/fields.h"
#include "server/generation.h"

namespace pagewise::server::tools {

inline constexpr std::size_t kToolsMax = 1024;

/// Complains about a name that is not `^[a-zA-Z0-9_-]{1,128}$`.
void check_name(Fields& fields, std::string_view name, const std::string& path);
/// Complains about two tools of one name; `paths`: of their names.
void check_names_differ(Fields& fields, const std::vector<Tool>& tools,
                        const std::vector<std::string>& paths);
/// Complains about what is no schema of an object.
void check_schema(Fields& fields, const json::object& schema, const std::string& path);
/// Complains when no tool has this name.
void check_known(Fields& fields, const std::vector<Tool>& tools, std::string_view name,
                 const std::string& path);
/// Forced calls need an answer to stand in.
void check_forced(Fields& fields, const GenerationRequest& request);

/// A call of the conversation as templates read it.
ContentBlock call_block(std::string_view id, std::string_view name, const json::object& arguments);
/// The id and the name of a call_block.
std::string_view call_id(const ContentBlock& block);
std::string_view call_name(const ContentBlock& block);

/// A definition as templates read it: {"type": "function", "function": {"name", "description",
/// "parameters"}}, always all three.
json::object definition(const Tool& tool);

/// JSON with a space behind commas and colons, as templates write it.
std::string spaced_json(const json::value& value);

}  // namespace pagewise::server::tools
