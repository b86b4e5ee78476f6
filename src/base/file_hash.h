// SPDX-License-Identifier: Apache-2.0
// What is in a file, as SHA-256: which model a figure was measured on.
#pragma once

#include <span>
#include <string>

#include "base/hash.h"
#include "base/result.h"

namespace pagewise {

/// Of the files' bytes one behind the other: of one file what `sha256sum` prints. Errors: kIo with
/// the path and the system's words. Cost: reads all of it, 1 MiB at a time.
Result<Sha256> sha256_of_files(std::span<const std::string> paths);

}  // namespace pagewise
