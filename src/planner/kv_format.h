// SPDX-License-Identifier: Apache-2.0
// Element types of K and V that can be planned: those that Pagewise serves, and those of other
// engines, so that a plan can answer "what would a smaller type save" before anything offers it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/result.h"

namespace pagewise::planner {

struct KvFormat {
  std::string_view name;          // as on the command line: "q8_0"
  TensorType type;                // how its rows are laid out
  std::optional<KvType> kv_type;  // the cache's own name for it, if it has one
  bool served;                    // whether the server can run with it today

  bool operator==(const KvFormat& other) const { return name == other.name; }
};

std::span<const KvFormat> kv_formats();
/// "f16, bf16, ...", for messages.
std::string kv_format_names();
/// nullptr for a name that is none.
const KvFormat* find_kv_format(std::string_view name);

/// Bytes of one row of `elements` values, one head of one token.
/// Errors: kInvalidArgument when the type's blocks do not divide the row.
Result<uint64_t> kv_format_row_bytes(const KvFormat& format, uint64_t elements);

}  // namespace pagewise::planner
