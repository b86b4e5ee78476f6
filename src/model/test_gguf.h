// SPDX-License-Identifier: Apache-2.0
// For tests only: writes small GGUF files (version 3) with chosen metadata and tensors, among them
// whole random models of any llama or gemma3 shape, and of DeepSeek's.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/dtype.h"
#include "base/prng.h"
#include "gguf/test_writer.h"

namespace pagewise::model::testing {

/// Metadata and tensors that can be changed one by one before the file is written.
class ModelFile {
 public:
  struct TensorEntry {
    std::string name;
    TensorType type;
    std::vector<uint64_t> shape;
    std::string bytes;
  };

  void put_string(std::string_view key, std::string_view value) {
    put(key, Writer::kString, Writer::raw_string(value));
  }
  void put_uint(std::string_view key, uint32_t value) {
    put(key, Writer::kU32, Writer::raw(value));
  }
  void put_float(std::string_view key, float value) { put(key, Writer::kF32, Writer::raw(value)); }
  void remove(std::string_view key) {
    std::erase_if(keys_, [&](const Key& entry) { return entry.name == key; });
  }
  void tensor(std::string name, TensorType type, std::vector<uint64_t> shape, std::string bytes) {
    tensors_.push_back({std::move(name), type, std::move(shape), std::move(bytes)});
  }
  void remove_tensor(std::string_view name) {
    std::erase_if(tensors_, [&](const TensorEntry& entry) { return entry.name == name; });
  }

  /// Puts matrices one behind the other into a new one, row by row.
  void fuse(std::initializer_list<std::string> names, std::string into) {
    TensorEntry fused;
    for (const std::string& name : names) {
      const auto entry = std::find_if(tensors_.begin(), tensors_.end(),
                                      [&](const TensorEntry& t) { return t.name == name; });
      PW_CHECK(entry != tensors_.end() && entry->shape.size() == 2);
      if (fused.bytes.empty()) {
        fused = {std::move(into), entry->type, {entry->shape[0], 0}, ""};
      }
      PW_CHECK(entry->type == fused.type && entry->shape[0] == fused.shape[0]);
      fused.shape[1] += entry->shape[1];
      fused.bytes += entry->bytes;
      tensors_.erase(entry);
    }
    tensors_.push_back(std::move(fused));
  }

  std::string bytes() const {
    Writer writer;
    for (const Key& key : keys_) writer.raw_value(key.name, key.type, key.value);
    for (const TensorEntry& entry : tensors_) {
      writer.tensor(entry.name, entry.shape, entry.type, entry.bytes);
    }
    return writer.bytes();
  }

 private:
  using Writer = gguf::testing::Writer;
  struct Key {
    std::string name;
    uint32_t type;
    std::string value;
  };
  void put(std::string_view name, uint32_t type, std::string value) {
    remove(name);
    keys_.push_back({std::string(name), type, std::move(value)});
  }

  std::vector<Key> keys_;
  std::vector<TensorEntry> tensors_;
};

/// float to IEEE half, for values in its range; rounds towards zero.
inline uint16_t half_bits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t exponent = (bits >> 23) & 0xff;
  if (exponent < 113) {  // subnormal: a multiple of 2^-24
    return static_cast<uint16_t>(((bits >> 16) & 0x8000) |
                                 static_cast<uint32_t>(std::fabs(value) * 0x1p24F));
  }
  PW_CHECK(exponent < 143);
  return static_cast<uint16_t>(((bits >> 16) & 0x8000) | ((exponent - 112) << 10) |
                               ((bits >> 13) & 0x3ff));
}

