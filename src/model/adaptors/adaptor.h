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

/// The sizes that every decoder's header has.
struct Dimensions {
  uint32_t embedding = 0, context = 0, layers = 0, ffn = 0;
  uint32_t heads = 0, kv_heads = 0, key_dim = 0, value_dim = 0;
  float norm_eps = 0.0F;
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
  Result<Dimensions> dimensions() const;
  /// Errors: kUnsupported naming a kind of scaling other than none and linear.
  Result<RopeSpec> rope(RopeKind kind, uint32_t key_dim) const;
  /// Tokens, by the tokenizer's list or without one by the embeddings. Errors: kMalformed.
  Result<uint32_t> vocabulary() const;
  /// Keys that would make another model of this one, fluent and wrong, if they were left out.
  /// Errors: kUnsupported naming the first that the file has.
  Status refuse(std::initializer_list<std::string_view> names) const;
  std::string key(std::string_view name) const { return prefix_ + std::string(name); }
  Error error(std::string message) const;
  const gguf::File& file() const { return file_; }

 private:
  const gguf::File& file_;
  std::string prefix_;
};

/// Ticks off the tensors an architecture uses, so that none is missing, misshapen or silently
/// ignored.
class TensorChecker {
 public:
  explicit TensorChecker(const gguf::File& file) : file_(file) {}

  /// Shape is fastest-varying first, as in the file: {columns, rows}.
  /// Errors: kMalformed "tensor NAME: missing" or "tensor NAME: shape [a, b], expected [c, d]".
  Status require(const std::string& name, std::initializer_list<uint64_t> shape);
  /// As require(), for small tensors that are read as floats: norms, biases, factors.
  Status require_f32(const std::string& name, uint64_t elements);
  /// The tensors of a layer whose names start with `prefix` ("blk.3."), as its spec asks for them.
  Status require_layer(const std::string& prefix, const LayerSpec& layer, uint64_t embedding);
  bool has(const std::string& name) const { return file_.find_tensor(name) != nullptr; }
  /// A tensor that may be there and is not needed.
  void ignore(const std::string& name) { used_.insert(name); }
  /// Errors: kUnsupported naming the first tensor of the file that nothing asked for: computing
  /// without it would give wrong text without a word.
  Status finish(std::string_view architecture) const;

  uint64_t parameters() const { return parameters_; }
  uint64_t bytes() const { return bytes_; }

 private:
  Error error(ErrorCode code, std::string message) const;
  const gguf::File& file_;
  std::set<std::string, std::less<>> used_;
  uint64_t parameters_ = 0;
  uint64_t bytes_ = 0;
};

/// adaptors/llama.cc: Llama 1, 2, 3 and what follows their shape (SmolLM2, Mistral without a
/// window).
Result<ModelSpec> llama_spec(const gguf::File& file);

/// adaptors/gemma3.cc: Gemma 3, text only.
Result<ModelSpec> gemma3_spec(const gguf::File& file);

}  // namespace pagewise::model
