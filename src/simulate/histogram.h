// SPDX-License-Identifier: Apache-2.0
// Times by the million in 30 KiB: counts in buckets of at most 1/64 of their value.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "base/clock.h"

namespace pagewise::simulate {

/// A quantile is the lower end of its bucket: at most 1.6 % below the value that it stands for.
class Histogram {
 public:
  void add(TimeNs value, uint64_t count = 1) {
    counts_[bucket_of(static_cast<uint64_t>(std::max<TimeNs>(value, 0)))] += count;
    count_ += count;
    max_ = std::max(max_, value);
  }
  void merge(const Histogram& other) {
    for (std::size_t i = 0; i < kBuckets; ++i) counts_[i] += other.counts_[i];
    count_ += other.count_;
    max_ = std::max(max_, other.max_);
  }

  uint64_t count() const { return count_; }
  TimeNs max() const { return max_; }
  /// The value that a share of `q` in [0, 1] is not above; 0 of nothing.
  TimeNs quantile(double q) const {
    if (count_ == 0) return 0;
    const auto rank = static_cast<uint64_t>(q * static_cast<double>(count_ - 1));
    uint64_t below = 0;
    for (std::size_t i = 0; i < kBuckets; ++i) {
      below += counts_[i];
      if (below > rank) return static_cast<TimeNs>(lower_end(i));
    }
    return max_;
  }
  bool operator==(const Histogram&) const = default;

 private:
  static constexpr uint32_t kBits = 6;  // of precision
  static constexpr std::size_t kBuckets = (64 - kBits + 1) << kBits;

  /// Values below 2^(kBits + 1) have a bucket of their own.
  static std::size_t bucket_of(uint64_t value) {
    const int width = static_cast<int>(std::bit_width(value));
    const int shift = std::max(0, width - static_cast<int>(kBits) - 1);
    return (static_cast<std::size_t>(shift) << kBits) + static_cast<std::size_t>(value >> shift);
  }
  static uint64_t lower_end(std::size_t bucket) {
    if (bucket < (std::size_t{2} << kBits)) return bucket;
    const std::size_t shift = (bucket >> kBits) - 1;
    return ((bucket & ((std::size_t{1} << kBits) - 1)) + (std::size_t{1} << kBits)) << shift;
  }

  std::array<uint64_t, kBuckets> counts_{};
  uint64_t count_ = 0;
  TimeNs max_ = 0;
};

}  // namespace pagewise::simulate
