// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <fmt/format.h>

#include <boost/json/basic_parser_impl.hpp>
#include <exception>
#include <set>
#include <utility>
#include <vector>

namespace pagewise {
namespace {

/// What a parser tells of a text: its keys, object by object; the rest is let past.
class KeyReader {
 public:
  static constexpr std::size_t max_object_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_array_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_key_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_string_size = static_cast<std::size_t>(-1);

  using Code = json::error_code;
  using Text = json::string_view;

  bool on_object_begin(Code&) {
    keys_.emplace_back();
    return true;
  }
  bool on_object_end(std::size_t, Code&) {
    keys_.pop_back();
    return true;
  }
  bool on_key_part(Text part, std::size_t, Code&) {
    key_.append(part.data(), part.size());
    return true;
  }
  bool on_key(Text last, std::size_t, Code&) {
    key_.append(last.data(), last.size());
    if (!keys_.back().insert(key_).second && !doubled_) doubled_ = key_;
    key_.clear();
    return true;
  }

  bool on_document_begin(Code&) { return true; }
  bool on_document_end(Code&) { return true; }
  bool on_array_begin(Code&) { return true; }
  bool on_array_end(std::size_t, Code&) { return true; }
  bool on_string_part(Text, std::size_t, Code&) { return true; }
  bool on_string(Text, std::size_t, Code&) { return true; }
  bool on_number_part(Text, Code&) { return true; }
  bool on_int64(int64_t, Text, Code&) { return true; }
  bool on_uint64(uint64_t, Text, Code&) { return true; }
  bool on_double(double, Text, Code&) { return true; }
  bool on_bool(bool, Code&) { return true; }
  bool on_null(Code&) { return true; }
  bool on_comment_part(Text, Code&) { return true; }
  bool on_comment(Text, Code&) { return true; }

  const std::optional<std::string>& doubled() const { return doubled_; }

 private:
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
  std::string key_;                          // as far as it was told
  std::optional<std::string> doubled_;
};

std::string_view without_mark(std::string_view text) {
  // A leading byte order mark is tolerated: some clients on Windows send one.
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  return text;
}

}  // namespace

Result<json::value> parse_json(std::string_view text, std::size_t max_depth) {
  text = without_mark(text);
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

std::optional<std::string> doubled_key(std::string_view text) {
  text = without_mark(text);
  json::basic_parser<KeyReader> parser{json::parse_options()};
  json::error_code error;
  parser.write_some(false, text.data(), text.size(), error);
  return parser.handler().doubled();
}

}  // namespace pagewise
