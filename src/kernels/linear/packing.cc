// SPDX-License-Identifier: Apache-2.0
#include "kernels/linear/packing.h"

#include <cstring>

#include "kernels/half.h"
#include "kernels/k_quants.h"
#include "kernels/linear/linear_internal.h"

namespace pagewise::kernels {
namespace {

// Into panels. Blocks hold 32 values.
void pack_q4_1(const uint8_t* row, std::size_t columns, std::size_t lane, uint8_t* panel) {
  const std::size_t blocks = columns / kQuantBlock;
  for (std::size_t b = 0; b < blocks; ++b, row += 20, panel += kQ4BlockBytes) {
    std::memcpy(panel + 2 * lane, row, 2);           // scale
    std::memcpy(panel + 32 + 2 * lane, row + 2, 2);  // minimum
    for (std::size_t j = 0; j < 4; ++j)
      std::memcpy(panel + 64 + 64 * j + 4 * lane, row + 4 + 4 * j, 4);
  }
}

void put_high_bit(std::size_t k, unsigned bit, std::size_t lane, uint8_t* high) {
  uint8_t& byte = high[4 * lane + k % 4];
  byte = static_cast<uint8_t>(byte | bit << (k / 4));
}

// Q4_0, IQ4_NL: pairs of blocks.
void pack_q4_0(const uint8_t* row, std::size_t columns, std::size_t lane, uint8_t* panel) {
  const std::size_t blocks = columns / kQuantBlock;
  for (std::size_t b = 0; b < blocks; ++b, row += 18) {
    uint8_t* pair = panel + b / 2 * kQ40PairBytes;
    std::memcpy(pair + b % 2 * 2 * kPanelOutputs + 2 * lane, row, 2);
    uint8_t* nibbles = pair + 64 + b % 2 * kNibbleBytes;
    for (std::size_t j = 0; j < 4; ++j)
      std::memcpy(nibbles + 64 * j + 4 * lane, row + 2 + 4 * j, 4);
  }
}

// High bits and nibbles of Q5_0 and Q5_1: 4 and 16 bytes at `bits`.
void pack_five_bits(const uint8_t* bits, std::size_t lane, uint8_t* high) {
  for (std::size_t k = 0; k < kQuantBlock; ++k)
    put_high_bit(k, bits[k / 8] >> (k % 8) & 1, lane, high);
  for (std::size_t j = 0; j < 4; ++j)
    std::memcpy(high + 64 + 64 * j + 4 * lane, bits + 4 + 4 * j, 4);
}

void pack_q5_0(const uint8_t* row, std::size_t columns, std::size_t lane, uint8_t* panel) {
  const std::size_t blocks = columns / kQuantBlock;
  for (std::size_t b = 0; b < blocks; ++b, row += 22) {
    uint8_t* pair = panel + b / 2 * kQ5PairBytes;
    std::memcpy(pair + b % 2 * 2 * kPanelOutputs + 2 * lane, row, 2);
    pack_five_bits(row + 2, lane, pair + 64 + b % 2 * kQ5BlockBytes);
  }
}

void pack_q5_1(const uint8_t* row, std::size_t columns, std::size_t lane, uint8_t* panel) {
  const std::size_t blocks = columns / kQuantBlock;
  for (std::size_t b = 0; b < blocks; ++b, row += 24, panel += kQ51BlockBytes) {
    std::memcpy(panel + 2 * lane, row, 2);           // scale
    std::memcpy(panel + 32 + 2 * lane, row + 2, 2);  // minimum
    pack_five_bits(row + 4, lane, panel + 64);
  }
}

void pack_q8_0(const uint8_t* row, std::size_t columns, std::size_t lane, uint8_t* panel) {
  const std::size_t blocks = columns / kQuantBlock;
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

// Q4_K and Q5_K: the latter's high bits stand in front of the nibbles.
template <std::size_t kRowBytes, std::size_t kBlockBytes,
          uint8_t (*kCode)(const uint8_t*, std::size_t)>
void pack_k_with_minima(const uint8_t* row, std::size_t columns, std::size_t lane, uint8_t* panel) {
  constexpr std::size_t kSuperBytes = kKScaleBytes + kSuperBlocks * kBlockBytes;
  for (std::size_t c = 0; c < columns; c += kSuperBlock, row += kRowBytes, panel += kSuperBytes) {
    std::memcpy(panel + 2 * lane, row, 2);
    std::memcpy(panel + 32 + 2 * lane, row + 2, 2);
    for (std::size_t i = 0; i < kSuperBlocks; ++i) {
      const ScaleMin sm = scale_min_k(row + 4, static_cast<int>(i));
      panel[64 + 32 * i + lane] = static_cast<uint8_t>(sm.scale);
      panel[64 + 32 * i + 16 + lane] = static_cast<uint8_t>(sm.min);
      uint8_t* block = panel + kKScaleBytes + i * kBlockBytes;
      for (std::size_t k = 0; k < kQuantBlock; ++k) {
        const uint8_t code = kCode(row, kQuantBlock * i + k);
        put_nibble(k, code, lane, block + kBlockBytes - kNibbleBytes);
        if (kBlockBytes > kNibbleBytes) put_high_bit(k, code >> 4, lane, block);
      }
    }
  }
}

void pack_q6_k(const uint8_t* row, std::size_t columns, std::size_t lane, uint8_t* panel) {
  const std::size_t blocks = columns / kQuantBlock;
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

void block_q4_1(const uint8_t* panel, std::size_t b, std::size_t lane, float* out) {
  panel += b * kQ4BlockBytes;
  const float d = half_at(panel + 2 * lane);
  const float m = half_at(panel + 32 + 2 * lane);
  for (std::size_t k = 0; k < kQuantBlock; ++k)
    out[k] = d * static_cast<float>(nibble_at(panel + 64, lane, k)) + m;
}

int five_bits_at(const uint8_t* high, std::size_t lane, std::size_t k) {
  return nibble_at(high + 64, lane, k) | ((high[4 * lane + k % 4] >> (k / 4)) & 1) << 4;
}

void block_q4_0(const uint8_t* panel, std::size_t b, std::size_t lane, float* out) {
  const uint8_t* pair = panel + b / 2 * kQ40PairBytes;
  const float d = half_at(pair + b % 2 * 2 * kPanelOutputs + 2 * lane);
  const uint8_t* nibbles = pair + 64 + b % 2 * kNibbleBytes;
  for (std::size_t k = 0; k < kQuantBlock; ++k)
    out[k] = d * static_cast<float>(nibble_at(nibbles, lane, k) - 8);
}

void block_iq4_nl(const uint8_t* panel, std::size_t b, std::size_t lane, float* out) {
  const uint8_t* pair = panel + b / 2 * kQ40PairBytes;
  const float d = half_at(pair + b % 2 * 2 * kPanelOutputs + 2 * lane);
  const uint8_t* nibbles = pair + 64 + b % 2 * kNibbleBytes;
  for (std::size_t k = 0; k < kQuantBlock; ++k)
    out[k] = d * static_cast<float>(kIq4NlValues[nibble_at(nibbles, lane, k)]);
}

void block_q5_0(const uint8_t* panel, std::size_t b, std::size_t lane, float* out) {
  const uint8_t* pair = panel + b / 2 * kQ5PairBytes;
  const float d = half_at(pair + b % 2 * 2 * kPanelOutputs + 2 * lane);
  const uint8_t* high = pair + 64 + b % 2 * kQ5BlockBytes;
  for (std::size_t k = 0; k < kQuantBlock; ++k)
    out[k] = d * static_cast<float>(five_bits_at(high, lane, k) - 16);
}

void block_q5_1(const uint8_t* panel, std::size_t b, std::size_t lane, float* out) {
  panel += b * kQ51BlockBytes;
  const float d = half_at(panel + 2 * lane);
  const float m = half_at(panel + 32 + 2 * lane);
  for (std::size_t k = 0; k < kQuantBlock; ++k)
    out[k] = d * static_cast<float>(five_bits_at(panel + 64, lane, k)) + m;
}

void block_q8_0(const uint8_t* panel, std::size_t b, std::size_t lane, float* out) {
  const uint8_t* pair = panel + b / 2 * kQ8PairBytes;
  const float d = half_at(pair + b % 2 * 2 * kPanelOutputs + 2 * lane);
  const uint8_t* quants = pair + 64 + b % 2 * kQ8BlockBytes + 4 * lane;
  for (std::size_t k = 0; k < kQuantBlock; ++k) {
    const int value = quants[64 * (k / 4) + k % 4] - 128;
    out[k] = d * static_cast<float>(value);
  }
}

template <std::size_t kBlockBytes>
void block_k_with_minima(const uint8_t* panel, std::size_t b, std::size_t lane, float* out) {
  const uint8_t* super = panel + b / kSuperBlocks * (kKScaleBytes + kSuperBlocks * kBlockBytes);
  const std::size_t i = b % kSuperBlocks;
  const float dl = half_at(super + 2 * lane) * static_cast<float>(super[64 + 32 * i + lane]);
  const float ml =
      half_at(super + 32 + 2 * lane) * static_cast<float>(super[64 + 32 * i + 16 + lane]);
  const uint8_t* block = super + kKScaleBytes + i * kBlockBytes;
  for (std::size_t k = 0; k < kQuantBlock; ++k) {
    const int code =
        kBlockBytes > kNibbleBytes ? five_bits_at(block, lane, k) : nibble_at(block, lane, k);
    out[k] = dl * static_cast<float>(code) - ml;
  }
}

void block_q6_k(const uint8_t* panel, std::size_t b, std::size_t lane, float* out) {
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

template <void (*kBlock)(const uint8_t* panel, std::size_t b, std::size_t lane, float* out)>
void unpack(const uint8_t* panel, std::size_t columns, std::size_t lane, float* out) {
  for (std::size_t b = 0; b < columns / kQuantBlock; ++b)
    kBlock(panel, b, lane, out + b * kQuantBlock);
}

// Plain values: 16 of one column beside each other.
template <std::size_t kBytes>
void pack_plain(const uint8_t* row, std::size_t columns, std::size_t lane, uint8_t* panel) {
  for (std::size_t k = 0; k < columns; ++k)
    std::memcpy(panel + (k * kPanelOutputs + lane) * kBytes, row + k * kBytes, kBytes);
}

template <typename Bits, float (*kToFloat)(Bits)>
void unpack_plain(const uint8_t* panel, std::size_t columns, std::size_t lane, float* out) {
  for (std::size_t k = 0; k < columns; ++k) {
    Bits bits;
    std::memcpy(&bits, panel + (k * kPanelOutputs + lane) * sizeof(Bits), sizeof(Bits));
    out[k] = kToFloat(bits);
  }
}

float same(float x) { return x; }

constexpr std::size_t kPair = 2 * kQuantBlock;
constexpr Packing kPackings[] = {
    {TensorType::kQ4_0, true, kPair, kQ40PairBytes, pack_q4_0, unpack<block_q4_0>},
    {TensorType::kQ4_1, true, kQuantBlock, kQ4BlockBytes, pack_q4_1, unpack<block_q4_1>},
    {TensorType::kQ5_0, true, kPair, kQ5PairBytes, pack_q5_0, unpack<block_q5_0>},
    {TensorType::kQ5_1, true, kQuantBlock, kQ51BlockBytes, pack_q5_1, unpack<block_q5_1>},
    {TensorType::kQ8_0, true, kPair, kQ8PairBytes, pack_q8_0, unpack<block_q8_0>},
    {TensorType::kIQ4_NL, true, kPair, kQ40PairBytes, pack_q4_0, unpack<block_iq4_nl>},
    {TensorType::kQ4_K, true, kSuperBlock, kQ4KSuperBytes,
     pack_k_with_minima<144, kNibbleBytes, q4_k_code>, unpack<block_k_with_minima<kNibbleBytes>>},
    {TensorType::kQ5_K, true, kSuperBlock, kQ5KSuperBytes,
     pack_k_with_minima<176, kQ5BlockBytes, q5_k_code>, unpack<block_k_with_minima<kQ5BlockBytes>>},
    {TensorType::kQ6_K, true, kSuperBlock, kQ6KSuperBytes, pack_q6_k, unpack<block_q6_k>},
    {TensorType::kF16, false, 1, 2 * kPanelOutputs, pack_plain<2>,
     unpack_plain<uint16_t, half_to_float>},
    {TensorType::kBF16, false, 1, 2 * kPanelOutputs, pack_plain<2>,
     unpack_plain<uint16_t, bf16_to_float>},
    {TensorType::kF32, false, 1, 4 * kPanelOutputs, pack_plain<4>, unpack_plain<float, same>},
};

}  // namespace

const Packing* find_packing(TensorType type) {
  for (const Packing& packing : kPackings) {
    if (packing.type == type) return &packing;
  }
  return nullptr;
}

}  // namespace pagewise::kernels
