// SPDX-License-Identifier: Apache-2.0
// Random numbers that can be replayed: a sequential generator for tests and simulation, and a
// counter-based one for sampling, where a draw is a pure function of (seed, stream, position).
#pragma once

#include <cstdint>

namespace pagewise {

/// The finalizer of splitmix64 (Steele, Lea, Flood, OOPSLA 2014): a bijection with full avalanche.
constexpr uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// Sequential; equal seeds give equal sequences.
class Prng {
 public:
  explicit Prng(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    const uint64_t value = mix64(state_);
    state_ += 0x9e3779b97f4a7c15ULL;
    return value;
  }
  /// Uniform in [0, bound). Requires: bound > 0. Bias under 2^-32 for the bounds used here.
  uint64_t below(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(next()) * bound) >> 64);
  }
  /// Uniform in [0, 1) with 53 bits.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

 private:
  uint64_t state_;
};

/// The draw of one sampled token: uniform in [0, 1).
constexpr double counter_uniform(uint64_t seed, uint64_t stream, uint64_t position) {
  return static_cast<double>(mix64(mix64(mix64(seed) ^ stream) ^ position) >> 11) * 0x1.0p-53;
}

}  // namespace pagewise
