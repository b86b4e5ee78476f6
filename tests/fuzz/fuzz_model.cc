// SPDX-License-Identifier: Apache-2.0
// Small whole models with some keys and tensors changed: what the reader accepts must compute, in
// any chunks and blocks with the same bits; what it refuses it refuses in words. No number of a
// file reaches a PW_CHECK.
#include <bit>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "fuzz/fuzz.h"
#include "gguf/gguf.h"
#include "gguf/test_writer.h"
#include "model/batch_driver.h"
#include "model/cpu_executor.h"
#include "model/spec.h"
#include "model/test_gguf.h"

namespace pagewise::model {
namespace {

using fuzz::Input;
using testing::llama_model;
using testing::LlamaShape;
using testing::ModelFile;

LlamaShape base_shape(Input& in) {
  LlamaShape shape;
  shape.embedding = 64;
  shape.vocab = 40;
  shape.ffn = 64;
  shape.layers = static_cast<uint32_t>(in.between(1, 3));
  shape.kv_heads = static_cast<uint32_t>(in.between(1, 2));
  shape.heads = shape.kv_heads * static_cast<uint32_t>(in.between(1, 2));
  constexpr uint32_t kHeadDims[] = {16, 32, 8, 2, 6};
  shape.head_dim = in.pick(kHeadDims);
  shape.rope_dims = in.flag() ? shape.head_dim : 2;
  constexpr TensorType kTypes[] = {TensorType::kF32, TensorType::kF16, TensorType::kQ8_0,
                                   TensorType::kQ4_1, TensorType::kQ5_0};
  shape.head_type = in.pick(kTypes);
  shape.tied = in.flag();
  shape.gemma3 = in.flag();
  shape.bias = !shape.gemma3 && in.flag();
  shape.rope_factors = !shape.gemma3 && in.flag();
  if (shape.gemma3) shape.sliding_window = static_cast<uint32_t>(in.between(1, 12));
  return shape;
}

/// A number of a kind that files get wrong.
uint32_t odd_number(Input& in) {
  constexpr uint32_t kOdd[] = {0,  1,  2,   3,    7,     8,          16,         32,
                               64, 65, 255, 4096, 65536, 0x7fffffff, 0x80000000, 0xffffffff};
  return in.flag() ? in.pick(kOdd) : static_cast<uint32_t>(in.number(in.flag() ? 1 : 4));
}

void change(ModelFile& file, const LlamaShape& shape, Input& in) {
  const std::string arch = shape.gemma3 ? "gemma3." : "llama.";
  constexpr std::string_view kNumbers[] = {"vocab_size",
                                           "context_length",
                                           "embedding_length",
                                           "block_count",
                                           "feed_forward_length",
                                           "attention.head_count",
                                           "attention.head_count_kv",
                                           "attention.key_length",
                                           "attention.value_length",
                                           "rope.dimension_count",
                                           "attention.sliding_window",
                                           "attention.sliding_window_pattern",
                                           "expert_count",
                                           "rope.scaling.original_context_length"};
  constexpr std::string_view kFloats[] = {
      "rope.freq_base",         "rope.freq_base_swa", "attention.layer_norm_rms_epsilon",
      "rope.scaling.factor",    "attention.scale",    "embedding_scale",
      "residual_scale",         "logit_scale",        "attn_logit_softcapping",
      "final_logit_softcapping"};
  constexpr std::string_view kTensors[] = {
      "token_embd.weight",         "output_norm.weight",         "output.weight",
      "rope_freqs.weight",         "blk.0.attn_q.weight",        "blk.0.attn_k.weight",
      "blk.0.attn_v.weight",       "blk.0.attn_output.weight",   "blk.0.ffn_gate.weight",
      "blk.0.ffn_down.weight",     "blk.0.attn_q.bias",          "blk.0.attn_q_norm.weight",
      "blk.0.attn_norm.weight",    "blk.0.post_ffw_norm.weight", "blk.1.attn_q.weight",
      "blk.0.ffn_gate_inp.weight", "blk.7.attn_q.weight",        "blk.0.attn_k.bias"};
  switch (in.below(7)) {
    case 0: {
      const std::string key = arch + std::string(in.pick(kNumbers));
      file.put_uint(key, odd_number(in));
      break;
    }
    case 1: {
      const std::string key = arch + std::string(in.pick(kFloats));
      file.put_float(key, std::bit_cast<float>(static_cast<uint32_t>(in.number(4))));
      break;
    }
    case 2: {
      constexpr float kOdd[] = {0.0f, -1.0f, 1.0f, 1e-30f, 1e30f, 8.0f, INFINITY, NAN};
      const std::string key = arch + std::string(in.pick(kFloats));
      file.put_float(key, in.pick(kOdd));
      break;
    }
    case 3: {
      constexpr std::string_view kKinds[] = {"linear", "none", "yarn", "longrope", "llama3", ""};
      file.put_string(arch + "rope.scaling.type", in.pick(kKinds));
      break;
    }
    case 4:
      file.remove(arch + std::string(in.pick(kNumbers)));
      break;
    case 5:
      file.remove_tensor(in.pick(kTensors));
      break;
    default: {
      const std::string name(in.pick(kTensors));
      file.remove_tensor(name);
      constexpr TensorType kTypes[] = {TensorType::kF32,  TensorType::kF16,  TensorType::kQ8_0,
                                       TensorType::kQ4_K, TensorType::kI8,   TensorType::kBF16,
                                       TensorType::kQ5_0, TensorType::kMXFP4};
      const TensorType type = in.pick(kTypes);
      const uint32_t block = tensor_type_info(type)->block_elements;
      std::vector<uint64_t> sizes = {block * in.between(1, std::max(1u, 128 / block))};
      if (in.flag()) sizes.push_back(in.between(1, 80));
      if (in.byte() % 8 == 7) sizes.push_back(in.between(1, 3));
      file.tensor(name, type, sizes, "");
      break;
    }
  }
}

struct Setting {
  uint32_t block_tokens;
  uint32_t chunk;
  uint32_t threads;
};

/// The logits of every position. Empty when the executor refuses.
std::vector<float> compute(const gguf::File& file, const ModelSpec& spec, KvType type,
                           const Setting& setting, const std::vector<TokenId>& tokens) {
  const auto geometry = make_geometry(spec, setting.block_tokens, type, type);
  if (!geometry) {
    FUZZ_CHECK(fuzz::is_one_line(geometry.error().message), "{}", geometry.error().message);
    return {};
  }
  CpuExecutorOptions options;
  options.threads = setting.threads;
  options.step_tokens_max = 32;
  options.step_runs_max = 4;
  options.context_max = 64;
  options.blocks.assign(geometry->groups.size(), 64 / setting.block_tokens + 2);
  auto executor = CpuExecutor::create(file, spec, *geometry, options);
  if (!executor) {
    FUZZ_CHECK(fuzz::is_one_line(executor.error().message), "{}", executor.error().message);
    return {};
  }
  if ((*executor)->limits().context_max < tokens.size()) return {};
  std::vector<float> logits;
  testing::BatchDriver driver(**executor, 7);
  const std::size_t sequence = driver.add(tokens);
  driver.finish(sequence, setting.chunk, [&](std::size_t, uint32_t, std::span<const float> row) {
    logits.insert(logits.end(), row.begin(), row.end());
  });
  return logits;
}

}  // namespace
}  // namespace pagewise::model

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  using namespace pagewise;
  using namespace pagewise::model;
  fuzz::Input in(data, size);
  const LlamaShape shape = base_shape(in);
  ModelFile model = llama_model(shape);
  constexpr KvType kKvTypes[] = {KvType::kF16, KvType::kF32, KvType::kBF16, KvType::kQ8_0};
  const KvType kv_type = in.pick(kKvTypes);
  const Setting settings[] = {
      {static_cast<uint32_t>(in.between(1, 40)), static_cast<uint32_t>(in.between(1, 20)), 1},
      {static_cast<uint32_t>(in.between(1, 40)), static_cast<uint32_t>(in.between(1, 20)),
       static_cast<uint32_t>(in.between(1, 2))}};
  const std::size_t length = in.between(1, 24);
  for (uint64_t changes = in.below(4); changes > 0; --changes) change(model, shape, in);
  static const gguf::testing::TempFile file("");
  file.rewrite(model.bytes());
  const auto opened = gguf::File::open(file.path());
  FUZZ_CHECK(opened.has_value(), "{}", opened.error().message);
  const auto spec = spec_from_gguf(**opened);
  if (!spec) {
    FUZZ_CHECK(fuzz::is_one_line(spec.error().message), "{}", spec.error().message);
    FUZZ_CHECK(
        spec.error().code == ErrorCode::kMalformed || spec.error().code == ErrorCode::kUnsupported,
        "{}", spec.error().message);
    return 0;
  }
  std::vector<TokenId> tokens;
  for (std::size_t i = 0; i < length; ++i) {
    tokens.emplace_back(static_cast<int32_t>((i * 7 + 3) % spec->vocab_size));
  }
  const std::vector<float> first = compute(**opened, *spec, kv_type, settings[0], tokens);
  const std::vector<float> second = compute(**opened, *spec, kv_type, settings[1], tokens);
  FUZZ_CHECK(first.size() == second.size(), "{} logits, then {}", first.size(), second.size());
  for (std::size_t i = 0; i < first.size(); ++i) {
    const bool same = std::bit_cast<uint32_t>(first[i]) == std::bit_cast<uint32_t>(second[i]) ||
                      (std::isnan(first[i]) && std::isnan(second[i]));
    FUZZ_CHECK(same, "logit {} is {} in blocks of {} and {} in blocks of {}", i, first[i],
               settings[0].block_tokens, second[i], settings[1].block_tokens);
  }
  return 0;
}
