// SPDX-License-Identifier: Apache-2.0
#include "base/replace_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace pagewise {
namespace {

Status failed(const std::string& path, int error) {
  return {ErrorCode::kIo, fmt::format("{}: cannot be written: {}", path, std::strerror(error))};
}

/// The new file while it is written; gone at the end of its scope unless it was put in place.
class NewFile {
 public:
  explicit NewFile(const std::string& path)
      : path_(path), name_(fmt::format("{}.{}.new", path, getpid())) {}
  ~NewFile() {
    if (file_ >= 0) close(file_);
    if (exists_) unlink(name_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  Status create() {
    constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
    file_ = open(name_.c_str(), kFlags, 0666);
    // Left by one that was killed: in a container every run may have the same process id.
    if (file_ < 0 && errno == EEXIST && unlink(name_.c_str()) == 0) {
      file_ = open(name_.c_str(), kFlags, 0666);
    }
    if (file_ < 0) return failed(path_, errno);
    exists_ = true;
    return Status::ok();
  }
  Status write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t written = ::write(file_, text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return failed(path_, errno);
      text.remove_prefix(static_cast<std::size_t>(written));
    }
    if (fsync(file_) != 0) return failed(path_, errno);
    // Some file systems say only here that they had no room.
    if (close(std::exchange(file_, -1)) != 0) return failed(path_, errno);
    return Status::ok();
  }
  Status put_in_place() {
    if (rename(name_.c_str(), path_.c_str()) != 0) return failed(path_, errno);
    exists_ = false;
    return Status::ok();
  }

 private:
  const std::string path_, name_;
  int file_ = -1;
  bool exists_ = false;
};

/// What is written to: of a link, what it leads to.
Result<std::string> target_of(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    if (std::filesystem::is_symlink(std::filesystem::symlink_status(path, error))) {
      return Error{ErrorCode::kInvalidArgument, fmt::format("{}: a link that leads nowhere", path)};
    }
    return path;
  }
  if (!std::filesystem::is_regular_file(status)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: {}; give a file to write", path,
                             std::filesystem::is_directory(status) ? "a directory" : "no file")};
  }
  const std::filesystem::path target = std::filesystem::canonical(path, error);
  return error ? path : target.string();
}

}  // namespace

Status check_replaceable(const std::string& path) {
  PW_ASSIGN_OR_RETURN(const std::string target, target_of(path));
  NewFile file(target);
  return file.create();
}

Status replace_file(const std::string& path, std::string_view text) {
  PW_ASSIGN_OR_RETURN(const std::string target, target_of(path));
  NewFile file(target);
  PW_RETURN_IF_ERROR(file.create());
  PW_RETURN_IF_ERROR(file.write(text));
  return file.put_in_place();
}

}  // namespace pagewise
