// SPDX-License-Identifier: Apache-2.0
// Which instruction set the kernels of this process use. One for the whole process (contract rule
// 6).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace pagewise::kernels {

/// "AVX2", "AVX3", "AVX3_DL", "NEON", or without any of them "EMU128" or "SCALAR" (by compiler).
/// Part of what identifies KV bytes outside the process.
std::string_view isa_name();

/// Those that this processor has and the kernels are compiled for, the best first.
std::vector<std::string_view> isa_names();

/// Uses that one from now on; false, and no change, when isa_names() has no such. Call it before
/// any kernel runs and before other threads do.
bool use_isa(std::string_view name);

/// Changes whenever a kernel's arithmetic changes, so that stored KV of other bits is not reused.
inline constexpr uint32_t kKernelRevision = 3;

}  // namespace pagewise::kernels
