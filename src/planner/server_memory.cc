// SPDX-License-Identifier: Apache-2.0
#include "planner/server_memory.h"

#include "model/forward_memory.h"
#include "planner/engine_rules.h"

namespace pagewise::planner {
namespace {

// Measured, resident memory less weights, KV, the buffers below and a row of logits: 26.7 MiB with
// SmolLM2 135M (49,152 tokens) and 36.8 MiB with Gemma 3 270M (262,144), after three prompts of 700
// tokens on two threads. A line through both.
constexpr uint64_t kVocabularyBytesAToken = 50;
constexpr uint64_t kProgramBytes = 25'600'000;

uint64_t pass_bytes(const model::ModelSpec& spec, const ServerShape& shape) {
  const model::ForwardLimits limits{.rows_max = shape.step_tokens};
  return model::forward_bytes(model::forward_shape(spec, limits, shape.threads));
}

}  // namespace

ServerMemory server_memory(const model::ModelSpec& spec, const ServerShape& shape) {
  ServerMemory out;
  out.weights = spec.weight_bytes;
  // A row of logits for each thread's share of one answer; more come with more requests.
  out.buffers = pass_bytes(spec, shape) + uint64_t{sizeof(float)} * spec.vocab_size;
  out.vocabulary = kVocabularyBytesAToken * spec.vocab_size;
  out.program = kProgramBytes;
  return out;
}

uint64_t working_memory(const model::ModelSpec& spec, const ServerShape& shape) {
  return kPagewiseProcessBytes + pass_bytes(spec, shape);
}

}  // namespace pagewise::planner
