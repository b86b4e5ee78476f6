// SPDX-License-Identifier: Apache-2.0
// Prompts written out in tests.
#pragma once

#include <initializer_list>
#include <vector>

#include "base/ids.h"

namespace pagewise::kv {

using Tokens = std::vector<TokenId>;

inline Tokens tokens(std::initializer_list<int32_t> values) {
  Tokens out;
  for (const int32_t value : values) out.emplace_back(value);
  return out;
}

}  // namespace pagewise::kv
