// SPDX-License-Identifier: Apache-2.0
// Which instruction set the kernels of this process use. One for the whole process (contract rule
// 6).
#pragma once

#include <cstdint>
#include <string_view>

namespace pagewise::kernels {

/// "AVX2", "AVX3", "AVX3_DL", "NEON", or without any of them "EMU128" or "SCALAR" (by compiler).
/// Part of what identifies KV bytes outside the process.
std::string_view isa_name();

/// Changes whenever a kernel's arithmetic changes, so that stored KV of other bits is not reused.
inline constexpr uint32_t kKernelRevision = 3;

}  // namespace pagewise::kernels
