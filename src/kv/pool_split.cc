// SPDX-License-Identifier: Apache-2.0
#include "kv/pool_split.h"

#include <algorithm>

namespace pagewise::kv {
namespace {

constexpr uint64_t kBlocksMax = 0x7fffffff;  // block ids are 32-bit

/// Of the memory, at most so much for the tokens of a step: with little memory, steps get shorter
/// before the context does.
constexpr uint64_t kStepShare = 8;

class Splitter {
 public:
  Splitter(const Geometry& geometry, const PoolWish& wish) : geometry_(geometry), wish_(wish) {
    uint64_t sliding = 0;
    for (const GroupGeometry& group : geometry.groups) sliding += group.window != 0 ? 1 : 0;
    for (uint32_t g = 0; g < groups(); ++g) {
      uint64_t room = 0;
      if (geometry.groups[g].window != 0) {
        room = std::min(geometry.blocks_for(wish.step_tokens),
                        wish.bytes / kStepShare / sliding / geometry.block_stride(g));
      }
      step_room_.push_back(room);
    }
  }

  PoolSplit split() const {
    PoolSplit out;
    out.context = longest(1);
    if (out.context == 0) {
      out.blocks.assign(groups(), 0);
      return out;
    }
    const uint64_t windows = windows_beside(out.context);
    if (windows > 1) out.context = longest(windows);
    // In 1/1024 of a sequence. More than all bytes never fit, so the search ends.
    uint64_t fit = 0, beyond = 1;
    while (bytes_of(shared(out.context, windows, beyond)) <= wish_.bytes && beyond < kBlocksMax) {
      fit = beyond;
      beyond *= 2;
    }
    while (beyond - fit > 1) {
      const uint64_t middle = fit + (beyond - fit) / 2;
      (bytes_of(shared(out.context, windows, middle)) <= wish_.bytes ? fit : beyond) = middle;
    }
    std::vector<uint64_t> blocks = shared(out.context, windows, fit);
    uint64_t left = wish_.bytes - bytes_of(blocks);
    for (uint32_t g = 0; g < groups(); ++g) {
      const uint64_t more = std::min(left / geometry_.block_stride(g), kBlocksMax - blocks[g]);
      blocks[g] += more;
      left -= more * geometry_.block_stride(g);
      out.blocks.push_back(static_cast<uint32_t>(blocks[g]));
    }
    return out;
  }

 private:
  uint32_t groups() const { return static_cast<uint32_t>(geometry_.groups.size()); }
  uint64_t needed(uint32_t g, uint64_t tokens) const {
    return blocks_needed(tokens, geometry_.groups[g].window, geometry_.block_tokens);
  }

  /// What a step adds to a sliding group, in sequences of up to `tokens`.
  uint64_t step_room(uint32_t g, uint64_t tokens) const {
    return std::min(step_room_[g], geometry_.blocks_for(tokens));
  }

  uint64_t bytes_of(const std::vector<uint64_t>& blocks) const {
    uint64_t bytes = 0;
    for (uint32_t g = 0; g < groups(); ++g) {
      const uint64_t stride = geometry_.block_stride(g);
      if (blocks[g] > (UINT64_MAX - bytes) / stride) return UINT64_MAX;
      bytes += blocks[g] * stride;
    }
    return bytes;
  }

  /// What one sequence of `tokens` takes, with its steps, and with `windows - 1` windows of others.
  std::vector<uint64_t> one(uint64_t tokens, uint64_t windows) const {
    std::vector<uint64_t> blocks;
    for (uint32_t g = 0; g < groups(); ++g) {
      const uint64_t times = geometry_.groups[g].window != 0 ? windows : 1;
      blocks.push_back(needed(g, tokens) * times + step_room(g, tokens));
    }
    return blocks;
  }

