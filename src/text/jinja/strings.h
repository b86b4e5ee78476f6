// SPDX-License-Identifier: Apache-2.0
// Characters as the template language's string operations count and classify them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace pagewise::text::jinja {

/// The white space that strip() and split() remove: Unicode White_Space and U+001C to U+001F.
bool is_white_space(uint32_t code_point);

/// Bytes of white space at the start and at the end of `text`.
std::size_t leading_space(std::string_view text);
std::size_t trailing_space(std::string_view text);

/// Byte offsets of each character, and the size of `text` at the end. An ill-formed byte counts as
/// one.
std::vector<uint32_t> character_offsets(std::string_view text);
std::size_t character_count(std::string_view text);

/// Up to here a needle is compared at each place, which may cost so many comparisons a byte.
inline constexpr std::size_t kFindShortBytes = 16;

/// The first `wanted` in `text` at or behind `from`, or npos. Cost: linear in both whatever they
/// hold, because content may be searched for content. Requires: `wanted` not empty.
std::size_t find_text(std::string_view text, std::string_view wanted, std::size_t from = 0);

}  // namespace pagewise::text::jinja
