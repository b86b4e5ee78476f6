// SPDX-License-Identifier: Apache-2.0
// The reader trusts nothing: each length is compared with the bytes that are left before it is
// used, each product is checked for overflow, and everything that is kept is charged to one budget
// first.
#include "gguf/gguf.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <numeric>
#include <system_error>

#include "base/bytes.h"
#include "base/check.h"

namespace pagewise::gguf {
namespace {

static_assert(std::endian::native == std::endian::little,
              "files are little-endian and read in place");

// Bytes of header read plus bytes kept of it. Half of the 200 MiB that a lying header may cost, and
// four times what the largest vocabularies in use need.
constexpr uint64_t kHeaderBudget = 128 * kMiB;
// What one key or tensor occupies here besides its name and value: the entry, its place in the
// sorted index, the allocator's own share.
constexpr uint64_t kKeyCost = 160;
constexpr uint64_t kTensorCost = 224;
// The shortest encodings: a length, one byte of key, a type, a one-byte value; and a length, one
// byte of name, a dimension count of 0, a type, an offset.
constexpr uint64_t kKeyBytesMin = 8 + 1 + 4 + 1;
constexpr uint64_t kTensorBytesMin = 8 + 1 + 4 + 4 + 8;

constexpr uint64_t kKeyLengthMax = 65535;  // the specification's
constexpr uint64_t kTensorNameLengthMax =
    255;                                // the specification says 64; longer ones are harmless
constexpr uint32_t kDimensionsMax = 4;  // the specification's
constexpr uint64_t kAlignmentDefault = 32;
constexpr uint64_t kAlignmentMin = 8;         // the specification: a multiple of 8
constexpr uint64_t kAlignmentMax = 1 * kMiB;  // larger ones only pad
constexpr std::string_view kAlignmentKey = "general.alignment";

enum class ValueType : uint32_t {
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
constexpr uint32_t kValueTypeCount = 13;

// Bytes of a scalar in the file; 0 for strings and arrays.
uint64_t scalar_bytes(ValueType type) {
  switch (type) {
    case ValueType::kU8:
    case ValueType::kI8:
    case ValueType::kBool:
      return 1;
    case ValueType::kU16:
    case ValueType::kI16:
      return 2;
    case ValueType::kU32:
    case ValueType::kI32:
    case ValueType::kF32:
      return 4;
    case ValueType::kU64:
    case ValueType::kI64:
    case ValueType::kF64:
      return 8;
    case ValueType::kString:
    case ValueType::kArray:
      return 0;
  }
  return 0;
}

bool is_printable_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

std::string errno_text(int code) { return std::generic_category().message(code); }

std::string_view value_kind(const Value& value) {
  if (std::holds_alternative<uint64_t>(value)) return "an unsigned integer";
  if (std::holds_alternative<int64_t>(value)) return "a signed integer";
  if (std::holds_alternative<double>(value)) return "a float";
  if (std::holds_alternative<bool>(value)) return "a boolean";
  if (std::holds_alternative<std::string>(value)) return "a string";
  const auto& elements = std::get<std::shared_ptr<const Array>>(value)->elements;
  if (std::holds_alternative<std::vector<uint64_t>>(elements))
    return "an array of unsigned integers";
  if (std::holds_alternative<std::vector<int64_t>>(elements)) return "an array of signed integers";
  if (std::holds_alternative<std::vector<double>>(elements)) return "an array of floats";
  if (std::holds_alternative<std::vector<bool>>(elements)) return "an array of booleans";
  return "an array of strings";
}

// A place in the header; every read says which field it is for.
class Cursor {
 public:
  Cursor(const std::string& path, std::span<const std::byte> bytes) : path_(path), bytes_(bytes) {}

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
  uint64_t budget_ = kHeaderBudget;
};

Result<bool> checked_bool(const Cursor& cursor, uint8_t byte, uint64_t offset,
                          std::string_view field) {
  if (byte > 1) {
    return cursor.error(offset, field, fmt::format("a boolean is 0 or 1, not {}", byte));
  }
  return byte == 1;
}

template <typename Stored, typename Wide>
std::vector<Wide> take_all(Cursor& cursor, uint64_t count) {
  std::vector<Wide> out;
  out.reserve(count);
  for (uint64_t i = 0; i < count; ++i) out.push_back(static_cast<Wide>(cursor.take<Stored>()));
  return out;
}

Result<Value> read_array(Cursor& cursor, std::string_view field) {
  const uint64_t type_at = cursor.offset();
  PW_ASSIGN_OR_RETURN(const uint32_t type_number, cursor.read<uint32_t>(field));
  if (type_number >= kValueTypeCount) {
    return cursor.error(type_at, field, fmt::format("{} is no element type", type_number));
  }
  const ValueType type = static_cast<ValueType>(type_number);
  if (type == ValueType::kArray) {
    return cursor.error(type_at, field, "an array of arrays is not supported",
                        ErrorCode::kUnsupported);
  }
  const uint64_t count_at = cursor.offset();
  PW_ASSIGN_OR_RETURN(const uint64_t count, cursor.read<uint64_t>(field));
  const uint64_t element_bytes_min = type == ValueType::kString ? 8 : scalar_bytes(type);
  if (count > cursor.left() / element_bytes_min) {
    return cursor.error(
        count_at, field,
        fmt::format("an array of {} elements, but only {} bytes are left in the file", count,
                    cursor.left()));
  }
  // count is now at most the file's size, so the products below cannot overflow.
  const uint64_t element_cost =
      type == ValueType::kString ? sizeof(std::string_view) : sizeof(uint64_t);
  PW_RETURN_IF_ERROR(cursor.charge(count * element_cost + sizeof(Array), count_at, field));

  auto array = std::make_shared<Array>();
  if (type == ValueType::kString) {
    std::vector<std::string_view> strings;
    strings.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      PW_ASSIGN_OR_RETURN(const std::string_view text, cursor.read_string(field));
      strings.push_back(text);
    }
    array->elements = std::move(strings);
    return Value(std::shared_ptr<const Array>(std::move(array)));
  }
  PW_RETURN_IF_ERROR(cursor.need(count * element_bytes_min, field));
  switch (type) {
    case ValueType::kU8:
      array->elements = take_all<uint8_t, uint64_t>(cursor, count);
      break;
    case ValueType::kU16:
      array->elements = take_all<uint16_t, uint64_t>(cursor, count);
      break;
    case ValueType::kU32:
      array->elements = take_all<uint32_t, uint64_t>(cursor, count);
      break;
    case ValueType::kU64:
      array->elements = take_all<uint64_t, uint64_t>(cursor, count);
      break;
    case ValueType::kI8:
      array->elements = take_all<int8_t, int64_t>(cursor, count);
      break;
    case ValueType::kI16:
      array->elements = take_all<int16_t, int64_t>(cursor, count);
      break;
    case ValueType::kI32:
      array->elements = take_all<int32_t, int64_t>(cursor, count);
      break;
    case ValueType::kI64:
      array->elements = take_all<int64_t, int64_t>(cursor, count);
      break;
    case ValueType::kF32:
      array->elements = take_all<float, double>(cursor, count);
      break;
    case ValueType::kF64:
      array->elements = take_all<double, double>(cursor, count);
      break;
    case ValueType::kBool: {
      std::vector<bool> bools;
      bools.reserve(count);
      for (uint64_t i = 0; i < count; ++i) {
        const uint64_t at = cursor.offset();
        PW_ASSIGN_OR_RETURN(const bool value,
                            checked_bool(cursor, cursor.take<uint8_t>(), at, field));
        bools.push_back(value);
      }
      array->elements = std::move(bools);
      break;
    }
    case ValueType::kString:
    case ValueType::kArray:
      PW_CHECK(false);  // both returned above
  }
  return Value(std::shared_ptr<const Array>(std::move(array)));
}

Result<Value> read_value(Cursor& cursor, std::string_view field) {
  const uint64_t type_at = cursor.offset();
  PW_ASSIGN_OR_RETURN(const uint32_t type_number, cursor.read<uint32_t>(field));
  if (type_number >= kValueTypeCount) {
    return cursor.error(type_at, field, fmt::format("{} is no value type", type_number));
  }
  const ValueType type = static_cast<ValueType>(type_number);
  if (type == ValueType::kArray) return read_array(cursor, field);
  if (type == ValueType::kString) {
    const uint64_t at = cursor.offset();
    PW_ASSIGN_OR_RETURN(const std::string_view text, cursor.read_string(field));
    PW_RETURN_IF_ERROR(cursor.charge(text.size(), at, field));
    return Value(std::string(text));
  }
  const uint64_t at = cursor.offset();
  PW_RETURN_IF_ERROR(cursor.need(scalar_bytes(type), field));
  switch (type) {
    case ValueType::kU8:
      return Value(uint64_t{cursor.take<uint8_t>()});
    case ValueType::kU16:
      return Value(uint64_t{cursor.take<uint16_t>()});
    case ValueType::kU32:
      return Value(uint64_t{cursor.take<uint32_t>()});
    case ValueType::kU64:
      return Value(cursor.take<uint64_t>());
    case ValueType::kI8:
      return Value(int64_t{cursor.take<int8_t>()});
    case ValueType::kI16:
      return Value(int64_t{cursor.take<int16_t>()});
    case ValueType::kI32:
      return Value(int64_t{cursor.take<int32_t>()});
    case ValueType::kI64:
      return Value(cursor.take<int64_t>());
    case ValueType::kF32:
      return Value(double{cursor.take<float>()});
    case ValueType::kF64:
      return Value(cursor.take<double>());
    case ValueType::kBool: {
      PW_ASSIGN_OR_RETURN(const bool value,
                          checked_bool(cursor, cursor.take<uint8_t>(), at, field));
      return Value(value);
    }
    case ValueType::kString:
    case ValueType::kArray:
      PW_CHECK(false);  // both returned above
  }
  PW_CHECK(false);
}

// Positions of `count` entries in the order of their names, for look-ups by bisection. A hash table
// would let a crafted file choose colliding keys.
template <typename NameOf>
std::vector<uint32_t> sorted_by_name(std::size_t count, NameOf name_of) {
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const int compared = std::string_view(name_of(a)).compare(name_of(b));
    return compared != 0 ? compared < 0 : a < b;
  });
  return order;
}