/// Random weights of about the given standard deviation (uniform, which is as good here).
inline std::string random_weights(TensorType type, uint64_t columns, uint64_t rows, float deviation,
                                  Prng& prng) {
  const TensorTypeInfo* info = tensor_type_info(type);
  PW_CHECK(info != nullptr && columns % info->block_elements == 0);
  const uint64_t blocks = columns / info->block_elements * rows;
  std::string bytes(blocks * info->block_bytes, '\0');
  const float reach = deviation * 1.7320508F;
  for (uint64_t i = 0; i < blocks; ++i) {
    char* block = bytes.data() + i * info->block_bytes;
    const auto put_half = [&](uint32_t at, float value) {
      const uint16_t half = half_bits(value);
      std::memcpy(block + at, &half, sizeof half);
    };
    if (type == TensorType::kF32) {
      const float value = static_cast<float>(prng.uniform() * 2 - 1) * reach;
      std::memcpy(block, &value, sizeof value);
      continue;
    }
    if (type == TensorType::kF16) {
      put_half(0, static_cast<float>(prng.uniform() * 2 - 1) * reach);
      continue;
    }
    if (type == TensorType::kBF16) {
      const auto bits = std::bit_cast<uint32_t>(static_cast<float>(prng.uniform() * 2 - 1) * reach);
      const auto upper = static_cast<uint16_t>(bits >> 16);
      std::memcpy(block, &upper, sizeof upper);
      continue;
    }
    for (uint32_t b = 0; b < info->block_bytes; ++b) block[b] = static_cast<char>(prng.below(256));
    // Quantised: random codes, with a scale of its own for each block.
    const float scale = reach * static_cast<float>(0.75 + 0.5 * prng.uniform());
    switch (type) {
      case TensorType::kQ4_0:
        put_half(0, scale / 8);
        break;
      case TensorType::kQ4_1:
        put_half(0, scale / 7.5F);
        put_half(2, -scale);
        break;
      case TensorType::kQ5_0:
        put_half(0, scale / 16);
        break;
      case TensorType::kQ5_1:
        put_half(0, scale / 15.5F);
        put_half(2, -scale);
        break;
      case TensorType::kQ8_0:
        put_half(0, scale / 127);
        break;
      case TensorType::kIQ4_NL:
        put_half(0, scale / 127);
        break;
      case TensorType::kMXFP4: {  // the largest value is 12: 2^(e - 128) near scale / 12
        const auto exponent = std::lround(std::log2(scale / 12));
        block[0] = static_cast<char>(128 + exponent);
        break;
      }
      case TensorType::kQ5_K:
        put_half(0, scale / 15.5F / 32);
        put_half(2, scale / 32);
        break;
      case TensorType::kQ4_K:
        put_half(0, scale / 7.5F / 32);
        put_half(2, scale / 32);
        break;
      case TensorType::kQ6_K:
        put_half(208, scale / 32 / 64);
        break;
      default:
        PW_CHECK(false && "no random weights for this type");
    }
  }
  return bytes;
}

struct LlamaShape {
  uint32_t vocab = 96;
  uint32_t embedding = 64;
  uint32_t layers = 2;
  uint32_t heads = 4;
  uint32_t kv_heads = 2;
  uint32_t head_dim = 16;
  uint32_t rope_dims = 16;
  uint32_t ffn = 96;
  uint32_t context = 4096;
  TensorType type = TensorType::kF32;       // matrices of the layers
  TensorType head_type = TensorType::kF32;  // embeddings, and the output head unless tied
  bool tied = true;
  bool bias = false;
  bool rope_factors = false;
  float rope_linear = 0;  // 0: no scaling
  /// Of every other layer, from the first on. Architecture llama has none in the file: for tests
  /// that change the spec that was read.
  uint32_t sliding_window = 0;
  bool gemma3 = false;  // architecture gemma3 instead of llama
  uint64_t seed = 1;
};

