// SPDX-License-Identifier: Apache-2.0
#include "kernels/paged_view.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/half.h"
#include "kernels/kv_quant.h"
#include "kernels/ops.h"

namespace pagewise::kernels {
namespace {

// `n` values converted to a type without scales, at `out`.
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

// Elements to every `stride`-th place of their size from `first` on. Places of 4 bytes need not be
// aligned where another type's plane stands before them.
template <std::size_t kBytes>
void scatter(const void* elements, std::size_t n, std::byte* first, std::size_t stride) {
  const auto* from = static_cast<const std::byte*>(elements);
  for (std::size_t i = 0; i < n; ++i)
    std::memcpy(first + i * stride * kBytes, from + i * kBytes, kBytes);
}

// One head's key to slot `slot` of `head`, its part of a block.
void store_key(const PagedLayer& layer, const float* k, std::size_t slot, std::byte* head) {
  constexpr std::size_t kPart = 64;  // values converted at once before they are scattered
  const std::size_t tokens = layer.block_tokens;
  for (std::size_t d = 0; d < layer.key_dim; d += kPart) {
    const std::size_t count = std::min<std::size_t>(kPart, layer.key_dim - d);
    std::byte* const first = head + (d * tokens + slot) * kv_element_bytes(layer.key_type);
    alignas(64) std::byte converted[kPart * sizeof(float)];
    if (layer.key_type == KvType::kQ8_0) {
      uint16_t scales[kPart / kKvScaleGroup];
      quantize_kv(k + d, count, reinterpret_cast<int8_t*>(converted), scales);
      scatter<1>(converted, count, first, tokens);
      std::byte* const first_scale =
          head + layer.key_dim * tokens + (d / kKvScaleGroup * tokens + slot) * sizeof(uint16_t);
      scatter<2>(scales, count / kKvScaleGroup, first_scale, tokens);
      continue;
    }
    convert_row(layer.key_type, k + d, count, converted);
    (layer.key_type == KvType::kF32 ? scatter<4> : scatter<2>)(converted, count, first, tokens);
  }
}

void store_value(const PagedLayer& layer, const float* v, std::size_t slot, std::byte* head) {
  std::byte* const row = head + slot * layer.value_dim * kv_element_bytes(layer.value_type);
  if (layer.value_type != KvType::kQ8_0) {
    convert_row(layer.value_type, v, layer.value_dim, row);
    return;
  }
  std::byte* const scales = head + (std::size_t{layer.block_tokens} * layer.value_dim +
                                    slot * (layer.value_dim / kKvScaleGroup) * sizeof(uint16_t));
  quantize_kv(v, layer.value_dim, reinterpret_cast<int8_t*>(row),
              reinterpret_cast<uint16_t*>(scales));
}

// Element `index` of the plane at `base`; its scale, where there is one, is number `scale` behind
// the plane's `plane` elements.
float load_element(KvType type, const std::byte* base, std::size_t plane, std::size_t index,
                   std::size_t scale) {
  uint16_t bits;
  if (type == KvType::kQ8_0) {
    std::memcpy(&bits, base + plane + 2 * scale, sizeof(bits));
    return static_cast<float>(static_cast<int8_t>(base[index])) * half_to_float(bits);
  }
  if (type == KvType::kF32) {
    float value;
    std::memcpy(&value, base + 4 * index, sizeof(value));
    return value;
  }
  std::memcpy(&bits, base + 2 * index, sizeof(bits));
  return type == KvType::kF16 ? half_to_float(bits) : bf16_to_float(bits);
}

}  // namespace

void store_kv(const PagedLayer& layer, const PagedRun& run, Range rows, const float* k,
              std::size_t k_stride, const float* v, std::size_t v_stride) {
  for (std::size_t i = rows.begin; i < rows.end; ++i) {
    const std::size_t position = run.position + i;
    const BlockId block = run.blocks[position / layer.block_tokens];
    const std::size_t slot = position % layer.block_tokens;
    for (std::size_t h = 0; h < layer.kv_heads; ++h) {
      store_key(layer, k + i * k_stride + h * layer.key_dim, slot, layer.key(block, h));
      if (layer.latent) continue;
      store_value(layer, v + i * v_stride + h * layer.value_dim, slot, layer.value(block, h));
    }
  }
}

void load_kv(const PagedLayer& layer, std::span<const BlockId> blocks, uint32_t position,
             std::size_t kv_head, float* k, float* v) {
  const std::size_t tokens = layer.block_tokens;
  const BlockId block = blocks[position / tokens];
  const std::size_t slot = position % tokens;
  for (std::size_t d = 0; d < layer.key_dim; ++d) {
    k[d] = load_element(layer.key_type, layer.key(block, kv_head), layer.key_dim * tokens,
                        d * tokens + slot, d / kKvScaleGroup * tokens + slot);
  }
  if (layer.latent) {
    std::copy_n(k, layer.value_dim, v);
    return;
  }
  for (std::size_t d = 0; d < layer.value_dim; ++d) {
    v[d] = load_element(layer.value_type, layer.value(block, kv_head), layer.value_dim * tokens,
                        slot * layer.value_dim + d,
                        slot * (layer.value_dim / kKvScaleGroup) + d / kKvScaleGroup);
  }
}

}  // namespace pagewise::kernels
