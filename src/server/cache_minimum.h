// SPDX-License-Identifier: Apache-2.0
// How many tokens a marked prefix must have to be cached: a number, or what a hosted model family
// asks for (reference B6, C7).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pagewise::server {

struct CacheMinimum {
  std::string_view family;  // lower case, the version behind a dash: "sonnet-4.5"
  uint32_t tokens = 0;
};

/// As published by the vendors in August 2026, and by the price map of November 2026.
std::span<const CacheMinimum> cache_minimums();

/// "512", or a family's name. 0: one block of whatever size. Errors: kInvalidArgument with the
/// names that there are.
Result<uint32_t> parse_cache_minimum(std::string_view text);

}  // namespace pagewise::server
