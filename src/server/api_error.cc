// SPDX-License-Identifier: Apache-2.0
#include "server/api_error.h"

#include <algorithm>
#include <iterator>

namespace pagewise::server {
namespace {

constexpr std::string_view kInvalid = "invalid_request_error";

constexpr ErrorRow kRows[] = {
    {ErrorKind::kInvalidRequest, 400, kInvalid, 400, kInvalid, "", 0},
    {ErrorKind::kAuthentication, 401, "authentication_error", 401, kInvalid, "", 0},
    {ErrorKind::kPermission, 403, "permission_error", 403, kInvalid, "", 0},
    {ErrorKind::kUnknownRoute, 404, "not_found_error", 404, kInvalid, "unknown_url", 0},
    {ErrorKind::kUnknownModel, 404, "not_found_error", 404, kInvalid, "model_not_found", 0},
    {ErrorKind::kWrongMethod, 405, kInvalid, 405, kInvalid, "method_not_supported", 0},
    {ErrorKind::kRequestTooLarge, 413, "request_too_large", 413, kInvalid, "", 0},
    {ErrorKind::kHeaderTooLarge, 431, kInvalid, 431, kInvalid, "", 0},
    {ErrorKind::kConflict, 409, "conflict_error", 409, kInvalid, "conflict", 0},
    {ErrorKind::kRateLimited, 429, "rate_limit_error", 429, "requests", "rate_limit_exceeded", 1},
    {ErrorKind::kTokensLimited, 429, "rate_limit_error", 429, "tokens", "rate_limit_exceeded", 1},
    {ErrorKind::kOverloaded, 529, "overloaded_error", 503, "server_error", "", 1},
    {ErrorKind::kNotReady, 503, "overloaded_error", 503, "server_error", "", 1},
    {ErrorKind::kInternal, 500, "api_error", 500, "server_error", "", 0},
};

json::value string_or_null(std::string_view text) {
  if (text.empty()) return nullptr;
  return json::string(text);
}

}  // namespace

const ErrorRow& error_row(ErrorKind kind) {
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows),
                                 [&](const ErrorRow& candidate) { return candidate.kind == kind; });
  PW_CHECK(row != std::end(kRows));
  return *row;
}

uint16_t http_status(const ApiError& error, Surface surface) {
  const ErrorRow& row = error_row(error.kind);
  return surface == Surface::kAnthropic ? row.anthropic_status : row.openai_status;
}

std::string_view error_label(const ApiError& error) {
  if (!error.code.empty()) return error.code;
  const ErrorRow& row = error_row(error.kind);
  return row.openai_code.empty() ? row.anthropic_type : row.openai_code;
}

json::object error_body(const ApiError& error, Surface surface, std::string_view request_id) {
  const ErrorRow& row = error_row(error.kind);
  if (surface == Surface::kAnthropic) {
    json::object inner{{"type", row.anthropic_type}, {"message", error.message}};
    if (!error.details_code.empty()) {
      inner["details"] = json::object{{"error_code", error.details_code}};
    }
    return {{"type", "error"}, {"error", std::move(inner)}, {"request_id", request_id}};
  }
  const std::string_view code = error.code.empty() ? row.openai_code : std::string_view(error.code);
  return {{"error", json::object{{"message", error.message},
                                 {"type", row.openai_type},
                                 {"param", string_or_null(error.param)},
                                 {"code", string_or_null(code)}}}};
}

ApiError to_api_error(const Error& error) {
  ApiError out;
  out.message = error.message;
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnsupported:
    case ErrorCode::kMalformed:
      out.kind = ErrorKind::kInvalidRequest;
      break;
    case ErrorCode::kContextTooLong:
      out.kind = ErrorKind::kInvalidRequest;
      out.code = "context_length_exceeded";
      break;
    case ErrorCode::kNotFound:
      out.kind = ErrorKind::kUnknownModel;
      break;
    case ErrorCode::kPoolExhausted:
    case ErrorCode::kOverloaded:
      out.kind = ErrorKind::kOverloaded;
      break;
    case ErrorCode::kRateLimited:
      out.kind = ErrorKind::kRateLimited;
      break;
    case ErrorCode::kCancelled:
      out.kind = ErrorKind::kNotReady;
      out.message = "the server is shutting down";
      break;
    default:
      out.kind = ErrorKind::kInternal;
      break;
  }
  return out;
}

}  // namespace pagewise::server