// The second of two entries with one name, in sorted order; nullopt when all differ.
template <typename NameOf>
std::optional<uint32_t> find_twin(const std::vector<uint32_t>& order, NameOf name_of) {
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (name_of(order[i - 1]) == name_of(order[i])) return order[i];
  }
  return std::nullopt;
}

template <typename NameOf>
std::optional<uint32_t> find_by_name(const std::vector<uint32_t>& order, std::string_view name,
                                     NameOf name_of) {
  const auto it = std::lower_bound(order.begin(), order.end(), name,
                                   [&](uint32_t a, std::string_view b) { return name_of(a) < b; });
  if (it == order.end() || name_of(*it) != name) return std::nullopt;
  return *it;
}

struct Mapping {
  ~Mapping() {
    if (base != nullptr) munmap(base, bytes);
  }
  std::byte* base = nullptr;  // null for an empty file
  uint64_t bytes = 0;
};

Status map_file(const std::string& path, Mapping& mapping) {
  const auto io_error = [&](int code) {
    return Status(ErrorCode::kIo, fmt::format("{}: {}", path, errno_text(code)));
  };
  // Non-blocking, or opening a named pipe waits for its other end.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return io_error(errno);
  struct stat info;
  if (fstat(fd, &info) != 0) {
    const int code = errno;
    ::close(fd);
    return io_error(code);
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    return Status(ErrorCode::kIo, fmt::format("{}: not a regular file", path));
  }
  mapping.bytes = static_cast<uint64_t>(info.st_size);
  if (mapping.bytes > 0) {
    void* base = mmap(nullptr, mapping.bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (base == MAP_FAILED) {
      const int code = errno;
      ::close(fd);
      mapping.bytes = 0;
      return io_error(code);
    }
    mapping.base = static_cast<std::byte*>(base);
  }
  ::close(fd);
  return Status::ok();
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 64)) {
    if (c >= 0x20 && c < 0x7f) {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  if (text.size() > 64) out += "...";
  return out;
}

std::size_t Array::size() const {
  return std::visit([](const auto& list) { return list.size(); }, elements);
}

uint64_t Tensor::rows() const {
  uint64_t product = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) product *= shape[i];
  return product;
}

