// SPDX-License-Identifier: Apache-2.0
// Numbers as people read them.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"

namespace pagewise::planner {

/// "1,234,567".
std::string grouped(uint64_t number);

/// "26.5 ms", "5.35 s", "11.6 min": three digits and a unit of time, from "us" to "years".
std::string duration(TimeNs ns);

/// "4k" for 4,096 and other multiples of 1,024; else grouped.
std::string short_tokens(uint64_t tokens);

}  // namespace pagewise::planner
