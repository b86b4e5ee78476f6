// SPDX-License-Identifier: Apache-2.0
#include "text/special_tokens.h"

#include <algorithm>
#include <utility>

namespace pagewise::text {

void SpecialTokens::add(std::string spelling, TokenId token, Trust trust_min) {
  entries_.push_back({std::move(spelling), token, trust_min});
}

void SpecialTokens::build() {
  std::stable_sort(entries_.begin(), entries_.end(),
                   [](const Entry& a, const Entry& b) { return a.spelling < b.spelling; });
  entries_.erase(
      std::unique(entries_.begin(), entries_.end(),
                  [](const Entry& a, const Entry& b) { return a.spelling == b.spelling; }),
      entries_.end());
  std::fill(std::begin(first_), std::end(first_), 0);
  for (const Entry& entry : entries_) {
    const auto byte = static_cast<unsigned char>(entry.spelling[0]);
    ++first_[byte + 1];
    for (auto trust = static_cast<std::size_t>(entry.trust_min); trust < 3; ++trust) {
      starts_[trust][byte] = true;
    }
  }
  for (int byte = 0; byte < 256; ++byte) first_[byte + 1] += first_[byte];
}

std::optional<SpecialTokens::Match> SpecialTokens::find(std::string_view text, std::size_t from,
                                                        Trust trust) const {
  const bool* starts = starts_[static_cast<std::size_t>(trust)];
  for (std::size_t at = from; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (!starts[byte]) continue;
    // Narrow the sorted range byte by byte: a trie walk without the trie.
    uint32_t low = first_[byte];
    uint32_t high = first_[byte + 1];
    const Entry* longest = nullptr;
    for (std::size_t depth = 1; low < high; ++depth) {
      if (entries_[low].spelling.size() == depth) {
        if (entries_[low].trust_min <= trust) longest = &entries_[low];
        ++low;  // the shortest of a range sorts first
      }
      if (at + depth >= text.size()) break;
      const auto next = static_cast<unsigned char>(text[at + depth]);
      const auto begin = entries_.begin();
      const auto byte_at = [depth](const Entry& entry) {
        return static_cast<unsigned char>(entry.spelling[depth]);
      };
      low = static_cast<uint32_t>(
          std::partition_point(begin + low, begin + high,
                               [&](const Entry& entry) { return byte_at(entry) < next; }) -
          begin);
      high = static_cast<uint32_t>(
          std::partition_point(begin + low, begin + high,
                               [&](const Entry& entry) { return byte_at(entry) <= next; }) -
          begin);
    }
    if (longest != nullptr) return Match{at, at + longest->spelling.size(), longest->token};
  }
  return std::nullopt;
}

}  // namespace pagewise::text
