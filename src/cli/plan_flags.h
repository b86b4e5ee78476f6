// SPDX-License-Identifier: Apache-2.0
// The flags of `pagewise plan`, and what they ask. Options arrive as text and are parsed here, so
// that all mistakes are reported in one form.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "planner/plan.h"

namespace pagewise::cli {

/// What was typed; empty where nothing was.
struct PlanFlags {
  std::string source, layers, kv_heads, head_dim, value_dim, window, full_every;
  std::string latent_dim, state_values, state_layers;
  std::string kv_type = "f16", kv_type_k, kv_type_v, state_type = "f32";
  std::string block_tokens, tokens, batch, memory, requests, mib_per_token, weights;
  std::string lengths, trace, max_tokens, users;
  std::string device_memory, devices, engine, working_memory, utilization;
  std::string prefix_tokens, calls, read_price, write_price, every, ttl;
  std::string calibration, step_tokens;
  std::vector<std::string> folders;
  std::string html, svg, live, key;
  bool waste = false;
  bool json = false;
};

/// `flags` must outlive the parsing.
void add_plan_flags(CLI::App& plan, PlanFlags& flags);

/// The path of the file that SOURCE means. Errors: those of find_model.
Result<std::string> plan_source_path(const PlanFlags& flags);

/// Reads the header that SOURCE names, and no more of it. Errors: kInvalidArgument naming the flag;
/// those of the file.
Result<planner::PlanInput> parse_plan_flags(const PlanFlags& flags);

}  // namespace pagewise::cli
