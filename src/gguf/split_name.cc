// SPDX-License-Identifier: Apache-2.0
#include "gguf/split_name.h"

#include <fmt/format.h>

#include <charconv>

namespace pagewise::gguf {
namespace {

constexpr std::size_t kDigits = 5;
constexpr std::string_view kExtension = ".gguf";
constexpr std::string_view kOf = "-of-";

std::optional<uint32_t> digits(std::string_view text) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::string SplitName::path_of(uint32_t part) const {
  return fmt::format("{}-{:05}-of-{:05}.gguf", stem, part, count);
}

std::optional<SplitName> parse_split_name(std::string_view path) {
  constexpr std::size_t kTail = 1 + kDigits + kOf.size() + kDigits + kExtension.size();
  if (path.size() <= kTail || !path.ends_with(kExtension)) return std::nullopt;
  const std::string_view tail = path.substr(path.size() - kTail);
  if (tail[0] != '-' || tail.substr(1 + kDigits, kOf.size()) != kOf) return std::nullopt;
  const auto number = digits(tail.substr(1, kDigits));
  const auto count = digits(tail.substr(1 + kDigits + kOf.size(), kDigits));
  if (!number || !count || *number < 1 || *number > *count) return std::nullopt;
  return SplitName{std::string(path.substr(0, path.size() - kTail)), *number, *count};
}

}  // namespace pagewise::gguf
