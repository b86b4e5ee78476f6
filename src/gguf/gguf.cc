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
#include "gguf/cursor.h"
#include "gguf/split_name.h"

namespace pagewise::gguf {
namespace {

static_assert(std::endian::native == std::endian::little,
              "files are little-endian and read in place");

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
constexpr std::string_view kPartNumberKey = "split.no";  // from 0
constexpr std::string_view kPartCountKey = "split.count";
constexpr std::string_view kTensorCountKey = "split.tensors.count";
constexpr uint64_t kPartsMax = 4096;  // each is a mapping, of which a process has some 65,000

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
  std::vector<std::unique_ptr<File>> others;  // parts 2 and on; their tensors stand in `tensors`
  std::vector<Part> parts;

  const Impl& part(const Tensor& tensor) const {
    return tensor.part == 0 ? *this : *others[tensor.part - 1]->impl_;
  }

  std::string_view key_at(uint32_t i) const { return metadata[i].first; }
  std::string_view tensor_name_at(uint32_t i) const { return tensors[i].name; }

  Status parse(uint64_t& budget);
  void take_tensors(Impl& other, uint32_t part_index);
  Status finish_joining();
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

Status File::Impl::parse(uint64_t& budget) {
  Cursor cursor(path, {mapping.base, mapping.bytes}, budget);
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

Result<std::unique_ptr<File>> File::open_one(const std::string& path, OpenOptions options,
                                             uint64_t& budget) {
  std::unique_ptr<File> file(new File());
  Impl& impl = *file->impl_;
  impl.path = path;
  impl.options = options;
  PW_RETURN_IF_ERROR(map_file(path, impl.mapping));
  PW_RETURN_IF_ERROR(impl.parse(budget));
  Part part{path, impl.mapping.bytes, 0};
  for (const Tensor& tensor : impl.tensors) {
    part.bytes_described = std::max(part.bytes_described, tensor.file_offset + tensor.bytes);
  }
  impl.parts.push_back(std::move(part));
  return file;
}

Result<std::unique_ptr<File>> File::open(const std::string& path, OpenOptions options) {
  uint64_t budget = kHeaderBudget;
  try {
    PW_ASSIGN_OR_RETURN(std::unique_ptr<File> file, open_one(path, options, budget));
    PW_ASSIGN_OR_RETURN(const std::optional<uint64_t> count, file->find_uint(kPartCountKey));
    if (options.one_part || count.value_or(1) <= 1) return file;
    return join(std::move(file), budget);
  } catch (const std::bad_alloc&) {
    // Under a tight limit even what the budget allows may be too much.
    return Error{ErrorCode::kIo, fmt::format("{}: not enough memory for its header", path)};
  }
}

Result<std::unique_ptr<File>> File::join(std::unique_ptr<File> given, uint64_t& budget) {
  PW_ASSIGN_OR_RETURN(const uint64_t count, given->require_uint(kPartCountKey));
  const auto name = parse_split_name(given->path());
  if (!name) {
    return given->bad_value(
        kPartCountKey,
        fmt::format(
            "one of {} parts, whose others are found by names like MODEL-00001-of-{:05}.gguf "
            "only",
            count, count));
  }
  if (name->count != count || count > kPartsMax) {
    return given->bad_value(
        kPartCountKey, count > kPartsMax
                           ? fmt::format("{} parts, {} are allowed", count, kPartsMax)
                           : fmt::format("{} parts, but the name says {}", count, name->count));
  }
  const OpenOptions options = given->impl_->options;
  std::unique_ptr<File> first;
  for (uint32_t number = 1; number <= count; ++number) {
    std::unique_ptr<File> part;
    if (number == name->number) {
      part = std::move(given);
    } else {
      const std::string path = name->path_of(number);
      auto opened = open_one(path, options, budget);
      if (!opened) {
        return Error{opened.error().code,
                     fmt::format("{} (part {} of {})", opened.error().message, number, count)};
      }
      part = *std::move(opened);
    }
    PW_ASSIGN_OR_RETURN(const uint64_t own_number, part->require_uint(kPartNumberKey));
    if (own_number != number - 1) {
      return part->bad_value(kPartNumberKey,
                             fmt::format("{}, but the name says part {}, which is number {}",
                                         own_number, number, number - 1));
    }
    PW_ASSIGN_OR_RETURN(const uint64_t own_count, part->require_uint(kPartCountKey));
    if (own_count != count) {
      return part->bad_value(kPartCountKey,
                             fmt::format("{} parts, but the name says {}", own_count, count));
    }
    if (!first) {
      first = std::move(part);
      continue;
    }
    first->impl_->take_tensors(*part->impl_, number - 1);
    first->impl_->others.push_back(std::move(part));
  }
  PW_RETURN_IF_ERROR(first->impl_->finish_joining());
  return first;
}

void File::Impl::take_tensors(Impl& other, uint32_t part_index) {
  for (Tensor& tensor : other.tensors) {
    tensor.part = part_index;
    tensors.push_back(std::move(tensor));
  }
  parts.push_back(other.parts.front());
  // What nobody looks up there again.
  other.tensors.clear();
  other.tensors_sorted.clear();
  other.metadata.clear();
  other.value_offsets.clear();
  other.keys_sorted.clear();
}

Status File::Impl::finish_joining() {
  const auto name_of = [this](uint32_t i) { return tensor_name_at(i); };
  tensors_sorted = sorted_by_name(tensors.size(), name_of);
  if (const auto twin = find_twin(tensors_sorted, name_of)) {
    const Tensor& second = tensors[*twin];
    const auto same = [&](const Tensor& tensor) { return tensor.name == second.name; };
    const Tensor& earlier = *std::find_if(tensors.begin(), tensors.end(), same);
    return Error{
        ErrorCode::kMalformed,
        fmt::format("{}: tensor '{}' at offset {}: the same name is in {}", parts[second.part].path,
                    printable(second.name), second.info_offset, parts[earlier.part].path)};
  }
  uint64_t bytes = 0;
  for (const Tensor& tensor : tensors) {
    if (__builtin_add_overflow(bytes, tensor.bytes, &bytes) || bytes > INT64_MAX) {
      return Error{ErrorCode::kMalformed,
                   fmt::format("{}: its parts would have more than 2^63 bytes", path)};
    }
  }
  const auto index = index_of(kTensorCountKey);
  if (!index) return Status::ok();
  const Value& value = metadata[*index].second;
  const auto* as_signed = std::get_if<int64_t>(&value);
  const auto* as_unsigned = std::get_if<uint64_t>(&value);
  if (as_signed == nullptr && as_unsigned == nullptr) {
    return wrong_kind(kTensorCountKey, "an integer");
  }
  const bool equal = as_signed != nullptr ? std::cmp_equal(*as_signed, tensors.size())
                                          : *as_unsigned == tensors.size();
  if (equal) return Status::ok();
  return bad_value(
      kTensorCountKey,
      fmt::format("{} tensors, but the {} parts have {}",
                  as_signed != nullptr ? std::to_string(*as_signed) : std::to_string(*as_unsigned),
                  parts.size(), tensors.size()),
      ErrorCode::kMalformed);
}

const std::string& File::path() const { return impl_->path; }
uint32_t File::version() const { return impl_->version; }
uint64_t File::file_bytes() const {
  uint64_t bytes = 0;
  for (const Part& part : impl_->parts) bytes += part.file_bytes;
  return bytes;
}
std::span<const Part> File::parts() const { return impl_->parts; }
std::span<const std::pair<std::string, Value>> File::metadata() const { return impl_->metadata; }
const Value* File::find(std::string_view key) const { return impl_->find(key); }

Error File::bad_value(std::string_view key, std::string_view reason, ErrorCode code) const {
  return impl_->bad_value(key, reason, code);
}

Error File::bad_tensor(const Tensor& tensor, std::string_view reason, ErrorCode code) const {
  return Error{code, fmt::format("{}: tensor '{}' at offset {}: {}", impl_->part(tensor).path,
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
  const Mapping& mapping = impl_->part(tensor).mapping;
  PW_CHECK(!impl_->options.header_only);
  PW_CHECK(tensor.file_offset <= mapping.bytes &&
           tensor.bytes <= mapping.bytes - tensor.file_offset);
  return {mapping.base + tensor.file_offset, tensor.bytes};
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
  for (const auto& other : impl_->others) other->drop_pages();
}

void File::drop_pages(const Tensor& tensor) const {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t end = (tensor.file_offset + tensor.bytes) / page * page;
  drop_mapped(impl_->part(tensor).mapping.base, tensor.file_offset, end);
}

}  // namespace pagewise::gguf
