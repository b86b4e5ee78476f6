// SPDX-License-Identifier: Apache-2.0
// How much memory this process may still take: the machine's, or its control group's where that is
// less.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace pagewise {

/// Where the kernel tells; other roots are for tests.
struct MemoryRoots {
  std::string proc = "/proc";
  std::string cgroup = "/sys/fs/cgroup";
};

/// Bytes that can be taken without pushing others out: MemAvailable, and for every control group
/// (version 1 or 2) around this process its limit minus what it holds, page cache that can be
/// dropped not counted. Errors: kIo when /proc/meminfo cannot be read.
Result<uint64_t> available_memory(const MemoryRoots& roots = {});

/// Memory of this process that is in the machine's now. Errors: kIo when /proc/self/status does not
/// tell.
Result<uint64_t> resident_memory(const MemoryRoots& roots = {});

}  // namespace pagewise
