// SPDX-License-Identifier: Apache-2.0
// Where a client marked its prompt for caching, and what the bill says about it: the contract's
// words, without any block in them. The arithmetic is api-reference B7: reads, writes of either
// lease class, and the rest.
#pragma once

#include <cstdint>
#include <span>

namespace pagewise::kv {

/// How long a marked prefix is kept after its last use. Ordered: the larger class lives longer.
enum class LeaseClass : uint8_t { k5m, k1h };

/// What the bill says of a prefix that another request was still computing when this one arrived.
/// Its blocks are shared either way.
enum class CacheMode : uint8_t {
  kNative,  // it was read: whoever waited for it computed nothing of it
  kStrict,  // it was created: an entry is read by requests that arrive once its writer's response
            // has begun, and an entry of a request whose response never begins does not come to be
};

/// One place where a cached prefix may end, in prompt tokens: the end of a content block.
struct CachePosition {
  uint32_t tokens = 0;  // whole tokens from the start of the prompt through this block's end
  /// Counts in look-back as one with the place before it: a run of tool calls, or of their results.
  bool joined = false;
};

struct CacheMarker {
  uint32_t position = 0;  // index into the request's positions
  LeaseClass lease = LeaseClass::k5m;
};

/// A marker that counts for the bill: a prefix of `tokens` tokens.
struct MarkedPrefix {
  uint32_t tokens = 0;
  LeaseClass lease = LeaseClass::k5m;
};

/// The prompt's tokens, divided. read + created_5m + created_1h + input == prompt tokens, always.
struct CacheUsage {
  uint32_t read_tokens = 0;
  uint32_t created_5m_tokens = 0;
  uint32_t created_1h_tokens = 0;
  uint32_t input_tokens = 0;
  bool operator==(const CacheUsage&) const = default;
};

/// Divides a prompt of `prompt_tokens` whose longest entry hit covers `read_tokens` (0: none) by
/// its markers, ascending. Markers shorter than `tokens_min`, and those that take no lease, do not
/// count; the caller leaves the latter out. Without markers everything is input. Requires:
/// read_tokens and every marker's tokens <= prompt_tokens.
CacheUsage cache_usage(uint32_t prompt_tokens, uint32_t read_tokens,
                       std::span<const MarkedPrefix> markers, uint32_t tokens_min);

}  // namespace pagewise::kv
