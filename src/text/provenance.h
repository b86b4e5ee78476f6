// SPDX-License-Identifier: Apache-2.0
// Text whose every character knows where it came from: the template, or one content block of the
// request. Breakpoints become token positions through it, a typed <|im_end|> stays text (C16), and
// a miss can be explained.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pagewise::text {

/// Characters written by the template itself: only these may become control tokens.
inline constexpr int32_t kTemplateOrigin = -1;

struct OriginSpan {
  uint32_t begin = 0;  // byte offsets into the text, half-open
  uint32_t end = 0;
  int32_t origin = kTemplateOrigin;  // else the content block's number, see ContentPart::origin
};

/// Spans are ascending, adjacent, and cover the text.
struct ProvenancedText {
  std::string text;
  std::vector<OriginSpan> spans;
  /// Byte offsets, ascending, where a new token must begin: in front of the newline that the
  /// template puts between two content blocks of one message. So the tokens of a block never depend
  /// on the next block, and a breakpoint behind it stays where it is when something else follows.
  std::vector<uint32_t> breaks;
};

}  // namespace pagewise::text
