// SPDX-License-Identifier: Apache-2.0
#include "base/thread_name.h"

#if defined(__linux__)
#include <pthread.h>

#include <algorithm>
#include <array>
#include <cstring>
#endif

namespace pagewise {

void name_this_thread([[maybe_unused]] const char* name) {
#if defined(__linux__)
  std::array<char, 16> kept{};  // a longer name would be refused, not cut
  std::memcpy(kept.data(), name, std::min(std::strlen(name), kept.size() - 1));
  pthread_setname_np(pthread_self(), kept.data());
#endif
}

}  // namespace pagewise
