// SPDX-License-Identifier: Apache-2.0
#include "cli/pool_size.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/system_memory.h"
#include "kv/pool_split.h"
#include "model/cpu_executor.h"
#include "planner/server_memory.h"

namespace pagewise::cli {
namespace {

/// A larger context takes tables of its positions: so far a growing pool is prepared for, whatever
/// it begins with.
constexpr uint32_t kContextPrepared = 131072;

uint32_t context_wanted(const PoolWish& wish, const model::ModelSpec& spec) {
  return wish.max_context == 0 ? spec.context : std::min(spec.context, wish.max_context);
}

/// A context that was asked for does not yield to windows.
kv::PoolWish split_wish(uint64_t bytes, const PoolWish& wish, const model::ModelSpec& spec) {
  return {bytes, context_wanted(wish, spec), wish.step_tokens,
          wish.max_context == 0 ? wish.sequences : 1};
}

/// `asked` names the wish in the message, `have` says what there is.
Result<Pool> split(uint64_t bytes, const PoolWish& wish, const model::ModelSpec& spec,
                   const kv::Geometry& geometry, std::string_view asked, std::string_view have) {
  kv::PoolSplit shares = kv::split_pool(geometry, split_wish(bytes, wish, spec));
  if (shares.context >= 2) {
    Pool pool;
    pool.kv_bytes = bytes;
    pool.blocks = std::move(shares.blocks);
    pool.context = shares.context;
    return pool;
  }
  uint64_t smallest = 0;
  for (uint32_t g = 0; g < geometry.groups.size(); ++g) smallest += geometry.block_stride(g);
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{} {} holds no block of {} tokens, which takes {}; {}", asked,
                           format_size(bytes), geometry.block_tokens, format_size(smallest), have)};
}

}  // namespace

uint64_t fixed_memory(const model::ModelSpec& spec, const PoolWish& wish) {
  const planner::ServerShape shape{.step_tokens = wish.step_tokens,
                                   .threads = model::compute_threads(wish.threads)};
  return spec.weight_bytes + planner::working_memory(spec, shape);
}

Result<Pool> size_pool(const PoolWish& wish, const model::ModelSpec& spec,
                       const kv::Geometry& geometry) {
  PW_ASSIGN_OR_RETURN(const uint64_t available, available_memory());
  const uint64_t fixed = fixed_memory(spec, wish);
  const uint64_t left = available - std::min(available, fixed);
  uint64_t bytes = left / 2;
  if (!wish.kv_memory.empty()) {
    PW_ASSIGN_OR_RETURN(bytes, parse_size(wish.kv_memory));
  }
  const std::string have = fmt::format("{} are free, weights and working memory take {}",
                                       format_size(available), format_size(fixed));
  if (left == 0 || bytes > left) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("not enough memory: --kv-memory {} asked, but {}; that leaves {}",
                             format_size(bytes), have, format_size(left))};
  }
  PW_ASSIGN_OR_RETURN(Pool pool, split(bytes, wish, spec, geometry, "--kv-memory", have));
  // Address space costs nothing: as much as the machine has memory, free or not.
  const auto pages = static_cast<uint64_t>(std::max(0L, sysconf(_SC_PHYS_PAGES)));
  const uint64_t machine = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  kv::PoolSplit reserved =
      kv::split_pool(geometry, split_wish(std::max(machine, bytes), wish, spec));
  pool.blocks_reserved = std::move(reserved.blocks);
  pool.context_reserved = std::max(pool.context, std::min(reserved.context, kContextPrepared));
  return pool;
}

Result<Pool> size_pool_again(uint64_t bytes, uint64_t now_bytes, uint64_t committed_bytes,
                             const PoolWish& wish, const model::ModelSpec& spec,
                             const kv::Geometry& geometry) {
  PW_ASSIGN_OR_RETURN(const uint64_t available, available_memory());
  const std::string have = fmt::format("{} are free and the pool takes {} now",
                                       format_size(available), format_size(committed_bytes));
  if (bytes > now_bytes && bytes > available + committed_bytes) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("not enough memory: {} asked, but {}; that leaves {}",
                             format_size(bytes), have, format_size(available + committed_bytes))};
  }
  return split(bytes, wish, spec, geometry, "memory", have);
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
