// SPDX-License-Identifier: Apache-2.0
// What operators ask of a running engine. Nothing here is part of a step: each call finds all
// sequences at rest.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/check.h"
#include "engine/core.h"

namespace pagewise::engine {

uint32_t Core::pool_tokens_of(const kv::Geometry& geometry, std::span<const uint32_t> blocks) {
  uint64_t tokens = std::numeric_limits<uint32_t>::max();
  for (std::size_t g = 0; g < geometry.groups.size(); ++g) {
    const uint64_t needed = kv::blocks_needed(std::numeric_limits<uint32_t>::max(),
                                              geometry.groups[g].window, geometry.block_tokens);
    // A window's blocks are enough for any length; fewer hold so many positions from the start.
    if (blocks[g] < needed) tokens = std::min(tokens, uint64_t{blocks[g]} * geometry.block_tokens);
  }
  return static_cast<uint32_t>(tokens);
}

/// What is served of a pool that holds so many positions for one sequence.
uint32_t Core::context_of(uint32_t pool_tokens) const {
  return context_asked_ == 0 ? pool_tokens : std::min(context_asked_, pool_tokens);
}

void Core::serve_context(uint32_t pool_tokens) {
  pool_tokens_ = pool_tokens;
  options_.context_max = context_of(pool_tokens);
  context_served_ = options_.context_max;
}

/// Whether everything that was accepted could still end in a pool that holds a context of this
/// size.
Status Core::check_accepted(uint32_t context) const {
  const auto refuse = [&](uint64_t tokens, const char* what) {
    return Status(ErrorCode::kPoolExhausted,
                  std::string("a request under way ") + what + " " + std::to_string(tokens) +
                      " tokens, the pool would hold " + std::to_string(context) +
                      " of one sequence: try again when it has ended");
  };
  for (const auto& [id, job] : jobs_) {
    for (const auto& sequence : job->sequences) {
      if (sequence->finish != FinishReason::kNone) continue;
      // One more must fit, as at its acceptance.
      if (sequence->tokens.size() >= context) return refuse(sequence->tokens.size() + 1, "needs");
    }
    // Who asked for more than there was room for gets what room there is; the others were promised
    // what they asked for.
    const uint64_t tokens = uint64_t{job->prompt_tokens} + job->tokens_max;
    if (!job->clamped && tokens > context) return refuse(tokens, "may take");
  }
  return Status::ok();
}

Status Core::resize(std::span<const uint32_t> blocks) {
  PW_CHECK(blocks.size() == groups_);
  const uint32_t pool_tokens = pool_tokens_of(executor_.geometry(), blocks);
  const uint32_t context = context_of(pool_tokens);
  if (context < 2) {
    return {ErrorCode::kInvalidArgument, "the pool would hold " + std::to_string(context) +
                                             " tokens: a prompt and an answer need at least 2"};
  }
  PW_RETURN_IF_ERROR(cache_->check_resize(blocks));
  PW_RETURN_IF_ERROR(check_accepted(context));
  PW_RETURN_IF_ERROR(executor_.grow(blocks));

  std::vector<kv::FreshBlock> dropped;
  PW_CHECK(cache_->resize(blocks, dropped).has_value());
  for (uint32_t g = 0; g < groups_; ++g) {
    idle_.clear();
    for (const kv::FreshBlock& block : dropped) {
      if (block.group == g) idle_.push_back(block.block);
    }
    executor_.release(g, idle_);
    counters_.blocks_returned += idle_.size();
  }
  serve_context(pool_tokens);
  if (curve_) {
    curve_->resize(cached_tokens_max());
    counters_.predicted_hit_rates = curve_->predicted();
  }
  for (const auto& [id, job] : jobs_) {
    if (job->clamped) job->tokens_max = std::min(job->tokens_max, context - job->prompt_tokens);
  }
  ++counters_.pool_resizes;
  return Status::ok();
}

PoolReport Core::pool_report() const {
  PoolReport report;
  const kv::Geometry& geometry = executor_.geometry();
  for (uint32_t g = 0; g < groups_; ++g) {
    report.groups.push_back(
        {geometry.groups[g].window, geometry.block_stride(g), cache_->counts(g)});
  }
  report.block_tokens = geometry.block_tokens;
  report.context_max = options_.context_max;
  report.committed_bytes = executor_.committed_bytes();
  report.requests = static_cast<uint32_t>(jobs_.size());
  return report;
}

CacheReport Core::cache_report() const {
  std::map<std::string, AccountReport, std::less<>> accounts;
  for (const auto& [account, page] : ledger_.pages()) {
    accounts[account].ledger = page;
    accounts[account].leases_broken = cache_->leases_broken(account);
  }
  for (kv::NamespaceUse& use : cache_->namespaces()) {
    AccountReport& report = accounts[std::string(kv::top_namespace(use.name))];
    ++report.namespaces;
    report.blocks_live += use.blocks_live;
    report.blocks_cached += use.blocks_cached;
    report.blocks_leased += use.blocks_leased;
    report.leases.insert(report.leases.end(), use.leases.begin(), use.leases.end());
  }
  for (kv::QuotaUse& quota : cache_->quotas()) {
    AccountReport& report = accounts[quota.name];
    report.quota = std::move(quota);
  }
  CacheReport report;
  report.pool = pool_report();
  report.now = clock_.now();
  for (auto& [account, found] : accounts) {
    found.account = account;
    std::stable_sort(
        found.leases.begin(), found.leases.end(),
        [](const kv::LeaseUse& a, const kv::LeaseUse& b) { return a.expires < b.expires; });
    report.accounts.push_back(std::move(found));
  }
  return report;
}

/// What the pool can keep of one text after the other: its smallest full group's positions. What a
/// sliding group has behind windows comes and goes beside them; where all slide, what the smallest
/// holds.
uint64_t Core::cached_tokens_max() const {
  uint64_t full = UINT64_MAX, any = UINT64_MAX;
  for (uint32_t g = 0; g < groups_; ++g) {
    const uint64_t tokens = uint64_t{cache_->counts(g).pool} * cache_->block_tokens();
    any = std::min(any, tokens);
    if (cache_->window(g) == 0) full = std::min(full, tokens);
  }
  return full == UINT64_MAX ? any : full;
}

CurveReport Core::curve_report() const {
  CurveReport report;
  report.pool = pool_report();
  report.prefix_cache = options_.prefix_cache;
  if (curve_) report.figures = curve_->figures();
  return report;
}

Cleared Core::clear_cache(std::optional<std::string_view> name) {
  Cleared cleared;
  const uint32_t entries = cache_->entries();
  cleared.blocks = cache_->clear(name);
  cleared.leases = entries - cache_->entries();
  cleared.blocks_live = pool_report().blocks().live;
  return cleared;
}

}  // namespace pagewise::engine
