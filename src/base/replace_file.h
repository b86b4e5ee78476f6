// SPDX-License-Identifier: Apache-2.0
// Writes a file so that its path holds the old contents or all of the new ones, whatever happens in
// between: full disks, signals, power.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace pagewise {

/// Whether replace_file() could write there, for those who work long before they have something to
/// write. Leaves nothing behind. Errors: as replace_file().
Status check_replaceable(const std::string& path);

/// Writes a new file beside `path` (of a link: beside what it leads to), has it reach the disk and
/// puts it in the place of what was there. On failure that stays, and nothing else does. Errors:
/// kInvalidArgument for a directory or something else that is no file; kIo with the path and the
/// system's words.
Status replace_file(const std::string& path, std::string_view text);

}  // namespace pagewise
