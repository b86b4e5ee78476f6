// SPDX-License-Identifier: Apache-2.0
#include "model/cpu_executor.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <new>
#include <system_error>
#include <thread>

#include "base/bytes.h"
#include "base/check.h"
#include "kernels/attention/attention.h"
#include "kernels/isa.h"
#include "kernels/thread_pool.h"
#include "model/forward.h"
#include "model/kv_arena.h"
#include "model/weights.h"

namespace pagewise::model {
namespace {

/// Cores this process may run on: a container or taskset may give it fewer than the machine has.
uint32_t usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) {
    return static_cast<uint32_t>(CPU_COUNT(&set));
  }
  return std::max(1U, std::thread::hardware_concurrency());
}

}  // namespace

struct CpuExecutor::Impl {
  Impl(ModelSpec spec_in, ModelWeights weights_in, std::unique_ptr<KvArena> arena_in,
       uint32_t threads, ForwardLimits limits_in)
      : spec(std::move(spec_in)),
        weights(std::move(weights_in)),
        arena(std::move(arena_in)),
        pool(threads, kernels::PoolWidth::kAdaptive),
        limits(limits_in),
        forward(spec, weights, *arena, pool, limits) {}

  ModelSpec spec;
  ModelWeights weights;
  std::unique_ptr<KvArena> arena;
  kernels::ThreadPool pool;
  ForwardLimits limits;
  Forward forward;
};

CpuExecutor::CpuExecutor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CpuExecutor::~CpuExecutor() = default;

Result<std::unique_ptr<CpuExecutor>> CpuExecutor::create(const gguf::File& file,
                                                         const ModelSpec& spec,
                                                         const kv::Geometry& geometry,
                                                         CpuExecutorOptions options) {
  PW_CHECK(options.step_tokens_max > 0 && options.step_runs_max > 0);
  for (const LayerSpec& layer : spec.layers) {
    const Status fits = kernels::check_attention_shape({.heads = layer.heads,
                                                        .kv_heads = layer.kv_heads,
                                                        .key_dim = layer.key_dim,
                                                        .value_dim = layer.value_dim,
                                                        .block_tokens = geometry.block_tokens});
    if (!fits) return Error{fits.code(), fmt::format("{}: {}", file.path(), fits.error().message)};
  }
  PW_ASSIGN_OR_RETURN(std::unique_ptr<KvArena> arena,
                      KvArena::create(geometry, options.blocks, options.blocks_reserved));
  PW_ASSIGN_OR_RETURN(ModelWeights weights, load_weights(file, spec, options.progress));
  const uint32_t threads = compute_threads(options.threads);
  const uint32_t context =
      options.context_max == 0 ? spec.context : std::min(options.context_max, spec.context);
  try {
    auto impl = std::make_unique<Impl>(spec, std::move(weights), std::move(arena), threads,
                                       ForwardLimits{.rows_max = options.step_tokens_max,
                                                     .runs_max = options.step_runs_max,
                                                     .context_max = context});
    return std::unique_ptr<CpuExecutor>(new CpuExecutor(std::move(impl)));
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::kIo,
                 fmt::format("not enough memory for steps of {} tokens over {} of context",
                             options.step_tokens_max, context)};
  } catch (const std::system_error& error) {
    return Error{ErrorCode::kIo, fmt::format("cannot start {} threads: {}", threads, error.what())};
  }
}

uint32_t compute_threads(uint32_t asked) {
  const uint32_t cores = usable_cores();
  return asked == 0 ? cores : std::min(asked, cores);
}

const kv::Geometry& CpuExecutor::geometry() const { return impl_->arena->geometry(); }
uint32_t CpuExecutor::vocab_size() const { return impl_->spec.vocab_size; }
uint32_t CpuExecutor::blocks(uint32_t group) const { return impl_->arena->blocks(group); }
Status CpuExecutor::grow(std::span<const uint32_t> blocks) { return impl_->arena->grow(blocks); }
uint64_t CpuExecutor::committed_bytes() const { return impl_->arena->committed_bytes(); }
uint32_t CpuExecutor::threads() const { return static_cast<uint32_t>(impl_->pool.threads()); }
uint64_t CpuExecutor::weight_bytes() const { return impl_->weights.bytes; }
uint64_t CpuExecutor::scratch_bytes() const { return impl_->forward.scratch_bytes(); }
std::string_view CpuExecutor::isa() const { return kernels::isa_name(); }

ExecutorLimits CpuExecutor::limits() const {
  return {.step_tokens_max = impl_->limits.rows_max,
          .step_runs_max = impl_->limits.runs_max,
          .context_max = impl_->limits.context_max};
}

Result<LogitsView> CpuExecutor::step(std::span<const StepRun> runs) {
  PW_CHECK(runs.size() <= impl_->limits.runs_max);
  const kv::Geometry& geometry = impl_->arena->geometry();
  uint64_t rows = 0;
  for (const StepRun& run : runs) {
    const uint64_t end = uint64_t{run.position} + run.tokens.size();
    PW_CHECK(!run.tokens.empty() && end <= impl_->limits.context_max);
    PW_CHECK(run.tables.size() == geometry.groups.size());
    for (std::size_t i = 0; i < run.logits_rows.size(); ++i) {
      PW_CHECK(run.logits_rows[i] < run.tokens.size());
      PW_CHECK(i == 0 || run.logits_rows[i - 1] < run.logits_rows[i]);
    }
    rows += run.tokens.size();
    for (uint32_t g = 0; g < geometry.groups.size(); ++g) {
      const uint64_t last = (end - 1) / geometry.block_tokens;
      PW_CHECK(last < run.tables[g].size());
      // Blocks that are written, at least, must be real ones.
      for (uint64_t b = run.position / geometry.block_tokens; b <= last; ++b) {
        PW_CHECK(run.tables[g][b].value < impl_->arena->blocks(g));
      }
    }
    for (const TokenId token : run.tokens) {
      if (token.value < 0 || static_cast<uint32_t>(token.value) >= impl_->spec.vocab_size) {
        return Error{ErrorCode::kInvalidArgument,
                     fmt::format("token id {} is outside the vocabulary of {}", token.value,
                                 impl_->spec.vocab_size)};
      }
    }
  }
  PW_CHECK(rows <= impl_->limits.rows_max);
  if (rows == 0) return LogitsView{nullptr, 0, impl_->spec.vocab_size};
  return impl_->forward.run(runs);
}

void CpuExecutor::copy(uint32_t group, BlockId from, BlockId to, uint32_t positions) {
  impl_->arena->copy(group, from, to, positions);
}

Status CpuExecutor::commit(uint32_t group, std::span<const BlockId> blocks) {
  impl_->arena->commit(group, blocks);
  return Status::ok();
}

void CpuExecutor::release(uint32_t group, std::span<const BlockId> blocks) {
  impl_->arena->release(group, blocks);
}

void CpuExecutor::export_block(uint32_t group, BlockId block, std::span<std::byte> out) const {
  impl_->arena->read(group, block, out);
}

void CpuExecutor::import_block(uint32_t group, BlockId block, std::span<const std::byte> bytes) {
  impl_->arena->write(group, block, bytes);
}

}  // namespace pagewise::model
