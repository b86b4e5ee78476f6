// SPDX-License-Identifier: Apache-2.0
// Numbers as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace pagewise::planner {

/// "1,234,567".
std::string grouped(uint64_t number);

/// "4k" for 4,096 and other multiples of 1,024; else grouped.
std::string short_tokens(uint64_t tokens);

}  // namespace pagewise::planner
