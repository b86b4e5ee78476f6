// SPDX-License-Identifier: Apache-2.0
// Errors as values: `Status` and `Result<T>`. The interface is a subset of std::expected, which
// C++20 lacks, so that replacing it stays mechanical. What a client or a file can cause travels
// here; bugs go through PW_CHECK (check.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace pagewise {

enum class ErrorCode {
  kOk = 0,
  kInvalidArgument,  // the caller's request is wrong; message names the field
  kNotFound,         // unknown model, route, file
  kUnsupported,      // understood, but not offered; message names it
  kMalformed,        // a file's bytes are wrong; message names field and offset
  kContextTooLong,   // a prompt that can never fit the served context
  kPoolExhausted,    // no free or evictable KV block now
  kOverloaded,       // queue full; retry later
  kRateLimited,      // a key's own limit; retry later
  kCancelled,        // the client left
  kIo,               // the operating system refused; message has errno's text
  kInternal,         // our bug, reported instead of crashing where that harms nobody
};

std::string_view error_code_name(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)) {}  // NOLINT: implicit by design
  Status(ErrorCode code, std::string message) : error_(Error{code, std::move(message)}) {}

  static Status ok() { return {}; }

  bool has_value() const { return !error_.has_value(); }
  explicit operator bool() const { return has_value(); }
  const Error& error() const {
    PW_CHECK(error_.has_value());
    return *error_;
  }
  ErrorCode code() const { return error_ ? error_->code : ErrorCode::kOk; }

 private:
  std::optional<Error> error_;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}      // NOLINT: implicit by design
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit by design
  Result(ErrorCode code, std::string message) : error_(Error{code, std::move(message)}) {}

  bool has_value() const { return value_.has_value(); }
  explicit operator bool() const { return has_value(); }

  T& value() & {
    PW_CHECK(value_.has_value());
    return *value_;
  }
  const T& value() const& {
    PW_CHECK(value_.has_value());
    return *value_;
  }
  T&& value() && {
    PW_CHECK(value_.has_value());
    return std::move(*value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const {
    PW_CHECK(!value_.has_value());
    return error_;
  }
  Status status() const { return value_ ? Status::ok() : Status(error_); }

 private:
  std::optional<T> value_;
  Error error_;
};

}  // namespace pagewise

#define PW_CONCAT_INNER(a, b) a##b
#define PW_CONCAT(a, b) PW_CONCAT_INNER(a, b)
/// Returns the error of `expr` (a Status or Result) from the enclosing function, if it has one.
#define PW_RETURN_IF_ERROR(expr)                           \
  do {                                                     \
    if (auto pw_status = (expr); !pw_status.has_value()) { \
      return pw_status.error();                            \
    }                                                      \
  } while (false)
/// `PW_ASSIGN_OR_RETURN(auto x, f());`: unwraps or returns the error.
#define PW_ASSIGN_OR_RETURN(lhs, expr) \
  PW_ASSIGN_OR_RETURN_IMPL(PW_CONCAT(pw_result_, __LINE__), lhs, expr)
#define PW_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                             \
  if (!tmp.has_value()) return tmp.error();      \
  lhs = std::move(tmp).value()
