// SPDX-License-Identifier: Apache-2.0
#include "base/text_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace pagewise {

Result<std::string> read_text_file(const std::string& path, std::string_view wanted,
                                   std::size_t bytes_max) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: a directory; give {}", path, wanted)};
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error{ErrorCode::kIo, fmt::format("{}: {}", path, std::strerror(errno))};
  std::string text;
  char piece[1 << 14];
  while (text.size() < bytes_max && file) {
    file.read(piece, static_cast<std::streamsize>(std::min(sizeof piece, bytes_max - text.size())));
    text.append(piece, static_cast<std::size_t>(file.gcount()));
  }
  // What failed half-way is no shorter file.
  if (file.bad()) return Error{ErrorCode::kIo, fmt::format("{}: {}", path, std::strerror(errno))};
  return text;
}

Status write_text_file(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file.good()) return Status::ok();
  return {ErrorCode::kIo, fmt::format("{}: {}", path, std::strerror(errno))};
}

}  // namespace pagewise
