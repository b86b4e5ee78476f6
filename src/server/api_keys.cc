// SPDX-License-Identifier: Apache-2.0
#include "server/api_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <type_traits>
#include <utility>

#include "base/text_file.h"
#include "base/trimmed.h"

namespace pagewise::server {
namespace {

constexpr std::string_view kBlank = " \t\r\n";

/// '#' starts a comment where a line starts or white space ends: a key may contain one.
std::string_view without_comment(std::string_view line) {
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '#' && (i == 0 || line[i - 1] == ' ' || line[i - 1] == '\t')) {
      return line.substr(0, i);
    }
  }
  return line;
}

/// The next run of characters that are no white space; empty at the end.
std::string_view next_word(std::string_view& line) {
  line = trimmed(line, kBlank);
  const std::size_t end = line.find_first_of(" \t");
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(word.size());
  return word;
}

/// Fit for a log line and for a cache's name.
bool is_name(std::string_view text) {
  const auto fits = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
  };
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), fits);
}

constexpr std::string_view kAttributes =
    "name=, tenant=, public, max-requests=, max-tokens=, floor=, ceiling= and admin, "
    "each behind the key";

constexpr uint64_t kBlocksMax = 1'000'000'000;

/// Reads one attribute into `key`. Returns what is wrong with it, or nothing.
std::string read_attribute(std::string_view word, ApiKey& key, std::vector<std::string>& seen) {
  const std::size_t equals = word.find('=');
  const std::string name(word.substr(0, equals));
  const std::string_view value =
      equals == std::string_view::npos ? std::string_view() : word.substr(equals + 1);
  const auto number = [&](uint64_t most, auto& out) -> std::string {
    uint64_t parsed = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
    if (error != std::errc() || end != value.data() + value.size() || parsed < 1 || parsed > most)
      return fmt::format("{}= takes a whole number from 1 to {}", name, most);
    out = static_cast<std::remove_reference_t<decltype(out)>>(parsed);
    return "";
  };
  if ((name == "admin" || name == "public") && equals != std::string_view::npos)
    return fmt::format("'{}' takes no value", name);
  std::string problem;
  if (name == "admin") {
    key.admin = true;
  } else if (name == "public") {
    key.shared = true;
  } else if (name == "floor" && equals != std::string_view::npos) {
    problem = number(kBlocksMax, key.floor_blocks);
  } else if (name == "ceiling" && equals != std::string_view::npos) {
    problem = number(kBlocksMax, key.ceiling_blocks);
  } else if (name == "max-requests" && equals != std::string_view::npos) {
    problem = number(1'000'000, key.requests_max);
  } else if (name == "max-tokens" && equals != std::string_view::npos) {
    problem = number(uint64_t{1} << 53, key.tokens_max);
  } else if ((name == "name" || name == "tenant") && equals != std::string_view::npos) {
    if (!is_name(value))
      return fmt::format("{}= takes 1 to 64 letters, digits, '.', '_' and '-'", name);
    (name == "name" ? key.name : key.tenant) = value;
  } else if (equals != std::string_view::npos && name.size() <= 24 &&
             name.find_first_not_of("abcdefghijklmnopqrstuvwxyz-_") == std::string::npos) {
    return fmt::format("unknown attribute '{}='; known are {}", name, kAttributes);
  } else {
    // Perhaps a second key: not to be repeated in a message.
    return fmt::format(
        "what follows the key is no attribute; known are {}; a second key takes a "
        "line of its own",
        kAttributes);
  }
  if (!problem.empty()) return problem;
  if (std::find(seen.begin(), seen.end(), name) != seen.end())
    return fmt::format("'{}' stands there twice: remove one", name);
  seen.push_back(name);
  return "";
}

/// What a line says against itself, or against an earlier key of the same account. Empty: nothing.
std::string contradiction(const ApiKey& key, const std::vector<ApiKey>& others,
                          const std::vector<uint32_t>& lines) {
  if (key.shared && !key.tenant.empty()) {
    return "'public' and tenant= exclude each other: the keys marked 'public' share one cache";
  }
  uint32_t floor = key.floor_blocks, ceiling = key.ceiling_blocks;
  for (const ApiKey& other : others) {
    if (other.account() != key.account()) continue;
    const auto differ = [](uint32_t a, uint32_t b) { return a != 0 && b != 0 && a != b; };
    const char* const which = differ(other.floor_blocks, key.floor_blocks)       ? "floor"
                              : differ(other.ceiling_blocks, key.ceiling_blocks) ? "ceiling"
                                                                                 : nullptr;
    if (which != nullptr) {
      return fmt::format("another {}= than on line {}, for the same cache: say it once", which,
                         lines[other.index]);
    }
    floor = std::max(floor, other.floor_blocks);
    ceiling = std::max(ceiling, other.ceiling_blocks);
  }
  if (ceiling != 0 && floor > ceiling)
    return fmt::format("floor={} is above ceiling={}", floor, ceiling);
  return "";
}

}  // namespace

