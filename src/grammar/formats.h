// SPDX-License-Identifier: Apache-2.0
// The texts that a schema's `format` names, as grammars.
#pragma once

#include <optional>
#include <string_view>

#include "grammar/grammar.h"

namespace pagewise::grammar {

/// For messages.
inline constexpr std::string_view kFormatNames =
    "date, time, date-time, uuid, ipv4, ipv6, hostname, email";

/// A JSON string, with its quotes, whose text has this format: not every such text, but none else
/// (years from 1000 to 2999, no 29th of February, lower-case letters, IPv6 in full). nullopt: not
/// known. Source: RFC 3339, RFC 9562, RFC 1123, as JSON Schema 2020-12 (Validation, 7.3) refers to.
std::optional<NodeId> string_of_format(Builder& builder, std::string_view format);

}  // namespace pagewise::grammar
