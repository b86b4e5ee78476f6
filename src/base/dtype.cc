// SPDX-License-Identifier: Apache-2.0
#include "base/dtype.h"

#include "base/check.h"

namespace pagewise {
namespace {

// Block sizes as the GGUF specification and ggml's common header define them.
constexpr TensorTypeInfo kTypes[] = {
    {TensorType::kF32, "F32", 1, 4},
    {TensorType::kF16, "F16", 1, 2},
    {TensorType::kQ4_0, "Q4_0", 32, 18},
    {TensorType::kQ4_1, "Q4_1", 32, 20},
    {TensorType::kQ5_0, "Q5_0", 32, 22},
    {TensorType::kQ5_1, "Q5_1", 32, 24},
    {TensorType::kQ8_0, "Q8_0", 32, 34},
    {TensorType::kQ8_1, "Q8_1", 32, 36},
    {TensorType::kQ2_K, "Q2_K", 256, 84},
    {TensorType::kQ3_K, "Q3_K", 256, 110},
    {TensorType::kQ4_K, "Q4_K", 256, 144},
    {TensorType::kQ5_K, "Q5_K", 256, 176},
    {TensorType::kQ6_K, "Q6_K", 256, 210},
    {TensorType::kQ8_K, "Q8_K", 256, 292},
    {TensorType::kIQ2_XXS, "IQ2_XXS", 256, 66},
    {TensorType::kIQ2_XS, "IQ2_XS", 256, 74},
    {TensorType::kIQ3_XXS, "IQ3_XXS", 256, 98},
    {TensorType::kIQ1_S, "IQ1_S", 256, 50},
    {TensorType::kIQ4_NL, "IQ4_NL", 32, 18},
    {TensorType::kIQ3_S, "IQ3_S", 256, 110},
    {TensorType::kIQ2_S, "IQ2_S", 256, 82},
    {TensorType::kIQ4_XS, "IQ4_XS", 256, 136},
    {TensorType::kI8, "I8", 1, 1},
    {TensorType::kI16, "I16", 1, 2},
    {TensorType::kI32, "I32", 1, 4},
    {TensorType::kI64, "I64", 1, 8},
    {TensorType::kF64, "F64", 1, 8},
    {TensorType::kIQ1_M, "IQ1_M", 256, 56},
    {TensorType::kBF16, "BF16", 1, 2},
    {TensorType::kTQ1_0, "TQ1_0", 256, 54},
    {TensorType::kTQ2_0, "TQ2_0", 256, 66},
    {TensorType::kMXFP4, "MXFP4", 32, 17},
    {TensorType::kNVFP4, "NVFP4", 64, 36},
};

}  // namespace

const TensorTypeInfo* tensor_type_info(TensorType type) {
  for (const TensorTypeInfo& info : kTypes) {
    if (info.type == type) return &info;
  }
  return nullptr;
}

std::string_view kv_type_name(KvType type) {
  switch (type) {
    case KvType::kF16:
      return "f16";
    case KvType::kBF16:
      return "bf16";
    case KvType::kF32:
      return "f32";
    case KvType::kQ8_0:
      return "q8_0";
  }
  return "?";
}

std::optional<KvType> parse_kv_type(std::string_view name) {
  for (KvType type : {KvType::kF16, KvType::kBF16, KvType::kF32, KvType::kQ8_0}) {
    if (kv_type_name(type) == name) return type;
  }
  return std::nullopt;
}

uint64_t kv_element_bytes(KvType type) {
  switch (type) {
    case KvType::kF16:
    case KvType::kBF16:
      return 2;
    case KvType::kF32:
      return 4;
    case KvType::kQ8_0:
      return 1;
  }
  return 0;
}

uint64_t kv_row_bytes(KvType type, uint64_t elements) {
  const uint64_t bytes = elements * kv_element_bytes(type);
  if (type != KvType::kQ8_0) return bytes;
  PW_CHECK(elements % kKvScaleGroup == 0);
  return bytes + elements / kKvScaleGroup * sizeof(uint16_t);
}

}  // namespace pagewise
