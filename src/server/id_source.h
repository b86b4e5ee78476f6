// SPDX-License-Identifier: Apache-2.0
// Identifiers of requests and answers, and seeds for requests that bring none: unguessable enough
// to keep apart, and repeatable from one seed in tests.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/prng.h"

namespace pagewise::server {

/// Thread: any.
class IdSource {
 public:
  explicit IdSource(uint64_t seed) : seed_(seed) {}

  uint64_t draw() { return mix64(mix64(seed_) ^ mix64(count_.fetch_add(1))); }

  /// `prefix` and 22 characters of 62.
  std::string id(std::string_view prefix) {
    static constexpr std::string_view kAlphabet =
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    std::string out(prefix);
    for (int half = 0; half < 2; ++half) {
      uint64_t bits = draw();
      for (int i = 0; i < 11; ++i, bits /= kAlphabet.size())
        out += kAlphabet[bits % kAlphabet.size()];
    }
    return out;
  }

 private:
  const uint64_t seed_;
  std::atomic<uint64_t> count_{0};
};

}  // namespace pagewise::server
