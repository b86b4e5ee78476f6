// SPDX-License-Identifier: Apache-2.0
#include "cli/model_argument.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "cli/model_file.h"
#include "stores/find.h"
#include "stores/walk.h"

namespace pagewise::cli {
namespace {

/// Whether the text can only be meant as a path: a name of a store never begins like that.
bool is_path(std::string_view text) {
  for (const std::string_view begin : {"/", "./", "../", "~/"}) {
    if (text.starts_with(begin)) return true;
  }
  return false;
}

bool is_file(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && !S_ISDIR(info.st_mode);
}

}  // namespace

void add_model_dir_flag(CLI::App& command, std::vector<std::string>& folders) {
  command
      .add_option("--model-dir", folders,
                  "A folder to look for models in, beside the stores of Ollama, Hugging Face, LM "
                  "Studio and llama.cpp; may be repeated")
      ->allow_extra_args(false)
      ->check(CLI::Validator(
          [](std::string& text) -> std::string {
            struct stat info {};
            if (stat(text.c_str(), &info) != 0) {
              return fmt::format("'{}': {}", text, std::generic_category().message(errno));
            }
            return S_ISDIR(info.st_mode) ? "" : fmt::format("'{}' is no folder", text);
          },
          ""));
}

void add_model_argument(CLI::App& command, ModelArgument& argument, std::string_view description) {
  command.add_option("MODEL", argument.text, std::string(description))
      ->required()
      ->check(CLI::Validator(
          [](std::string& text) -> std::string {
            return text.empty() ? "the path is empty; name a GGUF file" : "";
          },
          ""));
  add_model_dir_flag(command, argument.folders);
}

std::vector<stores::Location> model_locations(const std::vector<std::string>& folders) {
  std::vector<stores::Location> out;
  for (const std::string& folder : folders) {
    stores::add_location(out, stores::StoreKind::kFolder, folder);
  }
  for (stores::Location& location : stores::usual_locations(stores::process_environment)) {
    out.push_back(std::move(location));
  }
  return out;
}

Result<NamedModel> find_model(const ModelArgument& argument) {
  const std::string& text = argument.text;
  if (is_path(text) || is_file(text)) return NamedModel{text, file_stem(text)};
  const stores::Findings findings = stores::find_models(model_locations(argument.folders));
  PW_ASSIGN_OR_RETURN(stores::FoundModel found, stores::resolve(findings, text));
  return NamedModel{std::move(found.path), std::move(found.name)};
}

}  // namespace pagewise::cli
