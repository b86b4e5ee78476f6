// SPDX-License-Identifier: Apache-2.0
#include "planner/engine_rules.h"

#include "base/bytes.h"

namespace pagewise::planner {
namespace {

constexpr EngineRule kEngines[] = {
    {.name = "pagewise",
     .basis = ShareBasis::kRest,
     .share = 0.5,
     .working_bytes = kPagewiseProcessBytes,
     .block_tokens = 32,
     .note =
         "--kv-memory may name more than the half; of a GGUF file that it runs, working memory is "
         "that of this machine's threads",
     .source = "docs/design.md, section 4"},
    {.name = "vllm",
     .share = 0.92,
     .block_tokens = 16,
     .split = DeviceSplit::kHeads,
     .note = "activations, which it measures at start, are 0 here unless --working-memory says",
     .source = "docs.vllm.ai, stable, vllm.config.cache: gpu_memory_utilization, "
               "DEFAULT_BLOCK_SIZE"},
    {.name = "llama.cpp",
     .margin_bytes = 1024 * kMiB,
     .block_tokens = 256,
     .pages = false,
     .split = DeviceSplit::kLayers,
     .note = "compute buffers, which it measures at start, are 0 here unless --working-memory says",
     .source = "ggml-org/llama.cpp, tools/server/README.md: --fit-target; "
               "src/llama-context.cpp: n_ctx_seq is padded to 256"},
};

}  // namespace

std::span<const EngineRule> engine_rules() { return kEngines; }

const EngineRule* find_engine_rule(std::string_view name) {
  for (const EngineRule& rule : kEngines) {
    if (rule.name == name) return &rule;
  }
  return nullptr;
}

std::string engine_names() {
  std::string names;
  for (const EngineRule& rule : kEngines) {
    if (!names.empty()) names += ", ";
    names += rule.name;
  }
  return names;
}

}  // namespace pagewise::planner
