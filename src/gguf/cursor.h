// SPDX-License-Identifier: Apache-2.0
// Reading the header of a GGUF file from front to back. Nothing is trusted: each length is compared
// with the bytes that are left before it is used, and everything that is kept is charged to one
// budget first.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"
#include "gguf/gguf.h"

namespace pagewise::gguf {

/// Bytes of header read plus bytes kept of it. Half of the 200 MiB that a lying header may cost,
/// and four times what the largest vocabularies in use need.
inline constexpr uint64_t kHeaderBudget = 128 * kMiB;

/// A place in the header; every read says which field it is for.
class Cursor {
 public:
  /// `budget`: what is left of what the headers of one model may cost. All must outlive it.
  Cursor(const std::string& path, std::span<const std::byte> bytes, uint64_t& budget)
      : path_(path), bytes_(bytes), budget_(budget) {}

  uint64_t offset() const { return offset_; }
  uint64_t left() const { return bytes_.size() - offset_; }

  Error error(uint64_t offset, std::string_view field, std::string_view reason,
              ErrorCode code = ErrorCode::kMalformed) const {
    return Error{code, fmt::format("{}: {} at offset {}: {}", path_, field, offset, reason)};
  }

  /// Takes `bytes` out of what this header may cost.
  Status charge(uint64_t bytes, uint64_t offset, std::string_view field) {
    if (bytes > budget_) {
      return error(offset, field,
                   fmt::format("the header needs more than the {} that are allowed for it",
                               format_size(kHeaderBudget)));
    }
    budget_ -= bytes;
    return Status::ok();
  }

  Status need(uint64_t bytes, std::string_view field) {
    if (bytes > left()) {
      return error(offset_, field,
                   fmt::format("{} bytes needed, but the file ends after {} more", bytes, left()));
    }
    return charge(bytes, offset_, field);
  }

  template <typename T>
  Result<T> read(std::string_view field) {
    PW_RETURN_IF_ERROR(need(sizeof(T), field));
    return take<T>();
  }

  /// The next value. Requires: a need() that covers it.
  template <typename T>
  T take() {
    T value;
    std::memcpy(&value, bytes_.data() + offset_, sizeof(T));
    offset_ += sizeof(T);
    return value;
  }

  Result<std::string_view> read_string(std::string_view field) {
    const uint64_t at = offset_;
    PW_ASSIGN_OR_RETURN(const uint64_t length, read<uint64_t>(field));
    if (length > left()) {
      return error(
          at, field,
          fmt::format("a string of {} bytes, but only {} are left in the file", length, left()));
    }
    PW_RETURN_IF_ERROR(charge(length, at, field));
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + offset_, length);
    offset_ += length;
    return text;
  }

 private:
  const std::string& path_;
  std::span<const std::byte> bytes_;
  uint64_t offset_ = 0;
  uint64_t& budget_;
};

/// A key's value: its type and what follows. Errors: kMalformed and kUnsupported in the cursor's
/// form.
Result<Value> read_value(Cursor& cursor, std::string_view field);

}  // namespace pagewise::gguf
