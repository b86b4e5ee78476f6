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
  Result<std::string> string_or(std::string_view key, std::string fallback) const;
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

}  // namespace pagewise::model