struct File::Impl {
  std::string path;
  OpenOptions options;
  Mapping mapping;
  std::vector<std::pair<std::string, Value>> metadata;
  std::vector<uint64_t> value_offsets;  // of each key's value type, parallel to metadata
  std::vector<uint32_t> keys_sorted;
  std::vector<Tensor> tensors;
  std::vector<uint32_t> tensors_sorted;
  uint32_t version = 0;
  uint64_t alignment = kAlignmentDefault;
  uint64_t data_offset = 0;

  std::string_view key_at(uint32_t i) const { return metadata[i].first; }
  std::string_view tensor_name_at(uint32_t i) const { return tensors[i].name; }

  Status parse();
  Status read_preamble(Cursor& cursor, uint64_t& tensor_count, uint64_t& key_count);
  Status read_metadata(Cursor& cursor, uint64_t count);
  Status read_alignment(const Cursor& cursor);
  Status read_tensor(Cursor& cursor, uint64_t number);
  Status place_tensors(const Cursor& cursor);

  std::optional<uint32_t> index_of(std::string_view key) const {
    return find_by_name(keys_sorted, key, [this](uint32_t i) { return key_at(i); });
  }
  const Value* find(std::string_view key) const {
    const auto index = index_of(key);
    return index ? &metadata[*index].second : nullptr;
  }
  Error bad_value(std::string_view key, std::string_view reason, ErrorCode code) const {
    const auto index = index_of(key);
    if (!index) return Error{code, fmt::format("{}: {}: {}", path, printable(key), reason)};
    return Error{code, fmt::format("{}: {} at offset {}: {}", path, printable(key),
                                   value_offsets[*index], reason)};
  }
  Error wrong_kind(std::string_view key, std::string_view wanted) const {
    return bad_value(key, fmt::format("expected {}, found {}", wanted, value_kind(*find(key))),
                     ErrorCode::kMalformed);
  }
  /// The array under `key`; null when the key is absent.
  Result<const Array*> find_array(std::string_view key, std::string_view wanted) const {
    const Value* value = find(key);
    if (value == nullptr) return static_cast<const Array*>(nullptr);
    const auto* array = std::get_if<std::shared_ptr<const Array>>(value);
    if (array == nullptr) return wrong_kind(key, wanted);
    return array->get();
  }
};

