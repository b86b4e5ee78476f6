// SPDX-License-Identifier: Apache-2.0
// Rows of any tensor type, decoded to f32: the one way in which weights outside the integer family,
// norms and embeddings are read.
//
// Own decoders: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K-Q6_K, IQ4_NL, MXFP4. Other block
// types go through ggml's to_float where the build has ggml (PAGEWISE_GGML).
#pragma once

#include <cstdint>
#include <string_view>

#include "base/dtype.h"
#include "base/result.h"

namespace pagewise::kernels {

/// Decodes `elements` values at `row` (any alignment) into `out`.
/// Requires: elements a multiple of the type's block_elements.
using ToFloat = void (*)(const void* row, float* out, int64_t elements);

/// The decoder of `type`. Errors: kUnsupported naming the type, and what to do about it.
Result<ToFloat> find_to_float(TensorType type);

/// Only our own decoders; nullptr for the others.
ToFloat own_to_float(TensorType type);

/// ggml's decoder, nullptr without ggml or when it has none.
ToFloat ggml_to_float(TensorType type);

/// Bytes of a row of `elements` values. Requires: a known type, whole blocks.
uint64_t row_bytes(TensorType type, uint64_t elements);

}  // namespace pagewise::kernels
