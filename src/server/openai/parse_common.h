// SPDX-License-Identifier: Apache-2.0
// What the bodies of both OpenAI routes have in common: model, sampling, choices, stream, cache.
// For parse*.cc only.
#pragma once

#include <optional>
#include <string_view>

#include "server/openai/parse.h"

namespace pagewise::server::openai {

/// `n` or `best_of`: from 1 to the sequences that may run at once, and the vendor's bound.
std::optional<uint32_t> parse_choices(Fields& fields, const json::object& body,
                                      std::string_view name, const ParseLimits& limits);

void parse_common(Fields& fields, const json::object& body, const ParseLimits& limits,
                  GenerationRequest& request);

/// Tools are not offered; a request that has any would be answered wrongly without them.
void refuse_tools(Fields& fields, const json::object& body);

}  // namespace pagewise::server::openai
