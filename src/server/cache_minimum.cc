// SPDX-License-Identifier: Apache-2.0
#include "server/cache_minimum.h"

#include <fmt/format.h>

#include <charconv>

namespace pagewise::server {
namespace {

constexpr CacheMinimum kMinimums[] = {
    {"opus-5.5", 512},    {"opus-5", 512},      {"opus-4.8", 1024},  {"opus-4.7", 2048},
    {"opus-4.6", 4096},   {"opus-4.5", 4096},   {"sonnet-5.5", 512}, {"sonnet-5", 1024},
    {"sonnet-4.6", 1024}, {"sonnet-4.5", 1024}, {"haiku-5.5", 512},  {"haiku-4.5", 4096},
    {"fable-5.1", 512},   {"fable-5", 512},     {"mythos-5.1", 512}, {"mythos-5", 512},
    {"openai", 1024},
};

}  // namespace

std::span<const CacheMinimum> cache_minimums() { return kMinimums; }

Result<uint32_t> parse_cache_minimum(std::string_view text) {
  uint32_t tokens = 0;
  const char* const end = text.data() + text.size();
  const auto [read, error] = std::from_chars(text.data(), end, tokens);
  if (error == std::errc() && read == end) return tokens;
  std::string names;
  for (const CacheMinimum& minimum : kMinimums) {
    if (minimum.family == text) return minimum.tokens;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", minimum.family);
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("'{}' is no whole number from 0 to {}, and no family with a known "
                           "minimum: {}",
                           text, UINT32_MAX, names)};
}

}  // namespace pagewise::server
