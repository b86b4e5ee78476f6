// SPDX-License-Identifier: Apache-2.0
// How much memory the KV pool gets, and what it holds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "kv/geometry.h"
#include "model/spec.h"

namespace pagewise::cli {

struct PoolWish {
  std::string kv_memory;  // as --kv-memory gives it; empty: half of what is free after the weights
  uint32_t max_context = 0;  // 0: the model's
  uint32_t step_tokens = 0;
  uint32_t threads = 0;    // as --threads gives it
  uint32_t sequences = 1;  // that run at once, as --max-seqs gives it
};

struct Pool {
  uint64_t kv_bytes = 0;
  std::vector<uint32_t> blocks;  // of each group
  uint32_t context = 0;          // served
  // What a pool that grows while serving is prepared for.
  std::vector<uint32_t> blocks_reserved;
  uint32_t context_reserved = 0;
};

/// The pool's size and the context that it can serve. Errors: numbers that do not fit.
Result<Pool> size_pool(const PoolWish& wish, const model::ModelSpec& spec,
                       const kv::Geometry& geometry);

/// The pool for so many bytes while a server runs: split as at the start. `now_bytes` is its size
/// so far and `committed_bytes` the memory that it takes. Errors: as size_pool; a pool that becomes
/// smaller always has the memory.
Result<Pool> size_pool_again(uint64_t bytes, uint64_t now_bytes, uint64_t committed_bytes,
                             const PoolWish& wish, const model::ModelSpec& spec,
                             const kv::Geometry& geometry);

/// What a model takes beside its KV: weights, and working memory for steps and threads as wished.
uint64_t fixed_memory(const model::ModelSpec& spec, const PoolWish& wish);

/// How many conversations of usual lengths the pool holds at once: "1k: 12, 4k: 3, ...".
std::string fit_text(const kv::Geometry& geometry, const Pool& pool);

}  // namespace pagewise::cli
