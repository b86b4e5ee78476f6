// SPDX-License-Identifier: Apache-2.0
#include "server/api_keys.h"

#include <fmt/format.h>

#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

namespace pagewise::server {
namespace {

std::string_view trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

/// '#' starts a comment where a line starts or white space ends: a key may contain one.
std::string_view without_comment(std::string_view line) {
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '#' && (i == 0 || line[i - 1] == ' ' || line[i - 1] == '\t')) {
      return line.substr(0, i);
    }
  }
  return line;
}

}  // namespace

ApiKeys::ApiKeys(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) digests_.push_back(sha256(key));
}

ApiKeys ApiKeys::from_text(std::string_view text) {
  static constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<std::string> keys;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    line = trim(without_comment(line));
    if (!line.empty()) keys.emplace_back(line);
  }
  return ApiKeys(keys);
}

Result<ApiKeys> ApiKeys::from_file(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: a directory; give a file with one key a line", path)};
  }
  std::ifstream file(path);
  if (!file) return Error{ErrorCode::kIo, fmt::format("{}: {}", path, std::strerror(errno))};
  std::stringstream text;
  text << file.rdbuf();
  ApiKeys keys = from_text(text.str());
  if (!keys.configured()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: no key in it; give one key a line", path)};
  }
  return keys;
}

bool ApiKeys::accepts(std::string_view key) const {
  const Sha256 asked = sha256(key);
  bool found = false;
  for (const Sha256& digest : digests_) {
    uint8_t difference = 0;
    for (std::size_t i = 0; i < digest.size(); ++i)
      difference |= static_cast<uint8_t>(digest[i] ^ asked[i]);
    found |= difference == 0;
  }
  return found;
}

std::optional<std::string> presented_key(const HttpRequest& request) {
  if (const std::string* key = request.header("x-api-key"); key != nullptr && !key->empty())
    return *key;
  const std::string* authorization = request.header("authorization");
  if (authorization == nullptr) return std::nullopt;
  const std::string_view value = trim(*authorization);
  static constexpr std::string_view kScheme = "bearer";
  if (value.size() <= kScheme.size() || value[kScheme.size()] != ' ') return std::nullopt;
  for (std::size_t i = 0; i < kScheme.size(); ++i) {
    if (std::tolower(static_cast<unsigned char>(value[i])) != kScheme[i]) return std::nullopt;
  }
  const std::string_view key = trim(value.substr(kScheme.size()));
  if (key.empty()) return std::nullopt;
  return std::string(key);
}

std::string cache_namespace(std::string_view key, std::string_view workspace,
                            std::string_view salt) {
  // Lengths in front, so that no two triples spell the same text.
  const Sha256 digest = sha256(fmt::format("{}:{}{}:{}{}:{}", key.size(), key, workspace.size(),
                                           workspace, salt.size(), salt));
  return to_hex(digest);
}

}  // namespace pagewise::server
