// SPDX-License-Identifier: Apache-2.0
// What an answer with tools may be, as a grammar: words and calls as the model chooses, or calls at
// once. Calls are written in the template's own form, of tools that there are, with arguments that
// follow their schemas.
#pragma once

#include <memory>

#include "grammar/grammar.h"
#include "server/api_error.h"
#include "server/generation.h"
#include "server/tools/tool_format.h"
#include "text/tokenizer.h"

namespace pagewise::server::tools {

struct CallGrammar {
  std::shared_ptr<const grammar::Grammar> grammar;  // null: nothing is held to a form
  bool certain = false;  // whatever begins a call becomes one (CallParser)
};

/// Errors: a `strict` tool whose schema has a keyword that is not supported: a 400 that names it.
/// Of other tools such a schema is read by the model alone, and any object is let through.
/// `marked_words`: the model's own words have control tokens in them (around its thoughts), which a
/// grammar would take away; then, and for forms that are not read here, only forced calls and
/// strict tools are held to one. Answers in channels are described whole, marks included.
ApiResult<CallGrammar> call_grammar(const GenerationRequest& request, const ToolFormat& format,
                                    const text::Tokenizer& tokenizer, bool marked_words = false);

}  // namespace pagewise::server::tools
