// SPDX-License-Identifier: Apache-2.0
#include "planner/kv_format.h"

#include <fmt/format.h>

#include "base/check.h"

namespace pagewise::planner {
namespace {

constexpr KvFormat kFormats[] = {
    {"f16", TensorType::kF16, KvType::kF16, true},
    {"bf16", TensorType::kBF16, KvType::kBF16, true},
    {"f32", TensorType::kF32, KvType::kF32, true},
    {"q8_0", TensorType::kQ8_0, KvType::kQ8_0, true},
    {"q5_1", TensorType::kQ5_1, std::nullopt, false},
    {"q5_0", TensorType::kQ5_0, std::nullopt, false},
    {"q4_1", TensorType::kQ4_1, std::nullopt, false},
    {"q4_0", TensorType::kQ4_0, std::nullopt, false},
    {"iq4_nl", TensorType::kIQ4_NL, std::nullopt, false},
};

}  // namespace

std::span<const KvFormat> kv_formats() { return kFormats; }

std::string kv_format_names() {
  std::string names;
  for (const KvFormat& format : kFormats) {
    if (!names.empty()) names += ", ";
    names += format.name;
  }
  return names;
}

const KvFormat* find_kv_format(std::string_view name) {
  for (const KvFormat& format : kFormats) {
    if (format.name == name) return &format;
  }
  return nullptr;
}

Result<uint64_t> kv_format_row_bytes(const KvFormat& format, uint64_t elements) {
  const TensorTypeInfo* info = tensor_type_info(format.type);
  PW_CHECK(info != nullptr);
  if (elements % info->block_elements != 0) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("KV type {} packs {} values together, which does not divide a head of {}",
                    format.name, info->block_elements, elements)};
  }
  // What the cache knows is counted by its own function.
  if (format.kv_type) return kv_row_bytes(*format.kv_type, elements);
  return elements / info->block_elements * info->block_bytes;
}

}  // namespace pagewise::planner
