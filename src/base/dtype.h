// SPDX-License-Identifier: Apache-2.0
// Element types of tensors in model files (numbers as in GGUF) and of the KV cache.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace pagewise {

/// Tensor types, numbered as GGUF files number them (ggml's enum). Gaps are types that were
/// removed.
enum class TensorType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ8_1 = 9,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kQ8_K = 15,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
  kNVFP4 = 40,
};

struct TensorTypeInfo {
  TensorType type;
  std::string_view name;    // "Q4_1"
  uint32_t block_elements;  // values per block along the row
  uint32_t block_bytes;     // bytes per block
};

/// nullptr for a number that names no type.
const TensorTypeInfo* tensor_type_info(TensorType type);

/// Element types of K and V in the cache.
enum class KvType : uint8_t { kF16, kBF16, kF32, kQ8_0 };

std::string_view kv_type_name(KvType type);
std::optional<KvType> parse_kv_type(std::string_view name);

/// Values of a row that share a scale in q8_0.
inline constexpr uint32_t kKvScaleGroup = 32;

/// Bytes of one element in its plane; q8_0's scales, f16, stand in a plane of their own behind it.
uint64_t kv_element_bytes(KvType type);

/// Bytes of one row of `elements` values. q8_0 takes 34 bytes per 32 values; elements % 32 == 0
/// there.
uint64_t kv_row_bytes(KvType type, uint64_t elements);

}  // namespace pagewise
