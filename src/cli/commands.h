// SPDX-License-Identifier: Apache-2.0
// One function a subcommand, one file each: it adds itself to the app; its callback stores the exit
// status.
#pragma once

#include <CLI/CLI.hpp>

namespace pagewise::cli {

/// Exit statuses: 0 fine; 1 failed; 2 wrong usage or input; 3 the plan does not fit,
/// or the model cannot be served.
void add_bench_command(CLI::App& app, int& exit_status);     // bench_command.cc
void add_chat_command(CLI::App& app, int& exit_status);      // chat_command.cc
void add_explain_command(CLI::App& app, int& exit_status);   // explain_command.cc
void add_inspect_command(CLI::App& app, int& exit_status);   // inspect_command.cc
void add_models_command(CLI::App& app, int& exit_status);    // models_command.cc
void add_plan_command(CLI::App& app, int& exit_status);      // plan_command.cc
void add_run_command(CLI::App& app, int& exit_status);       // run_command.cc
void add_serve_command(CLI::App& app, int& exit_status);     // serve_command.cc
void add_simulate_command(CLI::App& app, int& exit_status);  // simulate_command.cc

}  // namespace pagewise::cli
