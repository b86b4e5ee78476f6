// SPDX-License-Identifier: Apache-2.0
#include "kernels/paged_view.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/check.h"
#include "kernels/half.h"
#include "kernels/ops.h"

namespace pagewise::kernels {
namespace {

// `n` values converted to `type` at `out`.
void convert_row(KvType type, const float* x, std::size_t n, std::byte* out) {
  switch (type) {
    case KvType::kF16:
      f32_to_f16(x, n, reinterpret_cast<uint16_t*>(out));
      return;
    case KvType::kBF16:
      f32_to_bf16(x, n, reinterpret_cast<uint16_t*>(out));
      return;
    case KvType::kF32:
      std::memcpy(out, x, n * sizeof(float));
      return;
    case KvType::kQ8_0:
      break;
  }
  PW_CHECK(false);
}

template <typename Element>
void scatter(const std::byte* converted, std::size_t n, std::byte* first, std::size_t stride) {
  const auto* from = reinterpret_cast<const Element*>(converted);
  auto* to = reinterpret_cast<Element*>(first);
  for (std::size_t i = 0; i < n; ++i) to[i * stride] = from[i];
}

float load_value(KvType type, const std::byte* base, std::size_t index) {
  if (type == KvType::kF32) {
    float value;
    std::memcpy(&value, base + 4 * index, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, base + 2 * index, sizeof(bits));
  return type == KvType::kF16 ? half_to_float(bits) : bf16_to_float(bits);
}

}  // namespace

Status check_kv_type(KvType type) {
  if (type != KvType::kQ8_0) return Status::ok();
  return {ErrorCode::kUnsupported,
          "KV type " + std::string(kv_type_name(type)) +
              " is not offered by this executor yet: use f16, bf16 or f32"};
}

void store_kv(const PagedLayer& layer, const PagedRun& run, Range rows, const float* k,
              std::size_t k_stride, const float* v, std::size_t v_stride) {
  constexpr std::size_t kPart = 64;  // values of K converted at once before they are scattered
  const bool wide = layer.key_type == KvType::kF32;
  const std::size_t element = wide ? 4 : 2;
  const std::size_t value_bytes = kv_row_bytes(layer.value_type, layer.value_dim);
  for (std::size_t i = rows.begin; i < rows.end; ++i) {
    const std::size_t position = run.position + i;
    const BlockId block = run.blocks[position / layer.block_tokens];
    const std::size_t slot = position % layer.block_tokens;
    for (std::size_t h = 0; h < layer.kv_heads; ++h) {
      std::byte* key = layer.key(block, h) + slot * element;
      const float* k_head = k + i * k_stride + h * layer.key_dim;
      for (std::size_t d = 0; d < layer.key_dim; d += kPart) {
        const std::size_t count = std::min<std::size_t>(kPart, layer.key_dim - d);
        alignas(64) std::byte converted[kPart * sizeof(float)];
        convert_row(layer.key_type, k_head + d, count, converted);
        std::byte* first = key + d * layer.block_tokens * element;
        (wide ? scatter<uint32_t> : scatter<uint16_t>)(converted, count, first, layer.block_tokens);
      }
      convert_row(layer.value_type, v + i * v_stride + h * layer.value_dim, layer.value_dim,
                  layer.value(block, h) + slot * value_bytes);
    }
  }
}

void load_kv(const PagedLayer& layer, std::span<const BlockId> blocks, uint32_t position,
             std::size_t kv_head, float* k, float* v) {
  const BlockId block = blocks[position / layer.block_tokens];
  const std::size_t slot = position % layer.block_tokens;
  for (std::size_t d = 0; d < layer.key_dim; ++d) {
    k[d] = load_value(layer.key_type, layer.key(block, kv_head), d * layer.block_tokens + slot);
  }
  for (std::size_t d = 0; d < layer.value_dim; ++d) {
    v[d] = load_value(layer.value_type, layer.value(block, kv_head), slot * layer.value_dim + d);
  }
}

}  // namespace pagewise::kernels
