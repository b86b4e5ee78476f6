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

// Four neighbouring bytes at once; values 4t..4t + 3 stand in one word of a lane, so most of
// packing is shifting and masking words.
uint32_t word_at(const uint8_t* p) {
  uint32_t word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}
void put_word(uint8_t* p, uint32_t word) { std::memcpy(p, &word, sizeof(word)); }

// Nibbles of a block whose 32 values are bits [shift, shift + 4) of as many bytes.
void put_nibbles(const uint8_t* codes, unsigned shift, std::size_t lane, uint8_t* nibbles) {
  constexpr uint32_t kLow = 0x0f0f0f0f;
  for (std::size_t j = 0; j < 4; ++j) {
    const uint32_t low = word_at(codes + 4 * j) >> shift & kLow;
    const uint32_t high = word_at(codes + 16 + 4 * j) >> shift & kLow;
    put_word(nibbles + 64 * j + 4 * lane, low | high << 4);
  }
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

void pack_mxfp4(const uint8_t* row, std::size_t columns, std::size_t lane, uint8_t* panel) {
  const std::size_t blocks = columns / kQuantBlock;
  for (std::size_t b = 0; b < blocks; ++b, row += 17) {
    uint8_t* unit = panel + b / kMxfp4Blocks * kMxfp4UnitBytes;
    unit[b % kMxfp4Blocks * kPanelOutputs + lane] = row[0];
    uint8_t* nibbles = unit + 64 + b % kMxfp4Blocks * kNibbleBytes;
    for (std::size_t j = 0; j < 4; ++j)
      std::memcpy(nibbles + 64 * j + 4 * lane, row + 1 + 4 * j, 4);
  }
}

// High bits and nibbles of Q5_0 and Q5_1: 4 and 16 bytes at `bits`.
void pack_five_bits(const uint8_t* bits, std::size_t lane, uint8_t* high) {
  const uint32_t field = word_at(bits);
  uint32_t word = 0;
  for (unsigned t = 0; t < 8; ++t) {
    // Bits 4t..4t + 3 to bit t of a byte each: times 2^0 + 2^7 + 2^14 + 2^21 puts bit i at 8i.
    word |= ((field >> (4 * t) & 15) * 0x00204081U & 0x01010101U) << t;
  }
  put_word(high + 4 * lane, word);
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

// Q4_K and Q5_K: the latter's fifth bits stand in front of the nibbles, in a row and in a panel.
template <bool kFiveBits>
void pack_k_with_minima(const uint8_t* row, std::size_t columns, std::size_t lane, uint8_t* panel) {
  constexpr std::size_t kRowBytes = kFiveBits ? 176 : 144;
  constexpr std::size_t kBlockBytes = kFiveBits ? kQ5BlockBytes : kNibbleBytes;
  constexpr std::size_t kSuperBytes = kKScaleBytes + kSuperBlocks * kBlockBytes;
  for (std::size_t c = 0; c < columns; c += kSuperBlock, row += kRowBytes, panel += kSuperBytes) {
    std::memcpy(panel + 2 * lane, row, 2);
    std::memcpy(panel + 32 + 2 * lane, row + 2, 2);
    for (unsigned i = 0; i < kSuperBlocks; ++i) {
      const ScaleMin sm = scale_min_k(row + 4, static_cast<int>(i));
      panel[64 + 32 * i + lane] = static_cast<uint8_t>(sm.scale);
      panel[64 + 32 * i + 16 + lane] = static_cast<uint8_t>(sm.min);
      uint8_t* block = panel + kKScaleBytes + i * kBlockBytes;
      put_nibbles(row + kRowBytes - 128 + i / 2 * 32, 4 * (i % 2), lane,
                  block + kBlockBytes - kNibbleBytes);
      if constexpr (kFiveBits) {
        uint32_t word = 0;
        for (unsigned t = 0; t < 8; ++t)
          word |= (word_at(row + 16 + 4 * t) >> i & 0x01010101U) << t;
        put_word(block + 4 * lane, word);
      }
    }
  }
}

void pack_q6_k(const uint8_t* row, std::size_t columns, std::size_t lane, uint8_t* panel) {
  for (std::size_t c = 0; c < columns; c += kSuperBlock, row += 210, panel += kQ6KSuperBytes) {
    std::memcpy(panel + 2 * lane, row + 208, 2);
    for (unsigned i = 0; i < kSuperBlocks; ++i) {
      panel[64 + 32 * i + lane] = row[192 + 2 * i];
      panel[64 + 32 * i + 16 + lane] = row[192 + 2 * i + 1];
      uint8_t* high = panel + kKScaleBytes + i * kQ6KBlockBytes;
      const unsigned quarter = i % 4;  // of 128 values that share bytes
      put_nibbles(row + i / 4 * 64 + quarter % 2 * 32, quarter / 2 * 4, lane, high + 128);
      const uint8_t* pairs = row + 128 + i / 4 * 32;
      for (unsigned half = 0; half < 2; ++half) {
        uint32_t word = 0;
        for (unsigned t = 0; t < 4; ++t) {
          word |= (word_at(pairs + 16 * half + 4 * t) >> (2 * quarter) & 0x03030303U) << (2 * t);
        }
        put_word(high + 64 * half + 4 * lane, word);
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

int five_bits_at(const uint8_t* high, std::size_t lane, std::size_t k) {
  return nibble_at(high + 64, lane, k) | ((high[4 * lane + k % 4] >> (k / 4)) & 1) << 4;
}

// Value k of a block without its scale, from where the lane's codes stand.
int value_q4_0(const uint8_t* codes, std::size_t lane, std::size_t k) {
  return nibble_at(codes, lane, k) - 8;
}
int value_iq4_nl(const uint8_t* codes, std::size_t lane, std::size_t k) {
  return kIq4NlValues[nibble_at(codes, lane, k)];
}
int value_q5_0(const uint8_t* codes, std::size_t lane, std::size_t k) {
  return five_bits_at(codes, lane, k) - 16;
}
int value_q8_0(const uint8_t* codes, std::size_t lane, std::size_t k) {
  return codes[64 * (k / 4) + 4 * lane + k % 4] - 128;
}

// Panels of pairs of blocks: both scales, then the codes of one and of the other.
template <std::size_t kCodeBytes,
          int (*kValue)(const uint8_t* codes, std::size_t lane, std::size_t k)>
void block_of_pair(const uint8_t* panel, std::size_t b, std::size_t lane, float* out) {
  const uint8_t* pair = panel + b / 2 * (64 + 2 * kCodeBytes);
  const float d = half_at(pair + b % 2 * 2 * kPanelOutputs + 2 * lane);
  const uint8_t* codes = pair + 64 + b % 2 * kCodeBytes;
  for (std::size_t k = 0; k < kQuantBlock; ++k)
    out[k] = d * static_cast<float>(kValue(codes, lane, k));
}

void block_mxfp4(const uint8_t* panel, std::size_t b, std::size_t lane, float* out) {
  const uint8_t* unit = panel + b / kMxfp4Blocks * kMxfp4UnitBytes;
  const float d = mxfp4_scale(unit[b % kMxfp4Blocks * kPanelOutputs + lane]);
  const uint8_t* nibbles = unit + 64 + b % kMxfp4Blocks * kNibbleBytes;
  for (std::size_t k = 0; k < kQuantBlock; ++k)
    out[k] = d * static_cast<float>(kMxfp4Values[nibble_at(nibbles, lane, k)]);
}

// Panels of single blocks: scale, minimum, codes.
template <std::size_t kCodeBytes,
          int (*kCode)(const uint8_t* codes, std::size_t lane, std::size_t k)>
void block_with_minimum(const uint8_t* panel, std::size_t b, std::size_t lane, float* out) {
  panel += b * (64 + kCodeBytes);
  const float d = half_at(panel + 2 * lane);
  const float m = half_at(panel + 32 + 2 * lane);
  for (std::size_t k = 0; k < kQuantBlock; ++k)
    out[k] = d * static_cast<float>(kCode(panel + 64, lane, k)) + m;
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
    {TensorType::kQ4_0, true, kPair, kQ40PairBytes, pack_q4_0,
     unpack<block_of_pair<kNibbleBytes, value_q4_0>>},
    {TensorType::kQ4_1, true, kQuantBlock, kQ4BlockBytes, pack_q4_1,
     unpack<block_with_minimum<kNibbleBytes, nibble_at>>},
    {TensorType::kQ5_0, true, kPair, kQ5PairBytes, pack_q5_0,
     unpack<block_of_pair<kQ5BlockBytes, value_q5_0>>},
    {TensorType::kQ5_1, true, kQuantBlock, kQ51BlockBytes, pack_q5_1,
     unpack<block_with_minimum<kQ5BlockBytes, five_bits_at>>},
    {TensorType::kQ8_0, true, kPair, kQ8PairBytes, pack_q8_0,
     unpack<block_of_pair<kQ8BlockBytes, value_q8_0>>},
    {TensorType::kIQ4_NL, true, kPair, kQ40PairBytes, pack_q4_0,
     unpack<block_of_pair<kNibbleBytes, value_iq4_nl>>},
    {TensorType::kMXFP4, true, kMxfp4Blocks* kQuantBlock, kMxfp4UnitBytes, pack_mxfp4,
     unpack<block_mxfp4>},
    {TensorType::kQ4_K, true, kSuperBlock, kQ4KSuperBytes, pack_k_with_minima<false>,
     unpack<block_k_with_minima<kNibbleBytes>>},
    {TensorType::kQ5_K, true, kSuperBlock, kQ5KSuperBytes, pack_k_with_minima<true>,
     unpack<block_k_with_minima<kQ5BlockBytes>>},
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
