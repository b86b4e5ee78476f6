// SPDX-License-Identifier: Apache-2.0
#include "kernels/linear/linear.h"

#include <cstring>
#include <string>

#include "base/check.h"
#include "kernels/linear/linear_internal.h"

namespace pagewise::kernels {
namespace {

void pack_q4_1(const uint8_t* row, std::size_t blocks, std::size_t lane, uint8_t* panel) {
  for (std::size_t b = 0; b < blocks; ++b, row += 20, panel += kQ4BlockBytes) {
    std::memcpy(panel + 2 * lane, row, 2);           // scale
    std::memcpy(panel + 32 + 2 * lane, row + 2, 2);  // minimum
    for (std::size_t j = 0; j < 4; ++j)
      std::memcpy(panel + 64 + 64 * j + 4 * lane, row + 4 + 4 * j, 4);
  }
}

void pack_q8_0(const uint8_t* row, std::size_t blocks, std::size_t lane, uint8_t* panel) {
  for (std::size_t b = 0; b < blocks; ++b, row += 34) {
    uint8_t* pair = panel + b / 2 * kQ8PairBytes;
    std::memcpy(pair + b % 2 * 2 * kPanelOutputs + 2 * lane, row, 2);
    uint8_t* quants = pair + 64 + b % 2 * kQ8BlockBytes;
    for (std::size_t k = 0; k < kQuantBlock; ++k) {
      quants[64 * (k / 4) + 4 * lane + k % 4] = row[2 + k] ^ 0x80;  // quant + 128
    }
  }
}

}  // namespace

LinearFamily linear_family(TensorType type) {
  return type == TensorType::kQ4_1 || type == TensorType::kQ8_0 ? LinearFamily::kInteger
                                                                : LinearFamily::kF32;
}

Result<LinearWeights> LinearWeights::pack(TensorType type, std::size_t outputs, std::size_t columns,
                                          std::span<const std::byte> data) {
  LinearWeights weights;
  PW_ASSIGN_OR_RETURN(weights.to_float_, find_to_float(type));
  const TensorTypeInfo& info = *tensor_type_info(type);
  if (outputs == 0 || columns == 0 || columns % info.block_elements != 0) {
    return {ErrorCode::kMalformed, std::string(info.name) + " matrix of " +
                                       std::to_string(columns) + " columns: not whole blocks of " +
                                       std::to_string(info.block_elements)};
  }
  weights.raw_row_bytes_ = row_bytes(type, columns);
  if (data.size() / weights.raw_row_bytes_ != outputs ||
      data.size() % weights.raw_row_bytes_ != 0) {
    return {ErrorCode::kMalformed, std::string(info.name) + " matrix of " +
                                       std::to_string(outputs) + " x " + std::to_string(columns) +
                                       ": " + std::to_string(data.size()) + " bytes of data"};
  }
  weights.type_ = type;
  weights.outputs_ = outputs;
  weights.columns_ = columns;
  if (weights.family() == LinearFamily::kF32) {
    weights.raw_ = data;
    return weights;
  }
  const std::size_t blocks = columns / kQuantBlock;
  const bool q4 = type == TensorType::kQ4_1;
  weights.panel_bytes_ = q4 ? blocks * kQ4BlockBytes : (blocks + 1) / 2 * kQ8PairBytes;
  weights.packed_ = AlignedArray<uint8_t>(weights.panels() * weights.panel_bytes_);
  const auto* row = reinterpret_cast<const uint8_t*>(data.data());
  for (std::size_t o = 0; o < outputs; ++o, row += weights.raw_row_bytes_) {
    uint8_t* panel = weights.packed_.data() + o / kPanelOutputs * weights.panel_bytes_;
    (q4 ? pack_q4_1 : pack_q8_0)(row, blocks, o % kPanelOutputs, panel);
  }
  return weights;
}

void linear(const LinearWeights& weights, const Activations& activations, Range rows, Range panels,
            float* out, std::size_t out_stride) {
  PW_CHECK(activations.columns() == weights.columns());
  PW_CHECK(rows.end <= activations.rows() && panels.end <= weights.panels());
  const auto run = weights.family() == LinearFamily::kInteger ? run_linear_integer : run_linear_f32;
  run(weights, activations, rows, panels, out, out_stride);
}

}  // namespace pagewise::kernels
