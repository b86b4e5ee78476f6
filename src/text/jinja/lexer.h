// SPDX-License-Identifier: Apache-2.0
// Template source to tokens, with the white-space rules under which chat templates are written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pagewise::text::jinja {

enum class TokenKind {
  kData,           // literal text, white-space control already applied
  kVariableBegin,  // {{
  kVariableEnd,    // }}
  kBlockBegin,     // {%
  kBlockEnd,       // %}
  kName,
  kString,  // text: decoded
  kInteger,
  kFloat,
  kOperator,
  kEnd,
  kError,  // text: what is wrong; the last token
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  uint32_t line = 1;
  std::string text;
};

/// The tokens of `source`; the last is kEnd or kError. Line ends become \n; trim_blocks and
/// lstrip_blocks are on, one newline at the very end is dropped.
/// Source: the template designer documentation of Jinja 3, "Whitespace Control".
std::vector<Token> tokenize(std::string_view source);

}  // namespace pagewise::text::jinja
