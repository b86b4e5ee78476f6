// SPDX-License-Identifier: Apache-2.0
// The form that an answer's text is asked to have: `response_format` of one API,
// `output_config.format` of the other (docs/structured-output.md).
#pragma once

#include <memory>

#include "base/json.h"
#include "grammar/grammar.h"
#include "server/fields.h"

namespace pagewise::server {

/// `response_format` of a chat request; null: plain text. Complains into `fields`: a schema that
/// cannot be followed without a code, with the keyword's place in the message.
std::shared_ptr<const grammar::Grammar> parse_response_format(Fields& fields,
                                                              const json::object& body);
/// `output_config.format`, likewise.
std::shared_ptr<const grammar::Grammar> parse_output_config_format(Fields& fields,
                                                                   const json::object& body);

}  // namespace pagewise::server
