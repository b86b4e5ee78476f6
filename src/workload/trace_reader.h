// SPDX-License-Identifier: Apache-2.0
// Traces of requests from files.
//
// JSON lines, as Mooncake published them (github.com/kvcache-ai/Mooncake, FAST25-release/traces,
// Apache-2.0):
//   {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 2353]}
// milliseconds, tokens, and one id for each 512 tokens of the prompt, the last of which may be cut;
// the same id behind the same ids is the same text. Without "hash_ids" nothing of a prompt is known
// from another one.
//
// Or CSV with the same names in its first line; hash_ids are then separated by blanks:
//   timestamp,input_length,output_length,hash_ids
//   27482,6955,52,46 47 2353
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "workload/trace.h"

namespace pagewise::workload {

inline constexpr uint32_t kHashedTokens = 512;

/// Errors: kIo, kInvalidArgument for what is no file; kMalformed with the number of the line.
Result<Trace> read_trace(const std::string& path);

/// `name` stands in messages.
Result<Trace> parse_trace(std::string_view text, std::string_view name);

}  // namespace pagewise::workload
