// SPDX-License-Identifier: Apache-2.0
// What the Pagewise server's process takes for a model beside its KV, from the header alone.
#pragma once

#include <cstdint>

#include "model/spec.h"

namespace pagewise::planner {

struct ServerShape {
  uint32_t step_tokens = 512;
  uint32_t threads = 1;
};

/// Bytes that are in memory once the server has answered something. What grows with use is not in
/// it: KV, tables of sines and cosines of the positions that were reached, further rows of logits.
///
/// Weights and buffers follow from the header. Program and vocabulary are measured, not derived: of
/// the program's 24 MiB, 13 are pages of code and libraries that a request touches, which depend on
/// compiler and system; the rest, and 50 bytes a token of the vocabulary, are the heap of tokenizer
/// and sampler: hash tables and strings, whose sizes are the standard library's.
struct ServerMemory {
  uint64_t weights = 0;     // as the file has them; packing changes them by less than a percent
  uint64_t buffers = 0;     // model::forward_bytes, and a row of logits
  uint64_t vocabulary = 0;  // the tokenizer's, and what sampling keeps of it
  uint64_t program = 0;     // code, libraries, stacks

  uint64_t sum() const { return weights + buffers + vocabulary + program; }
};

ServerMemory server_memory(const model::ModelSpec& spec, const ServerShape& shape);

/// What the server keeps back beside weights and KV when it sizes its pool: what the forward pass
/// works in, which grows with threads and the model's widths, and kPagewiseProcessBytes.
uint64_t working_memory(const model::ModelSpec& spec, const ServerShape& shape);

}  // namespace pagewise::planner
