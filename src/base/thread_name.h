// SPDX-License-Identifier: Apache-2.0
// Names of threads, as top, gdb and /proc/PID/task/*/comm show them: whose processor time is whose.
#pragma once

namespace pagewise {

/// Names the calling thread; the system keeps the first 15 bytes. Does nothing where threads have
/// no names.
void name_this_thread(const char* name);

}  // namespace pagewise
