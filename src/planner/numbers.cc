// SPDX-License-Identifier: Apache-2.0
#include "planner/numbers.h"

namespace pagewise::planner {

std::string grouped(uint64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

std::string short_tokens(uint64_t tokens) {
  return tokens >= 1024 && tokens % 1024 == 0 ? grouped(tokens / 1024) + "k" : grouped(tokens);
}

}  // namespace pagewise::planner
