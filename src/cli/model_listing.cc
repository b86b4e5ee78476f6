// SPDX-License-Identifier: Apache-2.0
#include "cli/model_listing.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include "base/dtype.h"
#include "cli/pool_size.h"
#include "gguf/gguf.h"
#include "kernels/to_float.h"
#include "model/spec.h"
#include "planner/kv_cost.h"
#include "planner/kv_format.h"
#include "planner/layout.h"
#include "text/tokenizer.h"

namespace pagewise::cli {
namespace {

// What the server does unless it is told otherwise.
constexpr uint32_t kBlockTokens = 32;
constexpr uint32_t kStepTokens = 512;
constexpr uint32_t kSequences = 64;

struct FileType {
  uint64_t number;
  std::string_view name;
};
/// Values of general.file_type. Source: the GGUF specification and the `gguf` Python package's
/// LlamaFileType, 0.19.
constexpr FileType kFileTypes[] = {
    {0, "F32"},      {1, "F16"},      {2, "Q4_0"},    {3, "Q4_1"},    {7, "Q8_0"},
    {8, "Q5_0"},     {9, "Q5_1"},     {10, "Q2_K"},   {11, "Q3_K_S"}, {12, "Q3_K_M"},
    {13, "Q3_K_L"},  {14, "Q4_K_S"},  {15, "Q4_K_M"}, {16, "Q5_K_S"}, {17, "Q5_K_M"},
    {18, "Q6_K"},    {19, "IQ2_XXS"}, {20, "IQ2_XS"}, {21, "Q2_K_S"}, {22, "IQ3_XS"},
    {23, "IQ3_XXS"}, {24, "IQ1_S"},   {25, "IQ4_NL"}, {26, "IQ3_S"},  {27, "IQ3_M"},
    {28, "IQ2_S"},   {29, "IQ2_M"},   {30, "IQ4_XS"}, {31, "IQ1_M"},  {32, "BF16"},
    {36, "TQ1_0"},   {37, "TQ2_0"},   {38, "MXFP4"},  {39, "NVFP4"},
};
constexpr uint64_t kGuessed = 1024;  // a flag beside the number

/// What the file says, else the type that most of its bytes have.
std::string type_of(const gguf::File& file) {
  if (const auto number = file.find_uint("general.file_type"); number.has_value() && *number) {
    const auto known =
        std::find_if(std::begin(kFileTypes), std::end(kFileTypes),
                     [&](const FileType& type) { return type.number == (**number & ~kGuessed); });
    if (known != std::end(kFileTypes)) return std::string(known->name);
  }
  std::map<TensorType, uint64_t> bytes;
  for (const gguf::Tensor& tensor : file.tensors()) bytes[tensor.type] += tensor.bytes;
  const auto most = std::max_element(
      bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const TensorTypeInfo* info = most == bytes.end() ? nullptr : tensor_type_info(most->first);
  return info == nullptr ? std::string() : std::string(info->name);
}

/// The beginning of an error, which says what; the path is known, and what to do is for who serves
/// it.
std::string clause(std::string_view message, std::string_view path) {
  if (message.starts_with(path) && message.substr(path.size()).starts_with(": ")) {
    message.remove_prefix(path.size() + 2);
  }
  return std::string(message.substr(0, message.find("; ")));
}

std::optional<uint64_t> kv_token_bytes(const gguf::File& file) {
  const auto layout = planner::layout_from_gguf(file);
  if (!layout.has_value()) return std::nullopt;
  const planner::KvFormat& format = *planner::find_kv_format("f16");
  const auto cost = planner::KvCost::of_layout(*layout, format, format, kBlockTokens);
  return cost.has_value() ? std::optional(cost->token_bytes()) : std::nullopt;
}

/// Everything that keeps it from being served; else `out` gets what it needs.
Status check(const gguf::File& file, ListedModel& out) {
  PW_ASSIGN_OR_RETURN(const model::ModelSpec spec, model::spec_from_gguf(file));
  for (const gguf::Tensor& tensor : file.tensors()) {
    const auto decoder = kernels::find_to_float(tensor.type);
    if (!decoder.has_value()) return decoder.error();
  }
  PW_ASSIGN_OR_RETURN(const kv::Geometry geometry,
                      model::make_geometry(spec, kBlockTokens, KvType::kF16, KvType::kF16));
  PW_ASSIGN_OR_RETURN(const auto tokenizer, text::Tokenizer::from_gguf(file));
  if (tokenizer->vocab_size() != spec.vocab_size) {
    return {ErrorCode::kMalformed, "its tokenizer and its tensors differ in tokens"};
  }
  for (const gguf::Part& part : file.parts()) {
    if (part.bytes_described > part.file_bytes) return {ErrorCode::kMalformed, "it is cut off"};
  }
  const PoolWish wish{.kv_memory = "", .step_tokens = kStepTokens, .sequences = kSequences};
  out.bytes_needed = fixed_memory(spec, wish);
  for (uint32_t group = 0; group < geometry.groups.size(); ++group) {
    out.bytes_needed += geometry.block_stride(group);
  }
  const auto pool = size_pool(wish, spec, geometry);
  out.fits = pool.has_value();
  if (pool.has_value()) out.context_now = pool->context;
  return Status::ok();
}

}  // namespace

ListedModel list_model(stores::FoundModel found) {
  ListedModel out;
  out.found = std::move(found);
  out.problem = out.found.problem;
  if (!out.problem.empty()) return out;
  const auto file = gguf::File::open(out.found.path, {.header_only = true});
  if (!file.has_value()) {
    out.problem = clause(file.error().message, out.found.path);
    return out;
  }
  out.type = type_of(**file);
  if (const auto architecture = (*file)->find_string("general.architecture");
      architecture.has_value() && *architecture) {
    out.architecture = **architecture;
    const auto context = (*file)->find_uint(out.architecture + ".context_length");
    if (context.has_value()) out.context = *context;
  }
  out.kv_token_bytes = kv_token_bytes(**file);
  if (const Status status = check(**file, out); !status) {
    out.problem = clause(status.error().message, out.found.path);
  }
  return out;
}

}  // namespace pagewise::cli
