// SPDX-License-Identifier: Apache-2.0
// The flags of `pagewise serve`.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/model_argument.h"
#include "cli/shared_flags.h"

namespace pagewise::cli {

struct ServeFlags {
  ModelArgument model;
  std::string host = "127.0.0.1";
  uint16_t port = 8080;
  ComputeFlags compute;
  std::string kv_memory;
  uint32_t max_context = 0;
  uint32_t step_tokens = 512;
  uint32_t max_seqs = 64;
  uint32_t max_queue = 256;
  bool no_prefix_cache = false;
  std::string cache_curve = "on";
  std::vector<std::string> aliases;
  std::string chat_template;  // of a file; empty: the model file's own
  std::string api_key_file;
  bool insecure = false;
  double lease_5m_s = 300;
  double lease_1h_s = 3600;
  double lease_share = 0.5;
  std::string cache_mode = "native";
  uint32_t cache_min_tokens = 0;
  std::string price_table;
  uint64_t shuffle_seed = 0;  // 0: off
};

/// Adds every flag to the command; they are written to `flags`, which must outlive the parsing.
void add_serve_flags(CLI::App& command, ServeFlags& flags);

}  // namespace pagewise::cli
