// SPDX-License-Identifier: Apache-2.0
// For tests only: how often this program has called operator new. The test program replaces it
// (allocation_count_test.cc).
#pragma once

#include <cstdint>

namespace pagewise::model::testing {

uint64_t allocation_count();

}  // namespace pagewise::model::testing
