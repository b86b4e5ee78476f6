// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/rope.h"

#include <algorithm>

namespace pagewise::text::jinja {

void Rope::append(std::string_view bytes, int32_t origin) {
  if (bytes.empty()) return;
  bytes_ += bytes;
  const auto end = static_cast<uint32_t>(bytes_.size());
  if (!runs_.empty() && runs_.back().origin == origin) {
    runs_.back().end = end;
  } else {
    runs_.push_back({end, origin});
  }
}

void Rope::append(const Rope& other, std::size_t begin, std::size_t end) {
  if (begin >= end) return;
  for (std::size_t run = other.run_of(begin); begin < end; ++run) {
    const std::size_t stop = std::min<std::size_t>(other.runs_[run].end, end);
    append(other.bytes().substr(begin, stop - begin), other.runs_[run].origin);
    begin = stop;
  }
}

Rope Rope::slice(std::size_t begin, std::size_t end) const {
  Rope result;
  result.append(*this, begin, end);
  return result;
}

int32_t Rope::origin_at(std::size_t at) const { return runs_[run_of(at)].origin; }

std::size_t Rope::run_of(std::size_t at) const {
  const auto run = std::upper_bound(runs_.begin(), runs_.end(), at,
                                    [](std::size_t value, const Run& r) { return value < r.end; });
  return static_cast<std::size_t>(run - runs_.begin());
}

}  // namespace pagewise::text::jinja
