// SPDX-License-Identifier: Apache-2.0
// The real models that golden and equality tests compute with, and the recorded completions beside
// them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "gguf/gguf.h"
#include "model/cpu_executor.h"
#include "model/spec.h"

namespace pagewise::golden {

/// Where a model and what was recorded of it are found.
struct Source {
  const char* golden;          // of tests/golden
  const char* file;            // of models/
  const char* variable;        // of the environment: names another copy
  std::optional<int32_t> bos;  // stands in front of every prompt
};
inline constexpr Source kSmolLm2 = {"smollm2-135m-q4_1.json", "SmolLM2-135M-Instruct.Q4_1.gguf",
                                    "PAGEWISE_TEST_MODEL", std::nullopt};
/// Sliding windows of 512 in five layers of six.
inline constexpr Source kGemma3 = {"gemma3-270m-q4_k_m.json", "gemma-3-270m-q4_k_m.gguf",
                                   "PAGEWISE_TEST_GEMMA", 2};

struct LogprobEntry {
  int32_t token;
  double logprob;
};

/// Greedy text of a published implementation, and what a float32 pass over the dequantised weights
/// says at each of its steps.
struct Completion {
  std::string prompt;
  std::vector<TokenId> prompt_ids;  // with a BOS where the model has one
  std::vector<TokenId> tokens;
  std::vector<std::vector<LogprobEntry>> steps;  // the published implementation's best 10
  std::vector<std::vector<LogprobEntry>> exact;  // the exact pass's best 20
};

/// Errors: kNotFound, kMalformed; also when the number of prompt tokens is not the recorded one.
Result<std::vector<Completion>> read_completions(const Source& source = kSmolLm2);

struct RealModel {
  std::unique_ptr<gguf::File> file;
  model::ModelSpec spec;
};

/// The file that the environment names, else the one in models/ of this source tree. Errors: those
/// of the file, with a line on how to get the model.
Result<RealModel> open_real_model(const Source& source = kSmolLm2);

struct ExecutorSetting {
  uint32_t block_tokens = 32;
  uint32_t threads = 2;
  uint32_t positions = 4096;  // of all sequences together
  KvType key_type = KvType::kF16;
  KvType value_type = KvType::kF16;
};
Result<std::unique_ptr<model::CpuExecutor>> make_executor(const RealModel& model,
                                                          const ExecutorSetting& setting);

}  // namespace pagewise::golden
