// SPDX-License-Identifier: Apache-2.0
#include "kernels/linear/linear.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "kernels/linear/linear_internal.h"
#include "kernels/linear/packing.h"

namespace pagewise::kernels {

std::span<const TensorType> linear_tuned_types() {
  static constexpr TensorType kTypes[] = {
      TensorType::kQ4_0, TensorType::kQ4_1,   TensorType::kQ5_0,  TensorType::kQ5_1,
      TensorType::kQ8_0, TensorType::kIQ4_NL, TensorType::kMXFP4, TensorType::kQ4_K,
      TensorType::kQ5_K, TensorType::kQ6_K,   TensorType::kF16,   TensorType::kBF16,
      TensorType::kF32};
  return kTypes;
}

bool linear_packs(TensorType type) { return find_packing(type) != nullptr; }

LinearFamily linear_family(TensorType type) {
  const Packing* packing = find_packing(type);
  return packing != nullptr && packing->integer ? LinearFamily::kInteger : LinearFamily::kF32;
}

Result<LinearWeights> LinearWeights::pack(TensorType type, std::size_t outputs, std::size_t columns,
                                          std::span<const std::byte> data, WeightArena* arena) {
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
  const Packing* packing = find_packing(type);
  if (packing == nullptr) {
    weights.raw_ = data;
    return weights;
  }
  weights.panel_bytes_ = packing->panel_bytes(columns);
  const std::size_t packed_bytes = weights.panels() * weights.panel_bytes_;
  if (arena == nullptr) weights.own_ = AlignedArray<uint8_t>(packed_bytes);
  weights.packed_ = arena == nullptr ? weights.own_.span() : arena->take(packed_bytes);
  const auto* row = reinterpret_cast<const uint8_t*>(data.data());
  for (std::size_t o = 0; o < outputs; ++o, row += weights.raw_row_bytes_) {
    uint8_t* panel = weights.packed_.data() + o / kPanelOutputs * weights.panel_bytes_;
    packing->pack(row, columns, o % kPanelOutputs, panel);
  }
  return weights;
}

void LinearWeights::decode_row(std::size_t o, float* out) const {
  PW_CHECK(o < outputs_);
  const Packing* packing = find_packing(type_);
  if (packing == nullptr) {
    to_float_(raw_row(o), out, static_cast<int64_t>(columns_));
    return;
  }
  packing->unpack(panel(o / kPanelOutputs), columns_, o % kPanelOutputs, out);
}

void linear(const LinearWeights& weights, const Activations& activations, Range rows, Range panels,
            float* out, std::size_t out_stride) {
  PW_CHECK(activations.columns() == weights.columns());
  PW_CHECK(rows.end <= activations.rows() && panels.end <= weights.panels());
  auto* const run = weights.family() == LinearFamily::kInteger ? run_linear_integer
                    : weights.is_packed()                      ? run_linear_float
                                                               : run_linear_decoded;
  run(weights, activations, rows, panels, out, out_stride);
}

void prefetch(const LinearWeights& weights, Range panels) {
  // What a core reads in half a microsecond; the caches keep it.
  constexpr std::size_t kBytes = 16 * 1024;
  if (panels.empty() || !weights.is_packed()) return;
  const uint8_t* const begin = weights.panel(panels.begin);
  const auto bytes = static_cast<std::size_t>(weights.panel(panels.end) - begin);
  for (std::size_t i = 0; i < std::min(bytes, kBytes); i += 64) __builtin_prefetch(begin + i, 0, 2);
}

}  // namespace pagewise::kernels
