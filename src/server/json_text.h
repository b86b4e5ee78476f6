// SPDX-License-Identifier: Apache-2.0
// Small helpers that both APIs' answers need.
#pragma once

#include <string>
#include <string_view>

namespace pagewise::server {

/// `bytes` as valid UTF-8: what is no character becomes U+FFFD.
std::string valid_utf8(std::string_view bytes);
bool is_valid_utf8(std::string_view bytes);
/// Characters (code points) of valid UTF-8.
std::size_t count_characters(std::string_view text);
/// True when there is nothing but white space (ASCII) in it.
bool is_blank(std::string_view text);

}  // namespace pagewise::server