std::string ApiKey::account() const {
  if (shared) return std::string(kPublicAccount);
  return tenant.empty() ? "key:" + to_hex(digest).substr(0, 32) : "tenant:" + tenant;
}

ApiKeys::ApiKeys(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    keys_.emplace_back();
    keys_.back().digest = sha256(key);
    keys_.back().index = static_cast<uint32_t>(keys_.size() - 1);
  }
}

Result<ApiKeys> ApiKeys::from_text(std::string_view text, std::string_view where) {
  static constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  ApiKeys out;
  std::vector<uint32_t> lines;  // of each key
  for (uint32_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    line = trimmed(without_comment(line), kBlank);
    if (line.empty()) continue;
    const auto refuse = [&](const std::string& problem) {
      return Error{ErrorCode::kInvalidArgument, fmt::format("{}:{}: {}", where, number, problem)};
    };
    ApiKey key;
    key.digest = sha256(next_word(line));
    key.index = static_cast<uint32_t>(out.keys_.size());
    for (const ApiKey& other : out.keys_) {
      if (other.digest != key.digest) continue;
      return refuse(fmt::format("the same key as on line {}: remove one", lines[other.index]));
    }
    std::vector<std::string> seen;
    for (std::string_view word = next_word(line); !word.empty(); word = next_word(line)) {
      const std::string problem = read_attribute(word, key, seen);
      if (!problem.empty()) return refuse(problem);
    }
    if (const std::string problem = contradiction(key, out.keys_, lines); !problem.empty())
      return refuse(problem);
    out.keys_.push_back(std::move(key));
    lines.push_back(number);
  }
  return out;
}

std::vector<engine::NamespaceQuota> ApiKeys::quotas() const {
  std::vector<engine::NamespaceQuota> quotas;
  for (const ApiKey& key : keys_) {
    if (key.floor_blocks == 0 && key.ceiling_blocks == 0) continue;
    const std::string account = key.account();
    auto found = std::find_if(quotas.begin(), quotas.end(),
                              [&](const auto& quota) { return quota.name == account; });
    if (found == quotas.end()) found = quotas.insert(quotas.end(), {account});
    found->floor_blocks = std::max(found->floor_blocks, key.floor_blocks);
    found->ceiling_blocks = std::max(found->ceiling_blocks, key.ceiling_blocks);
  }
  return quotas;
}

Result<ApiKeys> ApiKeys::from_file(const std::string& path) {
  PW_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, "a file with one key a line"));
  PW_ASSIGN_OR_RETURN(ApiKeys keys, from_text(text, path));
  if (!keys.configured()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: no key in it; give one key a line", path)};
  }
  return keys;
}

const ApiKey* ApiKeys::find(std::string_view key) const {
  const Sha256 asked = sha256(key);
  const ApiKey* found = nullptr;
  for (const ApiKey& candidate : keys_) {
    uint8_t difference = 0;
    for (std::size_t i = 0; i < asked.size(); ++i)
      difference |= static_cast<uint8_t>(candidate.digest[i] ^ asked[i]);
    if (difference == 0) found = &candidate;
  }
  return found;
}

std::optional<std::string> presented_key(const HttpRequest& request) {
  if (const std::string* key = request.header("x-api-key"); key != nullptr && !key->empty())
    return *key;
  const std::string* authorization = request.header("authorization");
  if (authorization == nullptr) return std::nullopt;
  const std::string_view value = trimmed(*authorization, kBlank);
  static constexpr std::string_view kScheme = "bearer";
  if (value.size() <= kScheme.size() || value[kScheme.size()] != ' ') return std::nullopt;
  for (std::size_t i = 0; i < kScheme.size(); ++i) {
    if (std::tolower(static_cast<unsigned char>(value[i])) != kScheme[i]) return std::nullopt;
  }
  const std::string_view key = trimmed(value.substr(kScheme.size()), kBlank);
  if (key.empty()) return std::nullopt;
  return std::string(key);
}

std::string cache_namespace(std::string_view account, std::string_view workspace,
                            std::string_view salt) {
  // Lengths in front, so that no two pairs spell the same text.
  const Sha256 digest =
      sha256(fmt::format("{}:{}{}:{}", workspace.size(), workspace, salt.size(), salt));
  return fmt::format("{}/{}", account, to_hex(digest));
}

}  // namespace pagewise::server
