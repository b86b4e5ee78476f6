// SPDX-License-Identifier: Apache-2.0
#include "planner/server_memory.h"

#include <algorithm>

namespace pagewise::planner {
namespace {

// Rows that a thread takes at once, as model/forward.h has them.
constexpr uint64_t kTileRows = 48;

// Measured: resident memory less weights, KV and the rows below is 27.6 MiB with SmolLM2 135M
// (49,152 tokens) and 41.2 MiB with Gemma 3 270M (262,144). A line through both.
constexpr uint64_t kVocabularyBytesAToken = 67;
constexpr uint64_t kProgramBytes = 25'600'000;

}  // namespace

ServerMemory server_memory(const model::ModelSpec& spec, const ServerShape& shape) {
  ServerMemory out;
  out.weights = spec.weight_bytes;
  uint64_t query = 0, key = 0, value = 0, ffn = 0;
  for (const model::LayerSpec& layer : spec.layers) {
    query = std::max<uint64_t>(query, uint64_t{layer.heads} * layer.key_dim);
    key = std::max<uint64_t>(key, uint64_t{layer.kv_heads} * layer.key_dim);
    value = std::max<uint64_t>(value, uint64_t{layer.kv_heads} * layer.value_dim);
    ffn = std::max<uint64_t>(ffn, layer.ffn);
  }
  if (spec.experts.count != 0) ffn = uint64_t{spec.experts.ffn} + spec.experts.shared_ffn;
  // Rows in f32 (4 bytes a value); what goes into a matrix has its int8 form beside it (5 bytes).
  const uint64_t rows = shape.step_tokens;
  const uint64_t few = std::min(rows, kTileRows * shape.threads - 1);
  const uint64_t width = spec.embedding;
  out.buffers = rows * (4 * (width + query + key + value) + 5 * query) +
                few * (4 * (value + width + 2 * ffn) + 5 * (2 * width + ffn)) +
                shape.threads * kTileRows * (14 * width + 5 * ffn + 4 * value) +
                uint64_t{4} * spec.vocab_size;
  out.vocabulary = kVocabularyBytesAToken * spec.vocab_size;
  out.program = kProgramBytes;
  return out;
}

}  // namespace pagewise::planner
