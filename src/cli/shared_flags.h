// SPDX-License-Identifier: Apache-2.0
// Flags that several commands have in common, with the same names, defaults and meanings.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/result.h"
#include "sampling/params.h"

namespace pagewise::cli {

/// A number within bounds; CLI11's own ranges let NaN pass. `what`: "share", "temperature".
CLI::Validator number_in(double low, double high, std::string_view what);

/// A whole number within bounds; the library's own conversion wraps what is negative and cuts what
/// is too large.
CLI::Validator whole_in(uint64_t low, uint64_t high);

/// A size as parse_size reads it.
CLI::Validator size_text();

/// How a model is computed and its KV kept.
struct ComputeFlags {
  uint32_t threads = 0;
  uint32_t block_tokens = 32;
  std::string kv_type = "f16";
  std::string kv_type_k, kv_type_v;  // empty: kv_type
};

/// --threads, --isa (in force once parsed), --block-tokens, --kv-type, --kv-type-k, --kv-type-v.
/// `flags` must outlive the parsing, here and below.
void add_compute_flags(CLI::App& command, ComputeFlags& flags);

/// --kv-type, --kv-type-k, --kv-type-v alone.
void add_kv_type_flags(CLI::App& command, ComputeFlags& flags);

struct KvTypes {
  KvType key, value;
};
/// The cache's types; a parsed command line has no others.
KvTypes kv_types_of(const ComputeFlags& flags);
/// "f16", or "K q8_0, V f16".
std::string kv_types_text(const ComputeFlags& flags);

/// --kv-memory, --max-context.
void add_pool_flags(CLI::App& command, std::string& kv_memory, uint32_t& max_context);

/// --temp, --top-k, --top-p, --min-p; what `params` holds is the default.
void add_sampling_flags(CLI::App& command, sampling::Params& params);

}  // namespace pagewise::cli
