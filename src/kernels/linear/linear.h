// SPDX-License-Identifier: Apache-2.0
// Linear layers: out[r][o] = sum over k of weights[o][k] * activations[r][k].
//
// Two families (contract rule 2), repacked at load into panels of 16 outputs, so that vector lanes
// are outputs and no horizontal sum exists:
//   integer  Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4, Q4_K, Q5_K, Q6_K. Activations int8;
//            exact integer sums inside a block of 32 (Q6_K's two scales a block included: they are
//            integers), then one FMA a block in ascending k into one f32 accumulator per output.
//            Types with a minimum add it with a second FMA right after the block's first.
//   f32      F32, F16, BF16, widened in registers; and every other type, whose raw rows are decoded
//            to f32 when used. Activations f32; one FMA chain in ascending k.
// One row (decode) and many rows (prefill) follow the same sequence, so they give the same bits,
// and so does every division of rows and panels among calls and threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "base/result.h"
#include "kernels/aligned.h"
#include "kernels/linear/activations.h"
#include "kernels/linear/weight_arena.h"
#include "kernels/range.h"
#include "kernels/to_float.h"

namespace pagewise::kernels {

/// Outputs of one panel. 16 rather than 8: one 512-bit vector, two 256-bit ones, and a Q4_1 block
/// of a panel is then exactly five cache lines.
inline constexpr std::size_t kPanelOutputs = 16;

enum class LinearFamily : uint8_t { kInteger, kF32 };
LinearFamily linear_family(TensorType type);

/// The types that have kernels of their own, for whoever measures or lists all of them.
std::span<const TensorType> linear_tuned_types();
/// Whether weights of the type are copied into panels: the tuned ones.
bool linear_packs(TensorType type);

/// Thread: immutable after pack(); any thread.
class LinearWeights {
 public:
  LinearWeights() = default;

  /// `data`: [outputs][columns] in `type`, row-major, as GGUF stores a matrix of shape [columns,
  /// outputs]. Tuned types are copied, into `arena` where one is given (it must outlive the weights
  /// then); of others a view is kept, so `data` must outlive the weights. Errors: kUnsupported
  /// naming the type; kMalformed when `columns` is no whole number of blocks or `data` has another
  /// size than the shape asks for.
  static Result<LinearWeights> pack(TensorType type, std::size_t outputs, std::size_t columns,
                                    std::span<const std::byte> data, WeightArena* arena = nullptr);

  TensorType type() const { return type_; }
  LinearFamily family() const { return linear_family(type_); }
  bool is_packed() const { return packed_.size() != 0; }
  std::size_t outputs() const { return outputs_; }
  std::size_t columns() const { return columns_; }
  /// Panels of 16 outputs, the last one padded: the unit that threads share out.
  std::size_t panels() const { return (outputs_ + kPanelOutputs - 1) / kPanelOutputs; }
  /// Bytes that one pass over all weights reads.
  std::size_t bytes() const { return is_packed() ? packed_.size() : raw_.size(); }

  /// The f32 values of row `o`, columns() of them, with the bits that to_float.h gives: so that
  /// embeddings tied to the output head need no second copy.
  void decode_row(std::size_t o, float* out) const;

  // For kernels.
  const uint8_t* panel(std::size_t p) const { return packed_.data() + p * panel_bytes_; }
  const std::byte* raw_row(std::size_t o) const { return raw_.data() + o * raw_row_bytes_; }
  ToFloat decoder() const { return to_float_; }

 private:
  TensorType type_ = TensorType::kF32;
  std::size_t outputs_ = 0;
  std::size_t columns_ = 0;
  std::size_t panel_bytes_ = 0;
  std::size_t raw_row_bytes_ = 0;
  ToFloat to_float_ = nullptr;
  AlignedArray<uint8_t> own_;  // empty with an arena
  std::span<uint8_t> packed_;
  std::span<const std::byte> raw_;
};

/// Computes the outputs of `panels` (panel p holds outputs [16 p, 16 p + 16)) for activation rows
/// `rows`: out[(r - rows.begin) * out_stride + o] = ..., for o below outputs(); nothing else is
/// written. Requires: activations.columns() == weights.columns(); rows quantised for the integer
/// family. Threads call it with disjoint panel ranges inside one region. Cost: no allocation; 40
/// KiB of stack for types that are decoded.
void linear(const LinearWeights& weights, const Activations& activations, Range rows, Range panels,
            float* out, std::size_t out_stride);

/// Asks for the beginning of `panels`, which linear() is about to read, in the second-level cache.
/// Between two products (barriers, norms, quantising) memory has nothing to do otherwise.
void prefetch(const LinearWeights& weights, Range panels);

}  // namespace pagewise::kernels
