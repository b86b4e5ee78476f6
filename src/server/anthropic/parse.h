// SPDX-License-Identifier: Apache-2.0
// Bodies of the Anthropic routes. Pure functions: JSON in, a request or the 400 out. Source:
// api-reference A, B.
#pragma once

#include "base/json.h"
#include "server/api_error.h"
#include "server/generation.h"

namespace pagewise::server::anthropic {

struct ParseOptions {
  /// A marker where the vendor allows none is refused also where it would do no harm: on what an
  /// assistant thought (B2).
  bool strict_markers = false;
};

ApiResult<GenerationRequest> parse_messages_request(const json::object& body,
                                                    const ParseOptions& options = {});
/// The same prompt without `max_tokens`, for /v1/messages/count_tokens.
ApiResult<GenerationRequest> parse_count_tokens(const json::object& body,
                                                const ParseOptions& options = {});

/// The same, and what decides where it would be looked up; for /v1/cache/explain.
ApiResult<GenerationRequest> parse_explained(const json::object& body,
                                             const ParseOptions& options = {});

}  // namespace pagewise::server::anthropic
