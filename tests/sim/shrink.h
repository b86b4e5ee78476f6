// SPDX-License-Identifier: Apache-2.0
// Fewer requests that still fail: what makes a failing seed readable.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace pagewise::engine::sim {

/// Leaves requests out of `failing` as long as `still_fails` holds for the rest: large parts first,
/// then single ones, until none can go or `tries` are used up. The result is a subset, in order,
/// for which still_fails held (or `failing` itself).
inline std::vector<uint32_t> shrink(
    std::vector<uint32_t> failing,
    const std::function<bool(const std::vector<uint32_t>&)>& still_fails, uint32_t tries) {
  for (std::size_t part = (failing.size() + 1) / 2; part > 0;) {
    bool removed = false;
    for (std::size_t begin = 0; begin < failing.size() && failing.size() > 1;) {
      if (tries-- == 0) return failing;
      std::vector<uint32_t> rest;
      for (std::size_t i = 0; i < failing.size(); ++i) {
        if (i < begin || i >= begin + part) rest.push_back(failing[i]);
      }
      if (!rest.empty() && still_fails(rest)) {
        failing = std::move(rest);
        removed = true;
      } else {
        begin += part;
      }
    }
    if (part > 1) {
      part /= 2;
    } else if (!removed) {
      break;
    }
  }
  return failing;
}

}  // namespace pagewise::engine::sim
