// SPDX-License-Identifier: Apache-2.0
// Looks through a folder and those in it, whatever is there: links that lead nowhere or in circles,
// folders that may not be read, more entries than anybody wants to wait for.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace pagewise::stores {

/// Bounds on time and memory: no store in use comes near them.
struct WalkLimits {
  uint32_t depth_max = 16;
  uint64_t entries_max = 200000;
};

struct FoundFile {
  std::string path;
  std::string relative;  // to the folder where the walk began
  uint64_t bytes = 0;
  uint64_t device = 0, inode = 0;
};

struct Walk {
  std::vector<FoundFile> files;    // by path
  std::vector<std::string> notes;  // "PATH: REASON" of what could not be looked at
};

/// Every regular file below `folder` whose name ends in ".gguf" (letters of either case), links
/// followed. `skip`: names of folders directly in it that are left out; may be empty. Cost: one
/// look at every entry.
Walk walk_folder(const std::string& folder, const std::function<bool(std::string_view)>& skip,
                 const WalkLimits& limits = {});

/// Names of the folders in `folder`, sorted; `notes` gets why there are none when it cannot be
/// read.
std::vector<std::string> folders_in(const std::string& folder, const WalkLimits& limits,
                                    std::vector<std::string>& notes);

/// Whether there is a folder of that path.
bool is_folder(const std::string& path);

}  // namespace pagewise::stores
