// SPDX-License-Identifier: Apache-2.0
#include "kernels/to_float.h"

#include <cstring>
#include <string>

#ifdef PAGEWISE_GGML
#include <ggml.h>
#endif

#include "base/check.h"
#include "kernels/half.h"
#include "kernels/k_quants.h"
#include "kernels/ops.h"

namespace pagewise::kernels {
namespace {

// Formats as the GGUF ecosystem defines them: a row is a sequence of blocks; multi-byte fields are
// little-endian and unaligned. `b` below is the block, `y` its decoded values.

float half_at(const uint8_t* bytes) {
  uint16_t half;
  std::memcpy(&half, bytes, sizeof(half));
  return half_to_float(half);
}

template <int kElements, int kBytes, void (*kDecode)(const uint8_t* b, float* y)>
void decode_row(const void* row, float* out, int64_t elements) {
  const auto* block = static_cast<const uint8_t*>(row);
  for (int64_t i = 0; i < elements; i += kElements, block += kBytes) kDecode(block, out + i);
}

void row_f32(const void* row, float* out, int64_t elements) {
  std::memcpy(out, row, static_cast<std::size_t>(elements) * sizeof(float));
}

// 16-bit rows may be unaligned in a file; the vector conversions load unaligned.
void row_f16(const void* row, float* out, int64_t elements) {
  f16_to_f32(static_cast<const uint16_t*>(row), static_cast<std::size_t>(elements), out);
}

void row_bf16(const void* row, float* out, int64_t elements) {
  bf16_to_f32(static_cast<const uint16_t*>(row), static_cast<std::size_t>(elements), out);
}

// Blocks of 32. Low nibbles are values 0..15, high nibbles 16..31.
void block_q4_0(const uint8_t* b, float* y) {
  const float d = half_at(b);
  for (int i = 0; i < 16; ++i) {
    y[i] = static_cast<float>((b[2 + i] & 15) - 8) * d;
    y[i + 16] = static_cast<float>((b[2 + i] >> 4) - 8) * d;
  }
}

void block_q4_1(const uint8_t* b, float* y) {
  const float d = half_at(b);
  const float m = half_at(b + 2);
  for (int i = 0; i < 16; ++i) {
    y[i] = static_cast<float>(b[4 + i] & 15) * d + m;
    y[i + 16] = static_cast<float>(b[4 + i] >> 4) * d + m;
  }
}

// The fifth bit of value i is bit i of a 32-bit field.
int fifth_bit(const uint8_t* high, int i) { return ((high[i / 8] >> (i % 8)) & 1) << 4; }

void block_q5_0(const uint8_t* b, float* y) {
  const float d = half_at(b);
  for (int i = 0; i < 16; ++i) {
    y[i] = static_cast<float>(((b[6 + i] & 15) | fifth_bit(b + 2, i)) - 16) * d;
    y[i + 16] = static_cast<float>(((b[6 + i] >> 4) | fifth_bit(b + 2, i + 16)) - 16) * d;
  }
}

void block_q5_1(const uint8_t* b, float* y) {
  const float d = half_at(b);
  const float m = half_at(b + 2);
  for (int i = 0; i < 16; ++i) {
    y[i] = static_cast<float>((b[8 + i] & 15) | fifth_bit(b + 4, i)) * d + m;
    y[i + 16] = static_cast<float>((b[8 + i] >> 4) | fifth_bit(b + 4, i + 16)) * d + m;
  }
}

void block_q8_0(const uint8_t* b, float* y) {
  const float d = half_at(b);
  for (int i = 0; i < 32; ++i) y[i] = static_cast<float>(static_cast<int8_t>(b[2 + i])) * d;
}

void block_iq4_nl(const uint8_t* b, float* y) {
  const float d = half_at(b);
  for (int i = 0; i < 16; ++i) {
    y[i] = d * static_cast<float>(kIq4NlValues[b[2 + i] & 15]);
    y[i + 16] = d * static_cast<float>(kIq4NlValues[b[2 + i] >> 4]);
  }
}

void block_mxfp4(const uint8_t* b, float* y) {
  const float d = mxfp4_scale(b[0]);
  for (int i = 0; i < 16; ++i) {
    y[i] = d * static_cast<float>(kMxfp4Values[b[1 + i] & 15]);
    y[i + 16] = d * static_cast<float>(kMxfp4Values[b[1 + i] >> 4]);
  }
}

// Super-blocks of 256 with small integer scales for 16 or 32 values each.
void block_q2_k(const uint8_t* b, float* y) {
  const uint8_t* scales = b;
  const uint8_t* quants = b + 16;
  const float d = half_at(b + 80);
  const float dmin = half_at(b + 82);
  for (int group = 0; group < 16; ++group) {  // 16 values each
    const int half = group / 8;
    const int shift = group % 8 / 2 * 2;
    const uint8_t* q = quants + 32 * half + 16 * (group % 2);
    const float dl = d * static_cast<float>(scales[group] & 15);
    const float ml = dmin * static_cast<float>(scales[group] >> 4);
    for (int i = 0; i < 16; ++i)
      y[16 * group + i] = dl * static_cast<float>((q[i] >> shift) & 3) - ml;
  }
}

void block_q3_k(const uint8_t* b, float* y) {
  const uint8_t* high = b;
  const uint8_t* quants = b + 32;
  const uint8_t* packed = b + 96;
  const float d = half_at(b + 108);
  for (int group = 0; group < 16; ++group) {
    const int low4 = group < 8 ? packed[group] & 15 : packed[group - 8] >> 4;
    const int high2 = (packed[8 + group % 4] >> (2 * (group / 4))) & 3;
    const float dl = d * static_cast<float>((low4 | (high2 << 4)) - 32);
    const int half = group / 8;
    const int pair = group % 8 / 2;
    const uint8_t* q = quants + 32 * half + 16 * (group % 2);
    const uint8_t* h = high + 16 * (group % 2);
    const int bit = 4 * half + pair;
    for (int i = 0; i < 16; ++i) {
      const int value = ((q[i] >> (2 * pair)) & 3) - (((h[i] >> bit) & 1) != 0 ? 0 : 4);
      y[16 * group + i] = dl * static_cast<float>(value);
    }
  }
}

void block_q4_k(const uint8_t* b, float* y) {
  const float d = half_at(b);
  const float dmin = half_at(b + 2);
  for (int group = 0; group < 8; ++group) {  // 32 values each
    const ScaleMin sm = scale_min_k(b + 4, group);
    const float dl = d * static_cast<float>(sm.scale);
    const float ml = dmin * static_cast<float>(sm.min);
    const uint8_t* q = b + 16 + 32 * (group / 2);
    const int shift = 4 * (group % 2);
    for (int i = 0; i < 32; ++i)
      y[32 * group + i] = dl * static_cast<float>((q[i] >> shift) & 15) - ml;
  }
}

void block_q5_k(const uint8_t* b, float* y) {
  const float d = half_at(b);
  const float dmin = half_at(b + 2);
  const uint8_t* high = b + 16;
  for (int group = 0; group < 8; ++group) {
    const ScaleMin sm = scale_min_k(b + 4, group);
    const float dl = d * static_cast<float>(sm.scale);
    const float ml = dmin * static_cast<float>(sm.min);
    const uint8_t* q = b + 48 + 32 * (group / 2);
    const int shift = 4 * (group % 2);
    for (int i = 0; i < 32; ++i) {
      const int value = ((q[i] >> shift) & 15) | (((high[i] >> group) & 1) << 4);
      y[32 * group + i] = dl * static_cast<float>(value) - ml;
    }
  }
}

void block_q6_k(const uint8_t* b, float* y) {
  const auto* scales = reinterpret_cast<const int8_t*>(b + 192);
  const float d = half_at(b + 208);
  for (int half = 0; half < 2; ++half) {
    const uint8_t* low = b + 64 * half;
    const uint8_t* high = b + 128 + 32 * half;
    for (int quarter = 0; quarter < 4; ++quarter) {  // 32 values each
      for (int i = 0; i < 32; ++i) {
        const int low4 = (low[i + 32 * (quarter % 2)] >> (4 * (quarter / 2))) & 15;
        const int value = (low4 | (((high[i] >> (2 * quarter)) & 3) << 4)) - 32;
        const int scale = scales[8 * half + 2 * quarter + i / 16];
        y[128 * half + 32 * quarter + i] =
            d * static_cast<float>(scale) * static_cast<float>(value);
      }
    }
  }
}

}  // namespace

ToFloat own_to_float(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return row_f32;
    case TensorType::kF16:
      return row_f16;
    case TensorType::kBF16:
      return row_bf16;
    case TensorType::kQ4_0:
      return decode_row<32, 18, block_q4_0>;
    case TensorType::kQ4_1:
      return decode_row<32, 20, block_q4_1>;
    case TensorType::kQ5_0:
      return decode_row<32, 22, block_q5_0>;
    case TensorType::kQ5_1:
      return decode_row<32, 24, block_q5_1>;
    case TensorType::kQ8_0:
      return decode_row<32, 34, block_q8_0>;
    case TensorType::kIQ4_NL:
      return decode_row<32, 18, block_iq4_nl>;
    case TensorType::kMXFP4:
      return decode_row<32, 17, block_mxfp4>;
    case TensorType::kQ2_K:
      return decode_row<256, 84, block_q2_k>;
    case TensorType::kQ3_K:
      return decode_row<256, 110, block_q3_k>;
    case TensorType::kQ4_K:
      return decode_row<256, 144, block_q4_k>;
    case TensorType::kQ5_K:
      return decode_row<256, 176, block_q5_k>;
    case TensorType::kQ6_K:
      return decode_row<256, 210, block_q6_k>;
    default:
      return nullptr;
  }
}

