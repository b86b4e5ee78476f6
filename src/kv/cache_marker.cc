// SPDX-License-Identifier: Apache-2.0
#include "kv/cache_marker.h"

#include <algorithm>

#include "base/check.h"

namespace pagewise::kv {

CacheUsage cache_usage(uint32_t prompt_tokens, uint32_t read_tokens,
                       std::span<const MarkedPrefix> markers, uint32_t tokens_min) {
  PW_CHECK(read_tokens <= prompt_tokens);
  const uint32_t a = read_tokens;
  uint32_t b = a;  // the end of what is created for an hour
  uint32_t c = a;  // the last marker's end; may lie before a
  for (const MarkedPrefix& marker : markers) {
    PW_CHECK(marker.tokens <= prompt_tokens);
    if (marker.tokens < tokens_min) continue;
    c = marker.tokens;
    if (marker.lease == LeaseClass::k1h && marker.tokens > a) b = marker.tokens;
  }
  CacheUsage usage;
  usage.read_tokens = a;
  usage.created_1h_tokens = b - a;
  usage.created_5m_tokens = c > b ? c - b : 0;
  usage.input_tokens = prompt_tokens - std::max({a, b, c});
  return usage;
}

}  // namespace pagewise::kv
