// SPDX-License-Identifier: Apache-2.0
// What an operator asks of the engine while it serves: how the KV memory is used and by whom, to
// forget what is cached, to make the pool larger or smaller.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/cache_curve.h"
#include "engine/ledger.h"
#include "kv/kv_cache.h"

namespace pagewise::engine {

struct PoolGroup {
  uint32_t window = 0;       // 0: full attention
  uint64_t block_bytes = 0;  // what a block takes in the arena
  kv::BlockCounts blocks;
};

/// The KV pool now.
struct PoolReport {
  std::vector<PoolGroup> groups;
  uint32_t block_tokens = 0;
  uint32_t context_max = 0;      // served
  uint64_t committed_bytes = 0;  // memory that blocks take
  uint32_t requests = 0;         // accepted and not ended

  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const PoolGroup& group : groups) sum += group.blocks.pool * group.block_bytes;
    return sum;
  }
  kv::BlockCounts blocks() const {
    kv::BlockCounts sum;
    for (const PoolGroup& group : groups) {
      sum.pool += group.blocks.pool;
      sum.live += group.blocks.live;
      sum.cached += group.blocks.cached;
      sum.free += group.blocks.free;
      sum.leased += group.blocks.leased;
    }
    return sum;
  }
};

// What a namespace is guaranteed of the cache, and where its part of it ends.
using kv::NamespaceQuota;

/// What one account (Request::cache.account) uses: all namespaces "account" and "account/...".
struct AccountReport {
  std::string account;
  LedgerPage ledger;
  uint64_t leases_broken = 0;
  uint32_t namespaces = 0;  // that have blocks or run requests now
  uint32_t blocks_live = 0, blocks_cached = 0, blocks_leased = 0;
  std::vector<kv::LeaseUse> leases;  // soonest to end first
  kv::QuotaUse quota;                // zero where it has none
};

struct CacheReport {
  PoolReport pool;
  TimeNs now = 0;
  std::vector<AccountReport> accounts;  // by name
};

/// What other sizes of memory would find.
struct CurveReport {
  PoolReport pool;
  bool prefix_cache = true;             // false: the engine keeps none, and there are no figures
  std::optional<CurveFigures> figures;  // none: Options::cache_curve is off
};

struct Cleared {
  uint32_t blocks = 0;       // that became free
  uint32_t leases = 0;       // dropped
  uint32_t blocks_live = 0;  // untouched: requests that run keep theirs
};

}  // namespace pagewise::engine