#ifdef PAGEWISE_GGML

ToFloat ggml_to_float(TensorType type) {
  // Numbers, block size and bytes must mean the same on both sides: an older or newer ggml may
  // differ.
  const TensorTypeInfo* info = tensor_type_info(type);
  if (info == nullptr || static_cast<uint32_t>(type) >= GGML_TYPE_COUNT) return nullptr;
  const ggml_type_traits* traits = ggml_get_type_traits(static_cast<ggml_type>(type));
  if (traits == nullptr || traits->blck_size != static_cast<int64_t>(info->block_elements) ||
      traits->type_size != info->block_bytes) {
    return nullptr;
  }
  return traits->to_float;
}

#else

ToFloat ggml_to_float(TensorType) { return nullptr; }

#endif

Result<ToFloat> find_to_float(TensorType type) {
  if (const ToFloat own = own_to_float(type)) return own;
  if (const ToFloat rare = ggml_to_float(type)) return rare;
  const TensorTypeInfo* info = tensor_type_info(type);
  std::string name = info != nullptr ? std::string(info->name)
                                     : "number " + std::to_string(static_cast<uint32_t>(type));
#ifdef PAGEWISE_GGML
  return {ErrorCode::kUnsupported,
          "tensor type " + name + " is not offered: convert the model to Q4_K, Q8_0 or F16"};
#else
  return {ErrorCode::kUnsupported,
          "tensor type " + name +
              " needs a build with ggml (PAGEWISE_GGML=ON), or convert the model to Q8_0 or F16"};
#endif
}

uint64_t row_bytes(TensorType type, uint64_t elements) {
  const TensorTypeInfo* info = tensor_type_info(type);
  PW_CHECK(info != nullptr && elements % info->block_elements == 0);
  return elements / info->block_elements * info->block_bytes;
}

}  // namespace pagewise::kernels
