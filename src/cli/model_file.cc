// SPDX-License-Identifier: Apache-2.0
#include "cli/model_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cli/process.h"
#include "gguf/split_name.h"
#include "server/reasoning.h"

namespace pagewise::cli {

Result<ModelFile> open_model(const std::string& path, uint32_t max_context) {
  ModelFile out;
  PW_ASSIGN_OR_RETURN(out.file, gguf::File::open(path));
  PW_ASSIGN_OR_RETURN(out.spec, model::spec_from_gguf(*out.file));
  if (max_context != 0) model::limit_context(out.spec, max_context);
  PW_ASSIGN_OR_RETURN(out.tokenizer, text::Tokenizer::from_gguf(*out.file));
  if (out.tokenizer->vocab_size() != out.spec.vocab_size) {
    return Error{ErrorCode::kMalformed,
                 fmt::format("{}: the tokenizer has {} tokens and the model {}", path,
                             out.tokenizer->vocab_size(), out.spec.vocab_size)};
  }
  return out;
}

Result<kv::Geometry> geometry_of(const model::ModelSpec& spec, const ComputeFlags& flags) {
  const auto [key, value] = kv_types_of(flags);
  return model::make_geometry(spec, flags.block_tokens, key, value);
}

Result<LoadedTemplate> load_template(const gguf::File& file, const std::string& path) {
  LoadedTemplate out;
  if (!path.empty()) {
    PW_ASSIGN_OR_RETURN(out.compiled, text::ChatTemplate::from_file(path));
    return out;
  }
  PW_ASSIGN_OR_RETURN(const auto source, file.find_string("tokenizer.chat_template"));
  if (!source) {
    out.problem = "this model file has no chat template";
    return out;
  }
  auto compiled = text::ChatTemplate::compile(*source);
  if (compiled) {
    out.compiled = *std::move(compiled);
  } else {
    out.problem = fmt::format("this model file's chat template cannot be used ({})",
                              compiled.error().message);
  }
  return out;
}

server::ServedModel describe_model(const text::Tokenizer& tokenizer,
                                   const LoadedTemplate& chat_template) {
  server::ServedModel served;
  served.tokenizer = &tokenizer;
  served.chat_template = chat_template.compiled.get();
  if (served.chat_template != nullptr) {
    served.reasoning = server::detect_reasoning(*served.chat_template);
    served.tool_format = server::tools::detect_tool_format(*served.chat_template);
  }
  served.no_template_reason = chat_template.problem;
  served.local_time_s = local_time_s;
  if (const auto bos = tokenizer.bos()) served.bos_token = tokenizer.token_bytes(*bos);
  if (const auto eos = tokenizer.eos()) served.eos_token = tokenizer.token_bytes(*eos);
  for (uint32_t token = 0; token < tokenizer.vocab_size(); ++token) {
    const std::size_t bytes = tokenizer.token_bytes(TokenId(static_cast<int32_t>(token))).size();
    served.token_bytes_max = std::max(served.token_bytes_max, static_cast<uint32_t>(bytes));
  }
  return served;
}

std::string file_stem(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  if (const auto part = gguf::parse_split_name(name)) return part->stem;
  if (name.ends_with(".gguf")) name.resize(name.size() - 5);
  return name;
}

}  // namespace pagewise::cli
