// SPDX-License-Identifier: Apache-2.0
// Builds the objects, wires them, nothing else.
#include "cli/command_line.h"
#include "cli/commands.h"

int main(int argc, char** argv) {
  CLI::App app{"Pagewise: an inference server and capacity planner built around the KV cache"};
  app.require_subcommand(1);
  app.set_version_flag("--version", PAGEWISE_VERSION);
  app.failure_message([&app](const CLI::App*, const CLI::Error& error) {
    return pagewise::cli::usage_error(app, error);
  });
  int exit_status = 0;
  pagewise::cli::add_bench_command(app, exit_status);
  pagewise::cli::add_chat_command(app, exit_status);
  pagewise::cli::add_inspect_command(app, exit_status);
  pagewise::cli::add_models_command(app, exit_status);
  pagewise::cli::add_plan_command(app, exit_status);
  pagewise::cli::add_run_command(app, exit_status);
  pagewise::cli::add_serve_command(app, exit_status);
  pagewise::cli::add_simulate_command(app, exit_status);
  pagewise::cli::add_explain_command(app, exit_status);
  pagewise::cli::shape_command_line(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // Help and version leave with 0; a wrong command line is one line and status 2.
    return app.exit(error) == 0 ? 0 : 2;
  }
  return exit_status;
}