  /// Windows to keep room for before the context: as many as leave it half of `alone`, which it has
  /// with one. Only a full group takes room from them, and only of a context beyond a window.
  uint64_t windows_beside(uint32_t alone) const {
    bool full = false, slides = false;
    for (const GroupGeometry& group : geometry_.groups) {
      full = full || group.window == 0;
      slides = slides || (group.window != 0 && group.window < alone);
    }
    if (!full || !slides) return 1;
    uint64_t windows = std::min(wish_.sequences, kWindowsBeforeContext);
    while (windows > 1 && longest(windows) < alone - alone / 2) --windows;
    return std::max<uint64_t>(windows, 1);
  }

  /// The longest sequence that fits, up to the wish, beside `windows - 1` windows of others.
  uint32_t longest(uint64_t windows) const {
    const uint64_t bound = geometry_.blocks_for(wish_.context);
    uint64_t fit = 0, beyond = bound + 1;
    while (beyond - fit > 1) {
      const uint64_t middle = fit + (beyond - fit) / 2;
      const bool fits = bytes_of(one(middle * geometry_.block_tokens, windows)) <= wish_.bytes;
      (fits ? fit : beyond) = middle;
    }
    return static_cast<uint32_t>(std::min<uint64_t>(wish_.context, fit * geometry_.block_tokens));
  }

  /// Room for one sequence of `context` beside `windows - 1` others' windows, and for `parts` /
  /// 1024 of the usual length.
  std::vector<uint64_t> shared(uint32_t context, uint64_t windows, uint64_t parts) const {
    const uint32_t usual = std::min(context, kUsualTokens);
    std::vector<uint64_t> blocks = one(context, windows);
    for (uint32_t g = 0; g < groups(); ++g) {
      const uint64_t many = step_room(g, context) + needed(g, usual) * parts / 1024;
      blocks[g] = std::min(std::max(blocks[g], many), kBlocksMax);
    }
    return blocks;
  }

  const Geometry& geometry_;
  const PoolWish wish_;
  std::vector<uint64_t> step_room_;  // blocks of each group
};

}  // namespace

PoolSplit split_pool(const Geometry& geometry, const PoolWish& wish) {
  return Splitter(geometry, wish).split();
}

uint64_t memory_to_hold(const Geometry& geometry, PoolWish wish, uint64_t tokens) {
  const auto holds = [&](uint64_t bytes) {
    wish.bytes = bytes;
    return tokens_held(geometry, split_pool(geometry, wish).blocks) >= tokens;
  };
  uint64_t smallest = UINT64_MAX;
  for (uint32_t g = 0; g < geometry.groups.size(); ++g) {
    smallest = std::min(smallest, geometry.block_stride(g));
  }
  uint64_t too_little = 0, enough = std::max(smallest, tokens * geometry.token_bytes());
  // No pool has more blocks than ids.
  while (!holds(enough) && enough < (uint64_t{1} << 62)) {
    too_little = enough;
    enough *= 2;
  }
  while (enough - too_little > smallest) {
    const uint64_t middle = too_little + (enough - too_little) / 2;
    (holds(middle) ? enough : too_little) = middle;
  }
  return enough;
}

uint64_t sequences_held(const Geometry& geometry, std::span<const uint32_t> blocks,
                        uint64_t tokens) {
  uint64_t fit = UINT64_MAX;
  for (uint32_t g = 0; g < geometry.groups.size(); ++g) {
    const uint64_t each = blocks_needed(tokens, geometry.groups[g].window, geometry.block_tokens);
    fit = std::min(fit, blocks[g] / std::max<uint64_t>(each, 1));
  }
  return fit;
}

uint64_t tokens_held(const Geometry& geometry, std::span<const uint32_t> blocks) {
  uint64_t full = UINT64_MAX, sliding = UINT64_MAX;
  for (uint32_t g = 0; g < geometry.groups.size(); ++g) {
    uint64_t& smallest = geometry.groups[g].window == 0 ? full : sliding;
    smallest = std::min(smallest, uint64_t{blocks[g]} * geometry.block_tokens);
  }
  return full != UINT64_MAX ? full : sliding;
}

}  // namespace pagewise::kv
