// SPDX-License-Identifier: Apache-2.0
#include "server/explain/shared_runs.h"

#include <algorithm>

#include "base/hash.h"

namespace pagewise::server::explain {
namespace {

uint64_t digest(std::span<const TokenId> tokens) { return xxh3(std::as_bytes(tokens)); }

}  // namespace

SharedRuns::SharedRuns(std::span<const TokenId> tokens) : tokens_(tokens) {
  if (tokens.size() < kRunTokensMin) return;
  places_.reserve(tokens.size());
  for (std::size_t i = 0; i + kRunTokensMin <= tokens.size(); ++i) {
    places_.emplace(digest(tokens.subspan(i, kRunTokensMin)), static_cast<uint32_t>(i));
  }
}

uint32_t SharedRuns::count(std::span<const TokenId> other) const {
  uint32_t shared = 0;
  std::size_t i = 0;
  while (i + kRunTokensMin <= other.size()) {
    const auto found = places_.find(digest(other.subspan(i, kRunTokensMin)));
    if (found == places_.end()) {
      ++i;
      continue;
    }
    const auto rest = tokens_.subspan(found->second);
    const auto ahead = other.subspan(i);
    const auto parted = std::mismatch(rest.begin(), rest.end(), ahead.begin(), ahead.end());
    const auto length = static_cast<std::size_t>(parted.second - ahead.begin());
    if (length < kRunTokensMin) {  // digests that collide
      ++i;
      continue;
    }
    shared += static_cast<uint32_t>(length);
    i += length;
  }
  return shared;
}

}  // namespace pagewise::server::explain
