// SPDX-License-Identifier: Apache-2.0
#include "server/fields.h"

#include <fmt/format.h>

#include <cmath>

namespace pagewise::server {
namespace {

// Bounds on stop strings: each new token is matched against all of them.
constexpr std::size_t kStopsMax = 64;
constexpr std::size_t kStopBytesMax = 4096;

}  // namespace

std::string Fields::key(std::string_view path, std::string_view name) const {
  return path.empty() ? std::string(name) : fmt::format("{}.{}", path, name);
}

std::string Fields::item(std::string_view path, std::size_t index) const {
  return surface_ == Surface::kAnthropic ? fmt::format("{}.{}", path, index)
                                         : fmt::format("{}[{}]", path, index);
}

void Fields::fail(std::string message, std::string_view path, std::string_view code) {
  if (error_) return;
  error_ = ApiError{ErrorKind::kInvalidRequest, std::move(message), std::string(path),
                    std::string(code), ""};
}

void Fields::missing(std::string_view path) {
  fail(surface_ == Surface::kAnthropic ? fmt::format("{}: Field required", path)
                                       : fmt::format("Missing required parameter: '{}'.", path),
       path, "missing_required_parameter");
}

void Fields::wrong_type(std::string_view path, std::string_view expected) {
  fail(surface_ == Surface::kAnthropic
           ? fmt::format("{}: must be {}", path, expected)
           : fmt::format("Invalid type for '{}': expected {}.", path, expected),
       path, "invalid_type");
}

void Fields::invalid(std::string_view path, std::string_view reason, std::string_view code) {
  fail(surface_ == Surface::kAnthropic ? fmt::format("{}: {}", path, reason)
                                       : fmt::format("Invalid '{}': {}.", path, reason),
       path, code);
}

void Fields::unsupported(std::string_view path, std::string_view what) {
  fail(fmt::format("{}: {} not supported by this server", path, what), path,
       "unsupported_parameter");
}

void Fields::not_offered(const json::object& in, std::string_view path, std::string_view name,
                         Shape shape, std::string_view what) {
  const json::value* value = find(in, name);
  if (value == nullptr) return;
  const std::string here = key(path, name);
  const bool string_fits = shape == Shape::kString || shape == Shape::kStringOrObject;
  const bool object_fits = shape == Shape::kObject || shape == Shape::kStringOrObject;
  if (const json::array* array = value->if_array(); array != nullptr && shape == Shape::kArray) {
    if (!array->empty()) unsupported(here, what);
  } else if (const json::object* object = value->if_object(); object != nullptr && object_fits) {
    if (!object->empty()) unsupported(here, what);
  } else if (const json::string* text = value->if_string(); text != nullptr && string_fits) {
    if (!text->empty()) unsupported(here, what);
  } else {
    static constexpr std::string_view kNames[] = {"an array", "an object", "a string",
                                                  "a string or an object"};
    wrong_type(here, kNames[static_cast<std::size_t>(shape)]);
  }
}

void Fields::refuse(std::string_view path, std::string message) {
  fail(std::move(message), path, "");
}

const json::value* Fields::find(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value != nullptr && value->is_null() ? nullptr : value;
}

const json::object* Fields::object(const json::object& in, std::string_view path,
                                   std::string_view name) {
  const json::value* value = find(in, name);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) wrong_type(key(path, name), "an object");
  return value->if_object();
}

const json::array* Fields::array(const json::object& in, std::string_view path,
                                 std::string_view name) {
  const json::value* value = find(in, name);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) wrong_type(key(path, name), "an array");
  return value->if_array();
}

std::optional<std::string_view> Fields::string(const json::object& in, std::string_view path,
                                               std::string_view name) {
  const json::value* value = find(in, name);
  if (value == nullptr) return std::nullopt;
  const json::string* text = value->if_string();
  if (text == nullptr) {
    wrong_type(key(path, name), "a string");
    return std::nullopt;
  }
  return std::string_view(text->data(), text->size());
}

std::optional<bool> Fields::boolean(const json::object& in, std::string_view path,
                                    std::string_view name) {
  const json::value* value = find(in, name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_bool()) {
    wrong_type(key(path, name), "a boolean");
    return std::nullopt;
  }
  return value->get_bool();
}

std::optional<int64_t> Fields::integer(const json::object& in, std::string_view path,
                                       std::string_view name, int64_t min, int64_t max) {
  const json::value* value = find(in, name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_int64() && !value->is_uint64()) {
    wrong_type(key(path, name), "an integer");
    return std::nullopt;
  }
  // Boost.JSON keeps what fits as int64; uint64 therefore means "above 2^63 - 1".
  if (value->is_uint64() || value->get_int64() > max) {
    invalid(key(path, name), fmt::format("must be at most {}", max), "integer_above_max_value");
    return std::nullopt;
  }
  if (value->get_int64() < min) {
    invalid(key(path, name), fmt::format("must be at least {}", min), "integer_below_min_value");
    return std::nullopt;
  }
  return value->get_int64();
}

std::optional<double> Fields::number(const json::object& in, std::string_view path,
                                     std::string_view name, double min, double max) {
  const json::value* value = find(in, name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    wrong_type(key(path, name), "a number");
    return std::nullopt;
  }
  const double number = value->to_number<double>();
  if (!(number <= max)) {
    invalid(key(path, name), fmt::format("must be at most {:g}", max), "decimal_above_max_value");
    return std::nullopt;
  }
  if (!(number >= min)) {
    invalid(key(path, name), fmt::format("must be at least {:g}", min), "decimal_below_min_value");
    return std::nullopt;
  }
  return number;
}

std::vector<std::string> Fields::strings(const json::object& in, std::string_view name,
                                         bool one_allowed) {
  std::vector<std::string> out;
  const json::value* value = find(in, name);
  if (value == nullptr) return out;
  const auto add = [&](const json::value& element, const std::string& path) {
    const json::string* text = element.if_string();
    if (text == nullptr) return wrong_type(path, "a string");
    if (text->empty()) return invalid(path, "must not be empty");
    if (text->size() > kStopBytesMax) {
      return invalid(path, fmt::format("must be at most {} bytes", kStopBytesMax),
                     "string_above_max_length");
    }
    out.emplace_back(text->data(), text->size());
  };
  if (one_allowed && value->is_string()) {
    add(*value, std::string(name));
  } else if (const json::array* array = value->if_array()) {
    if (array->size() > kStopsMax) {
      invalid(name, fmt::format("must have at most {} entries", kStopsMax),
              "array_above_max_length");
      return out;
    }
    for (std::size_t i = 0; i < array->size() && !failed(); ++i) add((*array)[i], item(name, i));
  } else {
    wrong_type(name, one_allowed ? "a string or an array of strings" : "an array of strings");
  }
  return out;
}

}  // namespace pagewise::server
