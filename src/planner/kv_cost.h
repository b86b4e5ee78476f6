// SPDX-License-Identifier: Apache-2.0
// What sequences cost in KV memory: the byte arithmetic of kv/geometry.h for layouts and element
// types that need not be served. Where they are, the result equals kv::Geometry's (a test holds
// that).
//
// A sequence's cost is its rows, which grow with it, and the state of its recurrent layers, which
// does not and is counted with both sizes below.
//
// Two sizes are told apart. *Exact* counts the positions that are read. *Paged* counts whole
// blocks, as the arena lays them out: what a server takes from its pool.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "planner/kv_format.h"
#include "planner/layout.h"

namespace pagewise::planner {

/// States are kept as f32 unless a plan says otherwise, as llama.cpp keeps them
/// (llama-memory-recurrent).
inline constexpr uint32_t kStateValueBytes = 4;

class KvCost {
 public:
  /// Errors: kInvalidArgument when a type does not fit a head dimension, or a token would take more
  /// than 4 GiB, or a state more than 1 TiB. Latent rows are counted with `key`.
  static Result<KvCost> of_layout(const Layout& layout, const KvFormat& key, const KvFormat& value,
                                  uint32_t block_tokens,
                                  uint32_t state_value_bytes = kStateValueBytes);
  /// A token of that many bytes, all positions kept. Errors: kInvalidArgument when 0 or above 4
  /// GiB.
  static Result<KvCost> of_token_bytes(uint64_t token_bytes, uint32_t block_tokens);

  uint32_t block_tokens() const { return block_tokens_; }
  /// One position in all layers; 0 where all of them are recurrent.
  uint64_t token_bytes() const;
  /// What a sequence takes whatever its length; 0 without recurrent layers.
  uint64_t state_bytes() const { return state_bytes_; }
  /// One block in all layers, as the arena lays it out.
  uint64_t block_bytes() const;

  // One sequence. Requires: tokens <= kTokensMax.
  uint64_t exact(uint64_t tokens) const;
  uint64_t paged(uint64_t tokens) const;

  /// `count` sequences of `tokens` whose first `prefix` tokens are equal: whole blocks of the
  /// prefix are kept once, in layers that keep every position. Saturates at 2^63. Requires: prefix
  /// <= tokens.
  uint64_t paged_sharing(uint64_t tokens, uint64_t count, uint64_t prefix) const;

  /// The whole blocks of a prefix, in layers that keep every position: what sharing it saves each
  /// sequence but one. A sequence computes at least one token of its own, so that of `tokens` at
  /// most all but one can be shared.
  uint64_t shared_bytes(uint64_t tokens, uint64_t prefix) const;

  /// How many sequences of `tokens` fit when each takes its blocks in full. Requires: tokens > 0.
  uint64_t sequences_max(uint64_t memory, uint64_t tokens) const { return memory / paged(tokens); }
  /// The greatest length in whole blocks, at most `tokens` rounded up, that `count` sequences can
  /// have on average; 0 when not even one block each fits. Requires: count > 0.
  uint64_t mean_tokens_max(uint64_t memory, uint64_t count, uint64_t tokens) const;
  /// The least length whose exact size exceeds `bytes`; above kTokensMax when none does.
  uint64_t tokens_exceeding(uint64_t bytes) const;

 private:
  struct Group {
    uint64_t token_bytes;
    uint32_t window;
  };

  KvCost(std::vector<Group> groups, uint64_t state_bytes, uint32_t block_tokens)
      : groups_(std::move(groups)), state_bytes_(state_bytes), block_tokens_(block_tokens) {}

  uint64_t stride(const Group& group) const;

  std::vector<Group> groups_;
  uint64_t state_bytes_;
  uint32_t block_tokens_;
};

}  // namespace pagewise::planner
