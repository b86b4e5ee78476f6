// SPDX-License-Identifier: Apache-2.0
#include "cli/pool_size.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/system_memory.h"

namespace pagewise::cli {
namespace {

/// What stays behind beside weights and KV: the process itself, tokenizer, activations.
constexpr uint64_t kWorkingBytes = 128 * kMiB;

/// Blocks of each group when `bytes` are shared so that every group serves equally many sequences
/// of `context`.
std::vector<uint32_t> share_blocks(const kv::Geometry& geometry, uint64_t bytes, uint32_t context,
                                   uint32_t step_tokens) {
  std::vector<uint64_t> needs;
  uint64_t total = 0;
  for (uint32_t g = 0; g < geometry.groups.size(); ++g) {
    const uint32_t window = geometry.groups[g].window;
    // A window group holds its window and what one step adds (design section 4).
    const uint64_t tokens =
        window == 0 ? context : std::min<uint64_t>(context, window + step_tokens);
    needs.push_back(geometry.blocks_for(tokens));
    total += needs.back() * geometry.block_stride(g);
  }
  std::vector<uint32_t> blocks;
  for (const uint64_t need : needs) {
    const auto share = static_cast<unsigned __int128>(bytes) * need / total;
    blocks.push_back(static_cast<uint32_t>(std::min<unsigned __int128>(share, 0x7fffffff)));
  }
  return blocks;
}

/// How many sequences of `tokens` the pool holds at once.
uint64_t conversations(const kv::Geometry& geometry, const std::vector<uint32_t>& blocks,
                       uint64_t tokens) {
  uint64_t fit = UINT64_MAX;
  for (uint32_t g = 0; g < geometry.groups.size(); ++g) {
    const uint32_t window = geometry.groups[g].window;
    const uint64_t held =
        window == 0 ? tokens : std::min<uint64_t>(tokens, window + geometry.block_tokens);
    fit = std::min(fit, blocks[g] / std::max<uint64_t>(geometry.blocks_for(held), 1));
  }
  return fit;
}

}  // namespace

Result<Pool> size_pool(const PoolWish& wish, const model::ModelSpec& spec,
                       const kv::Geometry& geometry) {
  PW_ASSIGN_OR_RETURN(const uint64_t available, available_memory());
  const uint64_t fixed = spec.weight_bytes + kWorkingBytes;
  const uint64_t left = available - std::min(available, fixed);
  Pool pool;
  if (wish.kv_memory.empty()) {
    pool.kv_bytes = left / 2;
  } else {
    PW_ASSIGN_OR_RETURN(pool.kv_bytes, parse_size(wish.kv_memory));
  }
  const std::string have = fmt::format("{} are free, weights and working memory take {}",
                                       format_size(available), format_size(fixed));
  if (left == 0 || pool.kv_bytes > left) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("not enough memory: --kv-memory {} asked, but {}; that leaves {}",
                             format_size(pool.kv_bytes), have, format_size(left))};
  }
  uint32_t wanted = spec.context;
  if (wish.max_context != 0) wanted = std::min(wanted, wish.max_context);
  pool.blocks = share_blocks(geometry, pool.kv_bytes, wanted, wish.step_tokens);
  uint64_t holds = UINT32_MAX;
  uint64_t smallest = 0;
  for (uint32_t g = 0; g < geometry.groups.size(); ++g) {
    smallest += geometry.block_stride(g);
    if (geometry.groups[g].window == 0 || pool.blocks[g] == 0) {
      holds = std::min(holds, uint64_t{pool.blocks[g]} * geometry.block_tokens);
    }
  }
  pool.context = static_cast<uint32_t>(std::min<uint64_t>(wanted, holds));
  if (pool.context < 2) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--kv-memory {} holds no block of {} tokens, which takes {}; {}",
                             format_size(pool.kv_bytes), geometry.block_tokens,
                             format_size(smallest), have)};
  }
  return pool;
}

std::string fit_text(const kv::Geometry& geometry, const Pool& pool) {
  std::string out;
  for (const uint64_t tokens : {1024, 4096, 8192}) {
    if (!out.empty()) out += ", ";
    out += tokens > pool.context ? fmt::format("{}k: beyond the context", tokens / 1024)
                                 : fmt::format("{}k: {}", tokens / 1024,
                                               conversations(geometry, pool.blocks, tokens));
  }
  return out;
}

}  // namespace pagewise::cli
