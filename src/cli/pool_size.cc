// SPDX-License-Identifier: Apache-2.0
#include "cli/pool_size.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/system_memory.h"
#include "kv/pool_split.h"

namespace pagewise::cli {
namespace {

/// What stays behind beside weights and KV: the process itself, tokenizer, activations.
constexpr uint64_t kWorkingBytes = 128 * kMiB;

}  // namespace

Result<Pool> size_pool(const PoolFlags& flags, const model::ModelSpec& spec,
                       const kv::Geometry& geometry) {
  PW_ASSIGN_OR_RETURN(const uint64_t available, available_memory());
  const uint64_t fixed = spec.weight_bytes + kWorkingBytes;
  const uint64_t left = available - std::min(available, fixed);
  Pool pool;
  if (flags.kv_memory.empty()) {
    pool.kv_bytes = left / 2;
  } else {
    PW_ASSIGN_OR_RETURN(pool.kv_bytes, parse_size(flags.kv_memory));
  }
  const std::string have = fmt::format("{} are free, weights and working memory take {}",
                                       format_size(available), format_size(fixed));
  if (left == 0 || pool.kv_bytes > left) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("not enough memory: --kv-memory {} asked, but {}; that leaves {}",
                             format_size(pool.kv_bytes), have, format_size(left))};
  }
  uint32_t wanted = spec.context;
  if (flags.max_context != 0) wanted = std::min(wanted, flags.max_context);
  kv::PoolSplit split = kv::split_pool(geometry, {pool.kv_bytes, wanted, flags.step_tokens});
  pool.blocks = std::move(split.blocks);
  pool.context = split.context;
  if (pool.context < 2) {
    uint64_t smallest = 0;
    for (uint32_t g = 0; g < geometry.groups.size(); ++g) smallest += geometry.block_stride(g);
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
                                               kv::sequences_held(geometry, pool.blocks, tokens));
  }
  return out;
}

}  // namespace pagewise::cli
