// SPDX-License-Identifier: Apache-2.0
// Text that a model or a file wrote, on its way to a terminal: it is shown and drives nothing.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace pagewise::cli {

/// `text` with every control character in a visible form: U+241B for ESC, U+FFFD for the eight-bit
/// ones (some terminals obey them as they obey ESC [) and for bytes that are no UTF-8. Newlines and
/// tabs stay. Whole characters must be given: what is cut apart is replaced.
std::string terminal_safe(std::string_view text);

/// The same as one line of at most `characters_max`, for a table: line breaks and tabs are spelled
/// \n, \r and \t, characters that turn the writing direction become U+FFFD, and what is left out
/// is said.
std::string one_line(std::string_view text, std::size_t characters_max);

/// `text` with U+FFFD for bytes that are no UTF-8: what JSON can carry.
std::string well_formed(std::string_view text);

/// Prints generated text at once: as it is to a file or pipe, terminal_safe on a terminal.
void print_generated(std::string_view text);

}  // namespace pagewise::cli
