// SPDX-License-Identifier: Apache-2.0
// For tests only: a folder of their own, with files and links in it, gone at the end of its scope.
#pragma once

#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/check.h"

namespace pagewise::testing {

class TempFolder {
 public:
  TempFolder() {
    const char* directory = std::getenv("TMPDIR");
    path_ = std::string(directory != nullptr ? directory : "/tmp") + "/pagewise-test-XXXXXX";
    PW_CHECK(mkdtemp(path_.data()) != nullptr);
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  /// The path of something inside, which need not be there.
  std::string path(std::string_view name) const { return path_ + "/" + std::string(name); }

  /// Writes a file, its folders first. Returns its path.
  std::string write(std::string_view name, std::string_view bytes) const {
    const std::string file = made(name);
    std::ofstream out(file, std::ios::binary | std::ios::trunc);
    out << bytes;
    PW_CHECK(out.good());
    return file;
  }
  /// A symbolic link that leads to `target`, as it is written.
  std::string link(std::string_view name, std::string_view target) const {
    const std::string file = made(name);
    std::filesystem::create_symlink(std::string(target), file);
    return file;
  }
  std::string folder(std::string_view name) const {
    const std::string made_path = path(name);
    std::filesystem::create_directories(made_path);
    return made_path;
  }

 private:
  std::string made(std::string_view name) const {
    const std::string file = path(name);
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    return file;
  }

  std::string path_;
};

}  // namespace pagewise::testing
