// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <fmt/format.h>

#include <exception>

namespace pagewise {

Result<json::value> parse_json(std::string_view text, std::size_t max_depth) {
  // A leading byte order mark is tolerated: some clients on Windows send one.
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  json::parse_options options;
  options.max_depth = max_depth;
  try {
    json::stream_parser parser(json::storage_ptr(), options);
    json::error_code error;
    const std::size_t consumed = parser.write_some(text.data(), text.size(), error);
    if (!error && consumed == text.size()) parser.finish(error);
    if (error || consumed != text.size()) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("not valid JSON at byte {}: {}", consumed,
                               error ? error.message() : std::string("text after the value"))};
    }
    return parser.release();
  } catch (const std::exception& e) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("not valid JSON: {}", e.what())};
  }
}

}  // namespace pagewise
