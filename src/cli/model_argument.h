// SPDX-License-Identifier: Apache-2.0
// The model that a command is about: a file, or a name that leads to one in the stores of other
// programs (stores/find.h).
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "stores/location.h"

namespace pagewise::cli {

/// As it was typed.
struct ModelArgument {
  std::string text;
  std::vector<std::string> folders;  // --model-dir
};

/// MODEL and --model-dir. `argument` must outlive the parsing.
void add_model_argument(CLI::App& command, ModelArgument& argument, std::string_view description);

/// --model-dir alone.
void add_model_dir_flag(CLI::App& command, std::vector<std::string>& folders);

struct NamedModel {
  std::string path;
  std::string name;  // what it is called: of a file its name without extension and number of part
};

/// A file of that path, else what the name means. Nothing of the file is read; that it can be
/// opened is not said. Errors: those of stores::resolve.
Result<NamedModel> find_model(const ModelArgument& argument);

/// The folders that a person named, then the stores of other programs.
std::vector<stores::Location> model_locations(const std::vector<std::string>& folders);

}  // namespace pagewise::cli
