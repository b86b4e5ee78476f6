// SPDX-License-Identifier: Apache-2.0
// Unicode's composed form (NFC), and the way back from it to the text as it was sent.
//
// The reference tokenizers of some families compose characters before they cut a text into pieces:
// an "e" with a combining accent behind it becomes the one character "é". Where tokens end is told
// in offsets of the text as it was sent, so the changes are kept.
//
// Source: Unicode Standard Annex 15; Hangul syllables by section 3.12 of the standard.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pagewise::text {

struct ComposedText {
  /// A stretch of `text` that is not what was sent: from `begin` to `end`, for what ends at
  /// `source_end` there. Whoever stands between two changes stands there in both.
  struct Change {
    uint32_t begin = 0;
    uint32_t end = 0;
    uint32_t source_end = 0;
  };

  std::string text;
  std::vector<Change> changes;  // ascending
};

/// Whether NFC could change anything: false for text without characters from U+0300 on.
bool may_compose(std::string_view text);

/// Replaces `out` by NFC of `text`. Bytes that are no UTF-8 stay as they are and are nobody's
/// neighbours. Requires: text.size() < 2^32. Cost: linear in the text, n log n in the length of a
/// run of combining marks.
void compose(std::string_view text, ComposedText& out);

/// Offsets of a composed text as offsets of the text that was sent. Inside a changed stretch no
/// place answers to one of the source: what ends there ends where the stretch does.
class SourceOffsets {
 public:
  explicit SourceOffsets(std::span<const ComposedText::Change> changes) : changes_(changes) {}

  /// Requires: not smaller than the offset asked for before.
  uint32_t of(uint32_t offset);

 private:
  std::span<const ComposedText::Change> changes_;
  uint32_t end_ = 0;  // of the last change that was passed, and where that is in the source
  uint32_t source_end_ = 0;
};

}  // namespace pagewise::text