Status File::Impl::read_preamble(Cursor& cursor, uint64_t& tensor_count, uint64_t& key_count) {
  PW_ASSIGN_OR_RETURN(const uint32_t magic, cursor.read<uint32_t>("magic"));
  if (magic == 0x47475546) {  // "FUGG" as read here
    return cursor.error(0, "magic", "the file is byte-swapped (big-endian), which is not supported",
                        ErrorCode::kUnsupported);
  }
  if (magic != 0x46554747) return cursor.error(0, "magic", "this is not a GGUF file");
  PW_ASSIGN_OR_RETURN(version, cursor.read<uint32_t>("version"));
  if (version != 2 && version != 3) {
    const bool swapped = version != 0 && (version & 0xffff) == 0;
    return cursor.error(
        4, "version",
        swapped ? std::string("the file is byte-swapped (big-endian), which is not supported")
                : fmt::format("version {} is not supported, only 2 and 3 are", version),
        ErrorCode::kUnsupported);
  }
  PW_ASSIGN_OR_RETURN(tensor_count, cursor.read<uint64_t>("tensor count"));
  PW_ASSIGN_OR_RETURN(key_count, cursor.read<uint64_t>("key count"));
  if (tensor_count > cursor.left() / kTensorBytesMin) {
    return cursor.error(
        8, "tensor count",
        fmt::format("{} tensors, but only {} bytes follow", tensor_count, cursor.left()));
  }
  if (key_count > cursor.left() / kKeyBytesMin) {
    return cursor.error(16, "key count",
                        fmt::format("{} keys, but only {} bytes follow", key_count, cursor.left()));
  }
  PW_RETURN_IF_ERROR(cursor.charge(tensor_count * kTensorCost, 8, "tensor count"));
  return cursor.charge(key_count * kKeyCost, 16, "key count");
}

