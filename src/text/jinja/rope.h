// SPDX-License-Identifier: Apache-2.0
// A string whose every byte knows its origin: the template, or a piece of a message.
//
// All string operations of the template language are built from append() and slice(), which carry
// the origins along; nothing looks at a byte's value to guess where it came from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pagewise::text::jinja {

class Rope {
 public:
  /// Bytes [end of the run before, end) have one origin; neighbours differ.
  struct Run {
    uint32_t end = 0;
    int32_t origin = 0;
  };

  Rope() = default;
  Rope(std::string_view bytes, int32_t origin) { append(bytes, origin); }

  std::string_view bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  const std::vector<Run>& runs() const { return runs_; }

  /// Requires: the result is under 4 GiB (the evaluator's bound on strings is far below).
  void append(std::string_view bytes, int32_t origin);
  void append(const Rope& other) { append(other, 0, other.size()); }
  void append(const Rope& other, std::size_t begin, std::size_t end);
  /// Bytes [begin, end). Requires: begin <= end <= size().
  Rope slice(std::size_t begin, std::size_t end) const;
  /// Requires: at < size().
  int32_t origin_at(std::size_t at) const;

 private:
  std::size_t run_of(std::size_t at) const;

  std::string bytes_;
  std::vector<Run> runs_;
};

}  // namespace pagewise::text::jinja
