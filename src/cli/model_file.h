// SPDX-License-Identifier: Apache-2.0
// A model file as the commands use it: opened, its spec, tokenizer and chat template read and
// checked against each other.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "cli/shared_flags.h"
#include "gguf/gguf.h"
#include "kv/geometry.h"
#include "model/spec.h"
#include "server/served_model.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace pagewise::cli {

struct ModelFile {
  std::unique_ptr<gguf::File> file;
  model::ModelSpec spec;
  std::unique_ptr<text::Tokenizer> tokenizer;
};

/// `max_context`: as --max-context, 0: the model's (model::limit_context). Errors: what the readers
/// say; kMalformed when tokenizer and tensors differ in tokens.
Result<ModelFile> open_model(const std::string& path, uint32_t max_context = 0);

/// The KV cache's geometry as the flags ask for it. Errors: those of model::make_geometry.
Result<kv::Geometry> geometry_of(const model::ModelSpec& spec, const ComputeFlags& flags);

struct LoadedTemplate {
  std::unique_ptr<text::ChatTemplate> compiled;
  std::string problem;  // when there is none
};

/// `path`: of a template to use in place of the model file's own; it must work. Empty: none. A
/// model file without a template that can be used is no error: it can still complete text.
Result<LoadedTemplate> load_template(const gguf::File& file, const std::string& path = "");

/// What a prompt is made with; names and limits are the caller's to fill in. Both must outlive it.
server::ServedModel describe_model(const text::Tokenizer& tokenizer,
                                   const LoadedTemplate& chat_template);

/// "models/a.gguf" is "a", and so is "models/a-00001-of-00002.gguf".
std::string file_stem(const std::string& path);

}  // namespace pagewise::cli
