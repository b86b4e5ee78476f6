// SPDX-License-Identifier: Apache-2.0
#include "golden/real_model.h"

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "base/json.h"

namespace pagewise::golden {
namespace {

std::vector<TokenId> read_ids(const json::value& value) {
  std::vector<TokenId> ids;
  for (const json::value& id : value.as_array()) ids.emplace_back(json::value_to<int32_t>(id));
  return ids;
}

std::vector<std::vector<LogprobEntry>> read_steps(const json::value& value) {
  std::vector<std::vector<LogprobEntry>> steps;
  for (const json::value& step : value.as_array()) {
    std::vector<LogprobEntry>& entries = steps.emplace_back();
    for (const json::value& entry : step.as_array()) {
      entries.push_back(
          {json::value_to<int32_t>(entry.at(0)), json::value_to<double>(entry.at(1))});
    }
  }
  return steps;
}

}  // namespace

Result<std::vector<Completion>> read_completions(const Source& source) {
  const std::string path = PAGEWISE_SOURCE_DIR "/tests/golden/" + std::string(source.golden);
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return Error{ErrorCode::kNotFound, path + ": cannot be read"};
  const std::string text((std::istreambuf_iterator<char>(stream)),
                         std::istreambuf_iterator<char>());
  PW_ASSIGN_OR_RETURN(const json::value root, parse_json(text));
  std::vector<Completion> completions;
  try {
    for (const json::value& entry : root.at("completions").as_array()) {
      Completion& completion = completions.emplace_back();
      completion.prompt = json::value_to<std::string>(entry.at("prompt"));
      completion.prompt_ids = read_ids(entry.at("prompt_ids"));
      if (source.bos)
        completion.prompt_ids.insert(completion.prompt_ids.begin(), TokenId(*source.bos));
      if (json::value_to<std::size_t>(entry.at("n_prompt")) != completion.prompt_ids.size()) {
        return Error{ErrorCode::kMalformed, path + ": n_prompt is not the number of prompt tokens"};
      }
      completion.tokens = read_ids(entry.at("tokens"));
      completion.steps = read_steps(entry.at("steps"));
      completion.exact = read_steps(entry.at("exact"));
    }
  } catch (const std::exception& error) {
    return Error{ErrorCode::kMalformed, path + ": " + error.what()};
  }
  return completions;
}

Result<RealModel> open_real_model(const Source& source) {
  const char* chosen = std::getenv(source.variable);
  const std::string path =
      chosen != nullptr ? chosen : PAGEWISE_SOURCE_DIR "/models/" + std::string(source.file);
  RealModel model;
  auto file = gguf::File::open(path);
  if (!file) {
    return Error{file.error().code, file.error().message +
                                        " (`./dev setup` fetches the test models; " +
                                        source.variable + " names another copy)"};
  }
  model.file = std::move(*file);
  PW_ASSIGN_OR_RETURN(model.spec, model::spec_from_gguf(*model.file));
  return model;
}

Result<std::unique_ptr<model::CpuExecutor>> make_executor(const RealModel& model,
                                                          const ExecutorSetting& setting) {
  PW_ASSIGN_OR_RETURN(
      const kv::Geometry geometry,
      model::make_geometry(model.spec, setting.block_tokens, setting.key_type, setting.value_type));
  model::CpuExecutorOptions options;
  options.threads = setting.threads;
  // A partial block for each of up to 32 sequences comes on top.
  options.blocks.assign(geometry.groups.size(), setting.positions / setting.block_tokens + 32);
  return model::CpuExecutor::create(*model.file, model.spec, geometry, options);
}

}  // namespace pagewise::golden
