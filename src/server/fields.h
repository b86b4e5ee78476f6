// SPDX-License-Identifier: Apache-2.0
// Reading a request body field by field. The first complaint wins and is kept in the words and the
// path style of the API that was spoken: `messages.0.role` there, `messages[0].role` here.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/api_error.h"

namespace pagewise::server {

/// The largest integer that every JSON reader keeps exactly.
inline constexpr int64_t kIntegerMax = int64_t{1} << 53;

/// Thread: one parse on one thread.
class Fields {
 public:
  explicit Fields(Surface surface) : surface_(surface) {}

  Surface surface() const { return surface_; }
  bool failed() const { return error_.has_value(); }
  const ApiError& error() const { return *error_; }

  // Paths.
  std::string key(std::string_view path, std::string_view name) const;
  std::string item(std::string_view path, std::size_t index) const;

  // Complaints. All of them are 400s; later ones are dropped.
  void missing(std::string_view path);
  void wrong_type(std::string_view path, std::string_view expected);
  void invalid(std::string_view path, std::string_view reason,
               std::string_view code = "invalid_value");
  /// "PATH: WHAT is not supported": for what is understood and not offered.
  void unsupported(std::string_view path, std::string_view what);
  enum class Shape : uint8_t { kArray, kObject, kString, kStringOrObject };
  /// For a field whose feature is not offered. Absent, null, and an empty array, object or string
  /// of the field's own shape ask for nothing; another shape or a content is a complaint.
  void not_offered(const json::object& in, std::string_view path, std::string_view name,
                   Shape shape, std::string_view what);
  /// A rule across fields: the message as it stands, no code.
  void refuse(std::string_view path, std::string message);

  /// nullptr when absent or null.
  static const json::value* find(const json::object& object, std::string_view name);

  // Typed look-ups; absent and null give nullopt or nullptr. A wrong type or range is a complaint
  // and gives the same.
  const json::object* object(const json::object& in, std::string_view path, std::string_view name);
  const json::array* array(const json::object& in, std::string_view path, std::string_view name);
  std::optional<std::string_view> string(const json::object& in, std::string_view path,
                                         std::string_view name);
  std::optional<bool> boolean(const json::object& in, std::string_view path, std::string_view name);
  std::optional<int64_t> integer(const json::object& in, std::string_view path,
                                 std::string_view name, int64_t min, int64_t max);
  std::optional<double> number(const json::object& in, std::string_view path, std::string_view name,
                               double min, double max);
  /// Array of non-empty strings, or (when allowed) one string.
  std::vector<std::string> strings(const json::object& in, std::string_view name, bool one_allowed);

 private:
  void fail(std::string message, std::string_view path, std::string_view code);

  const Surface surface_;
  std::optional<ApiError> error_;
};

}  // namespace pagewise::server
