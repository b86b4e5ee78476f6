// SPDX-License-Identifier: Apache-2.0
#include "gguf/cursor.h"

#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"

namespace pagewise::gguf {
namespace {

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

}  // namespace

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

}  // namespace pagewise::gguf
