// SPDX-License-Identifier: Apache-2.0
// PW_CHECK: a bug stops the process, in release too. We stop rather than serve another request's
// KV. Nothing that a client or a file can send may reach one.
#pragma once

namespace pagewise {

[[noreturn]] void check_failed(const char* expression, const char* file, int line);

}  // namespace pagewise

#define PW_CHECK(condition)                                     \
  do {                                                          \
    if (!(condition)) [[unlikely]] {                            \
      ::pagewise::check_failed(#condition, __FILE__, __LINE__); \
    }                                                           \
  } while (false)
