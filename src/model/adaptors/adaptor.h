// SPDX-License-Identifier: Apache-2.0
// What an architecture's adaptor is made of: reading keys within bounds, and checking tensors by
// name.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>

#include "base/result.h"
#include "gguf/gguf.h"
#include "model/spec.h"

namespace pagewise::model {

inline constexpr uint64_t kDimMax = 1U << 20;
inline constexpr uint64_t kHeadDimMax = 1024;
inline constexpr uint64_t kLayersMax = 4096;
inline constexpr uint64_t kExpertsMax = 4096;

/// The sizes that every decoder's header has.
struct Dimensions {
  uint32_t embedding = 0, context = 0, layers = 0, ffn = 0;
  uint32_t heads = 0, kv_heads = 0, key_dim = 0, value_dim = 0;
  float norm_eps = 0.0F;
};

/// What families do with YaRN in a way of their own.
struct YarnForm {
  bool whole_ramp = true;  // the pairs where the ramp begins and ends are rounded to whole ones
  bool on_scores = false;  // where the file has yarn_log_multiplier, which the adaptor reads, the
                           // magnitude multiplies all scores; rope's own is then 1
};

/// Looks up `ARCHITECTURE.key` and bounds it: a header must not be able to ask for absurd sizes.
class MetadataReader {
 public:
  explicit MetadataReader(const gguf::File& file, std::string architecture)
      : file_(file), prefix_(std::move(architecture) + ".") {}

  /// Errors: kMalformed "KEY: missing" or "KEY is V, expected MIN to MAX".
  Result<uint32_t> uint(std::string_view key, uint64_t min, uint64_t max) const;
  Result<uint32_t> uint_or(std::string_view key, uint64_t min, uint64_t max,
                           uint32_t fallback) const;
  /// Errors: also kMalformed when not finite or outside [min, max].
  Result<double> real(std::string_view key, double min, double max) const;
  Result<double> real_or(std::string_view key, double min, double max, double fallback) const;
  Result<std::string> string_or(std::string_view key, std::string_view fallback) const;
  /// Errors: those of uint() and real(); kMalformed when heads do not divide evenly.
  Result<Dimensions> dimensions(NormKind norm = NormKind::kRms) const;
  /// A spec with its name and sizes, plain attention over all positions scaled by 1 /
  /// sqrt(key_dim), and as many equal layers; without rope and what else the architecture has.
  Result<ModelSpec> begin_spec(const Dimensions& size) const;
  /// Errors: kUnsupported naming a kind of scaling other than none, linear, yarn and longrope.
  Result<RopeSpec> rope(RopeKind kind, uint32_t key_dim, const YarnForm& yarn = {}) const;
  /// Makes layers slide. Which of them the file says; where it does not, the last of each
  /// `full_every` is a full one, and with 0 none is. `window` is their width where the file does
  /// not say it; 0: none slides. Requires layers that attend to everything, as begin_spec() gives
  /// them.
  Status set_windows(ModelSpec& spec, uint32_t full_every, uint32_t window = 0) const;
  /// `ffn` and `normalize` hold where the file does not say. Without `expert_count`: none.
  /// Errors: kUnsupported naming a kind of routing other than softmax over all experts.
  Result<ExpertSpec> experts(uint32_t ffn, bool normalize) const;
  /// Tokens, by the tokenizer's list or without one by the embeddings. Errors: kMalformed.
  Result<uint32_t> vocabulary() const;
  /// Keys that would make another model of this one, fluent and wrong, if they were left out.
  /// Errors: kUnsupported naming the first that the file has.
  Status refuse(std::initializer_list<std::string_view> names) const;
  /// As refuse(), for keys that some converters write with a 0.
  Status refuse_unless_zero(std::initializer_list<std::string_view> names) const;
  std::string key(std::string_view name) const { return prefix_ + std::string(name); }
  Error error(std::string message) const;
  const gguf::File& file() const { return file_; }

 private:
  Status add_yarn(double factor, const YarnForm& form, RopeSpec& rope) const;

