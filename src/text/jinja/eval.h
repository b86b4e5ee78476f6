// SPDX-License-Identifier: Apache-2.0
// Walks a syntax tree and writes the rendered text, every byte with its origin.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/jinja/ast.h"
#include "text/jinja/rope.h"
#include "text/jinja/value.h"

namespace pagewise::text::jinja {

using Variables = std::vector<std::pair<std::string, Value>>;

/// Renders `body` with `variables`; `now`, in seconds since 1970 of local time, is what
/// strftime_now tells. Errors: kInvalidArgument: the template's own sentence where it raises,
/// otherwise "chat template, line N: ..." for an operation on the wrong kind of value or a bound of
/// Session. Cost: bounded by Session.
Result<Rope> render(const Body& body, Variables variables, std::optional<int64_t> now = {});

}  // namespace pagewise::text::jinja