Status File::Impl::read_metadata(Cursor& cursor, uint64_t count) {
  metadata.reserve(count);
  value_offsets.reserve(count);
  std::vector<uint64_t> key_offsets;
  key_offsets.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t at = cursor.offset();
    const std::string field = fmt::format("key {}", i);
    PW_ASSIGN_OR_RETURN(const std::string_view key, cursor.read_string(field));
    if (key.empty()) return cursor.error(at, field, "the key is empty");
    if (key.size() > kKeyLengthMax) {
      return cursor.error(
          at, field, fmt::format("a key of {} bytes, {} are allowed", key.size(), kKeyLengthMax));
    }
    if (!is_printable_ascii(key)) {
      return cursor.error(at, field, fmt::format("'{}' is not printable ASCII", printable(key)));
    }
    PW_RETURN_IF_ERROR(cursor.charge(key.size(), at, field));
    const uint64_t value_at = cursor.offset();
    PW_ASSIGN_OR_RETURN(Value value, read_value(cursor, printable(key)));
    metadata.emplace_back(std::string(key), std::move(value));
    key_offsets.push_back(at);
    value_offsets.push_back(value_at);
  }
  const auto name_of = [this](uint32_t i) { return key_at(i); };
  keys_sorted = sorted_by_name(metadata.size(), name_of);
  if (const auto twin = find_twin(keys_sorted, name_of)) {
    return cursor.error(key_offsets[*twin], printable(key_at(*twin)), "the key is there twice");
  }
  return Status::ok();
}

Status File::Impl::read_alignment(const Cursor& cursor) {
  const auto index = index_of(kAlignmentKey);
  if (!index) return Status::ok();
  const uint64_t* value = std::get_if<uint64_t>(&metadata[*index].second);
  if (value == nullptr) return wrong_kind(kAlignmentKey, "an unsigned integer");
  if (!std::has_single_bit(*value) || *value < kAlignmentMin || *value > kAlignmentMax) {
    return cursor.error(value_offsets[*index], kAlignmentKey,
                        fmt::format("{} is not a power of two from {} to {}", *value, kAlignmentMin,
                                    kAlignmentMax));
  }
  alignment = *value;
  return Status::ok();
}

