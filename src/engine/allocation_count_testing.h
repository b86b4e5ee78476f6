// SPDX-License-Identifier: Apache-2.0
// For tests only: how often this program has called operator new. The test program replaces it
// (allocation_count_test.cc), except under clang's thread sanitizer, whose own cannot be replaced.
#pragma once

#include <cstdint>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define PW_ALLOCATIONS_UNCOUNTED 1
#endif
#endif

namespace pagewise::engine {

#ifndef PW_ALLOCATIONS_UNCOUNTED
uint64_t allocation_count();
#endif

}  // namespace pagewise::engine
