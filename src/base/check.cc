// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace pagewise {

void check_failed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "pagewise: internal check failed: %s (%s:%d)\n", expression, file, line);
  std::abort();
}

}  // namespace pagewise