Status File::Impl::read_tensor(Cursor& cursor, uint64_t number) {
  Tensor tensor;
  tensor.info_offset = cursor.offset();
  const std::string numbered = fmt::format("tensor {}", number);
  PW_ASSIGN_OR_RETURN(const std::string_view name, cursor.read_string(numbered));
  if (name.empty()) return cursor.error(tensor.info_offset, numbered, "the name is empty");
  if (name.size() > kTensorNameLengthMax) {
    return cursor.error(
        tensor.info_offset, numbered,
        fmt::format("a name of {} bytes, {} are allowed", name.size(), kTensorNameLengthMax));
  }
  PW_RETURN_IF_ERROR(cursor.charge(name.size(), tensor.info_offset, numbered));
  tensor.name = std::string(name);
  const std::string field = fmt::format("tensor '{}'", printable(name));

  const uint64_t dimensions_at = cursor.offset();
  PW_ASSIGN_OR_RETURN(const uint32_t dimensions, cursor.read<uint32_t>(field));
  if (dimensions > kDimensionsMax) {
    return cursor.error(dimensions_at, field,
                        fmt::format("{} dimensions, {} are allowed", dimensions, kDimensionsMax));
  }
  uint64_t elements = 1;
  for (uint32_t d = 0; d < dimensions; ++d) {
    const uint64_t at = cursor.offset();
    PW_ASSIGN_OR_RETURN(const uint64_t size, cursor.read<uint64_t>(field));
    if (size == 0) return cursor.error(at, field, fmt::format("dimension {} is 0", d));
    if (__builtin_mul_overflow(elements, size, &elements) || elements > INT64_MAX) {
      return cursor.error(at, field,
                          fmt::format("dimension {} of {} makes more than 2^63 elements", d, size));
    }
    tensor.shape.push_back(size);
  }
  const uint64_t type_at = cursor.offset();
  PW_ASSIGN_OR_RETURN(const uint32_t type_number, cursor.read<uint32_t>(field));
  tensor.type = static_cast<TensorType>(type_number);
  const TensorTypeInfo* type = tensor_type_info(tensor.type);
  if (type == nullptr) {
    return cursor.error(type_at, field, fmt::format("tensor type {} is not known", type_number),
                        ErrorCode::kUnsupported);
  }
  if (tensor.columns() % type->block_elements != 0) {
    return cursor.error(type_at, field,
                        fmt::format("rows of {} values cannot be {}, whose blocks hold {}",
                                    tensor.columns(), type->name, type->block_elements));
  }
  if (__builtin_mul_overflow(elements / type->block_elements, uint64_t{type->block_bytes},
                             &tensor.bytes)) {
    return cursor.error(type_at, field, "the size in bytes exceeds 2^64");
  }
  const uint64_t offset_at = cursor.offset();
  PW_ASSIGN_OR_RETURN(tensor.file_offset, cursor.read<uint64_t>(field));
  if (tensor.file_offset % alignment != 0) {
    return cursor.error(offset_at, field,
                        fmt::format("data offset {} is not a multiple of the alignment {}",
                                    tensor.file_offset, alignment));
  }
  tensors.push_back(std::move(tensor));
  return Status::ok();
}

// Turns offsets into the data part into absolute ones; nothing may leave the file or share a byte.
Status File::Impl::place_tensors(const Cursor& cursor) {
  const auto field_of = [](const Tensor& tensor) {
    return fmt::format("tensor '{}'", printable(tensor.name));
  };
  data_offset = round_up(cursor.offset(), alignment);
  for (Tensor& tensor : tensors) {
    uint64_t end = 0;
    if (__builtin_add_overflow(tensor.file_offset, data_offset, &tensor.file_offset) ||
        __builtin_add_overflow(tensor.file_offset, tensor.bytes, &end) || end > INT64_MAX) {
      return cursor.error(tensor.info_offset, field_of(tensor),
                          "the data would end beyond 2^63 bytes");
    }
    if (!options.header_only && end > mapping.bytes) {
      return cursor.error(
          tensor.info_offset, field_of(tensor),
          fmt::format("the data ends at {}, but the file has only {} bytes", end, mapping.bytes));
    }
  }
  std::vector<uint32_t> by_offset(tensors.size());
  std::iota(by_offset.begin(), by_offset.end(), 0u);
  std::sort(by_offset.begin(), by_offset.end(), [&](uint32_t a, uint32_t b) {
    return std::pair(tensors[a].file_offset, a) < std::pair(tensors[b].file_offset, b);
  });
  for (std::size_t i = 1; i < by_offset.size(); ++i) {
    const Tensor& before = tensors[by_offset[i - 1]];
    const Tensor& tensor = tensors[by_offset[i]];
    if (before.file_offset + before.bytes > tensor.file_offset) {
      return cursor.error(
          tensor.info_offset, field_of(tensor),
          fmt::format("the data overlaps that of tensor '{}'", printable(before.name)));
    }
  }
  return Status::ok();
}

