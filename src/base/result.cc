// SPDX-License-Identifier: Apache-2.0
#include "base/result.h"

namespace pagewise {

std::string_view error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kOk:
      return "ok";
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kMalformed:
      return "malformed";
    case ErrorCode::kContextTooLong:
      return "context_too_long";
    case ErrorCode::kPoolExhausted:
      return "pool_exhausted";
    case ErrorCode::kOverloaded:
      return "overloaded";
    case ErrorCode::kRateLimited:
      return "rate_limited";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "unknown";
}

}  // namespace pagewise
