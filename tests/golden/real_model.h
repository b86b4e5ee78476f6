// SPDX-License-Identifier: Apache-2.0
// The real model that golden and equality tests compute with, and the recorded completions beside
// it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "gguf/gguf.h"
#include "model/cpu_executor.h"
#include "model/spec.h"

namespace pagewise::golden {

struct LogprobEntry {
  int32_t token;
  double logprob;
};

/// Greedy text of a published implementation, and what a float32 pass over the dequantised weights
/// says at each of its steps.
struct Completion {
  std::string prompt;
  std::vector<TokenId> prompt_ids;  // without a BOS
  std::vector<TokenId> tokens;
  std::vector<std::vector<LogprobEntry>> steps;  // the published implementation's best 10
  std::vector<std::vector<LogprobEntry>> exact;  // the exact pass's best 20
};

/// tests/golden/smollm2-135m-q4_1.json. Errors: kNotFound, kMalformed.
Result<std::vector<Completion>> read_completions();

struct RealModel {
  std::unique_ptr<gguf::File> file;
  model::ModelSpec spec;
};

/// The file named by PAGEWISE_TEST_MODEL, else models/SmolLM2-135M-Instruct.Q4_1.gguf of this
/// source tree. Errors: those of the file, with a line on how to get the model.
Result<RealModel> open_real_model();

struct ExecutorSetting {
  uint32_t block_tokens = 32;
  uint32_t threads = 2;
  uint32_t positions = 4096;  // of all sequences together
};
Result<std::unique_ptr<model::CpuExecutor>> make_executor(const RealModel& model,
                                                          const ExecutorSetting& setting);

}  // namespace pagewise::golden