Status File::Impl::parse() {
  Cursor cursor(path, {mapping.base, mapping.bytes});
  uint64_t tensor_count = 0;
  uint64_t key_count = 0;
  PW_RETURN_IF_ERROR(read_preamble(cursor, tensor_count, key_count));
  PW_RETURN_IF_ERROR(read_metadata(cursor, key_count));
  PW_RETURN_IF_ERROR(read_alignment(cursor));
  tensors.reserve(tensor_count);
  for (uint64_t i = 0; i < tensor_count; ++i) PW_RETURN_IF_ERROR(read_tensor(cursor, i));
  const auto name_of = [this](uint32_t i) { return tensor_name_at(i); };
  tensors_sorted = sorted_by_name(tensors.size(), name_of);
  if (const auto twin = find_twin(tensors_sorted, name_of)) {
    return cursor.error(tensors[*twin].info_offset,
                        fmt::format("tensor '{}'", printable(tensor_name_at(*twin))),
                        "the name is there twice");
  }
  return place_tensors(cursor);
}

File::File() : impl_(std::make_unique<Impl>()) {}
File::~File() = default;

Result<std::unique_ptr<File>> File::open(const std::string& path, OpenOptions options) {
  std::unique_ptr<File> file(new File());
  file->impl_->path = path;
  file->impl_->options = options;
  PW_RETURN_IF_ERROR(map_file(path, file->impl_->mapping));
  try {
    PW_RETURN_IF_ERROR(file->impl_->parse());
  } catch (const std::bad_alloc&) {
    // Under a tight limit even what the budget allows may be too much.
    return Error{ErrorCode::kIo, fmt::format("{}: not enough memory for its header", path)};
  }
  return file;
}

const std::string& File::path() const { return impl_->path; }
uint32_t File::version() const { return impl_->version; }
uint64_t File::file_bytes() const { return impl_->mapping.bytes; }
std::span<const std::pair<std::string, Value>> File::metadata() const { return impl_->metadata; }
const Value* File::find(std::string_view key) const { return impl_->find(key); }

Error File::bad_value(std::string_view key, std::string_view reason, ErrorCode code) const {
  return impl_->bad_value(key, reason, code);
}

Error File::bad_tensor(const Tensor& tensor, std::string_view reason, ErrorCode code) const {
  return Error{code, fmt::format("{}: tensor '{}' at offset {}: {}", impl_->path,
                                 printable(tensor.name), tensor.info_offset, reason)};
}

Result<std::optional<uint64_t>> File::find_uint(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::optional<uint64_t>();
  if (const auto* number = std::get_if<uint64_t>(value)) return std::optional<uint64_t>(*number);
  if (const auto* number = std::get_if<int64_t>(value)) {
    if (*number < 0) {
      return bad_value(key, fmt::format("expected a number of at least 0, found {}", *number));
    }
    return std::optional<uint64_t>(static_cast<uint64_t>(*number));
  }
  return impl_->wrong_kind(key, "an integer");
}

Result<std::optional<double>> File::find_float(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::optional<double>();
  if (const auto* number = std::get_if<double>(value)) return std::optional<double>(*number);
  if (const auto* number = std::get_if<uint64_t>(value)) {
    return std::optional<double>(static_cast<double>(*number));
  }
  if (const auto* number = std::get_if<int64_t>(value)) {
    return std::optional<double>(static_cast<double>(*number));
  }
  return impl_->wrong_kind(key, "a number");
}

Result<std::optional<bool>> File::find_bool(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::optional<bool>();
  if (const auto* flag = std::get_if<bool>(value)) return std::optional<bool>(*flag);
  return impl_->wrong_kind(key, "a boolean");
}

Result<std::optional<std::string>> File::find_string(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::optional<std::string>();
  if (const auto* text = std::get_if<std::string>(value)) return std::optional<std::string>(*text);
  return impl_->wrong_kind(key, "a string");
}

Result<uint64_t> File::require_uint(std::string_view key) const {
  PW_ASSIGN_OR_RETURN(const std::optional<uint64_t> value, find_uint(key));
  if (!value) return bad_value(key, "missing");
  return *value;
}