/// A model that computes, with random weights; nothing it says means anything.
inline ModelFile llama_model(const LlamaShape& shape) {
  ModelFile file;
  Prng prng(shape.seed);
  const std::string arch = shape.gemma3 ? "gemma3" : "llama";
  file.put_string("general.architecture", arch);
  file.put_string("general.name", "random");
  file.put_uint(arch + ".vocab_size", shape.vocab);
  file.put_uint(arch + ".context_length", shape.context);
  file.put_uint(arch + ".embedding_length", shape.embedding);
  file.put_uint(arch + ".block_count", shape.layers);
  file.put_uint(arch + ".feed_forward_length", shape.ffn);
  file.put_uint(arch + ".attention.head_count", shape.heads);
  file.put_uint(arch + ".attention.head_count_kv", shape.kv_heads);
  if (shape.head_dim * shape.heads != shape.embedding) {
    file.put_uint(arch + ".attention.key_length", shape.head_dim);
    file.put_uint(arch + ".attention.value_length", shape.head_dim);
  }
  file.put_uint(arch + ".rope.dimension_count", shape.rope_dims);
  file.put_float(arch + ".rope.freq_base", 10000.0F);
  file.put_float(arch + ".attention.layer_norm_rms_epsilon", 1e-5F);
  if (shape.rope_linear != 0) {
    file.put_string(arch + ".rope.scaling.type", "linear");
    file.put_float(arch + ".rope.scaling.factor", shape.rope_linear);
  }
  if (shape.gemma3) {
    file.put_uint("gemma3.attention.sliding_window", shape.sliding_window);
    file.put_uint("gemma3.attention.sliding_window_pattern", 2);
  }
  const auto matrix = [&](const std::string& name, TensorType type, uint64_t columns,
                          uint64_t rows) {
    const float deviation = 1.0F / std::sqrt(static_cast<float>(columns));
    file.tensor(name, type, {columns, rows}, random_weights(type, columns, rows, deviation, prng));
  };
  const auto vector = [&](const std::string& name, uint64_t elements, float mean, float deviation) {
    std::string bytes;
    for (uint64_t i = 0; i < elements; ++i) {
      const float value = mean + deviation * static_cast<float>(prng.uniform() * 2 - 1);
      bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    file.tensor(name, TensorType::kF32, {elements}, std::move(bytes));
  };
  matrix("token_embd.weight", shape.head_type, shape.embedding, shape.vocab);
  vector("output_norm.weight", shape.embedding, 1.0F, 0.3F);
  if (!shape.tied) matrix("output.weight", shape.head_type, shape.embedding, shape.vocab);
  if (shape.rope_factors) vector("rope_freqs.weight", shape.rope_dims / 2, 4.0F, 3.0F);
  const uint64_t query = uint64_t{shape.heads} * shape.head_dim;
  const uint64_t key = uint64_t{shape.kv_heads} * shape.head_dim;
  for (uint32_t i = 0; i < shape.layers; ++i) {
    const std::string layer = "blk." + std::to_string(i) + ".";
    vector(layer + "attn_norm.weight", shape.embedding, 1.0F, 0.3F);
    matrix(layer + "attn_q.weight", shape.type, shape.embedding, query);
    matrix(layer + "attn_k.weight", shape.type, shape.embedding, key);
    matrix(layer + "attn_v.weight", shape.type, shape.embedding, key);
    matrix(layer + "attn_output.weight", shape.type, query, shape.embedding);
    vector(layer + "ffn_norm.weight", shape.embedding, 1.0F, 0.3F);
    matrix(layer + "ffn_gate.weight", shape.type, shape.embedding, shape.ffn);
    matrix(layer + "ffn_up.weight", shape.type, shape.embedding, shape.ffn);
    matrix(layer + "ffn_down.weight", shape.type, shape.ffn, shape.embedding);
    if (shape.gemma3) {
      vector(layer + "attn_q_norm.weight", shape.head_dim, 1.0F, 0.3F);
      vector(layer + "attn_k_norm.weight", shape.head_dim, 1.0F, 0.3F);
      vector(layer + "post_attention_norm.weight", shape.embedding, 1.0F, 0.3F);
      vector(layer + "post_ffw_norm.weight", shape.embedding, 1.0F, 0.3F);
    }
    if (shape.bias) {
      vector(layer + "attn_q.bias", query, 0, 0.5F);
      vector(layer + "attn_k.bias", key, 0, 0.5F);
      vector(layer + "attn_v.bias", key, 0, 0.5F);
      vector(layer + "attn_output.bias", shape.embedding, 0, 0.5F);
    }
  }
  return file;
}

struct DeepseekShape {
  TensorType type = TensorType::kF32;  // matrices of the layers
  uint32_t query_rank = 0;             // 0: queries come from the stream
  bool old = false;      // the form of files that have keys' and values' up-projections in one
  bool sigmoid = false;  // routing as of V3, in two of four groups; else as of V2 Lite
  uint64_t seed = 1;
};

/// A random model of two layers with latent attention, the second with 8 experts: 4 heads of 32
/// plain values, 32 that rotate and 32 of V, a latent of 32. With F32 both forms hold one model.
inline ModelFile deepseek_model(const DeepseekShape& shape) {
  constexpr uint32_t kHeads = 4, kPlain = 32, kRope = 32, kValue = 32, kRank = 32;
  ModelFile file;
  Prng prng(shape.seed);
  file.put_string("general.architecture", "deepseek2");
  const auto put = [&](const char* key, uint32_t value) {
    file.put_uint(std::string("deepseek2.") + key, value);
  };
  put("context_length", 512);
  put("embedding_length", 64);
  put("block_count", 2);
  put("feed_forward_length", 96);
  put("attention.head_count", kHeads);
  put("attention.head_count_kv", shape.old ? kHeads : 1);
  put("attention.key_length", shape.old ? kPlain + kRope : kRank + kRope);
  put("attention.value_length", shape.old ? kValue : kRank);
  if (!shape.old) {
    put("attention.key_length_mla", kPlain + kRope);
    put("attention.value_length_mla", kValue);
  }
  put("attention.kv_lora_rank", kRank);
  if (shape.query_rank != 0) put("attention.q_lora_rank", shape.query_rank);
  put("rope.dimension_count", kRope);
  put("leading_dense_block_count", 1);
  put("expert_count", 8);
  put("expert_used_count", 3);
  put("expert_feed_forward_length", 32);
  put("expert_shared_count", 2);
  if (shape.sigmoid) {
    put("expert_gating_func", 2);
    put("expert_group_count", 4);
    put("expert_group_used_count", 2);
    file.put_float("deepseek2.expert_weights_scale", 2.5F);
  }
  file.put_float("deepseek2.attention.layer_norm_rms_epsilon", 1e-6F);
  const auto matrix = [&](const std::string& name, std::vector<uint64_t> sizes, TensorType type) {
    uint64_t rows = 1;
    for (std::size_t i = 1; i < sizes.size(); ++i) rows *= sizes[i];
    const float deviation = 1.0F / std::sqrt(static_cast<float>(sizes[0]));
    std::string bytes = random_weights(type, sizes[0], rows, deviation, prng);
    file.tensor(name, type, std::move(sizes), std::move(bytes));
  };
  const auto vector = [&](const std::string& name, uint64_t elements, float mean) {
    std::string bytes;
    for (uint64_t i = 0; i < elements; ++i) {
      const float value = mean + 0.3F * static_cast<float>(prng.uniform() * 2 - 1);
      bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    file.tensor(name, TensorType::kF32, {elements}, std::move(bytes));
  };
  const auto up_projections = [&](const std::string& layer) {
    const uint64_t rows = kPlain + kValue;  // of a head: those of keys, then of values
    const std::string both = random_weights(shape.type, kRank, kHeads * rows, 0.2F, prng);
    if (shape.old) {
      file.tensor(layer + "attn_kv_b.weight", shape.type, {kRank, kHeads * rows}, both);
      return;
    }
    if (shape.type != TensorType::kF32) {
      matrix(layer + "attn_k_b.weight", {kPlain, kRank, kHeads}, shape.type);
      matrix(layer + "attn_v_b.weight", {kRank, kValue, kHeads}, shape.type);
      return;
    }
    std::string keys, values;
    for (uint64_t h = 0; h < kHeads; ++h) {
      for (uint64_t c = 0; c < kRank; ++c) {
        for (uint64_t r = 0; r < kPlain; ++r)
          keys += both.substr(((h * rows + r) * kRank + c) * sizeof(float), sizeof(float));
      }
      values += both.substr((h * rows + kPlain) * kRank * sizeof(float),
                            std::size_t{kValue} * kRank * sizeof(float));
    }
    file.tensor(layer + "attn_k_b.weight", TensorType::kF32, {kPlain, kRank, kHeads}, keys);
    file.tensor(layer + "attn_v_b.weight", TensorType::kF32, {kRank, kValue, kHeads}, values);
  };
  matrix("token_embd.weight", {64, 96}, TensorType::kF32);
  vector("output_norm.weight", 64, 1.0F);
  for (const std::string layer : {"blk.0.", "blk.1."}) {
    vector(layer + "attn_norm.weight", 64, 1.0F);
    const uint64_t queries = kHeads * (kPlain + kRope);
    if (shape.query_rank != 0) {
      matrix(layer + "attn_q_a.weight", {64, shape.query_rank}, shape.type);
      vector(layer + "attn_q_a_norm.weight", shape.query_rank, 1.0F);
      matrix(layer + "attn_q_b.weight", {shape.query_rank, queries}, shape.type);
    } else {
      matrix(layer + "attn_q.weight", {64, queries}, shape.type);
    }
    matrix(layer + "attn_kv_a_mqa.weight", {64, kRank + kRope}, shape.type);
    vector(layer + "attn_kv_a_norm.weight", kRank, 1.0F);
    up_projections(layer);
    matrix(layer + "attn_output.weight", {uint64_t{kHeads} * kValue, 64}, shape.type);
    vector(layer + "ffn_norm.weight", 64, 1.0F);
  }
  matrix("blk.0.ffn_gate.weight", {64, 96}, shape.type);
  matrix("blk.0.ffn_up.weight", {64, 96}, shape.type);
  matrix("blk.0.ffn_down.weight", {96, 64}, shape.type);
  matrix("blk.1.ffn_gate_inp.weight", {64, 8}, TensorType::kF32);
  if (shape.sigmoid) vector("blk.1.exp_probs_b.bias", 8, 0.0F);
  matrix("blk.1.ffn_gate_exps.weight", {64, 32, 8}, shape.type);
  matrix("blk.1.ffn_up_exps.weight", {64, 32, 8}, shape.type);
  matrix("blk.1.ffn_down_exps.weight", {32, 64, 8}, shape.type);
  matrix("blk.1.ffn_gate_shexp.weight", {64, 64}, shape.type);
  matrix("blk.1.ffn_up_shexp.weight", {64, 64}, shape.type);
  matrix("blk.1.ffn_down_shexp.weight", {64, 64}, shape.type);
  return file;
}

}  // namespace pagewise::model::testing
