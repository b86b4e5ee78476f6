// SPDX-License-Identifier: Apache-2.0
#include "kernels/linear/linear.h"

#include <cstring>
#include <string>

#include "base/check.h"
#include "kernels/half.h"
#include "kernels/k_quants.h"
#include "kernels/linear/linear_internal.h"

namespace pagewise::kernels {
namespace {

// One row of a matrix into its lane of a panel: `blocks` of 32 values from `row` on.
void pack_q4_1(const uint8_t* row, std::size_t blocks, std::size_t lane, uint8_t* panel) {
  for (std::size_t b = 0; b < blocks; ++b, row += 20, panel += kQ4BlockBytes) {
    std::memcpy(panel + 2 * lane, row, 2);           // scale
    std::memcpy(panel + 32 + 2 * lane, row + 2, 2);  // minimum
    for (std::size_t j = 0; j < 4; ++j)
      std::memcpy(panel + 64 + 64 * j + 4 * lane, row + 4 + 4 * j, 4);
  }
}

void pack_q5_0(const uint8_t* row, std::size_t blocks, std::size_t lane, uint8_t* panel) {
  for (std::size_t b = 0; b < blocks; ++b, row += 22) {
    uint8_t* pair = panel + b / 2 * kQ5PairBytes;
    std::memcpy(pair + b % 2 * 2 * kPanelOutputs + 2 * lane, row, 2);
    uint32_t bits;
    std::memcpy(&bits, row + 2, sizeof(bits));
    uint8_t* high = pair + 64 + b % 2 * kQ5BlockBytes;
    for (std::size_t k = 0; k < kQuantBlock; ++k) {
      high[4 * lane + k % 4] =
          static_cast<uint8_t>(high[4 * lane + k % 4] | ((bits >> k & 1) << (k / 4)));
    }
    for (std::size_t j = 0; j < 4; ++j)
      std::memcpy(high + 64 + 64 * j + 4 * lane, row + 6 + 4 * j, 4);
  }
}

void pack_q8_0(const uint8_t* row, std::size_t blocks, std::size_t lane, uint8_t* panel) {
  for (std::size_t b = 0; b < blocks; ++b, row += 34) {
    uint8_t* pair = panel + b / 2 * kQ8PairBytes;
    std::memcpy(pair + b % 2 * 2 * kPanelOutputs + 2 * lane, row, 2);
    uint8_t* quants = pair + 64 + b % 2 * kQ8BlockBytes;
    for (std::size_t j = 0; j < kQuantBlock / 4; ++j) {
      uint32_t four;
      std::memcpy(&four, row + 2 + 4 * j, sizeof(four));
      four ^= 0x80808080U;  // quant + 128
      std::memcpy(quants + 64 * j + 4 * lane, &four, sizeof(four));
    }
  }
}

void put_nibble(std::size_t k, uint8_t code, std::size_t lane, uint8_t* nibbles) {
  uint8_t& byte = nibbles[64 * (k % 16 / 4) + 4 * lane + k % 4];
  byte = static_cast<uint8_t>(byte | (code & 15) << (k / 16 * 4));
}

void pack_q4_k(const uint8_t* row, std::size_t blocks, std::size_t lane, uint8_t* panel) {
  for (std::size_t b = 0; b < blocks; b += kSuperBlocks, row += 144, panel += kQ4KSuperBytes) {
    std::memcpy(panel + 2 * lane, row, 2);
    std::memcpy(panel + 32 + 2 * lane, row + 2, 2);
    for (std::size_t i = 0; i < kSuperBlocks; ++i) {
      const ScaleMin sm = scale_min_k(row + 4, static_cast<int>(i));
      panel[64 + 32 * i + lane] = static_cast<uint8_t>(sm.scale);
      panel[64 + 32 * i + 16 + lane] = static_cast<uint8_t>(sm.min);
      for (std::size_t k = 0; k < kQuantBlock; ++k) {
        put_nibble(k, q4_k_code(row, kQuantBlock * i + k), lane,
                   panel + kKScaleBytes + i * kNibbleBytes);
      }
    }
  }
}

void pack_q6_k(const uint8_t* row, std::size_t blocks, std::size_t lane, uint8_t* panel) {
  for (std::size_t b = 0; b < blocks; b += kSuperBlocks, row += 210, panel += kQ6KSuperBytes) {
    std::memcpy(panel + 2 * lane, row + 208, 2);
    for (std::size_t i = 0; i < kSuperBlocks; ++i) {
      panel[64 + 32 * i + lane] = row[192 + 2 * i];
      panel[64 + 32 * i + 16 + lane] = row[192 + 2 * i + 1];
      uint8_t* high = panel + kKScaleBytes + i * kQ6KBlockBytes;
      for (std::size_t k = 0; k < kQuantBlock; ++k) {
        const uint8_t code = q6_k_code(row, kQuantBlock * i + k);
        put_nibble(k, code, lane, high + 128);
        uint8_t& byte = high[64 * (k / 16) + 4 * lane + k % 4];
        byte = static_cast<uint8_t>(byte | (code >> 4) << (2 * (k % 16 / 4)));
      }
    }
  }
}

// The values back, as to_float.cc computes them.
float half_at(const uint8_t* p) {
  uint16_t half;
  std::memcpy(&half, p, sizeof(half));
  return half_to_float(half);
}

int nibble_at(const uint8_t* nibbles, std::size_t lane, std::size_t k) {
  return (nibbles[64 * (k % 16 / 4) + 4 * lane + k % 4] >> (k / 16 * 4)) & 15;
}

void unpack_q4_1(const uint8_t* panel, std::size_t b, std::size_t lane, float* out) {
  panel += b * kQ4BlockBytes;
  const float d = half_at(panel + 2 * lane);
  const float m = half_at(panel + 32 + 2 * lane);
  for (std::size_t k = 0; k < kQuantBlock; ++k)
    out[k] = d * static_cast<float>(nibble_at(panel + 64, lane, k)) + m;
}

void unpack_q5_0(const uint8_t* panel, std::size_t b, std::size_t lane, float* out) {
  const uint8_t* pair = panel + b / 2 * kQ5PairBytes;
  const float d = half_at(pair + b % 2 * 2 * kPanelOutputs + 2 * lane);
  const uint8_t* high = pair + 64 + b % 2 * kQ5BlockBytes;
  for (std::size_t k = 0; k < kQuantBlock; ++k) {
    const int bit = (high[4 * lane + k % 4] >> (k / 4)) & 1;
    out[k] = d * static_cast<float>((nibble_at(high + 64, lane, k) | bit << 4) - 16);
  }
}

void unpack_q8_0(const uint8_t* panel, std::size_t b, std::size_t lane, float* out) {
  const uint8_t* pair = panel + b / 2 * kQ8PairBytes;
  const float d = half_at(pair + b % 2 * 2 * kPanelOutputs + 2 * lane);
  const uint8_t* quants = pair + 64 + b % 2 * kQ8BlockBytes + 4 * lane;
  for (std::size_t k = 0; k < kQuantBlock; ++k) {
    const int value = quants[64 * (k / 4) + k % 4] - 128;
    out[k] = d * static_cast<float>(value);
  }
}

void unpack_q4_k(const uint8_t* panel, std::size_t b, std::size_t lane, float* out) {
  const uint8_t* super = panel + b / kSuperBlocks * kQ4KSuperBytes;
  const std::size_t i = b % kSuperBlocks;
  const float dl = half_at(super + 2 * lane) * static_cast<float>(super[64 + 32 * i + lane]);
  const float ml =
      half_at(super + 32 + 2 * lane) * static_cast<float>(super[64 + 32 * i + 16 + lane]);
  for (std::size_t k = 0; k < kQuantBlock; ++k) {
    const int code = nibble_at(super + kKScaleBytes + i * kNibbleBytes, lane, k);
    out[k] = dl * static_cast<float>(code) - ml;
  }
}

void unpack_q6_k(const uint8_t* panel, std::size_t b, std::size_t lane, float* out) {
  const uint8_t* super = panel + b / kSuperBlocks * kQ6KSuperBytes;
  const std::size_t i = b % kSuperBlocks;
  const uint8_t* high = super + kKScaleBytes + i * kQ6KBlockBytes;
  for (std::size_t k = 0; k < kQuantBlock; ++k) {
    const auto scale = static_cast<int8_t>(super[64 + 32 * i + 16 * (k / 16) + lane]);
    const int pair = (high[64 * (k / 16) + 4 * lane + k % 4] >> (2 * (k % 16 / 4))) & 3;
    const int value = (nibble_at(high + 128, lane, k) | pair << 4) - 32;
    out[k] = half_at(super + 2 * lane) * static_cast<float>(scale) * static_cast<float>(value);
  }
}

/// How a type of the integer family stands in panels.
struct Packing {
  TensorType type;
  std::size_t unit_blocks;  // blocks of 32 that share a unit of the panel
  std::size_t unit_bytes;
  void (*pack)(const uint8_t* row, std::size_t blocks, std::size_t lane, uint8_t* panel);
  void (*unpack)(const uint8_t* panel, std::size_t b, std::size_t lane, float* out);
};
constexpr Packing kPackings[] = {
    {TensorType::kQ4_1, 1, kQ4BlockBytes, pack_q4_1, unpack_q4_1},
    {TensorType::kQ5_0, 2, kQ5PairBytes, pack_q5_0, unpack_q5_0},
    {TensorType::kQ8_0, 2, kQ8PairBytes, pack_q8_0, unpack_q8_0},
    {TensorType::kQ4_K, kSuperBlocks, kQ4KSuperBytes, pack_q4_k, unpack_q4_k},
    {TensorType::kQ6_K, kSuperBlocks, kQ6KSuperBytes, pack_q6_k, unpack_q6_k},
};

const Packing* find_packing(TensorType type) {
  for (const Packing& packing : kPackings) {
    if (packing.type == type) return &packing;
  }
  return nullptr;
}

}  // namespace

LinearFamily linear_family(TensorType type) {
  return find_packing(type) != nullptr ? LinearFamily::kInteger : LinearFamily::kF32;
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
  const Packing& packing = *find_packing(type);
  const std::size_t blocks = columns / kQuantBlock;
  weights.panel_bytes_ =
      (blocks + packing.unit_blocks - 1) / packing.unit_blocks * packing.unit_bytes;
  weights.packed_ = AlignedArray<uint8_t>(weights.panels() * weights.panel_bytes_);
  const auto* row = reinterpret_cast<const uint8_t*>(data.data());
  for (std::size_t o = 0; o < outputs; ++o, row += weights.raw_row_bytes_) {
    uint8_t* panel = weights.packed_.data() + o / kPanelOutputs * weights.panel_bytes_;
    packing.pack(row, blocks, o % kPanelOutputs, panel);
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
  for (std::size_t b = 0; b < columns_ / kQuantBlock; ++b)
    packing->unpack(panel(o / kPanelOutputs), b, o % kPanelOutputs, out + b * kQuantBlock);
}

void linear(const LinearWeights& weights, const Activations& activations, Range rows, Range panels,
            float* out, std::size_t out_stride) {
  PW_CHECK(activations.columns() == weights.columns());
  PW_CHECK(rows.end <= activations.rows() && panels.end <= weights.panels());
  const auto run = weights.family() == LinearFamily::kInteger ? run_linear_integer : run_linear_f32;
  run(weights, activations, rows, panels, out, out_stride);
}

}  // namespace pagewise::kernels
