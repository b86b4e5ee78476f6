// SPDX-License-Identifier: Apache-2.0
// Half-open index ranges, and the one way in which kernels divide them among threads.
#pragma once

#include <cstddef>

namespace pagewise::kernels {

/// [begin, end).
struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t size() const { return end - begin; }
  bool empty() const { return begin >= end; }
};

/// Part `index` of `parts` nearly equal parts of [0, count): sizes differ by at most one.
constexpr Range split(std::size_t count, std::size_t index, std::size_t parts) {
  return {count * index / parts, count * (index + 1) / parts};
}

}  // namespace pagewise::kernels
