// SPDX-License-Identifier: Apache-2.0
// Memory for the weights of one model: matrices side by side in huge pages.
//
// A decode step reads every weight once, so what it costs is how fast they can be read, and pages
// of 4 KiB are slow to read: each asks for its own translation, and hardware that prefetches a
// stream stops at its end. Matrices of small models are smaller than a huge page each; only
// together do they fill some. Measured on Zen 4 in a virtual machine, the 96 MB of SmolLM2 by one
// thread: 14 GB/s in pages of 4 KiB, 25 GB/s in huge ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define PW_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PW_ADDRESS_SANITIZER 1
#endif
#endif

namespace pagewise::kernels {

/// Thread: one at a time.
class WeightArena {
 public:
  /// For matrices of about `bytes_expected` together: so much address space is taken at first, in
  /// whole huge pages, and an eighth of it at a time when it was too little.
  explicit WeightArena(std::size_t bytes_expected = 0) : bytes_expected_(bytes_expected) {}

  /// `bytes` zeros on a cache-line boundary, valid as long as the arena lives; moving the arena
  /// does not move them. Memory is taken when it is first written, the last huge page of a chunk as
  /// a whole. Under AddressSanitizer a line or more behind each piece belongs to nobody, and
  /// whoever touches it is caught. Requires: bytes > 0. Throws std::bad_alloc.
  std::span<uint8_t> take(std::size_t bytes);

  /// Address space, of which memory is a part.
  std::size_t bytes_reserved() const;

 private:
  struct Unmap {
    std::size_t bytes;
    void operator()(uint8_t* memory) const;
  };
  using Chunk = std::unique_ptr<uint8_t, Unmap>;
  static Chunk map(std::size_t bytes);

  std::size_t bytes_expected_;
  std::vector<Chunk> chunks_;
  std::span<uint8_t> left_;  // of the last chunk
};

}  // namespace pagewise::kernels
