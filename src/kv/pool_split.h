// SPDX-License-Identifier: Apache-2.0
// How many blocks each group gets of a given amount of KV memory, and what then fits at once.
//
// With one group there is nothing to decide. With several, what a full group needs grows with a
// sequence's length and what a sliding one needs does not, so each split is right for one length
// only: memory of the other group lies idle for any other. Ours first makes sure that one sequence
// of the whole context fits, and gives what is left so that as many as possible of a usual length
// do. Where that would leave the windows of a few sequences no room beside each other, a context
// that nobody asked for yields: a crowd of short chats would preempt each other without end.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/geometry.h"

namespace pagewise::kv {

/// The length that what is left is shared for. A shorter one starves long conversations, a longer
/// one leaves most of the memory to full groups, where short ones cannot use it: with Gemma 3's
/// layers and 256 MiB, sharing for the whole context held 4 conversations of 1k, this holds 13.
inline constexpr uint32_t kUsualTokens = 4096;

/// Windows that have room beside each other before the context does, where a context yields.
inline constexpr uint32_t kWindowsBeforeContext = 4;

struct PoolWish {
  uint64_t bytes = 0;
  uint32_t context = 0;      // tokens of the longest sequence that is wanted
  uint32_t step_tokens = 0;  // of one step; a sliding group holds them beside the windows
  // Sequences that run at once, for whose windows (of kWindowsBeforeContext of them) the context
  // yields, down to half of what it could be. 1: it does not.
  uint32_t sequences = 1;
};

struct PoolSplit {
  std::vector<uint32_t> blocks;  // of each group
  uint32_t context = 0;          // of these, what one sequence can have; 0: not even a block each
};

/// Takes at most wish.bytes and leaves less than the largest block. Pure.
PoolSplit split_pool(const Geometry& geometry, const PoolWish& wish);

/// The least memory, to within the smallest block, of which split_pool() makes a pool that holds
/// `tokens` (tokens_held()); `wish.bytes` is not looked at. Where no group has a window that is
/// what the tokens take, rounded up to blocks. Where a context yields, another window can cost more
/// tokens than the memory for it brings: then it is a memory that holds so many, not the least.
uint64_t memory_to_hold(const Geometry& geometry, PoolWish wish, uint64_t tokens);

/// How many sequences of `tokens` are held at once by `blocks` of each group.
uint64_t sequences_held(const Geometry& geometry, std::span<const uint32_t> blocks,
                        uint64_t tokens);

/// Tokens that can be kept in all: those of the full groups, of which the smallest decides. Without
/// a full group, of the smallest sliding one.
uint64_t tokens_held(const Geometry& geometry, std::span<const uint32_t> blocks);

}  // namespace pagewise::kv