Result<std::string> File::require_string(std::string_view key) const {
  PW_ASSIGN_OR_RETURN(std::optional<std::string> value, find_string(key));
  if (!value) return bad_value(key, "missing");
  return *std::move(value);
}

Result<std::span<const std::string_view>> File::string_array(std::string_view key) const {
  constexpr std::string_view kWanted = "an array of strings";
  PW_ASSIGN_OR_RETURN(const Array* array, impl_->find_array(key, kWanted));
  if (array == nullptr) return std::span<const std::string_view>();
  const auto* strings = std::get_if<std::vector<std::string_view>>(&array->elements);
  if (strings == nullptr) return impl_->wrong_kind(key, kWanted);
  return std::span<const std::string_view>(*strings);
}

Result<std::vector<int64_t>> File::int_array(std::string_view key) const {
  constexpr std::string_view kWanted = "an array of integers";
  PW_ASSIGN_OR_RETURN(const Array* array, impl_->find_array(key, kWanted));
  if (array == nullptr) return std::vector<int64_t>();
  if (const auto* numbers = std::get_if<std::vector<int64_t>>(&array->elements)) return *numbers;
  if (const auto* flags = std::get_if<std::vector<bool>>(&array->elements)) {
    return std::vector<int64_t>(flags->begin(), flags->end());
  }
  const auto* numbers = std::get_if<std::vector<uint64_t>>(&array->elements);
  if (numbers == nullptr) return impl_->wrong_kind(key, kWanted);
  std::vector<int64_t> out;
  out.reserve(numbers->size());
  for (const uint64_t number : *numbers) {
    if (number > INT64_MAX) return bad_value(key, fmt::format("{} is beyond 2^63 - 1", number));
    out.push_back(static_cast<int64_t>(number));
  }
  return out;
}

Result<std::vector<double>> File::float_array(std::string_view key) const {
  constexpr std::string_view kWanted = "an array of numbers";
  PW_ASSIGN_OR_RETURN(const Array* array, impl_->find_array(key, kWanted));
  if (array == nullptr) return std::vector<double>();
  if (const auto* numbers = std::get_if<std::vector<double>>(&array->elements)) return *numbers;
  if (const auto* numbers = std::get_if<std::vector<uint64_t>>(&array->elements)) {
    return std::vector<double>(numbers->begin(), numbers->end());
  }
  if (const auto* numbers = std::get_if<std::vector<int64_t>>(&array->elements)) {
    return std::vector<double>(numbers->begin(), numbers->end());
  }
  return impl_->wrong_kind(key, kWanted);
}

std::span<const Tensor> File::tensors() const { return impl_->tensors; }

const Tensor* File::find_tensor(std::string_view name) const {
  const auto index = find_by_name(impl_->tensors_sorted, name,
                                  [this](uint32_t i) { return impl_->tensor_name_at(i); });
  return index ? &impl_->tensors[*index] : nullptr;
}

std::span<const std::byte> File::data(const Tensor& tensor) const {
  PW_CHECK(!impl_->options.header_only);
  PW_CHECK(tensor.file_offset <= impl_->mapping.bytes &&
           tensor.bytes <= impl_->mapping.bytes - tensor.file_offset);
  return {impl_->mapping.base + tensor.file_offset, tensor.bytes};
}

namespace {

/// Gives back the whole pages of [begin, end), offsets in the mapping. Advice: when it is refused
/// the pages merely stay.
void drop_mapped(std::byte* base, uint64_t begin, uint64_t end) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  begin = round_up(begin, page);
  if (begin < end) (void)madvise(base + begin, end - begin, MADV_DONTNEED);
}

}  // namespace

void File::drop_pages() const {
  // To the very end; the header's strings stay in place.
  drop_mapped(impl_->mapping.base, impl_->data_offset, impl_->mapping.bytes);
}

void File::drop_pages(const Tensor& tensor) const {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t end = (tensor.file_offset + tensor.bytes) / page * page;
  drop_mapped(impl_->mapping.base, tensor.file_offset, end);
}

}  // namespace pagewise::gguf
