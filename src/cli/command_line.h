// SPDX-License-Identifier: Apache-2.0
// How every subcommand's help looks and how its mistakes are told: one line, naming the flag.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace pagewise::cli {

/// Call when all subcommands have their options: help in one form, and of two equal options the
/// last counts.
void shape_command_line(CLI::App& app);

/// The one line, with its newline, for a command line that cannot be parsed.
std::string usage_error(const CLI::App& app, const CLI::Error& error);

}  // namespace pagewise::cli