  const gguf::File& file_;
  std::string prefix_;
};

/// Ticks off the tensors an architecture uses, so that none is missing, misshapen or silently
/// ignored.
class TensorChecker {
 public:
  explicit TensorChecker(const gguf::File& file) : file_(file) {}

  /// The tensors of the whole model, and no others; fills in what they decide: the head, the sums,
  /// the KV groups. An adaptor ends with it. Errors: kUnsupported naming the first tensor of the
  /// file that nothing asked for: computing without it would give wrong text without a word.
  Status require_model(ModelSpec& spec);
  bool has(const std::string& name) const { return file_.find_tensor(name) != nullptr; }
  /// A tensor that may be there and is not needed.
  void ignore(const std::string& name) { used_.insert(name); }

 private:
  /// Shape is fastest-varying first, as in the file: {columns, rows}.
  /// Errors: kMalformed "tensor NAME: missing" or "tensor NAME: shape [a, b], expected [c, d]".
  Status require(const std::string& name, std::initializer_list<uint64_t> shape);
  /// As require(), for small tensors that are read as floats: norms, biases, factors.
  Status require_f32(const std::string& name, std::initializer_list<uint64_t> shape);
  Status require_norm(const std::string& name, const ModelSpec& spec);
  /// The tensors of a layer whose names start with `prefix` ("blk.3."), as its spec asks for them.
  Status require_layer(const std::string& prefix, const LayerSpec& layer, const ModelSpec& spec);
  Status require_attention(const std::string& prefix, const LayerSpec& layer, uint64_t embedding);
  Status require_latent(const std::string& prefix, const LatentSpec& latent, uint64_t heads,
                        uint64_t embedding);
  Status require_experts(const std::string& prefix, const ExpertSpec& experts, uint64_t embedding);
  Status finish(std::string_view architecture) const;
  Error error(ErrorCode code, std::string message) const;

  const gguf::File& file_;
  std::set<std::string, std::less<>> used_;
  uint64_t parameters_ = 0;
  uint64_t bytes_ = 0;
};

/// The rope of layers that no scaling for long contexts stretches.
RopeSpec unscaled(const RopeSpec& rope);

// One function an architecture, in adaptors/NAME.cc. Errors: those of the reader and the checker.

/// Llama 1, 2, 3 and what follows their shape (SmolLM2, Mistral), with experts: Mixtral.
Result<ModelSpec> llama_spec(const gguf::File& file);
/// SmolLM3: a Llama whose every fourth layer does not rotate.
Result<ModelSpec> smollm3_spec(const gguf::File& file);
/// Granite 3 and 4 (dense): a Llama with four scales.
Result<ModelSpec> granite_spec(const gguf::File& file);
Result<ModelSpec> qwen2_spec(const gguf::File& file);  // Qwen 2, 2.5
Result<ModelSpec> qwen3_spec(const gguf::File& file);
Result<ModelSpec> qwen2moe_spec(const gguf::File& file);  // Qwen 1.5 and 2 with experts
Result<ModelSpec> qwen3moe_spec(const gguf::File& file);
Result<ModelSpec> gemma_spec(const gguf::File& file);  // Gemma 1, CodeGemma
Result<ModelSpec> gemma2_spec(const gguf::File& file);
Result<ModelSpec> gemma3_spec(const gguf::File& file);  // text only
Result<ModelSpec> phi3_spec(const gguf::File& file);    // Phi 3, 3.5, 4
Result<ModelSpec> olmo2_spec(const gguf::File& file);   // OLMo 2 and 3
Result<ModelSpec> command_r_spec(const gguf::File& file);
Result<ModelSpec> cohere2_spec(const gguf::File& file);  // Command R7B, Command A
Result<ModelSpec> falcon_spec(const gguf::File& file);   // Falcon 7B, 40B
Result<ModelSpec> gpt_oss_spec(const gguf::File& file);  // gpt-oss 20B, 120B
/// DeepSeek V2, V3, R1 and what follows their shape (Moonlight, Kimi K2).
Result<ModelSpec> deepseek2_spec(const gguf::File& file);

}  // namespace pagewise::model
