// SPDX-License-Identifier: Apache-2.0
#include "stores/walk.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

namespace pagewise::stores {
namespace {

namespace fs = std::filesystem;

bool is_gguf_name(std::string_view name) {
  constexpr std::string_view kExtension = ".gguf";
  if (name.size() <= kExtension.size()) return false;
  const std::string_view end = name.substr(name.size() - kExtension.size());
  return std::equal(end.begin(), end.end(), kExtension.begin(), [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == b;
  });
}

class Walker {
 public:
  Walker(const WalkLimits& limits, const std::function<bool(std::string_view)>& skip)
      : limits_(limits), skip_(skip) {}

  void enter(const std::string& folder, const std::string& relative, uint32_t depth) {
    struct stat info {};
    if (stat(folder.c_str(), &info) != 0) return note(folder, errno);
    // Seen already: a link that leads back, or a second way to the same folder.
    if (!seen_.insert({info.st_dev, info.st_ino}).second) return;
    if (depth > limits_.depth_max) {
      walk_.notes.push_back(
          fmt::format("{}: more than {} folders deep; what is below was not "
                      "looked at",
                      folder, limits_.depth_max));
      return;
    }
    for (const std::string& name : names_in(folder)) {
      if (++entries_ > limits_.entries_max) {
        if (entries_ == limits_.entries_max + 1) {
          walk_.notes.push_back(fmt::format("{}: more than {} entries; the rest was not looked at",
                                            folder, limits_.entries_max));
        }
        return;
      }
      take(folder + "/" + name, relative.empty() ? name : relative + "/" + name, name, depth);
    }
  }

  Walk finish() { return std::move(walk_); }

 private:
  void take(const std::string& path, const std::string& relative, const std::string& name,
            uint32_t depth) {
    struct stat info {};
    if (stat(path.c_str(), &info) != 0) {
      // Whatever else leads nowhere would not have been a model.
      if (is_gguf_name(name)) note(path, errno);
      return;
    }
    if (S_ISDIR(info.st_mode)) {
      if (depth == 0 && skip_ && skip_(name)) return;
      return enter(path, relative, depth + 1);
    }
    if (!S_ISREG(info.st_mode) || !is_gguf_name(name)) return;
    walk_.files.push_back(
        {path, relative, static_cast<uint64_t>(info.st_size), info.st_dev, info.st_ino});
  }

  std::vector<std::string> names_in(const std::string& folder) {
    std::vector<std::string> names;
    std::error_code error;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
      names.push_back(at->path().filename().string());
      if (names.size() > limits_.entries_max) break;
    }
    if (error) walk_.notes.push_back(fmt::format("{}: {}", folder, error.message()));
    std::sort(names.begin(), names.end());
    return names;
  }

  void note(const std::string& path, int code) {
    walk_.notes.push_back(fmt::format("{}: {}", path, std::generic_category().message(code)));
  }

  const WalkLimits& limits_;
  const std::function<bool(std::string_view)>& skip_;
  std::set<std::pair<uint64_t, uint64_t>> seen_;
  uint64_t entries_ = 0;
  Walk walk_;
};

}  // namespace

Walk walk_folder(const std::string& folder, const std::function<bool(std::string_view)>& skip,
                 const WalkLimits& limits) {
  Walker walker(limits, skip);
  walker.enter(folder, "", 0);
  return walker.finish();
}

std::vector<std::string> folders_in(const std::string& folder, const WalkLimits& limits,
                                    std::vector<std::string>& notes) {
  std::vector<std::string> names;
  std::error_code error;
  uint64_t entries = 0;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (++entries > limits.entries_max) {
      notes.push_back(fmt::format("{}: more than {} entries; the rest was not looked at", folder,
                                  limits.entries_max));
      break;
    }
    if (is_folder(at->path().string())) names.push_back(at->path().filename().string());
  }
  if (error) notes.push_back(fmt::format("{}: {}", folder, error.message()));
  std::sort(names.begin(), names.end());
  return names;
}

bool is_folder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

}  // namespace pagewise::stores
