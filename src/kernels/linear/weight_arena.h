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

namespace pagewise::kernels {

/// Thread: one at a time.
class WeightArena {
 public:
  /// `bytes` zeros on a cache-line boundary, valid as long as the arena lives; moving the arena
  /// does not move them. Memory is taken when it is first written, the last huge page of a chunk as
  /// a whole. Requires: bytes > 0. Throws std::bad_alloc.
  std::span<uint8_t> take(std::size_t bytes);

 private:
  struct Unmap {
    std::size_t bytes;
    void operator()(uint8_t* memory) const;
  };
  using Chunk = std::unique_ptr<uint8_t, Unmap>;
  static Chunk map(std::size_t bytes);

  std::vector<Chunk> chunks_;
  std::span<uint8_t> left_;  // of the last chunk
};

}  // namespace pagewise::kernels
