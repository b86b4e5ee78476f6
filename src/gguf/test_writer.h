// SPDX-License-Identifier: Apache-2.0
// Writes small GGUF files for tests, right ones and lying ones: counts can claim more than there
// is, a value can be any bytes, and a tensor can point anywhere.
//
//   TempFile file(Writer().string("general.architecture", "llama").u32("llama.block_count",
//   2).bytes()); auto opened = File::open(file.path());
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "base/dtype.h"

namespace pagewise::gguf::testing {

/// A file with these bytes, removed at the end of its scope.
class TempFile {
 public:
  explicit TempFile(std::string_view bytes) {
    const char* directory = std::getenv("TMPDIR");
    path_ = std::string(directory != nullptr ? directory : "/tmp") + "/pagewise-test-XXXXXX";
    const int fd = mkstemp(path_.data());
    PW_CHECK(fd >= 0);
    ::close(fd);
    rewrite(bytes);
  }
  ~TempFile() { std::remove(path_.c_str()); }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;

  void rewrite(std::string_view bytes) const {
    std::FILE* file = std::fopen(path_.c_str(), "wb");
    PW_CHECK(file != nullptr);
    PW_CHECK(std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size());
    PW_CHECK(std::fclose(file) == 0);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class Writer {
 public:
  // Value types as the format numbers them.
  enum : uint32_t {
    kU8 = 0,
    kI8 = 1,
    kU16 = 2,
    kI16 = 3,
    kU32 = 4,
    kI32 = 5,
    kF32 = 6,
    kBool = 7,
    kString = 8,
    kArray = 9,
    kU64 = 10,
    kI64 = 11,
    kF64 = 12,
  };

  /// The bytes of any number, and of a string with its length, little-endian.
  template <typename T>
  static std::string raw(T value) {
    std::string out(sizeof(T), '\0');
    std::memcpy(out.data(), &value, sizeof(T));
    return out;
  }
  static std::string raw_string(std::string_view text) {
    return raw<uint64_t>(text.size()) + std::string(text);
  }

  /// A key with any value type and any bytes as its value.
  Writer& raw_value(std::string_view key, uint32_t type, std::string_view value) {
    keys_ += raw_string(key) + raw<uint32_t>(type);
    keys_ += value;
    ++key_count_;
    return *this;
  }
  Writer& u8(std::string_view key, uint8_t value) { return raw_value(key, kU8, raw(value)); }
  Writer& u32(std::string_view key, uint32_t value) { return raw_value(key, kU32, raw(value)); }
  Writer& u64(std::string_view key, uint64_t value) { return raw_value(key, kU64, raw(value)); }
  Writer& i32(std::string_view key, int32_t value) { return raw_value(key, kI32, raw(value)); }
  Writer& f32(std::string_view key, float value) { return raw_value(key, kF32, raw(value)); }
  Writer& boolean(std::string_view key, bool value) {
    return raw_value(key, kBool, raw<uint8_t>(value ? 1 : 0));
  }
  Writer& string(std::string_view key, std::string_view value) {
    return raw_value(key, kString, raw_string(value));
  }
  /// `count` elements claimed, `elements` the bytes that are there.
  Writer& raw_array(std::string_view key, uint32_t element_type, uint64_t count,
                    std::string_view elements) {
    return raw_value(key, kArray, raw(element_type) + raw(count) + std::string(elements));
  }
  template <typename T>
  Writer& array(std::string_view key, uint32_t element_type, const std::vector<T>& values) {
    std::string elements;
    for (const T value : values) elements += raw<T>(value);
    return raw_array(key, element_type, values.size(), elements);
  }
  Writer& strings(std::string_view key, const std::vector<std::string>& values) {
    std::string elements;
    for (const std::string& value : values) elements += raw_string(value);
    return raw_array(key, kString, values.size(), elements);
  }

  /// A tensor whose data follows those before it. `data` must have the tensor's size, or be empty:
  /// then it is zeros.
  Writer& tensor(std::string_view name, const std::vector<uint64_t>& shape, TensorType type,
                 std::string_view data = {}) {
    const TensorTypeInfo* info = tensor_type_info(type);
    PW_CHECK(info != nullptr);
    uint64_t elements = 1;
    for (const uint64_t size : shape) elements *= size;
    const uint64_t bytes = elements / info->block_elements * info->block_bytes;
    PW_CHECK(data.empty() || data.size() == bytes);
    data_.resize(round_up(data_.size(), alignment_));
    raw_tensor(name, shape, static_cast<uint32_t>(type), data_.size());
    if (data.empty()) {
      data_.resize(data_.size() + bytes);
    } else {
      data_ += data;
    }
    return *this;
  }
  /// Only the description of a tensor, true or not.
  Writer& raw_tensor(std::string_view name, const std::vector<uint64_t>& shape, uint32_t type,
                     uint64_t offset) {
    tensors_ += raw_string(name) + raw<uint32_t>(static_cast<uint32_t>(shape.size()));
    for (const uint64_t size : shape) tensors_ += raw(size);
    tensors_ += raw(type) + raw(offset);
    ++tensor_count_;
    return *this;
  }

  /// Writes the key too; call it before the first tensor.
  Writer& alignment(uint32_t value) {
    alignment_ = value;
    return u32("general.alignment", value);
  }
  Writer& version(uint32_t value) {
    version_ = value;
    return *this;
  }
  Writer& claim_tensors(uint64_t count) {
    claimed_tensors_ = count;
    return *this;
  }
  Writer& claim_keys(uint64_t count) {
    claimed_keys_ = count;
    return *this;
  }

  /// The header without padding and data: what a metadata-only file holds.
  std::string header() const {
    return "GGUF" + raw(version_) + raw(claimed_tensors_.value_or(tensor_count_)) +
           raw(claimed_keys_.value_or(key_count_)) + keys_ + tensors_;
  }
  std::string bytes() const {
    std::string out = header();
    if (data_.empty()) return out;
    out.resize(round_up(out.size(), alignment_));
    return out + data_;
  }

 private:
  uint32_t version_ = 3;
  uint64_t alignment_ = 32;
  uint64_t key_count_ = 0;
  uint64_t tensor_count_ = 0;
  std::optional<uint64_t> claimed_keys_;
  std::optional<uint64_t> claimed_tensors_;
  std::string keys_;
  std::string tensors_;
  std::string data_;
};

}  // namespace pagewise::gguf::testing
