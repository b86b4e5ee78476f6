// SPDX-License-Identifier: Apache-2.0
// For tests only: how often this program has called operator new. A test program that links
// pagewise_allocation_count has it replaced by one that counts.
#pragma once

#include <cstdint>

namespace pagewise::testing {

/// Calls so far, by all threads.
uint64_t allocation_count();

}  // namespace pagewise::testing
