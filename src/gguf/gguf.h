// SPDX-License-Identifier: Apache-2.0
// GGUF model files: untrusted bytes in, checked metadata and tensors out.
//
// The file is mapped, not read; the header is parsed once with every count, length and offset
// checked against the bytes that are really there, so that a header that lies costs neither memory
// nor time. Source: the GGUF specification, versions 2 and 3, little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"

namespace pagewise::gguf {

struct Array;
/// Integers are widened to (u)int64, floats to double, strings copied.
using Value =
    std::variant<uint64_t, int64_t, double, bool, std::string, std::shared_ptr<const Array>>;
struct Array {
  std::variant<std::vector<uint64_t>, std::vector<int64_t>, std::vector<double>, std::vector<bool>,
               std::vector<std::string_view>>
      elements;  // string views point into the mapping
  std::size_t size() const;
};

struct Tensor {
  std::string name;
  TensorType type = TensorType::kF32;
  std::vector<uint64_t> shape;  // fastest-varying first, as in the file: [columns, rows, ...]
  uint64_t file_offset = 0;     // absolute
  uint64_t bytes = 0;
  uint64_t info_offset = 0;  // where the header describes it: the offset that errors about it name
  uint32_t part = 0;         // which file of the model has it: an index into File::parts()

  uint64_t columns() const { return shape.empty() ? 1 : shape[0]; }
  uint64_t rows() const;  // product of the others
};

struct OpenOptions {
  /// Planner: the tensor data may be cut off or absent; only the header is checked.
  bool header_only = false;
  /// One part of a model that was saved in several is opened by itself.
  bool one_part = false;
};

/// One file of a model.
struct Part {
  std::string path;
  uint64_t file_bytes = 0;
  uint64_t bytes_described = 0;  // up to the end of its last tensor
};

/// Text from a file as one line of printable ASCII for messages: other bytes as \xNN, at most 64 of
/// them.
std::string printable(std::string_view text);

/// Thread: immutable after open; any thread.
class File {
 public:
  /// Errors: kIo (path and errno text); kMalformed: "PATH: FIELD at offset N: REASON".
  /// kUnsupported, in the same form: a version other than 2 and 3, a byte-swapped file, an array of
  /// arrays, a tensor type whose number names none that we know. Cost: under 1 s and 200 MiB for
  /// any file, however large the counts it claims: a header whose bytes and parsed form together
  /// exceed 128 MiB is refused (the largest vocabularies need about 32 MiB). The mapping relies on
  /// nobody cutting the file off while it is open.
  ///
  /// The name of any part of a split model opens all of it, and the bounds above hold for all parts
  /// together. Errors besides: a part that is missing or belongs elsewhere, a tensor in two parts,
  /// a number of tensors other than the first part says.
  static Result<std::unique_ptr<File>> open(const std::string& path, OpenOptions options = {});
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::string& path() const;  // of the first part
  uint32_t version() const;         // of the format
  uint64_t file_bytes() const;      // of all parts
  std::span<const Part> parts() const;
  std::span<const std::pair<std::string, Value>> metadata() const;  // in file order
  const Value* find(std::string_view key) const;

  // Typed look-ups. The optional forms are empty when the key is absent; a key of another type is
  // kMalformed. The required forms are also kMalformed ("KEY: missing") when it is absent.
  Result<std::optional<uint64_t>> find_uint(std::string_view key) const;
  Result<std::optional<double>> find_float(std::string_view key) const;  // accepts integers
  Result<std::optional<bool>> find_bool(std::string_view key) const;
  Result<std::optional<std::string>> find_string(std::string_view key) const;
  Result<uint64_t> require_uint(std::string_view key) const;
  Result<std::string> require_string(std::string_view key) const;
  /// Empty when absent. `int_array` takes integers of any width and booleans (as 0 and 1),
  /// `float_array` also integers.
  Result<std::span<const std::string_view>> string_array(std::string_view key) const;
  Result<std::vector<int64_t>> int_array(std::string_view key) const;
  Result<std::vector<double>> float_array(std::string_view key) const;

  /// The error for a value that is well-formed but makes no sense to the caller, in the reader's
  /// own form: "PATH: KEY at offset N: REASON" ("PATH: KEY: REASON" for a key that the file does
  /// not have).
  Error bad_value(std::string_view key, std::string_view reason,
                  ErrorCode code = ErrorCode::kMalformed) const;
  /// The same for a tensor: "PATH: tensor 'NAME' at offset N: REASON".
  Error bad_tensor(const Tensor& tensor, std::string_view reason,
                   ErrorCode code = ErrorCode::kMalformed) const;

  std::span<const Tensor> tensors() const;
  const Tensor* find_tensor(std::string_view name) const;
  /// The tensor's bytes in the mapping. Requires: opened with header_only == false.
  std::span<const std::byte> data(const Tensor& tensor) const;
  /// Tells the system that the mapped pages of tensor data are no longer needed (after repacking).
  void drop_pages() const;
  /// The same for one tensor, but for the pages it shares with its neighbours.
  void drop_pages(const Tensor& tensor) const;

 private:
  File();
  static Result<std::unique_ptr<File>> open_one(const std::string& path, OpenOptions options,
                                                uint64_t& budget);
  static Result<std::unique_ptr<File>> join(std::unique_ptr<File> given, uint64_t& budget);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pagewise::gguf
