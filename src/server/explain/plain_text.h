// SPDX-License-Identifier: Apache-2.0
// Comparing texts while looking away from white space, and the small questions about characters
// that the classifier asks. All texts are valid UTF-8; offsets are bytes at character boundaries.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace pagewise::server::explain {

/// Bytes that both begin with, cut at a character boundary of both.
std::size_t common_text(std::string_view a, std::string_view b);

/// Bytes of the white space character at the start of `text`; 0: none there. Besides Unicode's
/// white space also what cannot be seen: zero-width characters and the byte order mark.
std::size_t white_space_at(std::string_view text);
std::size_t white_space_run(std::string_view text);
/// The offset where the white space that ends at `offset` begins.
std::size_t white_space_begin(std::string_view text, std::size_t offset);

/// How far two texts agree when white space is looked away from.
struct LooseMatch {
  std::size_t characters = 0;  // that are no white space and agree
  bool a_ended = false;        // nothing but white space is left
  bool b_ended = false;
  std::size_t a_offset = 0, b_offset = 0;  // where they part
  /// One ended with the other, or they agree for long enough not to be chance.
  bool convincing(std::size_t enough = 16) const;
};
LooseMatch loose_match(std::string_view a, std::string_view b);

bool is_digit(char c);
bool is_letter(char c);  // ASCII
bool is_word(char c);    // ASCII letter or digit, or a byte of another script's character
char lower(char c);
std::string lowered(std::string_view text);
bool all_of_text(std::string_view text, bool (*predicate)(char));

/// The line that `offset` lies in: [begin, end), without the line end.
struct Range {
  std::size_t begin = 0, end = 0;
  std::size_t size() const { return end - begin; }
};
Range line_at(std::string_view text, std::size_t offset);
std::string_view trimmed(std::string_view text);

/// The last words (runs of ASCII letters and digits) before `offset` on its line, lowered, nearest
/// first; at most `count`. camelCase is split.
std::vector<std::string> words_before(std::string_view text, std::size_t offset, std::size_t count);

}  // namespace pagewise::server::explain
