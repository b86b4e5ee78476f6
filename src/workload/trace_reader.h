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
//
// Who asks for lengths alone is given them from traces that have nothing else, too.
#pragma once

#include <functional>
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

/// A request's prompt and answer.
struct RequestLengths {
  uint32_t input_tokens = 0;
  uint32_t output_tokens = 0;
};

/// Tells the lengths of each request, in the file's order. Only "input_length" and "output_length"
/// are read, so that lines need neither a time nor an order, and nothing is kept: a file of any
/// size takes the memory of its longest line. Errors: as of read_trace; what `each` says, behind
/// the number of the line.
Status read_lengths(const std::string& path,
                    const std::function<Status(const RequestLengths&)>& each);

}  // namespace pagewise::workload
