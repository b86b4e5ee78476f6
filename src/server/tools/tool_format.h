// SPDX-License-Identifier: Apache-2.0
// How a model's chat template speaks of tools: which of them it writes itself, and in which form
// the model then writes its calls. Found out by rendering a small conversation, not by the
// template's name: templates of one family differ, and many files carry a changed one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace pagewise::server::tools {

enum class Family : uint8_t {
  kHermes,     // <tool_call>{"name": ..., "arguments": {...}}</tool_call>
  kLlama3,     // {"name": ..., "parameters": {...}} as the whole answer, or behind <|python_tag|>
  kMistral,    // [TOOL_CALLS][{...}, ...], or [TOOL_CALLS]name[ARGS]{...}
  kDeepSeek,   // <｜tool▁call▁begin｜>function<｜tool▁sep｜>name ```json {...}
               // ```<｜tool▁call▁end｜>
  kCommandR,   // Action: ```json [{...}, ...] ```
  kPipedTags,  // <|tool_call|>[{...}, ...]<|/tool_call|>
  kChannels,   // <|channel|>commentary to=functions.name <|constrain|>json<|message|>{...}<|call|>
};

/// Behind these stands the name of kChannels: where the header has no channel yet, and where it
/// has.
inline constexpr std::string_view kRoleRecipient = " to=functions.";
inline constexpr std::string_view kChannelRecipient = "<|channel|>commentary to=functions.";

/// What a family's calls look like in a model's text.
struct CallSyntax {
  Family family = Family::kHermes;
  std::string_view name;                // "hermes"
  std::vector<std::string_view> opens;  // each begins calls, wherever it stands
  /// An answer that is nothing but an object begins a call, too.
  bool bare = false;
  /// Behind an opening stand objects, or a list of them; else the call's name comes first and its
  /// arguments are the object behind it.
  bool named = false;
  /// May stand behind a call or a list of them, in any number.
  std::vector<std::string_view> closes;
  /// Behind a complete call: another one, without a new opening.
  std::vector<std::string_view> again;
};

const CallSyntax& syntax_of(Family family);

/// How exactly a template writes a call, for a sampler that lets through nothing else. So that a
/// call reads in the next prompt as it was written.
struct CallForm {
  std::string open = "<tool_call>";  // one of the syntax's openings; empty: a bare object
  std::string gap = "\n";            // behind it
  std::string close = "\n</tool_call>";
  bool list = false;  // a list of all calls, else each has an opening
  std::string name_key = "name";
  std::string arguments_key = "arguments";
  bool fenced = false;  // named arguments stand in ```json
  bool tagged = false;  // the name stands in front of [ARGS]
};

struct ToolFormat {
  Family family = Family::kHermes;
  /// The template writes the definitions; else a description of ours is put into the system text.
  bool writes_tools = false;
  /// It writes calls in a form that is not read here: what the model writes by itself is not held
  /// to ours.
  bool foreign_calls = false;
  /// It writes calls and results of earlier turns; else they are put into the turns' text.
  bool writes_calls = false;
  /// It takes one call a message: several are written as one message each.
  bool one_call = false;
  /// The content of a message of calls alone must be a text, an empty one; else it is null.
  bool empty_content = false;
  /// It insists on call ids of nine letters and digits.
  bool short_ids = false;
  bool takes_system = true;   // it takes a system message
  bool needs_system = false;  // and writes the definitions only into one

  CallForm form;

  const CallSyntax& syntax() const { return syntax_of(family); }
};

/// Cost: a few renderings of a few lines.
ToolFormat detect_tool_format(const text::ChatTemplate& chat);

/// Control tokens of the model that are part of the syntax: their text must reach the parser.
std::vector<TokenId> control_tokens(const CallSyntax& syntax, const text::Tokenizer& tokenizer);

}  // namespace pagewise::server::tools
