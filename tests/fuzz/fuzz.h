// SPDX-License-Identifier: Apache-2.0
// What all fuzz targets share: input bytes as decisions, and checks that stop the process, which is
// how libFuzzer sees a find.
#pragma once

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

namespace pagewise::fuzz {

[[noreturn]] inline void fail(const char* file, int line, const char* condition,
                              const std::string& what) {
  std::fprintf(stderr, "fuzz: %s:%d: not true: %s\n  %s\n", file, line, condition, what.c_str());
  std::abort();
}

/// Draws decisions from an input, front to back. When it is used up every draw is 0, so that any
/// bytes mean something and a prefix of an input means nearly the same. Two draws in the arguments
/// of one call would mean something else with every compiler.
class Input {
 public:
  Input(const uint8_t* data, std::size_t size)
      : bytes_(reinterpret_cast<const char*>(data), size) {}
  explicit Input(std::string_view bytes) : bytes_(bytes) {}

  bool empty() const { return bytes_.empty(); }
  uint8_t byte() {
    if (bytes_.empty()) return 0;
    const auto value = static_cast<uint8_t>(bytes_.front());
    bytes_.remove_prefix(1);
    return value;
  }
  bool flag() { return (byte() & 1) != 0; }
  /// `count` bytes, little-endian.
  uint64_t number(int count) {
    uint64_t value = 0;
    for (int i = 0; i < count; ++i) value |= uint64_t{byte()} << (8 * i);
    return value;
  }
  /// In [0, bound). Requires: bound > 0.
  uint64_t below(uint64_t bound) { return number(bound <= 256 ? 1 : 4) % bound; }
  /// In [low, high].
  uint64_t between(uint64_t low, uint64_t high) { return low + below(high - low + 1); }
  template <typename List>
  const auto& pick(const List& list) {
    return std::begin(list)[below(std::size(list))];
  }
  /// At most `length_max` bytes.
  std::string_view text(std::size_t length_max) {
    const std::size_t wanted = below(length_max + 1);
    const std::size_t length = std::min(wanted, bytes_.size());
    const std::string_view out = bytes_.substr(0, length);
    bytes_.remove_prefix(length);
    return out;
  }
  std::string_view rest() { return std::exchange(bytes_, {}); }

 private:
  std::string_view bytes_;
};

/// The processor time of one input, which must not exceed a bound. Only under libFuzzer: a test
/// that replays files asserts nothing about time. Processor time, because a fuzzer runs beside
/// others.
class CpuBound {
 public:
  explicit CpuBound(double seconds_max) : seconds_max_(seconds_max), begin_(now()) {}
  double seconds() const { return now() - begin_; }
  void check() const {
#ifdef PAGEWISE_FUZZ
    if (seconds() > seconds_max_) {
      fail(__FILE__, __LINE__, "ends within its bound",
           fmt::format("{:.1f} s of processor time, {} are allowed", seconds(), seconds_max_));
    }
#endif
  }

 private:
  static double now() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  }
  [[maybe_unused]] const double seconds_max_;
  const double begin_;
};

/// Whether `message` is what a person gets to see of an error: one line that says something.
inline bool is_one_line(std::string_view message) {
  return !message.empty() && std::none_of(message.begin(), message.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
}

}  // namespace pagewise::fuzz

/// FUZZ_CHECK(condition, format, arguments...): what must hold for every input.
#define FUZZ_CHECK(condition, ...)                                                        \
  do {                                                                                    \
    if (!(condition)) [[unlikely]] {                                                      \
      ::pagewise::fuzz::fail(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
    }                                                                                     \
  } while (false)

/// The target: libFuzzer's entry point, and that of replay_main.cc.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size);
/// For targets with a mutator of their own.
extern "C" std::size_t LLVMFuzzerMutate(uint8_t* data, std::size_t size, std::size_t size_max);
