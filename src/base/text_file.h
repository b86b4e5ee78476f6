// SPDX-License-Identifier: Apache-2.0
// Files that a person names on the command line, as text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pagewise {

/// The file's bytes, the first `bytes_max` of them. Errors: kInvalidArgument for a directory, which
/// says to give `wanted` ("a file with one key a line"); kIo with the system's words.
Result<std::string> read_text_file(const std::string& path, std::string_view wanted,
                                   std::size_t bytes_max = SIZE_MAX);

/// Makes the file, or replaces what is in it. Errors: kIo with the system's words.
Status write_text_file(const std::string& path, std::string_view text);

}  // namespace pagewise
