// SPDX-License-Identifier: Apache-2.0
// What went wrong, in one form for both APIs; the table that gives it an HTTP status and each API's
// error body.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/json.h"
#include "base/result.h"

namespace pagewise::server {

/// Whose shapes a request speaks.
enum class Surface : uint8_t { kOpenAi, kAnthropic };

/// The rows of the error table.
enum class ErrorKind : uint8_t {
  kInvalidRequest,
  kAuthentication,
  kPermission,
  kUnknownRoute,
  kUnknownModel,
  kWrongMethod,
  kRequestTooLarge,
  kHeaderTooLarge,
  kConflict,
  kRateLimited,
  kTokensLimited,
  kOverloaded,
  kNotReady,
  kInternal,
};

struct ApiError {
  ErrorKind kind = ErrorKind::kInvalidRequest;
  std::string message;
  std::string param;         // OpenAI's `param`; empty: null
  std::string code;          // OpenAI's `code`; empty: the table's own, or null
  std::string details_code;  // Anthropic's `details.error_code`; empty: no details
};

/// One row: where both APIs put an error of this kind. Source: api-reference A8, C1 and table E.
struct ErrorRow {
  ErrorKind kind;
  uint16_t anthropic_status;
  std::string_view anthropic_type;
  uint16_t openai_status;
  std::string_view openai_type;
  std::string_view openai_code;  // empty: null
  uint16_t retry_after_s;        // 0: no such header
};

const ErrorRow& error_row(ErrorKind kind);
uint16_t http_status(const ApiError& error, Surface surface);
/// What the log line says: OpenAI's code where there is one, else the type.
std::string_view error_label(const ApiError& error);

/// `{"type":"error","error":{...},"request_id"}` or `{"error":{message,type,param,code}}`.
json::object error_body(const ApiError& error, Surface surface, std::string_view request_id);

/// An engine's or parser's refusal as an API error.
ApiError to_api_error(const Error& error);

/// A value, or the error to answer with.
template <typename T>
class [[nodiscard]] ApiResult {
 public:
  ApiResult(T value) : state_(std::move(value)) {}         // NOLINT: implicit by design
  ApiResult(ApiError error) : state_(std::move(error)) {}  // NOLINT: implicit by design
  bool has_value() const { return std::holds_alternative<T>(state_); }
  explicit operator bool() const { return has_value(); }
  T& operator*() { return std::get<T>(state_); }
  const T& operator*() const { return std::get<T>(state_); }
  T* operator->() { return &std::get<T>(state_); }
  const T* operator->() const { return &std::get<T>(state_); }
  ApiError& error() { return std::get<ApiError>(state_); }
  const ApiError& error() const { return std::get<ApiError>(state_); }

 private:
  std::variant<T, ApiError> state_;
};

}  // namespace pagewise::server
