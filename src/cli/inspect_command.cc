// SPDX-License-Identifier: Apache-2.0
// `pagewise inspect`: what a model file is, from its header, and whether it can be served.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/model_argument.h"
#include "cli/model_report.h"
#include "cli/model_report_output.h"
#include "cli/process.h"
#include "cli/terminal_text.h"
#include "gguf/gguf.h"

namespace pagewise::cli {
namespace {

constexpr int kExitUnreadable = 2;
constexpr int kExitNotServed = 3;

struct InspectFlags {
  ModelArgument model;
  bool json = false;
  bool chat_template = false;
};

Status print_template(const gguf::File& file) {
  PW_ASSIGN_OR_RETURN(const auto source, file.find_string("tokenizer.chat_template"));
  if (!source) {
    return {ErrorCode::kNotFound, file.path() + ": this model file has no chat template"};
  }
  print_generated(*source);
  if (!source->ends_with('\n')) std::fputc('\n', stdout);
  return Status::ok();
}

void inspect(const InspectFlags& flags, int& exit_status) {
  const auto named = find_model(flags.model);
  auto file = named.has_value() ? gguf::File::open(named->path, {.header_only = true})
                                : Result<std::unique_ptr<gguf::File>>(named.error());
  std::string problem;
  if (named.has_value() && !file.has_value()) {
    // A part whose others are not there can still be described.
    auto part = gguf::File::open(named->path, {.header_only = true, .one_part = true});
    if (part.has_value()) {
      problem = file.error().message;
      file = std::move(part);
    }
  }
  if (!file.has_value()) {
    finish("inspect", file.status(), exit_status);
    exit_status = kExitUnreadable;
    return;
  }
  if (flags.chat_template) {
    finish("inspect", print_template(**file), exit_status);
    return;
  }
  ModelReport report = report_on(**file);
  if (!problem.empty()) report.problems.insert(report.problems.begin(), problem);
  if (flags.json) {
    fmt::print("{}\n", report_json(report, **file));
  } else {
    fmt::print("{}", report_text(report, **file));
  }
  if (!report.served()) exit_status = kExitNotServed;
  finish("inspect", Status::ok(), exit_status);
}

}  // namespace

void add_inspect_command(CLI::App& app, int& exit_status) {
  const auto flags = std::make_shared<InspectFlags>();
  CLI::App* command = app.add_subcommand(
      "inspect", "What a model file is and whether it can be served (status 3 when not)");
  add_model_argument(*command, flags->model,
                     "A GGUF file, or a model's name; only the header is read");
  command->add_flag("--json", flags->json, "One JSON object: all metadata, every tensor");
  command->add_flag("--template", flags->chat_template, "Print the chat template instead");
  command->callback([flags, &exit_status] { inspect(*flags, exit_status); });
}

}  // namespace pagewise::cli
