// SPDX-License-Identifier: Apache-2.0
#include "base/system_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

namespace pagewise {
namespace {

std::optional<std::string> read_text(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// The number at the beginning of `text`; nullopt for "max" and other words.
std::optional<uint64_t> number(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return std::nullopt;
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data() + first, text.data() + text.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

std::optional<uint64_t> read_number(const std::string& path) {
  const auto text = read_text(path);
  return text ? number(*text) : std::nullopt;
}

/// The number behind `name` in a file of "name value" lines.
std::optional<uint64_t> read_field(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name)) return number(std::string_view(line).substr(name.size()));
  }
  return std::nullopt;
}

/// Room under one group's limit; nullopt without a limit.
std::optional<uint64_t> group_room(const std::string& folder, const std::string& limit_file,
                                   const std::string& usage_file, std::string_view cache_field) {
  const auto limit = read_number(folder + "/" + limit_file);
  const auto usage = read_number(folder + "/" + usage_file);
  if (!limit || !usage) return std::nullopt;
  const uint64_t cache = read_field(folder + "/memory.stat", cache_field).value_or(0);
  const uint64_t held = *usage - std::min(*usage, cache);
  return *limit - std::min(*limit, held);
}

}  // namespace

Result<uint64_t> available_memory(const MemoryRoots& roots) {
  const std::string meminfo = roots.proc + "/meminfo";
  const auto kib = read_field(meminfo, "MemAvailable:");
  if (!kib) return Error{ErrorCode::kIo, meminfo + ": no MemAvailable in it; give --kv-memory"};
  uint64_t room = *kib * 1024;

  // Lines are "HIERARCHY:CONTROLLERS:PATH". A limit further up binds as well.
  std::ifstream groups(roots.proc + "/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first == std::string::npos ? first : first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool v2 = line.starts_with("0:") && controllers.empty();
    if (!v2 && controllers.find("memory") == std::string::npos) continue;
    const std::string root = v2 ? roots.cgroup : roots.cgroup + "/memory";
    std::string path = line.substr(second + 1);
    while (true) {
      while (path.ends_with('/')) path.pop_back();
      const std::string folder = root + path;
      const auto group = v2 ? group_room(folder, "memory.max", "memory.current", "inactive_file ")
                            : group_room(folder, "memory.limit_in_bytes", "memory.usage_in_bytes",
                                         "total_inactive_file ");
      if (group) room = std::min(room, *group);
      const std::size_t slash = path.rfind('/');
      if (slash == std::string::npos) break;
      path.resize(slash);
    }
  }
  return room;
}

Result<uint64_t> resident_memory(const MemoryRoots& roots) {
  const std::string status = roots.proc + "/self/status";
  const auto kib = read_field(status, "VmRSS:");
  if (!kib) return Error{ErrorCode::kIo, status + ": no line with VmRSS in it"};
  return *kib * 1024;
}

}  // namespace pagewise
