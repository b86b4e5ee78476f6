// SPDX-License-Identifier: Apache-2.0
#include "planner/kv_cost.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"
#include "kv/geometry.h"

namespace pagewise::planner {
namespace {

constexpr uint64_t kSizeMax = uint64_t{1} << 63;
// With a token's 2^32 bytes and 2^30 tokens, a sequence stays below 2^63.
constexpr uint64_t kStateBytesMax = uint64_t{1} << 40;

uint64_t saturated(unsigned __int128 bytes) {
  return bytes > kSizeMax ? kSizeMax : static_cast<uint64_t>(bytes);
}

Error token_too_large(uint64_t bytes) {
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{} bytes of KV a token; from 1 byte to {} can be planned", bytes,
                           format_size(kTokenBytesMax))};
}

}  // namespace

Result<KvCost> KvCost::of_layout(const Layout& layout, const KvFormat& key, const KvFormat& value,
                                 uint32_t block_tokens, uint32_t state_value_bytes) {
  std::vector<Group> groups;
  uint64_t sum = 0;
  for (const LayoutGroup& group : layout.groups) {
    PW_ASSIGN_OR_RETURN(const uint64_t key_row, kv_format_row_bytes(key, group.key_dim));
    PW_ASSIGN_OR_RETURN(const uint64_t value_row, kv_format_row_bytes(value, group.value_dim));
    // At most 2^16 layers, 2^16 heads and twice 2^22 bytes: far from 2^64.
    const uint64_t bytes = kv::token_bytes_of(group.layers, group.kv_heads, key_row, value_row);
    sum += bytes;
    if (sum > kTokenBytesMax) return token_too_large(sum);
    groups.push_back({bytes, group.window});
  }
  unsigned __int128 state = 0;
  for (const StateGroup& group : layout.states) {
    state += static_cast<unsigned __int128>(group.values) * group.layers * state_value_bytes;
  }
  if (state > kStateBytesMax) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("more than {} of recurrent state a sequence, which is not planned",
                             format_size(kStateBytesMax))};
  }
  if (sum == 0 && state == 0) return token_too_large(sum);
  return KvCost(std::move(groups), static_cast<uint64_t>(state), block_tokens);
}

Result<KvCost> KvCost::of_token_bytes(uint64_t token_bytes, uint32_t block_tokens) {
  if (token_bytes == 0 || token_bytes > kTokenBytesMax) return token_too_large(token_bytes);
  return KvCost({{token_bytes, 0}}, 0, block_tokens);
}

uint64_t KvCost::stride(const Group& group) const {
  return kv::block_stride_of(group.token_bytes * block_tokens_);
}

uint64_t KvCost::token_bytes() const {
  uint64_t sum = 0;
  for (const Group& group : groups_) sum += group.token_bytes;
  return sum;
}

uint64_t KvCost::block_bytes() const {
  uint64_t sum = 0;
  for (const Group& group : groups_) sum += stride(group);
  return sum;
}

uint64_t KvCost::exact(uint64_t tokens) const {
  PW_CHECK(tokens <= kTokensMax);
  uint64_t sum = state_bytes_;
  for (const Group& group : groups_)
    sum += group.token_bytes * kv::tokens_read(tokens, group.window);
  return sum;
}

uint64_t KvCost::paged(uint64_t tokens) const { return paged_sharing(tokens, 1, 0); }

uint64_t KvCost::paged_sharing(uint64_t tokens, uint64_t count, uint64_t prefix) const {
  PW_CHECK(tokens <= kTokensMax && prefix <= tokens);
  unsigned __int128 sum = static_cast<unsigned __int128>(state_bytes_) * count;
  for (const Group& group : groups_) {
    const uint64_t each = kv::blocks_held(tokens, group.window, block_tokens_);
    const uint64_t shared = group.window == 0 && count > 1 ? prefix / block_tokens_ : 0;
    const unsigned __int128 own = static_cast<unsigned __int128>(each - shared) * count;
    sum += (own + shared) * stride(group);
  }
  return saturated(sum);
}

uint64_t KvCost::shared_bytes(uint64_t tokens, uint64_t prefix) const {
  if (tokens == 0) return 0;
  const uint64_t blocks = std::min(prefix, tokens - 1) / block_tokens_;
  uint64_t sum = 0;
  for (const Group& group : groups_) {
    if (group.window == 0) sum += blocks * stride(group);
  }
  return sum;
}

uint64_t KvCost::mean_tokens_max(uint64_t memory, uint64_t count, uint64_t tokens) const {
  PW_CHECK(count > 0);
  // Bisection over whole blocks: `fits` holds up to some length and never again.
  uint64_t low = 0;
  uint64_t high = ceil_div(tokens, block_tokens_);
  while (low < high) {
    const uint64_t middle = low + (high - low + 1) / 2;
    const uint64_t length = std::min(middle * block_tokens_, kTokensMax);
    if (paged_sharing(length, count, 0) <= memory) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low * block_tokens_;
}

uint64_t KvCost::tokens_exceeding(uint64_t bytes) const {
  if (exact(kTokensMax) <= bytes) return kTokensMax + 1;
  uint64_t low = 1;
  uint64_t high = kTokensMax;
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    if (exact(middle) > bytes) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

}  // namespace pagewise::planner
